// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchers of a map, and times to live.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::expect;
use crate::support::child::spawn_keeping;
use crate::support::map::{
    CREATED, Change, DELETED, EXPIRED, Event, KEY_MAX, Maps, NOW, Params, UPDATED, delete, dump,
    events, get, get_entry, put, read_events, set_for, set_if, state, watch,
};
use crate::support::memory::{Mapping, PAGE, read_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::time::eventually;

topic!(
    "map_watch",
    fifo: [],
    pipe_only: [
        a_watcher_sees_each_change_in_order,
        a_watcher_begins_where_it_wants,
        a_watcher_that_is_late_is_told_what_it_missed,
        an_endpoint_that_does_not_watch_cannot_read,
        an_event_without_room_stays,
        an_event_for_inaccessible_memory_stays,
        a_read_returns_as_many_events_as_fit,
        poll_tells_whether_there_is_an_event,
        a_sleeping_watcher_is_woken,
        a_sleeping_watcher_ends_with_the_map,
        each_event_is_read_once_by_the_threads_of_an_endpoint,
        watchers_of_concurrent_changes_see_each_number,
        an_entry_expires_for_readers_at_once,
        an_expired_entry_is_an_event_and_frees_its_memory,
        a_time_to_live_is_replaced_with_the_value,
        an_expired_entry_is_no_entry_for_a_set,
        a_long_time_to_live_is_none,
        a_time_to_live_of_a_nanosecond_has_passed,
        many_entries_with_different_times_expire,
    ],
);

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(3600);

/// A watcher of a new map, which also changes it.
fn watched() -> Result<OwnedFd> {
    let end = Maps::new()?.create()?;
    expect("the first number", watch(&end, NOW), Ok(0))?;
    Ok(end)
}

fn change(change: u16, key: &[u8], sequence: u64, version: u64) -> Change {
    Change {
        change,
        key: key.to_vec(),
        sequence,
        version,
        missed: 0,
    }
}

fn a_watcher_sees_each_change_in_order(_: &Context) -> Result<()> {
    let end = watched()?;
    put(&end, b"a", b"1")?;
    put(&end, b"b", b"1")?;
    put(&end, b"a", b"2")?;
    delete(&end, b"a").context("deleting")?;
    let seen = (
        delete(&end, b"a"),
        set_if(&end, b"b", b"", 0).map(drop),
        get(&end, b"a"),
    );
    let failed = (Err(Errno::ENOENT), Err(Errno::EEXIST), Err(Errno::ENOENT));
    expect("what changes nothing", seen, failed)?;
    set_if(&end, b"b", b"2", 2).context("setting")?;
    let expected = vec![
        change(CREATED, b"a", 1, 1),
        change(CREATED, b"b", 2, 2),
        change(UPDATED, b"a", 3, 3),
        change(DELETED, b"a", 4, 3),
        change(UPDATED, b"b", 5, 5),
    ];
    expect("events", events(&end)?, expected)?;
    expect("more", events(&end)?, vec![])
}

fn a_watcher_begins_where_it_wants(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    for key in 0..5 {
        put(&end, &[key], b"")?;
    }
    for after in 0..=5 {
        expect("the number", watch(&end, after), Ok(after))?;
        let seen: Vec<u64> = events(&end)?.iter().map(|event| event.sequence).collect();
        expect("numbers", seen, (after + 1..=5).collect())?;
        expect("the last that was read", state(&end)?.watched, 5)?;
    }
    expect("now", watch(&end, NOW), Ok(5))?;
    for after in [6, u64::MAX - 1] {
        expect("a later one", watch(&end, after), Err(Errno::EINVAL))?;
    }
    expect("watchers", state(&end)?.watchers, 1)?;
    let other = maps.attach()?;
    watch(&other, 0).context("watching")?;
    expect("watchers", state(&end)?.watchers, 2)?;
    drop(other);
    expect("watchers", state(&end)?.watchers, 1)
}

fn a_watcher_that_is_late_is_told_what_it_missed(_: &Context) -> Result<()> {
    let params = Params {
        events: 16,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 0)?;
    watch(&end, NOW).context("watching")?;
    for count in [16, 17, 40, 1000] {
        let before = state(&end)?.sequence;
        for number in 0..count {
            put(&end, &[number as u8], b"")?;
        }
        let seen = events(&end)?;
        expect("events", seen.len(), 16)?;
        expect("missed", seen[0].missed, count - 16)?;
        expect(
            "missed later",
            seen[1..].iter().map(|e| e.missed).sum(),
            0_u64,
        )?;
        expect("the first", seen[0].sequence, before + count - 15)?;
    }
    expect("in all", state(&end)?.missed, 1 + 24 + 984)
}

fn an_endpoint_that_does_not_watch_cannot_read(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    put(&end, b"key", b"")?;
    expect("a read", read_some(&end, 100), Err(Errno::EINVAL))?;
    expect("poll", poll::state(&end)?, "OUT".into())
}

fn an_event_without_room_stays(_: &Context) -> Result<()> {
    let end = watched()?;
    let key = vec![1; KEY_MAX];
    put(&end, &key, b"")?;
    let size = Event::SIZE + KEY_MAX;
    for room in [1, Event::SIZE, size - 1] {
        let seen = read_some(&end, room);
        expect(&format!("{room} bytes"), seen, Err(Errno::EMSGSIZE))?;
    }
    expect("an empty read", read_some(&end, 0), Ok(vec![]))?;
    let seen = read_events(&end, size)?;
    expect("the event", seen, vec![change(CREATED, &key, 1, 1)])
}

fn an_event_for_inaccessible_memory_stays(_: &Context) -> Result<()> {
    let end = watched()?;
    put(&end, b"key", b"")?;
    let mapping = Mapping::new(2)?;
    mapping.unmap_from(PAGE)?;
    for inside in [0, 8, 33] {
        let start = mapping.start().wrapping_add(PAGE - inside);
        expect("a read", read_at(&end, start, 100), Err(Errno::EFAULT))?;
    }
    expect(
        "the events",
        events(&end)?,
        vec![change(CREATED, b"key", 1, 1)],
    )
}

fn a_read_returns_as_many_events_as_fit(_: &Context) -> Result<()> {
    let end = watched()?;
    for number in 0..10 {
        put(&end, &[number; 5], b"")?;
    }
    let each = (Event::SIZE + 5).next_multiple_of(8);
    expect("one", read_events(&end, each)?.len(), 1)?;
    expect("two", read_events(&end, 3 * each - 1)?.len(), 2)?;
    expect("three", read_events(&end, 3 * each)?.len(), 3)?;
    expect("the rest", read_events(&end, 65536)?.len(), 4)
}

fn poll_tells_whether_there_is_an_event(_: &Context) -> Result<()> {
    let end = watched()?;
    expect("without", poll::state(&end)?, "OUT".into())?;
    for _ in 0..2 {
        put(&end, b"key", b"")?;
    }
    expect("with two", poll::state(&end)?, "IN|OUT".into())?;
    read_events(&end, 48)?;
    expect("with one", poll::state(&end)?, "IN|OUT".into())?;
    read_events(&end, 48)?;
    expect("after both", poll::state(&end)?, "OUT".into())
}

fn a_sleeping_watcher_is_woken(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let child = spawn_keeping("a watcher", &[], move || {
        let own = Maps::new()?.attach()?;
        watch(&own, NOW)?;
        set_blocking(&own)?;
        let first = read_events(&own, 4096)?;
        let second = read_events(&own, 4096)?;
        Ok([first, second].map(|events| events[0].key.clone()))
    })?;
    child.wait_asleep_in(Call::Read)?;
    put(&end, b"one", b"")?;
    child.wait_asleep_in(Call::Read)?;
    put(&end, b"two", b"")?;
    expect("keys", child.finish()?, [b"one".to_vec(), b"two".to_vec()])
}

fn a_sleeping_watcher_ends_with_the_map(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let child = spawn_keeping("a watcher", &[], move || {
        let own = Maps::new()?.attach()?;
        watch(&own, NOW)?;
        set_blocking(&own)?;
        Ok(read_some(&own, 4096).err().map(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Read)?;
    maps.destroy().context("destroying")?;
    expect("the read", child.finish()?, Some(libc::EPIPE))?;
    drop(end);
    Ok(())
}

fn each_event_is_read_once_by_the_threads_of_an_endpoint(_: &Context) -> Result<()> {
    const CHANGES: u64 = 4000;
    let params = Params {
        events: 8192,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 0)?;
    watch(&end, NOW).context("watching")?;
    let mut numbers = thread::scope(|scope| -> Result<Vec<u64>> {
        let readers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Result<Vec<u64>> {
                    let mut own = Vec::new();
                    while state(&end)?.watched < CHANGES {
                        own.extend(events(&end)?.iter().map(|event| event.sequence));
                    }
                    Ok(own)
                })
            })
            .collect();
        for number in 0..CHANGES {
            put(&end, &(number % 50).to_ne_bytes(), b"")?;
        }
        let mut all = Vec::new();
        for reader in readers {
            all.extend(reader.join().expect("the thread does not panic")?);
        }
        Ok(all)
    })?;
    numbers.sort_unstable();
    expect(
        "numbers",
        numbers == (1..=CHANGES).collect::<Vec<_>>(),
        true,
    )
}

fn watchers_of_concurrent_changes_see_each_number(_: &Context) -> Result<()> {
    const CHANGES: u64 = 3000;
    const LAST: &[u8] = b"last";
    let params = Params {
        events: 16384,
        ..Params::default()
    };
    let end = Maps::new()?.create_with(params, 0)?;
    watch(&end, NOW).context("watching")?;
    set_blocking(&end)?;
    thread::scope(|scope| -> Result<()> {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let end = &end;
                scope.spawn(move || -> Result<()> {
                    (0..CHANGES).try_for_each(|number| {
                        let key = ((writer << 32) | (number % 64)).to_ne_bytes();
                        match number % 3 {
                            2 => match delete(end, &key) {
                                Ok(_) | Err(Errno::ENOENT) => Ok(()),
                                Err(error) => Err(error).context("deleting"),
                            },
                            _ => put(end, &key, b"").map(drop),
                        }
                    })
                })
            })
            .collect();
        let last = scope.spawn(|| -> Result<()> {
            let mut joined = writers.into_iter().map(|writer| writer.join());
            let changed = joined.try_for_each(|result| result.expect("the thread does not panic"));
            put(&end, LAST, b"")?;
            changed
        });
        let mut next = 1;
        let mut ended = false;
        while !ended {
            for event in read_events(&end, 65536)? {
                ensure!(
                    event.sequence == next && event.missed == 0,
                    "{event:?}, not {next}"
                );
                next += 1;
                ended = event.key == LAST;
            }
        }
        last.join().expect("the thread does not panic")
    })
}

