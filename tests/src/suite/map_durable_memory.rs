// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory cgroups that are charged for records of changes and for restored entries, and ENOMEM at their limits.

use std::os::fd::{AsFd, AsRawFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::spawn_keeping;
use crate::support::durable::{Durable, NOWAIT, failed, post, set_with};
use crate::support::event::Event;
use crate::support::keeper::{Keeper, LIMIT, Map, Stored, stored_map};
use crate::support::map::{Maps, NAME, get, put, state};
use crate::support::memcg::{
    Accounts, MemoryMax, SLACK, lock_memory, memory_current, set_memory_max,
};
use crate::support::time::eventually;

topic!(
    "map_durable_memory",
    fifo: [],
    pipe_only: [
        a_record_is_charged_to_the_caller_until_it_is_stored,
        a_change_at_the_memory_limit_of_the_caller_is_enomem,
        a_restoration_at_the_memory_limit_of_the_map_is_enomem,
        a_restoration_that_is_refused_at_the_memory_limit_leaves_nothing,
    ],
);

const KEY: &[u8] = b"key";
const LENGTH: usize = 60_000;
const MIB: u64 = 1 << 20;

/// The records stay charged when the caller has ended. The map and the keeper are in another cgroup.
fn a_record_is_charged_to_the_caller_until_it_is_stored(context: &Context) -> Result<()> {
    const CHANGES: u64 = 48;
    const BYTES: u64 = CHANGES * LENGTH as u64;
    let accounts = Accounts::new(context)?;
    accounts.creator.enter()?;
    let map = Durable::interval()?;
    let current = || -> Result<[u64; 2]> {
        Ok([
            memory_current(&accounts.creator)?,
            memory_current(&accounts.other)?,
        ])
    };
    let [creator, other] = current()?;
    let caller = spawn_keeping("the caller", &[map.end.as_fd()], || {
        accounts.other.enter()?;
        let value = vec![7; LENGTH];
        (0..CHANGES).try_for_each(|_| post(&map.end, KEY, &value).map(drop))
    })?;
    caller.finish()?;
    // Values that were replaced are freed after a grace period.
    let mut seen = [0; 2];
    let settled = eventually("the map has its memory, and the caller the records", || {
        seen = current()?;
        let map_only = seen[0] <= creator + BYTES / 4 + SLACK;
        let records = seen[1] + SLACK >= other + BYTES && seen[1] <= other + BYTES + MIB;
        Ok((map_only && records).then_some(()))
    });
    settled.with_context(|| format!("bytes before: {creator}, {other}; now: {seen:?}"))?;
    map.store(CHANGES as usize)?;
    eventually("the records are freed", || {
        Ok((memory_current(&accounts.other)? <= other + SLACK).then_some(()))
    })
}

/// Meanwhile other processes change the map. The caller can again when its records are stored.
fn a_change_at_the_memory_limit_of_the_caller_is_enomem(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    accounts.creator.enter()?;
    let map = Durable::interval()?;
    let (refused, stored) = (Event::new()?, Event::new()?);
    let keep = [&[map.end.as_fd()][..], &refused.fds(), &stored.fds()].concat();
    let caller = spawn_keeping("the caller", &keep, || {
        accounts.other.enter()?;
        let value = vec![7; LENGTH];
        lock_memory()?;
        let max = MemoryMax::open(&accounts.other)?;
        max.set(memory_current(&accounts.other)? + MIB)?;
        let set = || set_with(&map.end, KEY, &value, NOWAIT);
        let last = (0..64).map(|_| set()).find(|set| set.0.is_err());
        expect("a change", last, Some(failed(Errno::ENOMEM, 0)))?;
        let before = state(&map.end)?.sequence;
        expect("another one", set(), failed(Errno::ENOMEM, 0))?;
        expect("the last change", state(&map.end)?.sequence, before)?;
        refused.notify()?;
        stored.wait("the changes are stored")?;
        eventually("there is memory again", || Ok(set().0.ok()))?;
        Ok(before)
    })?;
    refused.wait("the caller is at its limit")?;
    post(&map.end, b"of another", &[8; LENGTH]).context("a change of another process")?;
    let changes = state(&map.end)?.sequence;
    map.store(changes as usize)?;
    stored.notify()?;
    expect("changes before", caller.finish()? + 1, changes)?;
    map.store(1)?;
    expect("the value", get(&map.end, KEY), Ok(vec![7; LENGTH]))?;
    accounts.expect_no_kill()
}

const SEQUENCE: u64 = 1000;

fn entry(number: u64) -> Stored {
    Stored::new(
        &number.to_ne_bytes(),
        &vec![number as u8; LENGTH],
        1 + number,
    )
}

/// A map in the cgroup of the creator, and a number of entries that exceed its limit: the stream and that number.
fn restore_to_the_limit(accounts: &Accounts, keeper: &Keeper) -> Result<(u64, u64)> {
    let directory = accounts.creator.directory()?;
    let map = Map {
        capacity: 32 * MIB,
        ..stored_map(NAME)
    };
    set_memory_max(
        &accounts.creator,
        memory_current(&accounts.creator)? + 4 * MIB,
    )?;
    let created = keeper.create_at(0, directory.as_raw_fd(), &map, SEQUENCE, LIMIT);
    let stream = created.context("CREATE")?;
    let restore = |number| keeper.restore(stream, &[entry(number)]);
    let (count, error) = (0..200)
        .find_map(|number| Some((number, restore(number).err()?)))
        .context("nothing was refused")?;
    expect("RESTORE", error, Errno::ENOMEM)?;
    ensure!(count > 20, "{count} entries only");
    expect("RESTORE again", restore(count), Err(Errno::ENOMEM))?;
    Ok((stream, count))
}

fn a_restoration_at_the_memory_limit_of_the_map_is_enomem(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let accounts = Accounts::new(context)?;
    let (stream, count) = restore_to_the_limit(&accounts, &keeper)?;
    set_memory_max(&accounts.creator, 64 * MIB)?;
    let rest = [entry(count), entry(count + 1)];
    expect("the rest", keeper.restore(stream, &rest), Ok(2))?;
    expect("READY", keeper.ready(stream), Ok(()))?;
    let user = accounts.creator.spawn("a user", || {
        let end = Maps::new()?.attach()?;
        expect("entries", state(&end)?.entries, count + 2)?;
        for number in 0..count + 2 {
            let value = get(&end, &number.to_ne_bytes());
            expect("a value", value, Ok(vec![number as u8; LENGTH]))?;
        }
        put(&end, KEY, b"a change").map(drop)
    })?;
    user.finish()?;
    expect(
        "the change",
        keeper.records(stream, 1)?[0].key.as_slice(),
        KEY,
    )?;
    accounts.expect_no_kill()
}

fn a_restoration_that_is_refused_at_the_memory_limit_leaves_nothing(
    context: &Context,
) -> Result<()> {
    let keeper = Keeper::new()?;
    let accounts = Accounts::new(context)?;
    let before = memory_current(&accounts.creator)?;
    let (stream, _) = restore_to_the_limit(&accounts, &keeper)?;
    expect("READY", keeper.refuse(stream, Errno::ENOMEM), Ok(()))?;
    accounts.expect_uncharged(before)?;
    let (stream, _) = restore_to_the_limit(&accounts, &keeper).context("again")?;
    expect("READY", keeper.ready(stream), Ok(()))?;
    accounts.expect_no_kill()
}
