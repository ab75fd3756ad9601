// SPDX-License-Identifier: MIT OR Apache-2.0
//! As fail_nth_map, the operations of durable maps and of their keeper.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::Child;
use crate::support::ctl::{Ctl, OWN};
use crate::support::durable::{
    Durable, INTERVAL, NEW, NOWAIT, blocked, delete_with, durable, open, open_result, post,
    set_with, sync,
};
use crate::support::fail_nth::{FailureSweep, nothing};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    ACK, Ack, CREATE, Create, END, End, Entry, Keeper, LIMIT, Map, Message, OPEN, READY, RESTORE,
    Ready, Restore, Stored, UNLINK, UNLINKED, open_descriptor, parse,
};
use crate::support::map::{self, Maps, NAME, NOW, Op, STEP_SET, Step, get, put, set_for, state};
use crate::support::memory::PAGE;

topic!(
    "fail_nth_durable",
    fifo: [],
    pipe_only: [
        opening_a_durable_map,
        setting_a_value,
        deleting_an_entry,
        an_expiry,
        waiting_for_the_store,
        unlinking_a_map,
        becoming_the_keeper,
        reading_messages,
        restoring_a_map,
        restoring_a_map_for_an_open,
        acknowledging_and_detaching,
        answering_an_unlink,
    ],
);

const KEY: &[u8] = b"key";
/// As of fail_nth_map: lengths for which memory is allocated in different ways.
const SIZES: [(usize, usize); 3] = [(3, 10), (1000, 5000), (4096, 100_000)];

/// A keeper that answers in a thread, which no failure is injected into.
struct Serving {
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Serving {
    fn start(keeper: Keeper) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let thread = thread::spawn(move || {
            let wait = || {
                while !stop.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
            };
            keeper.serve(wait).map(drop)
        });
        Serving {
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            // The call that it did not answer has failed.
            eprintln!("the keeper failed: {error:#}");
        }
    }
}

/// A map with a keeper that answers in a thread. The keeper, which ends the map, is dropped last.
struct Served {
    end: OwnedFd,
    maps: Maps,
    _keeper: Serving,
}

fn served(map: Durable) -> Served {
    Served {
        end: map.end,
        maps: map.maps,
        _keeper: Serving::start(map.keeper),
    }
}

/// As nix returns it.
fn result((result, version): (Result<i32, i32>, u64)) -> nix::Result<u64> {
    result.map(|_| version).map_err(Errno::from_raw)
}

fn opening_a_durable_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "open",
        || Ok((Maps::new()?, Serving::start(Keeper::new()?))),
        |(maps, _)| open(maps, NEW, durable(0)),
        |(maps, _), end| {
            put(&end, KEY, b"value")?;
            expect("by name", maps.open(NEW).map(drop), Ok(()))
        },
    )?;
    all.sweep(
        "open what is there",
        || Ok(served(Durable::always()?)),
        |map| open(&map.maps, NEW, durable(0)),
        nothing,
    )?;
    all.finish()
}

fn setting_a_value(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    for (key_length, length) in SIZES {
        let (key, value) = (vec![7; key_length], vec![1; length]);
        let sizes = format!("of {key_length} and {length} bytes");
        for (what, exists) in [("create", false), ("replace", true)] {
            all.sweep(
                &format!("{what} {sizes}"),
                || {
                    let map = Durable::interval()?;
                    if exists {
                        put(&map.end, &key, b"before")?;
                    }
                    Ok(map)
                },
                |map| result(set_with(&map.end, &key, &value, NOWAIT)),
                |map, number| {
                    expect("the value", get(&map.end, &key), Ok(value.clone()))?;
                    // A change whose number could not be written was made.
                    let last = state(&map.end)?.sequence;
                    expect("its number", number, last)?;
                    let records = map.keeper.records(map.stream, last as usize)?;
                    let record = records.last().context("no record")?;
                    let is_same = (record.key == key, record.value == value);
                    expect("its record", is_same, (true, true))?;
                    map.ack(last)?;
                    expect("pending", state(&map.end)?.pending, 0)
                },
            )?;
        }
    }
    all.sweep(
        "a batch",
        Durable::interval,
        |map| {
            let mut steps = [Step::new(STEP_SET, &Op::set(KEY, b"")); 2];
            let done = map::batch(&map.end, &mut steps)?;
            match steps.iter().find(|step| step.result < 0) {
                Some(step) => Err(Errno::from_raw(-step.result)),
                None if done < steps.len() => Err(Errno::EFAULT),
                None => Ok(done),
            }
        },
        |map, done| {
            expect("steps", done, 2)?;
            let last = state(&map.end)?.sequence;
            map.keeper.records(map.stream, last as usize)?;
            map.ack(last)?;
            expect("pending", state(&map.end)?.pending, 0)
        },
    )?;
    all.finish()
}

