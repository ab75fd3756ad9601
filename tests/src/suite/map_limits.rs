// SPDX-License-Identifier: MIT OR Apache-2.0
//! The limits of a map in bytes and in entries, and what it frees when it is full.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::fault_blocked::{FAULT_BYTE, spawn_fault_blocked_keeping};
use crate::support::ioctl::raw;
use crate::support::map::{
    CREATED, GET, KEY_MAX, Maps, NOW, Op, Params, STEP_GET, Step, VALUE_MAX, batch, delete, events,
    get, put, set, state, watch,
};
use crate::support::memory::PAGE;
use crate::support::time::eventually;

topic!(
    "map_limits",
    fifo: [],
    pipe_only: [
        a_full_map_is_enospc_and_deletion_makes_room,
        a_full_map_replaces_values,
        a_short_value_takes_less_than_the_long_one_before,
        a_get_into_absent_memory_keeps_no_value,
        the_limit_of_entries_is_enospc,
        keys_of_the_log_are_freed_with_later_changes,
        keys_of_the_log_are_freed_when_the_map_is_full,
        a_set_that_fails_takes_no_events_from_watchers,
        many_small_entries_make_room_for_a_large_one,
        updates_of_others_do_not_keep_the_log_from_being_freed,
        a_log_of_one_event_loses_nothing_untold,
    ],
);

/// Sets keys until one fails; their number.
fn fill(end: &OwnedFd, length: usize) -> Result<u64> {
    for number in 0_u64.. {
        match set(end, &number.to_be_bytes(), &vec![1; length]) {
            Ok(_) => {}
            Err(Errno::ENOSPC) => return Ok(number),
            Err(error) => return Err(error).context("filling the map"),
        }
    }
    unreachable!("the numbers do not end")
}

fn a_full_map_is_enospc_and_deletion_makes_room(_: &Context) -> Result<()> {
    let params = Params {
        events: 16,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 1 << 20)?;
    // With its structure, which checkers of the kernel enlarge, a value takes up to 1 KiB.
    let first = fill(&end, 880)?;
    ensure!(
        (700..1000).contains(&first),
        "{first} entries with values of 880 bytes in 1 MiB"
    );
    let seen = state(&end)?;
    ensure!(seen.bytes <= seen.capacity, "{} bytes", seen.bytes);
    for number in 0..first {
        delete(&end, &number.to_be_bytes()).context("deleting")?;
    }
    let second = fill(&end, 880)?;
    expect("again", second.abs_diff(first) <= 2, true)
}

fn a_full_map_replaces_values(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 1 << 20)?;
    let count = fill(&end, 4000)?;
    delete(&end, &0_u64.to_be_bytes()).context("deleting")?;
    for round in 0..200 {
        let key = (1 + round % (count - 1)).to_be_bytes();
        put(&end, &key, &vec![2; 4000])?;
    }
    Ok(())
}

fn a_short_value_takes_less_than_the_long_one_before(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"key", b"1")?;
    let short = state(&end)?.bytes;
    for (length, after) in [(VALUE_MAX, &b"1"[..]), (5000, b""), (600, b"1")] {
        put(&end, b"key", &vec![1; length])?;
        put(&end, b"key", after)?;
        eventually(&format!("{length} bytes are freed"), || {
            Ok((state(&end)?.bytes <= short).then_some(()))
        })?;
    }
    Ok(())
}

/// One call or one step of a batch; the length of the value.
fn get_into(end: &OwnedFd, by_batch: bool, mut op: Op) -> Result<usize> {
    if by_batch {
        let mut steps = [Step::new(STEP_GET, &op)];
        expect("steps", batch(end, &mut steps), Ok(1))?;
        expect("the result of the step", steps[0].result, 0)?;
        return Ok(steps[0].value_length as usize);
    }
    raw(end, GET, &mut op).context("getting")?;
    Ok(op.value_length as usize)
}

/// The map has room for one such value. A get that held it would hold its bytes.
fn a_get_into_absent_memory_keeps_no_value(_: &Context) -> Result<()> {
    const PAGES: usize = 150;
    const LENGTH: usize = PAGES * PAGE + 100;
    let end = Maps::new()?.create_with(Params::default(), 1 << 20)?;
    for by_batch in [false, true] {
        put(&end, b"key", &vec![1; LENGTH])?;
        let getter = spawn_fault_blocked_keeping("a get", &[end.as_fd()], PAGES, |buffer| {
            let op = Op {
                value: buffer.start() as u64,
                value_length: buffer.len() as u32,
                ..Op::get(b"key", &mut [])
            };
            let length = get_into(&end, by_batch, op)?;
            let bytes = buffer.to_vec(buffer.len());
            let (value, rest) = bytes.split_at(length);
            let unchanged = rest.iter().all(|byte| *byte == FAULT_BYTE);
            Ok((length, value.iter().all(|byte| *byte == 1), unchanged))
        })?;
        delete(&end, b"key").context("deleting")?;
        eventually("the bytes of the value are free", || {
            Ok((state(&end)?.bytes < LENGTH as u64 / 2).then_some(()))
        })?;
        put(&end, b"key", &vec![2; LENGTH]).context("a new value")?;
        getter.expect_still_blocked()?;
        let expected = (LENGTH, true, true);
        expect("the value before", getter.resume()?, expected)?;
        expect("the new one", get(&end, b"key"), Ok(vec![2; LENGTH]))?;
        delete(&end, b"key").context("deleting")?;
        eventually("the bytes of the new value are free", || {
            Ok((state(&end)?.bytes < LENGTH as u64 / 2).then_some(()))
        })?;
    }
    Ok(())
}

