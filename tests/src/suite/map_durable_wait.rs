// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting on durable maps: for what is stored, for room in the stream, for numbers and for a keeper, and how each wait
//! ends.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{OWN, Open, READ, expect_no_channel};
use crate::support::durable::{
    Changed, Durable, FILLER, INTERVAL, NEW, NOWAIT, REFUSE, SHORT_MS, STREAM_MAX, blocked,
    blocked_set, delete_with, durable, failed, interrupted, kill, limit_for, open_result, post,
    set_with, short, sync, sync_result,
};
use crate::support::event::Event;
use crate::support::keeper::{Ack, CLOSED, Keeper, LIMIT, OPEN, RESUME, SET, SYNC, UNLINK};
use crate::support::map::{
    self, KEY_MAX, Maps, NOW, Op, STEP_SET, Step, batch, events, get, put, state, watch,
};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "map_durable_wait",
    fifo: [],
    pipe_only: [
        a_sync_waits_for_its_number,
        a_sync_of_now_waits_for_all_changes,
        a_sync_of_what_is_stored_returns_at_once,
        a_sync_of_an_interval_map_asks_the_keeper,
        syncs_of_later_changes_ask_again,
        each_of_many_syncs_is_told_to_the_keeper,
        a_sync_of_a_number_to_come_is_einval,
        a_sync_of_a_volatile_map_is_eopnotsupp,
        a_sync_by_a_reader_is_permitted,
        a_sync_ends_with_the_deadline_or_a_signal,
        a_sync_of_an_unlinked_map_is_eidrm,
        many_writers_share_an_acknowledgement,
        each_writer_waits_for_its_own_number,
        a_full_stream_blocks_a_change_until_there_is_room,
        a_full_stream_refuses_a_change_that_may_not_wait,
        a_full_stream_of_a_refusing_map_is_eagain,
        a_full_stream_is_eagain_after_the_deadline,
        a_change_waits_for_memory_of_removals_that_are_not_stored,
        a_signal_ends_the_wait_for_memory,
        a_change_that_may_not_wait_is_eagain_in_a_full_map,
        a_change_waits_for_a_reserved_number,
        a_step_of_a_batch_waits_for_a_reserved_number,
        an_error_of_the_store_ends_the_wait_for_room,
        a_change_waits_for_the_next_keeper,
        without_a_keeper_changes_are_refused_after_the_deadline,
        a_signal_ends_the_wait_for_room_without_a_change,
        a_wait_for_room_is_restarted,
        a_writer_killed_while_it_waits_for_room_leaves_nothing,
        a_writer_killed_while_it_waits_for_the_store_leaves_its_change,
        an_opener_killed_while_it_waits_leaves_nothing,
        a_sync_and_an_unlink_killed_while_they_wait_leave_the_map_working,
        poll_tells_whether_a_change_would_be_admitted,
        poll_tells_whether_own_changes_are_stored,
        a_sleeping_poll_is_woken_by_room,
        a_sleeping_poll_is_woken_when_changes_are_stored,
    ],
);

const KEY: &[u8] = b"key";
const EAGAIN: Changed = (Err(Errno::EAGAIN as i32), 0);

// ---- sync ----

fn a_sync_waits_for_its_number(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    for _ in 0..3 {
        post(&map.end, KEY, b"")?;
    }
    let syncing = blocked(&map.end, || sync_result(&map.end, 2))?;
    map.keeper.records(map.stream, 3)?;
    map.ack(1)?;
    syncing.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(2)?;
    expect("the sync", syncing.finish()?, Ok(2))?;
    map.ack(3)
}

fn a_sync_of_now_waits_for_all_changes(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    for _ in 0..3 {
        put(&map.end, KEY, b"")?;
    }
    let syncing = blocked(&map.end, || sync_result(&map.end, NOW))?;
    // Later changes are not waited for.
    put(&map.end, KEY, b"")?;
    let records = map.keeper.take()?.into_iter();
    let numbers: Vec<u64> = records
        .filter(|message| message.is_record())
        .map(|record| record.sequence)
        .collect();
    expect("records", numbers, vec![1, 2, 3, 4])?;
    map.ack(2)?;
    syncing.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(3)?;
    expect("the sync", syncing.finish()?, Ok(3))?;
    map.ack(4)
}

