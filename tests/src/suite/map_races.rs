// SPDX-License-Identifier: MIT OR Apache-2.0
//! Concurrent operations on a map.

use std::fs;
use std::hint;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use sluice::Map;
use sluice::map::MappedMap;
use sluice_abi::map::MAPPED;

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes, note, skip};
use crate::support::linearizable::{Did, Operation, is_linearizable};
use crate::support::map::{Maps, Params, delete, get, get_entry, put, set, set_for, set_if, state};
use crate::support::random::{stream_byte, stream_bytes};
use crate::support::sched::pin_to_cpu;
use crate::support::time::{Deadline, eventually, scaled};

topic!(
    "map_races",
    fifo: [],
    pipe_only: [
        concurrent_operations_on_a_key_are_linearizable,
        concurrent_operations_on_a_table_that_grows_are_linearizable,
        concurrent_operations_with_lookups_in_the_mapped_table_are_linearizable,
        ten_writers_of_one_key_all_progress,
        a_counter_by_required_versions_loses_nothing,
        a_value_is_never_seen_in_part,
        a_short_value_is_never_seen_in_part,
        expiry_and_sets_at_the_same_time_agree,
        a_map_ends_while_entries_expire,
    ],
);

/// As many as there are processors, so that all of them run at once.
const THREADS: u64 = 2;
/// Operations of a thread in a history.
const OPERATIONS: u64 = 24;

/// A clock of which every reading is different.
struct Clock(AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

fn value_of(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(bytes.try_into().context("a value")?))
}

/// A map, and perhaps its mapped table, in which every second get is a lookup.
struct Store<'a> {
    end: &'a OwnedFd,
    table: Option<&'a MappedMap>,
}

impl Store<'_> {
    /// The version and the value of a key.
    fn get(&self, key: &[u8], looks_up: bool) -> Result<Option<(u64, u64)>> {
        if let Some(table) = self.table.filter(|_| looks_up) {
            let entry = table.get(key)?;
            return entry
                .map(|entry| Ok((entry.version, value_of(&entry.value)?)))
                .transpose();
        }
        match get_entry(self.end, key) {
            Ok(entry) => Ok(Some((entry.version, value_of(&entry.value)?))),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error).context("a get"),
        }
    }
}

/// Executes one operation. `last`: a version and its value, as this thread has seen them.
fn execute(store: &Store, key: &[u8], kind: u8, new: u64, last: &mut (u64, u64)) -> Result<Did> {
    let (value, end) = (new.to_ne_bytes(), store.end);
    Ok(match kind % 6 {
        kind @ (0 | 1) => {
            let found = store.get(key, kind == 0)?;
            *last = found.unwrap_or(*last);
            Did::Get(found.map(|(_, value)| value))
        }
        2 => {
            put(end, key, &value)?;
            Did::Set(new)
        }
        3 => match set_if(end, key, &value, 0) {
            Ok(_) => Did::Create(new, true),
            Err(Errno::EEXIST) => Did::Create(new, false),
            Err(error) => return Err(error).context("a creation"),
        },
        4 => match set_if(end, key, &value, last.0) {
            Ok(_) => Did::Replace(last.1, new, true),
            Err(Errno::ESTALE | Errno::ENOENT) => Did::Replace(last.1, new, false),
            // No version was seen yet.
            Err(Errno::EEXIST) if last.0 == 0 => Did::Create(new, false),
            Err(error) => return Err(error).context("a replacement"),
        },
        _ => match delete(end, key) {
            Ok(_) => Did::Delete(true),
            Err(Errno::ENOENT) => Did::Delete(false),
            Err(error) => return Err(error).context("a delete"),
        },
    })
}