fn the_limit_of_entries_is_enospc(_: &Context) -> Result<()> {
    let params = Params {
        entries: 10,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 0)?;
    expect("entries", fill(&end, 1)?, 10)?;
    put(&end, &3_u64.to_be_bytes(), b"replaced")?;
    delete(&end, &3_u64.to_be_bytes()).context("deleting")?;
    put(&end, b"new", b"")?;
    expect(
        "one more",
        set(&end, b"newer", b"").map(drop),
        Err(Errno::ENOSPC),
    )?;
    let seen = state(&end)?;
    expect(
        "entries and their limit",
        (seen.entries, seen.entries_max),
        (10, 10),
    )
}

fn keys_of_the_log_are_freed_with_later_changes(_: &Context) -> Result<()> {
    let params = Params {
        events: 64,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 0)?;
    put(&end, b"one", b"")?;
    let before = state(&end)?.bytes;
    for number in 0..64_u64 {
        let key = [&number.to_be_bytes()[..], &[0; 3000]].concat();
        put(&end, &key, b"")?;
        delete(&end, &key).context("deleting")?;
    }
    let held = state(&end)?.bytes;
    ensure!(held > before + 32 * 3000, "{held} bytes");
    for _ in 0..64 {
        put(&end, b"one", b"")?;
    }
    eventually("the keys are freed", || {
        Ok((state(&end)?.bytes < before + 500).then_some(()))
    })
}

/// A key of 4096 bytes.
fn long_key(number: u64) -> Vec<u8> {
    let mut key = vec![0; KEY_MAX];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn keys_of_the_log_are_freed_when_the_map_is_full(_: &Context) -> Result<()> {
    let params = Params {
        events: 256,
        ..Params::default()
    };
    let small = Maps::new()?.create_with(params, 64 << 10)?;
    for number in 0..150 {
        let key = &long_key(number)[..300];
        put(&small, key, b"").with_context(|| format!("pair {number}"))?;
        delete(&small, key).context("deleting")?;
    }
    let default = Maps::new()?.create()?;
    for number in 0..300 {
        put(&default, &long_key(number), b"").with_context(|| format!("long key {number}"))?;
        delete(&default, &long_key(number)).context("deleting")?;
    }
    Ok(())
}

fn a_set_that_fails_takes_no_events_from_watchers(_: &Context) -> Result<()> {
    let end = Maps::new()?.create_with(Params::default(), 256 << 10)?;
    watch(&end, NOW).context("watching")?;
    let count = fill(&end, 1000)?;
    ensure!(count < 1024, "{count} events are more than the log keeps");
    let seen = events(&end)?;
    let complete = seen
        .iter()
        .all(|event| event.missed == 0 && event.change == CREATED);
    expect("events", (seen.len() as u64, complete), (count, true))
}

fn many_small_entries_make_room_for_a_large_one(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    let count = fill(&end, 100)?;
    for round in 0..3 {
        for number in 0..count {
            delete(&end, &number.to_be_bytes()).context("deleting")?;
        }
        put(&end, b"large", &vec![1; VALUE_MAX]).with_context(|| format!("round {round}"))?;
        delete(&end, b"large").context("deleting the large one")?;
        for number in 0..count {
            put(&end, &number.to_be_bytes(), &[1; 100])?;
        }
    }
    Ok(())
}

fn updates_of_others_do_not_keep_the_log_from_being_freed(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create_with(Params::default(), 2 << 20)?;
    let other = maps.attach()?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let updates = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                put(&other, b"small", b"1")?;
                // The log has 1024 events: these must not replace the keys before the map needs them.
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let filled = (0..220)
            .try_for_each(|number| {
                put(&end, &long_key(number), b"")?;
                delete(&end, &long_key(number))
                    .map(drop)
                    .context("deleting")
            })
            .and_then(|()| put(&end, b"large", &vec![1; VALUE_MAX]).context("the large one"));
        done.store(true, Ordering::Relaxed);
        updates.join().expect("the thread does not panic")?;
        filled.map(drop)
    })
}

/// Each event, or the number of those that are lost, reaches a watcher, whatever a full map frees meanwhile.
fn a_log_of_one_event_loses_nothing_untold(_: &Context) -> Result<()> {
    let params = Params {
        events: 1,
        ..Params::default()
    };
    let maps = Maps::new()?;
    let end = maps.create_with(params, 16 << 10)?;
    let (writer, watcher) = (maps.attach()?, maps.attach()?);
    watch(&watcher, NOW).context("watching")?;
    let done = AtomicBool::new(false);
    let (told, changes) = thread::scope(|scope| -> Result<_> {
        let filler = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // It does not fit.
                let _ = set(&end, b"large", &[1; 15 << 10]);
            }
        });
        let mut told = 0;
        let mut read = || -> Result<()> {
            for event in events(&watcher)? {
                told += 1 + event.missed;
            }
            Ok(())
        };
        for number in 0..300_u64 {
            let key = [&number.to_be_bytes()[..], &[0; 1000]].concat();
            if set(&writer, &key, b"").is_ok() {
                delete(&writer, &key).context("deleting")?;
            }
            read()?;
        }
        done.store(true, Ordering::Relaxed);
        filler.join().expect("the thread does not panic");
        put(&writer, b"last", b"")?;
        read()?;
        Ok((told, state(&writer)?.sequence))
    })?;
    expect("events and those missed", told, changes)
}