// ---- times to live ----

fn an_entry_expires_for_readers_at_once(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    set_for(&end, b"short", b"", SHORT).context("setting")?;
    set_for(&end, b"long", b"", LONG).context("setting")?;
    let left = get_entry(&end, b"long").context("getting")?.ttl_ns;
    ensure!(left > 0 && left <= LONG.as_nanos() as u64, "{left} ns left");
    thread::sleep(SHORT);
    expect("after its time", get(&end, b"short"), Err(Errno::ENOENT))?;
    let keys: Vec<Vec<u8>> = dump(&end)?.into_iter().map(|entry| entry.key).collect();
    expect("of a dump", keys, vec![b"long".to_vec()])
}

fn an_expired_entry_is_an_event_and_frees_its_memory(_: &Context) -> Result<()> {
    let end = watched()?;
    let before = state(&end)?.bytes;
    set_for(&end, b"key", &[0; 10_000], SHORT).context("setting")?;
    let seen = eventually("the event of the expiry", || {
        let seen = events(&end)?;
        Ok(seen.iter().find(|event| event.change == EXPIRED).cloned())
    })?;
    expect("the event", seen, change(EXPIRED, b"key", 2, 1))?;
    let seen = state(&end)?;
    expect("entries, expired", (seen.entries, seen.expired), (0, 1))?;
    // The log keeps the key.
    eventually("the memory of the value is free", || {
        Ok((state(&end)?.bytes < before + 1000).then_some(()))
    })
}