/// Waits until all threads have come here, for the n-th time. Without sleep, and at first without a system call: a thread
/// that is woken, or gets its turn, begins when the others have ended.
fn await_all(arrived: &AtomicU64, times: u64) {
    const SPINS: u32 = 100_000;
    arrived.fetch_add(1, Ordering::Relaxed);
    let mut spins = 0;
    while arrived.load(Ordering::Relaxed) < times * THREADS {
        spins += 1;
        match spins < SPINS {
            true => hint::spin_loop(),
            false => thread::yield_now(),
        }
    }
}

/// The operations of one thread in one history.
fn record_part(store: &Store, clock: &Clock, round: u64, number: u64) -> Result<Vec<Operation>> {
    let key = round.to_ne_bytes();
    let mut last = (0, 0);
    (0..OPERATIONS)
        .map(|at| {
            let kind = stream_byte(round, number * OPERATIONS + at) / 3;
            // Without a version, a replacement is a creation, which is recorded as one.
            let kind = if kind % 6 == 4 && last.0 == 0 {
                3
            } else {
                kind
            };
            let new = 1 + number * OPERATIONS + at;
            let called = clock.now();
            let did = execute(store, &key, kind, new, &mut last)?;
            let returned = clock.now();
            Ok(Operation {
                called,
                returned,
                did,
            })
        })
        .collect()
}

/// Histories of all threads, each on a key of its own. Each thread has a CPU of its own where there are enough: the
/// scheduler may leave threads that wait for each other on one CPU for as long as the test takes.
fn record(store: &Store, histories: u64) -> Result<Vec<Vec<Operation>>> {
    let (clock, arrived) = (Clock(AtomicU64::new(0)), AtomicU64::new(0));
    let mut recorded = vec![Vec::new(); histories as usize];
    let processors = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (clock, arrived) = (&clock, &arrived);
                scope.spawn(move || -> Result<Vec<_>> {
                    let pinned = pin_to_cpu(number as usize % processors);
                    let parts = (0..histories).map(|round| {
                        await_all(arrived, round + 1);
                        record_part(store, clock, round, number)
                    });
                    let parts = pinned.and_then(|()| parts.collect());
                    // After an error the others do not wait.
                    arrived.store(u64::MAX / 2, Ordering::Relaxed);
                    parts
                })
            })
            .collect();
        for thread in threads {
            let parts = thread.join().expect("the thread does not panic")?;
            for (history, part) in recorded.iter_mut().zip(parts) {
                history.extend(part);
            }
        }
        Ok(recorded)
    })
}

/// How many operations of a history began while another one was executed.
fn overlapping(history: &[Operation]) -> usize {
    let overlaps = |a: &&Operation| {
        let began_within = |b: &Operation| a.called < b.called && b.called < a.returned;
        history.iter().any(began_within)
    };
    history.iter().filter(overlaps).count()
}

/// Records so many histories, and checks each. Again, until enough operations have overlapped: where the two processors
/// of the virtual machine take turns on one of the host, they may do so history by history.
fn expect_linearizable(end: &OwnedFd, histories: u64) -> Result<()> {
    expect_linearizable_with(&Store { end, table: None }, histories)
}

fn expect_linearizable_with(store: &Store, histories: u64) -> Result<()> {
    const OVERLAPS: usize = 20;
    let deadline = Deadline::after(scaled(Duration::from_secs(60)));
    let (mut recorded, mut overlapped) = (0, 0);
    while recorded == 0 || overlapped < OVERLAPS {
        ensure!(
            !deadline.passed(),
            "only {overlapped} operations overlapped"
        );
        for (round, history) in record(store, histories)?.iter().enumerate() {
            ensure!(is_linearizable(history), "history {round}: {history:#?}");
            overlapped += overlapping(history);
            match delete(store.end, &(round as u64).to_ne_bytes()) {
                Ok(_) | Err(Errno::ENOENT) => {}
                Err(error) => return Err(error).context("deleting the key of a history"),
            }
        }
        recorded += histories;
    }
    note(format!(
        "{recorded} histories; {overlapped} operations overlapped the next one"
    ));
    Ok(())
}