fn a_sync_of_what_is_stored_returns_at_once(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    expect("of no change", sync(&map.end, 0), Ok(0))?;
    expect("of now", sync(&map.end, NOW), Ok(0))?;
    for _ in 0..3 {
        put(&map.end, KEY, b"")?;
    }
    map.store(3)?;
    for number in [0, 1, 2, 3, NOW] {
        expect("stored", sync(&map.end, number), Ok(3))?;
    }
    map.keeper.expect_nothing()
}

fn a_sync_of_an_interval_map_asks_the_keeper(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"1")?;
    put(&map.end, KEY, b"2")?;
    let syncing = blocked(&map.end, || sync_result(&map.end, NOW))?;
    let mut seen = Vec::new();
    let asked = loop {
        let message = map.keeper.next()?;
        match message.kind {
            SYNC => break message,
            kind => seen.push(kind),
        }
    };
    expect("its stream", asked.stream, map.stream)?;
    ensure!(asked.sequence >= 2, "{asked:?}");
    seen.extend(map.keeper.take()?.iter().map(|message| message.kind));
    expect("the records", seen, vec![SET, SET])?;
    map.ack(2)?;
    expect("the sync", syncing.finish()?, Ok(2))
}

fn syncs_of_later_changes_ask_again(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"1")?;
    map.keeper.records(map.stream, 1)?;
    let first = blocked(&map.end, || sync_result(&map.end, 1))?;
    let asked = map.keeper.expect_next(SYNC, map.stream)?;
    expect("the first", asked.sequence, 1)?;
    put(&map.end, KEY, b"2")?;
    put(&map.end, KEY, b"3")?;
    map.keeper.records(map.stream, 2)?;
    // The keeper is told of the greatest number only.
    let others = [3, 2, 1].map(|number| blocked(&map.end, || sync_result(&map.end, number)));
    let asked = map.keeper.expect_next(SYNC, map.stream)?;
    expect("the second", asked.sequence, 3)?;
    map.keeper.expect_nothing()?;
    map.ack(3)?;
    for child in [Ok(first)].into_iter().chain(others) {
        expect("a sync", child?.finish()?, Ok(3))?;
    }
    Ok(())
}

/// The keeper acknowledges only what it is asked for: a message that is lost is a sync that does not end.
fn each_of_many_syncs_is_told_to_the_keeper(_: &Context) -> Result<()> {
    const WRITERS: u32 = 3;
    const SYNCS: u32 = 100;
    let map = Durable::interval()?;
    let (end, keeper) = (&map.end, &map.keeper);
    let write = || -> Result<()> {
        for _ in 0..SYNCS {
            let number = put(end, KEY, b"value")?;
            let stored = sync(end, number).with_context(|| format!("a sync of {number}"))?;
            ensure!(stored >= number, "{stored} instead of {number}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(write)).collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            poll::wait(keeper, libc::POLLIN, 1).context("poll")?;
            let asked = keeper
                .take()?
                .into_iter()
                .rfind(|message| message.kind == SYNC);
            if let Some(asked) = asked {
                keeper.ack(map.stream, asked.sequence)?;
            }
        }
        for writer in writers {
            writer.join().expect("the thread does not panic")?;
        }
        Ok(())
    })
}

fn a_sync_of_a_number_to_come_is_einval(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"")?;
    for number in [2, 3, u64::MAX - 1] {
        expect("a sync", sync(&map.end, number), Err(Errno::EINVAL))?;
    }
    map.store(1)?;
    expect("a sync", sync(&map.end, 2), Err(Errno::EINVAL))
}

fn a_sync_of_a_volatile_map_is_eopnotsupp(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, KEY, b"")?;
    for number in [0, 1, 2, NOW] {
        expect("a sync", sync(&end, number), Err(Errno::EOPNOTSUPP))?;
    }
    Ok(())
}

fn a_sync_by_a_reader_is_permitted(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"")?;
    map.store(1)?;
    let reader = map.maps.open(READ).context("opening for reading")?;
    expect("a sync", sync(&reader, NOW), Ok(1))
}