fn deleting_an_entry(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "delete",
        || {
            let map = Durable::interval()?;
            put(&map.end, KEY, b"value")?;
            map.store(1)?;
            Ok(map)
        },
        // The entry is gone already if only the copy of its number failed.
        |map| match result(delete_with(&map.end, KEY, 0)) {
            Err(Errno::ENOENT) => Ok(2),
            other => other,
        },
        |map, number| {
            expect("its number", number, 2)?;
            map.store(1)?;
            let seen = state(&map.end)?;
            expect("entries, pending", (seen.entries, seen.pending), (0, 0))
        },
    )?;
    all.finish()
}

/// An entry that expires needs no memory then.
fn an_expiry(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "set for a time",
        Durable::interval,
        |map| set_for(&map.end, KEY, b"", Duration::from_millis(1)),
        |map, done| {
            let records = map.keeper.records(map.stream, done.version as usize + 1)?;
            let last = records.last().context("no record")?;
            expect("its number", last.sequence, done.version + 1)?;
            map.ack(last.sequence)?;
            expect("entries", state(&map.end)?.entries, 0)
        },
    )?;
    all.finish()
}

fn waiting_for_the_store(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "set and wait",
        || Ok(served(Durable::always()?)),
        |map| result(set_with(&map.end, KEY, b"value", 0)),
        |map, number| expect("stored", state(&map.end)?.stored >= number, true),
    )?;
    all.sweep(
        "sync",
        || {
            let map = Durable::interval()?;
            put(&map.end, KEY, b"")?;
            Ok(served(map))
        },
        |map| sync(&map.end, NOW),
        |_, stored| expect("stored", stored, 1),
    )?;
    all.finish()
}

fn unlinking_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    for destroys in [false, true] {
        all.sweep(
            if destroys { "destroy" } else { "unlink" },
            || Ok(served(Durable::interval()?)),
            |map| match destroys {
                true => map.maps.destroy(),
                false => map.maps.unlink(),
            },
            |map, ()| expect("names", map.maps.0.names(OWN), Ok(vec![])),
        )?;
    }
    all.finish()
}

// ---- the keeper ----

fn becoming_the_keeper(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    drop(Keeper::new()?);
    all.sweep("keep", Ctl::new, open_descriptor, nothing)?;
    all.finish()
}

fn reading_messages(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "read",
        || {
            let map = Durable::interval()?;
            put(&map.end, KEY, &[7; 5000])?;
            put(&map.end, &[7; 4096], b"")?;
            // The kernel writes to memory that is there: a page fault can fail, too.
            Ok((map, RefCell::new(vec![1; 3 * PAGE])))
        },
        // Those before a failure are read, so that the second attempt may have the last one only.
        |(map, room)| read(&map.keeper, &mut room.borrow_mut()),
        |(map, room), count| {
            let messages = parse(&room.borrow()[..count])?;
            let last = messages.last().context("no message")?;
            if last.sequence == 1 {
                map.keeper.records(map.stream, 1)?;
            }
            map.ack(2)
        },
    )?;
    all.finish()
}

fn described() -> Map {
    Map {
        capacity: 1 << 20,
        events: 16,
        ..Map::new(NAME, durable(INTERVAL).flags)
    }
}

/// A map that the keeper is restoring on its own account.
fn restoring() -> Result<(Keeper, u64)> {
    let keeper = Keeper::new()?;
    let created = keeper.create_at(0, OWN, &described(), 10, LIMIT);
    Ok((keeper, created.context("CREATE")?))
}

/// Restores one entry, which may be there because only the copy of the count failed.
fn restore_one(keeper: &Keeper, stream: u64, key: &[u8], value: &[u8]) -> nix::Result<()> {
    let entries = [Entry::new(key, value, 5, 0)];
    let mut restore = Restore::new(stream, &entries);
    match raw(keeper, RESTORE, &mut restore) {
        Err(Errno::EEXIST) => Ok(()),
        other => other,
    }
}