fn a_time_to_live_is_replaced_with_the_value(_: &Context) -> Result<()> {
    let end = watched()?;
    set_for(&end, b"a", b"", SHORT).context("setting")?;
    put(&end, b"a", b"")?;
    set_for(&end, b"b", b"", SHORT).context("setting")?;
    set_for(&end, b"b", b"", LONG).context("setting")?;
    set_for(&end, b"c", b"", LONG).context("setting")?;
    set_for(&end, b"c", b"", SHORT).context("setting")?;
    set_for(&end, b"d", b"", SHORT).context("setting")?;
    delete(&end, b"d").context("deleting")?;
    eventually("the expiry of one", || {
        Ok((state(&end)?.expired == 1).then_some(()))
    })?;
    thread::sleep(2 * SHORT);
    expect("expired", state(&end)?.expired, 1)?;
    let keys: Vec<Vec<u8>> = dump(&end)?.into_iter().map(|entry| entry.key).collect();
    expect("keys", keys, vec![b"a".to_vec(), b"b".to_vec()])
}

fn an_expired_entry_is_no_entry_for_a_set(_: &Context) -> Result<()> {
    let end = watched()?;
    for round in 0..20 {
        let time = Duration::from_micros(200 + 100 * round);
        set_for(&end, b"key", b"", time).context("setting")?;
        thread::sleep(time);
        let created = set_if(&end, b"key", b"", 0);
        expect("a set", created.map(|done| done.created), Ok(true))?;
        delete(&end, b"key").context("deleting")?;
    }
    let changes: Vec<u16> = events(&end)?.iter().map(|event| event.change).collect();
    let expected = [CREATED, EXPIRED, CREATED, DELETED].repeat(20);
    expect("changes", changes, expected)
}