fn a_sync_ends_with_the_deadline_or_a_signal(_: &Context) -> Result<()> {
    let map = Durable::new(short(INTERVAL))?;
    put(&map.end, KEY, b"")?;
    expect("a sync", sync(&map.end, NOW), Err(Errno::ETIMEDOUT))?;
    drop(map);
    let map = Durable::interval()?;
    put(&map.end, KEY, b"")?;
    let syncing = interrupted(&map.end, false, || sync_result(&map.end, NOW))?;
    expect("a sync", syncing.finish()?, Err(Errno::EINTR as i32))
}

fn a_sync_of_an_unlinked_map_is_eidrm(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"")?;
    let syncing = blocked(&map.end, || sync_result(&map.end, NOW))?;
    map.unlink()?;
    expect("the sync", syncing.finish()?, Err(Errno::EIDRM as i32))?;
    expect("a sync", sync(&map.end, NOW), Err(Errno::EIDRM))?;
    let (_, settled) = poll_state(&map.end)?;
    expect("that poll(2) tells so", settled, true)
}

// ---- acknowledgements ----

/// Processes that each set one key, once all of them wait.
fn writers(map: &Durable, count: u8) -> Result<Vec<Child<Changed>>> {
    (0..count)
        .map(|number| blocked_set(&map.end, &[number], b"value"))
        .collect()
}

fn many_writers_share_an_acknowledgement(_: &Context) -> Result<()> {
    const WRITERS: u8 = 6;
    let map = Durable::always()?;
    let children = writers(&map, WRITERS)?;
    map.keeper.records(map.stream, WRITERS.into())?;
    map.ack(WRITERS.into())?;
    let ends: Result<BTreeSet<Changed>> = children.into_iter().map(Child::finish).collect();
    let numbers = 1..=u64::from(WRITERS);
    let expected = numbers.map(|number| (Ok(1), number)).collect();
    expect("the sets", ends?, expected)
}

fn each_writer_waits_for_its_own_number(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let children = writers(&map, 3)?;
    map.keeper.records(map.stream, 3)?;
    // Each was asleep, with its change made, before the next one began.
    for (child, number) in children.into_iter().zip(1..) {
        child.expect_still_asleep_in(Call::Ioctl)?;
        map.ack(number)?;
        expect("the set", child.finish()?, (Ok(1), number))?;
    }
    Ok(())
}

// ---- room and numbers ----

fn a_full_stream_blocks_a_change_until_there_is_room(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let last = map.fill()?;
    let pending = state(&map.end)?.pending;
    ensure!(
        (STREAM_MAX / 2..=STREAM_MAX + (1 << 20)).contains(&pending),
        "{pending} bytes are pending"
    );
    let setter = blocked_set(&map.end, KEY, b"value")?;
    let remover = blocked(&map.end, || delete_with(&map.end, FILLER, 0))?;
    expect("a get", get(&map.end, KEY), Err(Errno::ENOENT))?;
    // That they are delivered makes no room.
    map.keeper.records(map.stream, last as usize)?;
    setter.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(last)?;
    let mut numbers = BTreeSet::new();
    for (child, result) in [(setter, Ok(1)), (remover, Ok(0))] {
        let (seen, number) = child.finish()?;
        expect("the change", seen, result)?;
        numbers.insert(number);
    }
    expect("numbers", numbers, BTreeSet::from([last + 1, last + 2]))?;
    map.store(2)
}

fn a_full_stream_refuses_a_change_that_may_not_wait(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let last = map.fill()?;
    expect("a set", set_with(&map.end, KEY, b"", NOWAIT), EAGAIN)?;
    let deleted = delete_with(&map.end, FILLER, NOWAIT);
    expect("a delete", deleted, EAGAIN)?;
    let op = Op::set(KEY, b"");
    let mut steps = [Step::new(
        STEP_SET,
        &Op {
            flags: NOWAIT,
            ..op
        },
    )];
    expect("a batch", batch(&map.end, &mut steps), Ok(1))?;
    expect("its step", steps[0].result, -libc::EAGAIN)?;
    expect("changes", state(&map.end)?.sequence, last)?;
    expect("a get", get(&map.end, KEY), Err(Errno::ENOENT))?;
    map.store(last as usize)?;
    let set = set_with(&map.end, KEY, b"", NOWAIT);
    expect("a set with room", set, (Ok(1), last + 1))
}