fn concurrent_operations_on_a_key_are_linearizable(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    expect_linearizable(&end, 1000)
}

fn concurrent_operations_with_lookups_in_the_mapped_table_are_linearizable(
    _: &Context,
) -> Result<()> {
    let params = Params {
        flags: MAPPED,
        table: 64 << 10,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 4 << 20)?;
    let table = Map::attach(end.try_clone()?)?.mapped()?;
    let store = Store {
        end: &end,
        table: Some(&table),
    };
    expect_linearizable_with(&store, 1000)
}

/// Another thread makes the table grow and shrink meanwhile.
fn concurrent_operations_on_a_table_that_grows_are_linearizable(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let growing = scope.spawn(|| -> Result<()> {
            while !stop.load(Ordering::Relaxed) {
                for number in 0..3000_u32 {
                    put(&end, &number.to_ne_bytes(), b"")?;
                }
                for number in 0..3000_u32 {
                    delete(&end, &number.to_ne_bytes()).context("deleting")?;
                }
            }
            Ok(())
        });
        let checked = expect_linearizable(&end, 200);
        stop.store(true, Ordering::Relaxed);
        checked.and(growing.join().expect("the thread does not panic"))
    })
}

/// Seconds after which the kernel reports a processor that does not schedule: twice its setting.
struct SoftLockup(String);

impl SoftLockup {
    const SETTING: &str = "/proc/sys/kernel/watchdog_thresh";

    fn after(seconds: u64) -> Result<Self> {
        let before = fs::read_to_string(Self::SETTING)
            .map_err(|_| skip("this kernel detects no lockups (CONFIG_SOFTLOCKUP_DETECTOR)"))?;
        fs::write(Self::SETTING, (seconds / 2).to_string()).context("setting the detector")?;
        Ok(Self(before))
    }
}

impl Drop for SoftLockup {
    fn drop(&mut self) {
        // It is the setting of a VM that ends soon.
        let _ = fs::write(Self::SETTING, self.0.trim());
    }
}

/// More writers than processors: the report's store froze the machine. What the detector says is in the kernel's log, which is
/// checked after all tests.
fn ten_writers_of_one_key_all_progress(_: &Context) -> Result<()> {
    let _detector = SoftLockup::after(6)?;
    let end = Maps::new()?.create()?;
    let until = Instant::now() + Duration::from_secs(8);
    let sets = thread::scope(|scope| -> Result<Vec<u64>> {
        let writers: Vec<_> = (0..10_u64)
            .map(|writer| {
                let end = &end;
                scope.spawn(move || -> Result<u64> {
                    let mut sets = 0;
                    while Instant::now() < until {
                        put(end, b"key", &writer.to_ne_bytes())?;
                        sets += 1;
                    }
                    Ok(sets)
                })
            })
            .collect();
        let joined = writers.into_iter().map(|writer| writer.join());
        joined
            .map(|result| result.expect("the thread does not panic"))
            .collect()
    })?;
    let entry = get_entry(&end, b"key").context("getting")?;
    expect("its version", entry.version, sets.iter().sum())?;
    ensure!(value_of(&entry.value)? < 10, "{:?}", entry.value);
    ensure!(
        sets.iter().all(|sets| *sets > 10),
        "sets of each writer: {sets:?}"
    );
    note(format!("sets of each writer: {sets:?}"));
    Ok(())
}

fn a_counter_by_required_versions_loses_nothing(_: &Context) -> Result<()> {
    const INCREMENTS: u64 = 500;
    const THREADS: u64 = 4;
    let end = Maps::new()?.create()?;
    put(&end, b"counter", &0_u64.to_ne_bytes())?;
    let increment = |end: &OwnedFd| -> Result<()> {
        loop {
            let entry = get_entry(end, b"counter").context("getting")?;
            let next = value_of(&entry.value)? + 1;
            match set_if(end, b"counter", &next.to_ne_bytes(), entry.version) {
                Err(Errno::ESTALE) => {}
                other => return other.map(drop).context("setting"),
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| scope.spawn(|| (0..INCREMENTS).try_for_each(|_| increment(&end))))
            .collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().expect("the thread does not panic"))
    })?;
    let value = value_of(&get(&end, b"counter").context("getting")?)?;
    expect("the counter", value, THREADS * INCREMENTS)
}

