// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes of durable maps: which wait for the store, and which the store refuses.

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{BOTH, CREATE, Open};
use crate::support::durable::{
    Changed, DURABLE, Durable, INTERVAL, NOWAIT, blocked, blocked_set, delete_with, durable,
    failed, interrupted, limit_for, post, set_with, short,
};
use crate::support::ioctl::raw;
use crate::support::keeper::{self, EXPIRE, SET};
use crate::support::map::{
    self, CREATED, DEFAULT_EVENTS, EXPIRED, Info, KIND_MAP, Maps, NAME, Op, STEP_DELETE, STEP_GET,
    STEP_SET, Step, batch, delete, events, get, put, set_for, set_if, state,
};
use crate::support::netlink::{Attrs, Socket, attr, command};
use crate::support::proc::Call;

topic!(
    "map_durable_changes",
    fifo: [],
    pipe_only: [
        its_state_tells_what_is_stored,
        a_set_waits_for_the_acknowledgement,
        a_delete_waits_for_the_acknowledgement,
        changes_of_an_interval_map_do_not_wait,
        a_change_that_may_not_wait_does_not,
        a_failed_condition_is_not_a_change,
        a_deadline_leaves_the_change_with_its_number,
        a_signal_leaves_the_change_with_its_number,
        a_delete_returns_its_own_number,
        others_see_a_change_before_it_is_stored,
        a_batch_waits_once,
        a_batch_of_steps_that_do_not_wait_does_not_wait,
        a_batch_that_times_out_has_its_results,
        an_expired_entry_is_a_record,
        a_change_over_netlink_does_not_wait,
        a_change_over_netlink_is_refused_without_waiting,
        a_change_over_netlink_of_an_unlinked_map_is_eidrm,
        an_error_of_the_store_refuses_changes,
        an_error_of_the_store_ends_with_the_next_acknowledgement,
    ],
);

const LONG: Duration = Duration::from_secs(3600);

// ---- changes ----

fn its_state_tells_what_is_stored(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let new = state(&map.end)?;
    let expected = Info {
        flags: DURABLE | INTERVAL,
        capacity: new.capacity,
        bytes: new.bytes,
        events: DEFAULT_EVENTS,
        deadline_ms: durable(0).deadline_ms,
        interval_ms: 1000,
        ..Info::default()
    };
    expect("of a new map", new, expected)?;
    for number in 1..=3_u64 {
        post(&map.end, &number.to_ne_bytes(), &[7; 1000])?;
    }
    let changed = state(&map.end)?;
    let numbers = (changed.sequence, changed.stored);
    expect("changes, stored", numbers, (3, 0))?;
    ensure!(changed.pending >= 3 * 1008, "{} bytes", changed.pending);
    map.keeper.records(map.stream, 3)?;
    let delivered = state(&map.end)?.pending;
    expect("bytes that were delivered", delivered, changed.pending)?;
    map.ack(2)?;
    let partly = state(&map.end)?;
    expect("stored", partly.stored, 2)?;
    ensure!(
        (1008..changed.pending).contains(&partly.pending),
        "{} bytes",
        partly.pending
    );
    map.ack(3)?;
    let stored = state(&map.end)?;
    expect("all", (stored.stored, stored.pending), (3, 0))?;
    let (_, by_name) = map.maps.info().context("asking by name")?;
    expect("by name", by_name, stored)
}

fn a_set_waits_for_the_acknowledgement(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    for (number, created) in [(1, 1), (2, 0)] {
        let writer = blocked_set(&map.end, b"key", b"value")?;
        let record = map.keeper.expect_next(SET, map.stream)?;
        expect("its number", record.sequence, number)?;
        writer.expect_still_asleep_in(Call::Ioctl)?;
        map.ack(number)?;
        expect("the set", writer.finish()?, (Ok(created), number))?;
        expect("stored", state(&map.end)?.stored, number)?;
    }
    map.keeper.expect_nothing()
}

fn a_delete_waits_for_the_acknowledgement(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    post(&map.end, b"key", b"value")?;
    map.store(1)?;
    let writer = blocked(&map.end, || delete_with(&map.end, b"key", 0))?;
    expect("a get", get(&map.end, b"key"), Err(Errno::ENOENT))?;
    let record = map.keeper.expect_next(keeper::DELETE, map.stream)?;
    expect("its number", record.sequence, 2)?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(2)?;
    expect("the delete", writer.finish()?, (Ok(0), 2))
}