fn a_full_stream_of_a_refusing_map_is_eagain(_: &Context) -> Result<()> {
    for flags in [REFUSE, REFUSE | INTERVAL] {
        let map = Durable::new(durable(flags))?;
        let last = map.fill()?;
        expect("a set", set_with(&map.end, KEY, b"", 0), EAGAIN)?;
        let deleted = delete_with(&map.end, FILLER, 0);
        expect("a delete", deleted, EAGAIN)?;
        expect("changes", state(&map.end)?.sequence, last)?;
    }
    Ok(())
}

/// A set waits for the deadline, and changes nothing; `last` is the number of the last change.
fn is_refused_after_the_deadline(map: &Durable, last: u64) -> Result<()> {
    // The kernel counts ticks; a virtual machine may get several of them late, at once.
    const LATE_TICKS_MS: u128 = 100;
    let begun = Instant::now();
    expect("a set", set_with(&map.end, KEY, b"", 0), EAGAIN)?;
    let waited = begun.elapsed().as_millis();
    ensure!(
        waited + LATE_TICKS_MS >= SHORT_MS.into(),
        "after {waited} ms"
    );
    expect("changes", state(&map.end)?.sequence, last)
}

fn a_full_stream_is_eagain_after_the_deadline(_: &Context) -> Result<()> {
    let map = Durable::new(short(INTERVAL))?;
    let last = map.fill()?;
    is_refused_after_the_deadline(&map, last)
}

/// An entry takes memory of the map until its removal is stored. The events of watchers stay, because they would free
/// nothing.
/// So many sets and deletes of [`long_key`] need more memory than [`small_map`] has, unless deletes are stored.
const PAIRS: u64 = 300;

fn small_map(keeper: &Keeper, maps: &Maps) -> Result<OwnedFd> {
    let (opened, _) = keeper.serve(|| {
        let params = durable(INTERVAL);
        maps.0.open(Open {
            capacity: 1 << 20,
            ..map::request(NEW, &params)
        })
    })?;
    opened.context("creating a map")
}

fn long_key(number: u64) -> [u8; KEY_MAX] {
    let mut key = [0; KEY_MAX];
    key[..8].copy_from_slice(&number.to_ne_bytes());
    key
}

/// How many changes a writer of `PAIRS` has made when it waits for memory. That wait looks again and again, so that it is no
/// sleep to the test; it lasts for up to 5 s. Runs `look` at times.
fn changes_until_it_waits<T: DeserializeOwned>(
    child: &Child<T>,
    end: &OwnedFd,
    mut look: impl FnMut() -> Result<()>,
) -> Result<u64> {
    let last = eventually("the writer waits", || {
        look()?;
        let last = state(end)?.sequence;
        wait_grace_period();
        wait_grace_period();
        ensure!(
            !child.has_ended()?,
            "the writer has ended after {last} changes"
        );
        let waits = last >= 100 && state(end)?.sequence == last;
        Ok(waits.then_some(last))
    })?;
    ensure!(last < 2 * PAIRS, "after all {last} changes");
    Ok(last)
}

fn a_change_waits_for_memory_of_removals_that_are_not_stored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let end = small_map(&keeper, &maps)?;
    let watcher = maps.attach()?;
    watch(&watcher, NOW).context("watching")?;
    let child = spawn_keeping("a writer", &[end.as_fd()], || {
        for number in 0..PAIRS {
            let key = long_key(number);
            put(&end, &key, b"").with_context(|| format!("set {number}"))?;
            map::delete(&end, &key).with_context(|| format!("delete {number}"))?;
        }
        Ok(())
    })?;
    let mut told = 0;
    let mut count = || -> Result<()> {
        for event in events(&watcher)? {
            expect("events that are lost", event.missed, 0)?;
            told += 1;
        }
        Ok(())
    };
    let last = changes_until_it_waits(&child, &end, &mut count)?;
    // The last changes may have come after the last look.
    count()?;
    expect("events", told, last)?;
    expect("entries", state(&end)?.entries, 0)?;
    let (finished, _) = keeper.serve(|| child.finish())?;
    finished
}