fn restoring_a_map(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let map = described();
    all.sweep(
        "CREATE",
        Keeper::new,
        |keeper| {
            let mut create = Create::new(0, OWN, &map, 10, LIMIT);
            raw(keeper, CREATE, &mut create).map(|()| create.stream)
        },
        |keeper, stream| {
            keeper.ready(stream).context("READY")?;
            expect("END", keeper.detach(stream), Ok(()))
        },
    )?;
    for (key_length, length) in SIZES {
        let (key, value) = (vec![7; key_length], vec![1; length]);
        all.sweep(
            &format!("RESTORE of {key_length} and {length} bytes"),
            restoring,
            |(keeper, stream)| restore_one(keeper, *stream, &key, &value),
            |(keeper, stream), ()| {
                keeper.ready(*stream).context("READY")?;
                let end = Maps::new()?.attach()?;
                expect("the value", get(&end, &key), Ok(value.clone()))
            },
        )?;
    }
    for error in [0, Errno::EIO as u32] {
        all.sweep(
            if error == 0 {
                "READY"
            } else {
                "READY with an error"
            },
            restoring,
            |(keeper, stream)| raw(keeper, READY, &mut Ready::new(*stream, error)),
            |_, ()| {
                let opened = Maps::new()?.attach().map(drop);
                expect("whether it is there", opened.is_ok(), error == 0)
            },
        )?;
    }
    all.finish()
}

/// A process that waits in an open, and the message to the keeper. The keeper is dropped last.
struct Asked {
    opener: RefCell<Option<Child<Result<(), i32>>>>,
    message: Message,
    keeper: Keeper,
}

fn asked() -> Result<Asked> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let opener = blocked(&maps.0, || open_result(&maps, NEW, durable(INTERVAL)))?;
    Ok(Asked {
        opener: RefCell::new(Some(opener)),
        message: keeper.next_of(OPEN)?,
        keeper,
    })
}

impl Asked {
    fn finish(&self) -> Result<Result<(), i32>> {
        let opener = self.opener.take();
        opener.context("it has been awaited")?.finish()
    }
}

fn restoring_a_map_for_an_open(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "CREATE for an open",
        asked,
        |asked| {
            // Of another size than the map of the open, which is then allocated again.
            let map = Map {
                events: 2048,
                capacity: 2 << 20,
                ..described()
            };
            let mut create = Create::new(asked.message.stream, OWN, &map, 10, LIMIT);
            raw(&asked.keeper, CREATE, &mut create)
        },
        |asked, ()| {
            let stream = asked.message.stream;
            let entries = [Stored::new(KEY, b"value", 5)];
            expect("RESTORE", asked.keeper.restore(stream, &entries), Ok(1))?;
            asked.keeper.ready(stream).context("READY")?;
            expect("the open", asked.finish()?, Ok(()))?;
            let end = Maps::new()?.attach()?;
            expect("events", state(&end)?.events, 2048)?;
            expect("the value", get(&end, KEY), Ok(b"value".to_vec()))
        },
    )?;
    all.sweep(
        "READY for an open",
        || {
            let asked = asked()?;
            asked.keeper.create(&asked.message, 10)?;
            Ok(asked)
        },
        |asked| {
            raw(
                &asked.keeper,
                READY,
                &mut Ready::new(asked.message.stream, 0),
            )
        },
        |asked, ()| expect("the open", asked.finish()?, Ok(())),
    )?;
    all.finish()
}

fn acknowledging_and_detaching(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    let changed = || {
        let map = Durable::interval()?;
        post(&map.end, KEY, &[7; 5000])?;
        map.keeper.records(map.stream, 1)?;
        Ok(map)
    };
    all.sweep(
        "ACK",
        changed,
        |map| raw(&map.keeper, ACK, &mut Ack::new(map.stream, 1, 0, 0)),
        |map, ()| expect("stored", state(&map.end)?.stored, 1),
    )?;
    all.sweep(
        "END",
        || {
            let map = changed()?;
            map.ack(1)?;
            Ok(map)
        },
        |map| raw(&map.keeper, END, &mut End::new(map.stream, 0, 0)),
        |map, ()| expect("names", map.maps.0.names(OWN), Ok(vec![])),
    )?;
    all.finish()
}

fn answering_an_unlink(_: &Context) -> Result<()> {
    let all = FailureSweep::new()?;
    all.sweep(
        "END of an unlink",
        || {
            let map = Durable::interval()?;
            let unlink = || map.maps.unlink().map_err(|errno| errno as i32);
            let child = blocked(&map.maps.0, unlink)?;
            map.keeper.expect_next(UNLINK, map.stream)?;
            Ok((RefCell::new(Some(child)), map))
        },
        |(_, map)| raw(&map.keeper, END, &mut End::new(map.stream, UNLINKED, 0)),
        |(child, map), ()| {
            let child = child.take().context("it has been awaited")?;
            expect("the unlink", child.finish()?, Ok(()))?;
            ensure!(
                map.maps.0.names(OWN) == Ok(vec![]),
                "the name is still there"
            );
            Ok(())
        },
    )?;
    all.finish()
}