fn changes_of_an_interval_map_do_not_wait(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let set = set_with(&map.end, b"key", b"value", 0);
    expect("a set", set, (Ok(1), 1))?;
    expect("a delete", delete_with(&map.end, b"key", 0), (Ok(0), 2))?;
    let mut steps = [Step::new(STEP_SET, &Op::set(b"key", b""))];
    expect("a batch", batch(&map.end, &mut steps), Ok(1))?;
    let records = map.keeper.records(map.stream, 3)?;
    let numbers: Vec<u64> = records.iter().map(|record| record.sequence).collect();
    expect("their numbers", numbers, vec![1, 2, 3])
}

fn a_change_that_may_not_wait_does_not(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let set = set_with(&map.end, b"key", b"value", NOWAIT);
    expect("a set", set, (Ok(1), 1))?;
    let set = set_with(&map.end, b"key", b"value", NOWAIT);
    expect("a set", set, (Ok(0), 2))?;
    let deleted = delete_with(&map.end, b"key", NOWAIT);
    expect("a delete", deleted, (Ok(0), 3))?;
    map.store(3)
}

fn a_failed_condition_is_not_a_change(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    post(&map.end, b"key", b"value")?;
    let seen = set_if(&map.end, b"key", b"", 7).map(drop);
    expect("another version", seen, Err(Errno::ESTALE))?;
    let seen = set_if(&map.end, b"key", b"", 0).map(drop);
    expect("no entry", seen, Err(Errno::EEXIST))?;
    let seen = delete(&map.end, b"none");
    expect("a delete of none", seen, Err(Errno::ENOENT))?;
    let done = set_if(&map.end, b"key", b"", 1).context("the version")?;
    expect("its number", done.version, 2)?;
    let records = map.keeper.records(map.stream, 2)?;
    expect("the second", records[1].sequence, 2)?;
    map.keeper.expect_nothing()
}

fn a_deadline_leaves_the_change_with_its_number(_: &Context) -> Result<()> {
    let map = Durable::new(short(0))?;
    let set = set_with(&map.end, b"key", b"value", 0);
    expect("a set", set, failed(Errno::ETIMEDOUT, 1))?;
    let value = get(&map.end, b"key").context("getting")?;
    expect_bytes("the value", &value, b"value")?;
    let deleted = delete_with(&map.end, b"key", 0);
    expect("a delete", deleted, failed(Errno::ETIMEDOUT, 2))?;
    expect("a get", get(&map.end, b"key"), Err(Errno::ENOENT))?;
    expect("stored", state(&map.end)?.stored, 0)?;
    map.store(2)
}

fn a_signal_leaves_the_change_with_its_number(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    for (number, restart) in [(1, false), (2, true)] {
        let writer = interrupted(&map.end, restart, || set_with(&map.end, b"key", b"", 0))?;
        let seen = writer.finish()?;
        expect("a set", seen, failed(Errno::EINTR, number))?;
    }
    let remover = interrupted(&map.end, true, || delete_with(&map.end, b"key", 0))?;
    expect("a delete", remover.finish()?, failed(Errno::EINTR, 3))?;
    expect("changes", state(&map.end)?.sequence, 3)?;
    map.store(3)
}

fn a_delete_returns_its_own_number(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    let volatile = Maps::new()?.0.open(Open {
        kind: KIND_MAP,
        ..Open::new("volatile", BOTH | CREATE)
    });
    for end in [&map.end, &volatile?] {
        put(end, b"a", b"")?;
        put(end, b"b", b"")?;
        expect("a delete", delete(end, b"a"), Ok(3))?;
        let seen = map::delete_if(end, b"b", 2);
        expect("with the version", seen, Ok(4))?;
    }
    map.store(4)
}

fn others_see_a_change_before_it_is_stored(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let other = map.watcher()?;
    let writer = blocked_set(&map.end, b"key", b"value")?;
    let value = get(&other, b"key").context("getting")?;
    expect_bytes("the value", &value, b"value")?;
    let seen = events(&other)?;
    let first = seen.first().context("there is no event")?;
    expect("the change", (first.change, first.sequence), (CREATED, 1))?;
    map.store(1)?;
    expect("the set", writer.finish()?, (Ok(1), 1))
}

// ---- batches ----

/// Executes a batch of two sets, a get and a delete; results and versions.
fn run_batch(end: &OwnedFd, flags: u32) -> (Result<usize, i32>, Vec<(i32, u64)>) {
    let mut room = [0; 8];
    let with_flags = |op| Op { flags, ..op };
    let mut steps = [
        Step::new(STEP_SET, &with_flags(Op::set(b"a", b"1"))),
        Step::new(STEP_SET, &with_flags(Op::set(b"b", b"2"))),
        Step::new(STEP_GET, &Op::get(b"a", &mut room)),
        Step::new(STEP_DELETE, &with_flags(Op::delete(b"b"))),
    ];
    let mut request = map::Batch::new(steps.as_mut_ptr(), steps.len());
    request.count = steps.len() as u32;
    let done = raw(end, map::BATCH, &mut request);
    let count = done.map(|()| request.count as usize);
    let results = steps.map(|step| (step.result, step.version)).to_vec();
    (count.map_err(|errno| errno as i32), results)
}