fn a_signal_ends_the_wait_for_memory(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let end = small_map(&keeper, &maps)?;
    let (handled, ready) = (Event::new()?, Event::new()?);
    let keep = [&[end.as_fd()][..], &handled.fds(), &ready.fds()].concat();
    let child = spawn_keeping("a writer", &keep, || {
        signals::handle_usr1(&handled, false)?;
        ready.notify()?;
        let failed = (0..PAIRS).find_map(|number| {
            let key = long_key(number);
            set_with(&end, &key, b"", 0)
                .0
                .err()
                .or_else(|| delete_with(&end, &key, 0).0.err())
        });
        failed.context("no change failed")
    })?;
    ready.wait("the handler is installed")?;
    changes_until_it_waits(&child, &end, || Ok(()))?;
    let begin = Instant::now();
    child.signal(Signal::SIGUSR1)?;
    expect("the error", child.finish()?, Errno::EINTR as i32)?;
    ensure!(
        begin.elapsed() < Duration::from_secs(2),
        "it ended {:?} after the signal",
        begin.elapsed()
    );
    Ok(())
}

fn a_change_that_may_not_wait_is_eagain_in_a_full_map(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let end = small_map(&keeper, &maps)?;
    let mut refused = None;
    for number in 0..PAIRS {
        let key = long_key(number);
        let begin = Instant::now();
        if set_with(&end, &key, b"", NOWAIT) == EAGAIN {
            refused = Some((key, begin.elapsed()));
            break;
        }
        expect("a delete", delete_with(&end, &key, NOWAIT).0, Ok(0))?;
    }
    let (key, time) = refused.context("no set was refused")?;
    ensure!(
        time < Duration::from_secs(3),
        "it was refused after {time:?}"
    );
    let (stored, _) = keeper.serve(|| {
        eventually("the set", || {
            let (result, _) = set_with(&end, &key, b"", NOWAIT);
            Ok(result.ok())
        })
    })?;
    expect("a set after that is stored", stored?, 1)
}

fn a_change_waits_for_a_reserved_number(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(2))?;
    expect("the first", put(&map.end, KEY, b"1")?, 1)?;
    expect("the second", put(&map.end, KEY, b"2")?, 2)?;
    expect("a third", set_with(&map.end, KEY, b"", NOWAIT), EAGAIN)?;
    let writer = blocked_set(&map.end, KEY, b"3")?;
    map.store(2)?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    let value = get(&map.end, KEY).context("getting")?;
    expect_bytes("the value", &value, b"2")?;
    let more = map
        .keeper
        .send_ack(Ack::new(map.stream, 0, limit_for(3), 0));
    expect("one more number", more, Ok(()))?;
    expect("the third", writer.finish()?, (Ok(0), 3))?;
    expect("a fourth", set_with(&map.end, KEY, b"", NOWAIT), EAGAIN)
}

fn a_step_of_a_batch_waits_for_a_reserved_number(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(2))?;
    let child = blocked(&map.end, || {
        let mut steps = [Step::new(STEP_SET, &Op::set(KEY, b"")); 3];
        let done = batch(&map.end, &mut steps).map_err(|errno| errno as i32);
        (done, steps.map(|step| (step.result, step.version)))
    })?;
    map.keeper.records(map.stream, 2)?;
    let more = map.keeper.send_ack(Ack::new(map.stream, 2, 9, 0));
    expect("more numbers", more, Ok(()))?;
    let expected = (Ok(3), [(1, 1), (0, 2), (0, 3)]);
    expect("the batch", child.finish()?, expected)
}

fn an_error_of_the_store_ends_the_wait_for_room(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    put(&map.end, KEY, b"1")?;
    let writer = blocked_set(&map.end, KEY, b"2")?;
    map.keeper.fail(map.stream, Errno::ENOSPC)?;
    expect("the set", writer.finish()?, failed(Errno::ENOSPC, 0))?;
    expect("changes", state(&map.end)?.sequence, 1)
}

// ---- keepers ----

fn a_change_waits_for_the_next_keeper(_: &Context) -> Result<()> {
    let mut map = Durable::always()?;
    map.keeper.stop();
    let writer = blocked_set(&map.end, KEY, b"value")?;
    map.keeper.start()?;
    map.keeper.next_of(RESUME)?;
    map.store(1)?;
    expect("the set", writer.finish()?, (Ok(1), 1))
}