fn a_value_is_never_seen_in_part(_: &Context) -> Result<()> {
    never_in_part(&[0, 1, 64, 4000, 4096, 5000, 70_000])
}

/// They are overwritten in place.
fn a_short_value_is_never_seen_in_part(_: &Context) -> Result<()> {
    never_in_part(&[256, 255, 200, 250, 131])
}

const HOUR: Duration = Duration::from_secs(3600);

/// Values of these lengths, each with bytes of its own, with and without a time to live.
fn never_in_part(lengths: &[usize]) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 64 << 20)?;
    put(
        &end,
        b"key",
        &stream_bytes(lengths[0] as u64, 0, lengths[0]),
    )?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let (end, stop) = (&end, &stop);
                scope.spawn(move || -> Result<()> {
                    let mut number = writer;
                    while !stop.load(Ordering::Relaxed) {
                        let length = lengths[number as usize % lengths.len()];
                        let value = stream_bytes(length as u64, 0, length);
                        match number % 2 {
                            0 => put(end, b"key", &value)?,
                            _ => {
                                set_for(end, b"key", &value, HOUR)
                                    .context("setting")?
                                    .version
                            }
                        };
                        number += 1;
                    }
                    Ok(())
                })
            })
            .collect();
        // Long enough that a get meets a writer on the other processor many times.
        let until = Instant::now() + Duration::from_secs(3);
        let reads = (0..).take_while(|read| *read < 1500 || Instant::now() < until);
        let read = reads.into_iter().try_for_each(|_: u32| {
            let seen = get(&end, b"key").context("getting")?;
            expect_bytes(
                "a value",
                &seen,
                &stream_bytes(seen.len() as u64, 0, seen.len()),
            )
        });
        stop.store(true, Ordering::Relaxed);
        writers.into_iter().fold(read, |result, writer| {
            result.and(writer.join().expect("the thread does not panic"))
        })
    })
}

/// Every creation is followed by exactly one end: an expiry or a deletion.
fn expiry_and_sets_at_the_same_time_agree(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let (created, deleted) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + Duration::from_millis(1500);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let (end, created, deleted) = (&end, &created, &deleted);
                scope.spawn(move || -> Result<()> {
                    let mut at = number * 1000;
                    while Instant::now() < until {
                        at += 1;
                        let key = [stream_byte(1, at) % 16];
                        let time = Duration::from_micros(u64::from(stream_byte(2, at)) * 10 + 1);
                        let done = set_for(end, &key, b"", time).context("setting")?;
                        created.fetch_add(done.created.into(), Ordering::Relaxed);
                        if at % 5 == 0 && delete(end, &key).is_ok() {
                            deleted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().expect("the thread does not panic"))
    })?;
    eventually("all expire", || {
        Ok((state(&end)?.entries == 0).then_some(()))
    })?;
    let (created, deleted) = (created.into_inner(), deleted.into_inner());
    let expired = state(&end)?.expired;
    note(format!(
        "{created} created, {deleted} deleted, {expired} expired"
    ));
    ensure!(expired > 0, "nothing expired");
    expect("ends", deleted + expired, created)
}

fn a_map_ends_while_entries_expire(_: &Context) -> Result<()> {
    for round in 0..100_u64 {
        let end = Maps::new()?.create()?;
        for number in 0..20_u64 {
            let time = Duration::from_micros(1 + (round * 37 + number * 113) % 3000);
            set_for(&end, &number.to_ne_bytes(), &[0; 100], time).context("setting")?;
        }
        set(&end, b"stays", b"").context("setting")?;
        drop(end);
    }
    Ok(())
}