/// Of `run_batch` in a new map.
const BATCH_RESULTS: [(i32, u64); 4] = [(1, 1), (1, 2), (0, 1), (0, 3)];

fn a_batch_waits_once(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let child = blocked(&map.end, || run_batch(&map.end, 0))?;
    let records = map.keeper.records(map.stream, 3)?;
    let kinds: Vec<u32> = records.iter().map(|record| record.kind).collect();
    expect("all records", kinds, vec![SET, SET, keeper::DELETE])?;
    map.ack(2)?;
    child.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(3)?;
    expect(
        "the batch",
        child.finish()?,
        (Ok(4), BATCH_RESULTS.to_vec()),
    )
}

fn a_batch_of_steps_that_do_not_wait_does_not_wait(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let seen = run_batch(&map.end, NOWAIT);
    expect("the batch", seen, (Ok(4), BATCH_RESULTS.to_vec()))?;
    let mut steps = [Step::new(STEP_GET, &Op::get(b"none", &mut []))];
    expect("a get", batch(&map.end, &mut steps), Ok(1))?;
    map.store(3)
}

fn a_batch_that_times_out_has_its_results(_: &Context) -> Result<()> {
    let map = Durable::new(short(0))?;
    let mut steps = [Step::new(STEP_SET, &Op::set(b"key", b"1")); 3];
    let mut request = map::Batch::new(steps.as_mut_ptr(), steps.len());
    let done = raw(&map.end, map::BATCH, &mut request);
    expect("the batch", done, Err(Errno::ETIMEDOUT))?;
    expect("steps", request.count, 3)?;
    let results = steps.map(|step| (step.result, step.version));
    expect("results", results, [(1, 1), (0, 2), (0, 3)])?;
    map.store(3)
}

// ---- times to live ----

/// The time now, as an expiry in a message.
fn now_ns() -> Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(now.as_nanos() as u64)
}

fn an_expired_entry_is_a_record(_: &Context) -> Result<()> {
    const SPAN: Duration = Duration::from_millis(50);
    let map = Durable::interval()?;
    let watcher = map.watcher()?;
    let before = now_ns()?;
    set_for(&map.end, b"short", b"1", SPAN).context("setting")?;
    let after = now_ns()?;
    set_for(&map.end, b"long", b"1", LONG).context("setting")?;
    put(&map.end, b"none", b"1")?;
    let records = map.keeper.records(map.stream, 3)?;
    let span = SPAN.as_nanos() as u64;
    let expires = records[0].expires_ns;
    ensure!(
        (before + span..=after + span).contains(&expires),
        "it expires {} ns after it was set",
        expires.wrapping_sub(before)
    );
    ensure!(records[1].expires_ns > expires, "{:?}", records[1]);
    expect("without a time", records[2].expires_ns, 0)?;
    map.ack(3)?;
    let expiry = map.keeper.expect_next(EXPIRE, map.stream)?;
    expect("its number", expiry.sequence, 4)?;
    expect_bytes("its key", &expiry.key, b"short")?;
    expect("its value", expiry.value.len(), 0)?;
    map.ack(4)?;
    let seen = state(&map.end)?;
    let counts = (seen.expired, seen.sequence, seen.stored);
    expect("expired, changes, stored", counts, (1, 4, 4))?;
    let last = events(&watcher)?.pop().context("there is no event")?;
    expect("the event", (last.change, last.sequence), (EXPIRED, 4))?;
    expect("the next", put(&map.end, b"none", b"2")?, 5)
}

// ---- netlink ----

fn a_change_over_netlink_does_not_wait(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let socket = Socket::new()?;
    let key = Attrs::new().name(NAME).key(b"key");
    let reply = socket.must(command::SET, &key.clone().value(b"value"))?;
    expect("the number", reply.u64(attr::VERSION)?, 1)?;
    let reply = socket.must(command::INFO, &Attrs::new().name(NAME))?;
    expect("stored", reply.u64(attr::STORED)?, 0)?;
    ensure!(reply.u64(attr::PENDING)? > 0, "nothing is pending");
    socket.must(command::DELETE, &key)?;
    let step = Attrs::new().u32(attr::COMMAND, STEP_SET).key(b"key");
    let batch = Attrs::new().name(NAME).step(&step.value(b""));
    socket.must(command::BATCH, &batch)?;
    let records = map.keeper.records(map.stream, 3)?;
    expect_bytes("the value", &records[0].value, b"value")?;
    map.ack(3)?;
    let reply = socket.must(command::INFO, &Attrs::new().name(NAME))?;
    expect("stored", reply.u64(attr::STORED)?, 3)?;
    expect("pending", reply.u64(attr::PENDING)?, 0)
}