fn without_a_keeper_changes_are_refused_after_the_deadline(_: &Context) -> Result<()> {
    let mut map = Durable::new(short(INTERVAL))?;
    map.keeper.stop();
    let posted = eventually("changes are refused", || {
        match set_with(&map.end, KEY, b"", NOWAIT) {
            (Ok(_), _) => Ok(None),
            seen => Ok(Some(seen)),
        }
    })?;
    expect("a change", posted, EAGAIN)?;
    let last = state(&map.end)?.sequence;
    is_refused_after_the_deadline(&map, last)?;
    map.keeper.start()?;
    expect("with a keeper", put(&map.end, KEY, b"")?, last + 1)
}

// ---- signals ----

fn a_signal_ends_the_wait_for_room_without_a_change(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(0), limit_for(1))?;
    post(&map.end, KEY, b"value")?;
    let writer = interrupted(&map.end, false, || set_with(&map.end, KEY, b"", 0))?;
    expect("a set", writer.finish()?, failed(Errno::EINTR, 0))?;
    let remover = interrupted(&map.end, false, || delete_with(&map.end, KEY, 0))?;
    expect("a delete", remover.finish()?, failed(Errno::EINTR, 0))?;
    expect("changes", state(&map.end)?.sequence, 1)?;
    let value = get(&map.end, KEY).context("getting")?;
    expect_bytes("the value", &value, b"value")
}

fn a_wait_for_room_is_restarted(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    put(&map.end, KEY, b"value")?;
    let writer = interrupted(&map.end, true, || set_with(&map.end, KEY, b"", 0))?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    expect("changes", state(&map.end)?.sequence, 1)?;
    let more = map.keeper.send_ack(Ack::new(map.stream, 0, 9, 0));
    expect("more numbers", more, Ok(()))?;
    expect("the set", writer.finish()?, (Ok(0), 2))
}

fn a_writer_killed_while_it_waits_for_room_leaves_nothing(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(0), limit_for(1))?;
    post(&map.end, KEY, b"value")?;
    kill(blocked_set(&map.end, KEY, b"other")?)?;
    let more = map.keeper.send_ack(Ack::new(map.stream, 0, 9, 0));
    expect("more numbers", more, Ok(()))?;
    map.store(1)?;
    map.keeper.expect_nothing()?;
    let value = get(&map.end, KEY).context("getting")?;
    expect_bytes("the value", &value, b"value")?;
    expect("the next number", post(&map.end, KEY, b"")?, 2)
}

fn a_writer_killed_while_it_waits_for_the_store_leaves_its_change(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    kill(blocked_set(&map.end, KEY, b"value")?)?;
    let value = get(&map.end, KEY).context("getting")?;
    expect_bytes("the value", &value, b"value")?;
    let record = map.keeper.expect_next(SET, map.stream)?;
    expect_bytes("its record", &record.value, b"value")?;
    map.ack(1)?;
    expect("stored", sync(&map.end, NOW), Ok(1))?;
    let (done, _) = map.keeper.serve(|| set_with(&map.end, KEY, b"", 0))?;
    expect("a set", done, (Ok(0), 2))
}

fn an_opener_killed_while_it_waits_leaves_nothing(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for restores in [false, true] {
        let opener = blocked(&maps.0, || open_result(&maps, NEW, durable(0)))?;
        let asked = keeper.next_of(OPEN)?;
        if restores {
            keeper.create(&asked, 0)?;
        }
        kill(opener)?;
        keeper.expect_next(CLOSED, asked.stream)?;
        let late = keeper.ready(asked.stream);
        expect("a late answer", late, Err(Errno::ENOENT))?;
    }
    // Before the keeper has read the message.
    kill(blocked(&maps.0, || open_result(&maps, NEW, durable(0)))?)?;
    for message in keeper.take()? {
        ensure!([OPEN, CLOSED].contains(&message.kind), "{message:?}");
    }
    expect_no_channel(&maps.0)
}

fn a_sync_and_an_unlink_killed_while_they_wait_leave_the_map_working(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"value")?;
    kill(blocked(&map.end, || sync_result(&map.end, NOW))?)?;
    expect("the next number", put(&map.end, KEY, b"")?, 2)?;
    let unlink = || map.maps.unlink().map_err(|errno| errno as i32);
    kill(blocked(&map.maps.0, unlink)?)?;
    let messages = map.keeper.take()?;
    let last = messages.last().context("no message")?;
    expect("the last message", last.kind, UNLINK)?;
    map.ack(2)?;
    expect("END", map.keeper.unlinked(map.stream), Ok(()))?;
    expect("names", map.maps.0.names(OWN), Ok(vec![]))?;
    expect("a get", get(&map.end, KEY), Ok(vec![]))
}

