// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restored maps count in the limits of their owner and cgroup, and their memory is charged to the cgroup.

use std::os::fd::AsRawFd;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use sluice_testkit::time::eventually;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::credentials::become_user;
use crate::support::ctl::{Ctl, OWN};
use crate::support::durable::{NEW, STREAM_MAX, durable};
use crate::support::keeper::{Keeper, LIMIT, Map, OPEN, Stored, stored_map};
use crate::support::map::{self, DEFAULT_CAPACITY, Maps, VALUE_MAX};
use crate::support::memcg::{Accounts, SLACK, memory_current};
use crate::support::parameter::Parameter;
use crate::support::restored::{SEQUENCE, stored};

topic!(
    "map_durable_charges",
    fifo: [],
    pipe_only: [
        a_restored_map_is_charged_to_its_owner,
        a_map_of_an_open_is_charged_to_the_opener,
        a_scope_at_its_limit_is_enospc,
        memory_is_charged_to_the_cgroup_of_the_map,
    ],
);

// ---- limits ----

const USER: u32 = 1001;

fn of_user(name: &str, uid: u32) -> Map {
    Map {
        uid,
        gid: uid,
        ..stored_map(name)
    }
}

/// Whether this user may create one more channel.
fn creates_one_more(user: u32) -> Result<Result<(), i32>> {
    let child = spawn("a user", || {
        become_user(user)?;
        let created = Ctl::new()?.create("one-more").map(drop);
        Ok(created.map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// A worker frees a map without an open, and it counts until then.
fn wait_until_nothing_counts_for(user: u32) -> Result<()> {
    eventually("the user may create a channel", || {
        Ok(creates_one_more(user)?.ok())
    })
}

fn a_restored_map_is_charged_to_its_owner(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let _limit = Parameter::set("user_max_channels", 1)?;
    let full = Err(Errno::EDQUOT as i32);
    let create = |name, uid| keeper.create_at(0, OWN, &of_user(name, uid), 0, LIMIT);
    let first = create("first", USER).context("CREATE")?;
    expect("before READY", creates_one_more(USER)?, full)?;
    let second = create("second", USER);
    expect("a second map", second, Err(Errno::EDQUOT))?;
    keeper.ready(first).context("READY")?;
    expect("after READY", creates_one_more(USER)?, full)?;
    expect("another user", creates_one_more(USER + 1)?, Ok(()))?;
    // Root is exempt.
    let of_root = create("of-root", 0).context("CREATE")?;
    let another = create("another", 0).context("CREATE")?;
    expect("END", keeper.detach(first), Ok(()))?;
    wait_until_nothing_counts_for(USER)?;
    for stream in [of_root, another] {
        expect("READY", keeper.refuse(stream, Errno::EIO), Ok(()))?;
    }
    // A durable map counts the bytes of its stream, too.
    let _bytes = Parameter::set("user_max_bytes", (8 << 20) + STREAM_MAX)?;
    let large = Map {
        capacity: (8 << 20) + 1,
        ..of_user("large", USER)
    };
    let seen = keeper.create_at(0, OWN, &large, 0, LIMIT);
    expect("beyond the bytes", seen, Err(Errno::EDQUOT))?;
    let exact = create("exact", USER).context("CREATE")?;
    expect("READY", keeper.ready(exact), Ok(()))
}

fn a_map_of_an_open_is_charged_to_the_opener(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let _limit = Parameter::set("user_max_channels", 1)?;
    let _bytes = Parameter::set("user_max_bytes", DEFAULT_CAPACITY + STREAM_MAX)?;
    wait_until_nothing_counts_for(USER)?;
    let opener = spawn("a user", || {
        become_user(USER)?;
        let maps = Maps::new()?;
        let params = durable(0);
        let open = || maps.0.open(map::request(NEW, &params)).map(drop);
        let refused = open().map_err(|errno| errno as i32);
        eventually("the map of the refused open is freed", || match open() {
            Err(Errno::EDQUOT) => Ok(None),
            opened => Ok(Some(opened.context("the second open")?)),
        })?;
        let other = Ctl::new()?.create("other").map(drop);
        Ok((refused, other.map_err(|errno| errno as i32)))
    })?;
    let asked = keeper.next_of(OPEN)?;
    expect(
        "while it waits",
        creates_one_more(USER)?,
        Err(Errno::EDQUOT as i32),
    )?;
    // A stored map that exceeds the limit.
    let large = Map {
        capacity: DEFAULT_CAPACITY + 1,
        ..asked.map()?
    };
    let seen = keeper.create_at(asked.stream, OWN, &large, 0, LIMIT);
    expect("CREATE", seen, Err(Errno::EDQUOT))?;
    expect("READY", keeper.refuse(asked.stream, Errno::EDQUOT), Ok(()))?;
    keeper.answer_open(LIMIT)?;
    let edquot = Err(Errno::EDQUOT as i32);
    let expected = (edquot, edquot);
    expect("the open, another channel", opener.finish()?, expected)?;
    expect("its owner", maps.info()?.0.uid, USER)
}

fn a_scope_at_its_limit_is_enospc(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let create = |name, uid| keeper.create_at(0, OWN, &of_user(name, uid), 0, LIMIT);
    let first = create("first", 0).context("CREATE")?;
    let limit = Parameter::set("scope_max_channels", 1)?;
    for uid in [0, USER] {
        expect("a second", create("second", uid), Err(Errno::ENOSPC))?;
    }
    expect("READY", keeper.refuse(first, Errno::EIO), Ok(()))?;
    // A worker frees the one before, and it counts until then.
    let first = eventually("the first is freed", || Ok(create("first", USER).ok()))?;
    expect("READY", keeper.ready(first), Ok(()))?;
    drop(limit);
    let one = (8 << 20) + STREAM_MAX;
    let _bytes = Parameter::set("scope_max_bytes", 2 * one - 1)?;
    expect("beyond the bytes", create("second", 0), Err(Errno::ENOSPC))?;
    let _more = Parameter::set("scope_max_bytes", 2 * one)?;
    let second = create("second", 0).context("CREATE")?;
    expect("READY", keeper.ready(second), Ok(()))
}

fn memory_is_charged_to_the_cgroup_of_the_map(context: &Context) -> Result<()> {
    const VALUES: u64 = 6;
    let keeper = Keeper::new()?;
    let accounts = Accounts::new(context)?;
    let directory = accounts.creator.directory()?;
    let before = memory_current(&accounts.creator)?;
    let created = keeper.create_at(0, directory.as_raw_fd(), &stored(), SEQUENCE, LIMIT);
    let stream = created.context("CREATE")?;
    for number in 0..VALUES {
        let entry = Stored::new(&number.to_ne_bytes(), &vec![7; VALUE_MAX], 1 + number);
        expect("RESTORE", keeper.restore(stream, &[entry]), Ok(1))?;
    }
    keeper.ready(stream).context("READY")?;
    let grown = memory_current(&accounts.creator)?.saturating_sub(before);
    ensure!(
        grown + SLACK >= VALUES * VALUE_MAX as u64,
        "its cgroup grew by {grown} bytes only"
    );
    expect("END", keeper.detach(stream), Ok(()))?;
    accounts.expect_uncharged(before)?;
    accounts.expect_no_kill()
}