fn a_change_over_netlink_is_refused_without_waiting(_: &Context) -> Result<()> {
    let map = Durable::with_limit(durable(INTERVAL), limit_for(1))?;
    post(&map.end, b"key", b"value")?;
    let socket = Socket::new()?;
    let key = Attrs::new().name(NAME).key(b"key");
    let set = key.clone().value(b"");
    for (command, attrs) in [(command::SET, &set), (command::DELETE, &key)] {
        let seen = socket.outcome(command, attrs)?;
        expect("a change", seen, Err(Errno::EAGAIN))?;
    }
    let step = Attrs::new().u32(attr::COMMAND, STEP_SET).key(b"key");
    let batch = Attrs::new().name(NAME).step(&step.value(b""));
    let reply = socket.must(command::BATCH, &batch)?;
    let results: Vec<_> = reply
        .steps()?
        .iter()
        .map(|step| step.result())
        .collect::<Result<_>>()?;
    expect("a step", results, vec![Err(Errno::EAGAIN)])?;
    let value = get(&map.end, b"key").context("getting")?;
    expect_bytes("the value", &value, b"value")
}

fn a_change_over_netlink_of_an_unlinked_map_is_eidrm(_: &Context) -> Result<()> {
    let map = Durable::interval()?;
    put(&map.end, b"key", b"value")?;
    let socket = Socket::new()?;
    let key = Attrs::new().handle(socket.open(NAME, BOTH)?).key(b"key");
    map.unlink()?;
    for (command, attrs) in [
        (command::SET, &key.clone().value(b"")),
        (command::DELETE, &key),
    ] {
        let refusal = socket.call(command, attrs)?;
        let refusal = refusal.err().context("a change was made")?;
        expect("a change", refusal.errno, Errno::EIDRM)?;
        let text = refusal.text.unwrap_or_default();
        ensure!(text.contains("unlinked"), "the reason is '{text}'");
    }
    socket.must(command::GET, &key).map(drop)
}

// ---- errors of the store ----

/// Each change of an entry that exists.
fn all_changes(end: &OwnedFd, flags: u32) -> Result<Vec<Changed>> {
    let with_flags = |op| Op { flags, ..op };
    let mut steps = [Step::new(STEP_SET, &with_flags(Op::set(b"key", b"")))];
    let done = batch(end, &mut steps).context("a batch")?;
    let result = match (done, steps[0].result) {
        (1, errno @ ..0) => Err(-errno),
        (1, created) => Ok(created),
        (count, _) => bail!("{count} steps"),
    };
    Ok(vec![
        set_with(end, b"key", b"", flags),
        set_with(end, b"new", b"", flags),
        delete_with(end, b"key", flags),
        (result, 0),
    ])
}

fn an_error_of_the_store_refuses_changes(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    post(&map.end, b"key", b"value")?;
    map.store(1)?;
    let before = state(&map.end)?;
    for errno in [Errno::ENOSPC, Errno::EIO, Errno::EROFS] {
        map.keeper.fail(map.stream, errno)?;
        let reported = state(&map.end)?;
        expect("the error", reported.error, errno as u32)?;
        for flags in [0, NOWAIT] {
            for seen in all_changes(&map.end, flags)? {
                expect("a change", seen, failed(errno, 0))?;
            }
        }
        let socket = Socket::new()?;
        let key = Attrs::new().name(NAME).key(b"key");
        let seen = socket.outcome(command::DELETE, &key)?;
        expect("over netlink", seen, Err(errno))?;
        let after = Info {
            error: 0,
            ..state(&map.end)?
        };
        expect("the state", after, before)?;
        let value = get(&map.end, b"key").context("getting")?;
        expect_bytes("the value", &value, b"value")?;
    }
    map.keeper.expect_nothing()
}

fn an_error_of_the_store_ends_with_the_next_acknowledgement(_: &Context) -> Result<()> {
    let map = Durable::always()?;
    let writer = blocked_set(&map.end, b"key", b"value")?;
    map.keeper.records(map.stream, 1)?;
    map.keeper.fail(map.stream, Errno::ENOSPC)?;
    let refused = set_with(&map.end, b"key", b"", 0);
    expect("a set", refused, failed(Errno::ENOSPC, 0))?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    map.ack(1)?;
    expect("the set before", writer.finish()?, (Ok(1), 1))?;
    expect("the error", state(&map.end)?.error, 0)?;
    let (done, _) = map.keeper.serve(|| set_with(&map.end, b"key", b"", 0))?;
    expect("a set", done, (Ok(0), 2))
}