// ---- poll ----

/// Without POLLIN, which tells about events of a watcher.
fn poll_state(end: &impl AsFd) -> Result<(bool, bool)> {
    let mask = poll::wait(end, poll::OUT | libc::POLLPRI, 0).context("poll")?;
    Ok((mask & poll::OUT != 0, mask & libc::POLLPRI != 0))
}

fn expect_out(map: &Durable, what: &str, expected: bool) -> Result<()> {
    let (seen, _) = poll_state(&map.end)?;
    expect(&format!("POLLOUT {what}"), seen, expected)?;
    let (other, _) = poll_state(&map.attach()?)?;
    expect(
        &format!("POLLOUT {what}, another endpoint"),
        other,
        expected,
    )
}

/// POLLOUT: a change would not wait.
fn poll_tells_whether_a_change_would_be_admitted(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    expect_out(&map, "of a new map", true)?;
    // Until then, a change that was refused is tried again when there is room for it.
    let large = map.fill_with(64 << 10)?;
    expect_out(&map, "without room for a long value", false)?;
    let last = map.fill()?.max(large);
    expect_out(&map, "with a full stream", false)?;
    map.store(last as usize)?;
    expect_out(&map, "with room", true)?;
    drop(map);
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    expect_out(&map, "with a number", true)?;
    put(&map.end, KEY, b"")?;
    expect_out(&map, "without a number", false)?;
    // A change fails at once.
    map.keeper.fail(map.stream, Errno::EIO)?;
    expect_out(&map, "with an error", true)?;
    map.ack(0)?;
    expect_out(&map, "after the error", false)?;
    let more = map
        .keeper
        .send_ack(Ack::new(map.stream, 0, limit_for(2), 0));
    expect("one more number", more, Ok(()))?;
    expect_out(&map, "with one more", true)
}

fn poll_tells_whether_own_changes_are_stored(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let other = map.attach()?;
    let stored = |end: &std::os::fd::OwnedFd| poll_state(end).map(|(_, stored)| stored);
    expect("without a change", stored(&map.end)?, false)?;
    put(&map.end, KEY, b"")?;
    expect("with a change", stored(&map.end)?, false)?;
    put(&other, KEY, b"")?;
    map.keeper.records(map.stream, 2)?;
    map.ack(1)?;
    expect("its own is stored", stored(&map.end)?, true)?;
    expect("that of the other is not", stored(&other)?, false)?;
    map.ack(2)?;
    expect("that of the other", stored(&other)?, true)?;
    expect("a delete", delete_with(&map.end, KEY, 0), (Ok(0), 3))?;
    expect("with a delete", stored(&map.end)?, false)?;
    map.store(1)?;
    expect("the delete is stored", stored(&map.end)?, true)
}

/// A process that sleeps in poll(2) until one of these events, which it returns.
fn poller(map: &Durable, events: i16) -> Result<Child<i16>> {
    let child = spawn_keeping("a poller", &[map.end.as_fd()], || {
        poll::wait(&map.end, events, -1).context("poll")
    })?;
    child.wait_asleep_in(Call::Poll)?;
    Ok(child)
}

fn a_sleeping_poll_is_woken_by_room(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    put(&map.end, KEY, b"")?;
    let child = poller(&map, libc::POLLOUT)?;
    map.store(1)?;
    child.expect_still_asleep_in(Call::Poll)?;
    let more = map.keeper.send_ack(Ack::new(map.stream, 0, LIMIT, 0));
    expect("more numbers", more, Ok(()))?;
    expect("the events", child.finish()?, libc::POLLOUT)?;
    map.fill()?;
    let child = poller(&map, libc::POLLOUT)?;
    map.keeper.fail(map.stream, Errno::EIO)?;
    expect("with an error", child.finish()?, libc::POLLOUT)
}

fn a_sleeping_poll_is_woken_when_changes_are_stored(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, KEY, b"")?;
    let child = poller(&map, libc::POLLPRI)?;
    map.store(1)?;
    expect("the events", child.finish()?, libc::POLLPRI)
}