fn a_long_time_to_live_is_none(_: &Context) -> Result<()> {
    let end = Maps::new()?.create()?;
    for time in [u64::MAX, i64::MAX as u64] {
        set_for(&end, b"key", b"", Duration::from_nanos(time)).context("setting")?;
        let seen = get_entry(&end, b"key").context("getting")?.ttl_ns;
        expect("the time left", seen, 0)?;
    }
    Ok(())
}

fn a_time_to_live_of_a_nanosecond_has_passed(_: &Context) -> Result<()> {
    let end = watched()?;
    set_for(&end, b"key", b"", Duration::from_nanos(1)).context("setting")?;
    expect("a get", get(&end, b"key"), Err(Errno::ENOENT))?;
    eventually("it has expired", || {
        Ok((state(&end)?.expired == 1).then_some(()))
    })?;
    let changes: Vec<u16> = events(&end)?.iter().map(|event| event.change).collect();
    expect("changes", changes, vec![CREATED, EXPIRED])
}

fn many_entries_with_different_times_expire(_: &Context) -> Result<()> {
    const ENTRIES: u64 = 500;
    let end = watched()?;
    for number in 0..ENTRIES {
        let time = Duration::from_millis(300 + (number * 7919) % 100 * 20);
        set_for(&end, &number.to_be_bytes(), b"", time).context("setting")?;
    }
    eventually("all expire", || {
        Ok((state(&end)?.expired == ENTRIES).then_some(()))
    })?;
    let seen = state(&end)?;
    expect(
        "entries, changes",
        (seen.entries, seen.sequence),
        (0, 2 * ENTRIES),
    )
}
