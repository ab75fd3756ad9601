// SPDX-License-Identifier: MIT OR Apache-2.0
//! The module `sluice::map` with the kernel module.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures_core::Stream;
use sluice::map::{
    AsyncWatcher, Change, Event, OpenError, Options, Outcome, ReadError, Set, SetOptions, TypedMap,
    WatchError, WatchFrom, Watcher, WriteError,
};
use sluice::{Bus, Error, Map};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "map_library",
    fifo: [],
    pipe_only: [
        an_entry_is_created_updated_and_deleted,
        values_of_all_lengths_are_returned,
        keys_of_any_bytes_are_distinct,
        a_value_for_a_small_buffer_is_not_copied,
        a_required_version_decides_a_set,
        a_required_version_decides_a_delete,
        increments_of_several_threads_lose_none,
        an_entry_expires,
        a_set_replaces_the_time_to_live,
        a_batch_has_a_result_for_each_operation,
        a_batch_keeps_the_order_of_its_operations,
        a_value_beyond_the_room_of_a_batch_is_an_error,
        every_entry_is_listed_once,
        an_entry_larger_than_a_page_of_the_list_is_listed,
        a_watcher_receives_every_change_in_order,
        a_late_watcher_learns_what_it_has_missed,
        a_watch_continues_after_a_sequence,
        an_endpoint_has_one_watcher_at_a_time,
        watches_that_do_not_wait_and_timeouts,
        a_blocked_watcher_is_woken_by_a_change,
        all_calls_end_when_the_map_is_destroyed,
        an_idle_task_is_woken_by_a_change,
        a_stream_yields_all_events,
        typed_entries_are_those_that_were_set,
        a_full_map_refuses_entries_until_one_is_deleted,
        an_endpoint_does_what_it_was_opened_for,
        the_state_of_the_map_is_shown,
        an_endpoint_can_be_attached_again,
        each_failure_to_open_has_its_own_error,
    ],
);

const SHORT: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(60);

/// The map `entries` of the test.
fn entries() -> Options {
    Map::named("entries")
}

/// Opens the map, which the first open creates with these options.
fn open_with(options: Options) -> Result<Map> {
    options.create(true).open().context("opening the map")
}

fn open() -> Result<Map> {
    open_with(entries())
}

fn an_entry_is_created_updated_and_deleted(_: &Context) -> Result<()> {
    let map = open()?;
    expect("before", map.get("key")?, None)?;
    let created = map.set("key", "one")?;
    expect(
        "the first set",
        (created.created, created.version),
        (true, 1),
    )?;
    let updated = map.set("key", "two")?;
    expect(
        "the second set",
        (updated.created, updated.version),
        (false, 2),
    )?;
    let entry = map.get("key")?.context("no entry")?;
    expect_bytes("its value", &entry.value, b"two")?;
    expect("the rest", (entry.version, entry.time_to_live), (2, None))?;
    expect("another key", map.get("KEY")?, None)?;
    expect("a delete", map.delete("key")?, Some(3))?;
    expect("afterwards", map.get("key")?, None)?;
    expect("a second delete", map.delete("key")?, None)?;
    // The delete was the third change.
    let again = map.set("key", "three")?;
    expect("a set after it", (again.created, again.version), (true, 4))
}

fn values_of_all_lengths_are_returned(_: &Context) -> Result<()> {
    let map = open()?;
    for length in [0, 1, 1023, 1024, 1025, 4096, 4097, 65_537, 1 << 20] {
        let value = stream_bytes(7, 0, length);
        map.set("key", &value)
            .with_context(|| format!("setting {length} bytes"))?;
        let entry = map.get("key")?.context("no entry")?;
        expect_bytes("its value", &entry.value, &value)?;
        let mut room = vec![0; length + 1];
        let info = map.get_into("key", &mut room)?.context("no entry")?;
        expect(
            "its length",
            (info.len, info.version),
            (length, entry.version),
        )?;
        expect_bytes("its value in a buffer", &room[..length], &value)?;
    }
    let long = map.set("key", vec![0; (1 << 20) + 1]);
    let expected = matches!(long, Err(WriteError::ValueTooLong { len: 1_048_577 }));
    ensure!(expected, "{long:?}");
    let len = map.get("key")?.context("no entry")?.value.len();
    expect("the value after it", len, 1 << 20)
}

fn keys_of_any_bytes_are_distinct(_: &Context) -> Result<()> {
    let map = open()?;
    let mut keys: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    keys.extend((1..=4).map(|length| vec![0; length * 2]));
    keys.push(b"key".to_vec());
    keys.push(b"key\0".to_vec());
    for length in [127, 128, 129, 4095, 4096] {
        keys.push(stream_bytes(1, 0, length));
    }
    for (number, key) in keys.iter().enumerate() {
        let set = map.set(key, number.to_ne_bytes())?;
        expect("created", set.created, true)?;
    }
    for (number, key) in keys.iter().enumerate() {
        let entry = map.get(key)?.context("no entry")?;
        expect_bytes("its value", &entry.value, &number.to_ne_bytes())?;
    }
    for len in [0, 4097] {
        let got = map.get(vec![0; len]);
        let expected = matches!(got, Err(ReadError::InvalidKey { len: seen }) if seen == len);
        ensure!(expected, "{got:?}");
        let set = map.set(vec![0; len], "");
        let expected = matches!(set, Err(WriteError::InvalidKey { len: seen }) if seen == len);
        ensure!(expected, "{set:?}");
    }
    Ok(())
}

fn a_value_for_a_small_buffer_is_not_copied(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("key", "eight by")?;
    let mut room = [b'-'; 7];
    let got = map.get_into("key", &mut room);
    let expected = matches!(got, Err(ReadError::BufferTooSmall { len: 8, room: 7 }));
    ensure!(expected, "{got:?}");
    expect_bytes("the buffer", &room, b"-------")?;
    let mut room = [b'-'; 9];
    let info = map.get_into("key", &mut room)?.context("no entry")?;
    expect("its length", info.len, 8)?;
    expect_bytes("the buffer", &room, b"eight by-")?;
    expect("an absent key", map.get_into("none", &mut room)?, None)
}

fn a_required_version_decides_a_set(_: &Context) -> Result<()> {
    let map = open()?;
    let absent = map.compare_and_set("key", 7, "");
    let expected = matches!(absent, Err(WriteError::NotFound { required: 7 }));
    ensure!(expected, "{absent:?}");
    let created = map.compare_and_set("key", 0, "one")?;
    expect("created", created.created, true)?;
    let again = map.compare_and_set("key", 0, "two");
    ensure!(matches!(again, Err(WriteError::AlreadyExists)), "{again:?}");
    let updated = map.compare_and_set("key", created.version, "two")?;
    ensure!(
        !updated.created && updated.version > created.version,
        "{updated:?}"
    );
    let (required, found) = (created.version, updated.version);
    let late = map.compare_and_set("key", required, "three");
    let expected = matches!(late, Err(WriteError::VersionMismatch { required: a, found: b })
        if (a, b) == (required, found));
    ensure!(expected, "{late:?}");
    let entry = map.get("key")?.context("no entry")?;
    expect_bytes("its value", &entry.value, b"two")?;
    expect("the changes", map.info()?.sequence, 2)
}

fn a_required_version_decides_a_delete(_: &Context) -> Result<()> {
    let map = open()?;
    let found = map.set("key", "")?.version;
    let wrong = map.delete_if_version("key", found + 1);
    let expected = matches!(wrong, Err(WriteError::VersionMismatch { found: seen, .. })
        if seen == found);
    ensure!(expected, "{wrong:?}");
    let deleted = map.delete_if_version("key", found)?;
    expect("deleted", deleted, Some(found + 1))?;
    let absent = map.delete_if_version("key", found)?;
    expect("a second delete", absent, None)
}

/// Each with an endpoint of its own.
fn increments_of_several_threads_lose_none(_: &Context) -> Result<()> {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 200;
    let map = open()?;
    map.set("counter", "0")?;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| thread::spawn(|| increment(INCREMENTS)))
        .collect();
    let mut conflicts = 0;
    for thread in threads {
        conflicts += thread.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    }
    let value = map.get("counter")?.context("no entry")?.value;
    let sum = (THREADS * INCREMENTS).to_string();
    expect("the sum", String::from_utf8(value)?, sum)?;
    // Only the first set and the increments are changes.
    let changes = map.info()?.sequence;
    expect("changes", changes, 1 + THREADS * INCREMENTS)
        .with_context(|| format!("after {conflicts} conflicts"))
}

/// Returns the number of attempts that failed.
fn increment(times: u64) -> Result<u64> {
    let map = open()?;
    let mut conflicts = 0;
    for _ in 0..times {
        loop {
            let entry = map.get("counter")?.context("no entry")?;
            let number: u64 = std::str::from_utf8(&entry.value)?.parse()?;
            match map.compare_and_set("counter", entry.version, (number + 1).to_string()) {
                Ok(_) => break,
                Err(error) if error.is_conflict() => conflicts += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(conflicts)
}

fn watch(map: &Map) -> Result<Watcher> {
    map.watch(WatchFrom::Now).context("watching the map")
}

fn an_entry_expires(_: &Context) -> Result<()> {
    let map = open()?;
    let mut watcher = watch(&map)?;
    let options = SetOptions::new().time_to_live(SHORT);
    map.set_with("key", "value", options)?;
    let created = watcher.recv_timeout(LONG)?;
    expect(
        "the set",
        seen(&created),
        (Change::Created, b"key", 1, 1, 0),
    )?;
    let expired = watcher.recv_timeout(LONG)?;
    expect(
        "the end",
        seen(&expired),
        (Change::Expired, b"key", 2, 1, 0),
    )?;
    expect("the entry", map.get("key")?, None)?;
    let again = map.set("key", "")?;
    expect("a set after it", (again.created, again.version), (true, 3))?;
    let info = map.info()?;
    expect("the counts", (info.entries, info.expired), (1, 1))
}

fn a_set_replaces_the_time_to_live(_: &Context) -> Result<()> {
    let map = open()?;
    let options = SetOptions::new().time_to_live(LONG);
    map.set_with("key", "", options)?;
    let left = map.get("key")?.context("no entry")?.time_to_live;
    let left = left.context("no time to live")?;
    ensure!(left <= LONG && left > LONG / 2, "{left:?}");
    let (_, listed) = map.keys().next().context("no key")??;
    let listed = listed.time_to_live.context("no time to live in the list")?;
    ensure!(listed <= left, "{listed:?}, and before {left:?}");
    let second = SetOptions::new().time_to_live(10 * LONG);
    map.set_with("key", "", second)?;
    let left = map.get("key")?.context("no entry")?.time_to_live;
    ensure!(left > Some(LONG), "{left:?}");
    map.set("key", "")?;
    let left = map.get("key")?.context("no entry")?.time_to_live;
    expect("without one", left, None)
}

/// More operations than one call executes.
fn a_batch_has_a_result_for_each_operation(_: &Context) -> Result<()> {
    const COUNT: usize = 1000;
    let map = open()?;
    let keys: Vec<_> = (0..COUNT).map(|number| format!("key {number}")).collect();
    let set = keys
        .iter()
        .fold(map.batch(), |batch, key| batch.set(key, key));
    expect("operations", set.len(), COUNT)?;
    for (number, outcome) in set.run().into_iter().enumerate() {
        let Outcome::Set(set) = outcome else {
            anyhow::bail!("{outcome:?}");
        };
        let set = set.with_context(|| format!("operation {number}"))?;
        let expected = (true, number as u64 + 1);
        expect("a set", (set.created, set.version), expected)?;
    }
    let get = keys.iter().fold(map.batch(), |batch, key| batch.get(key));
    for (key, outcome) in keys.iter().zip(get.run()) {
        let Outcome::Get(Ok(Some(entry))) = outcome else {
            anyhow::bail!("{outcome:?}");
        };
        expect_bytes("its value", &entry.value, key.as_bytes())?;
    }
    expect("an empty batch", map.batch().run().len(), 0)
}

fn a_batch_keeps_the_order_of_its_operations(_: &Context) -> Result<()> {
    let map = open()?;
    let lease = SetOptions::new().if_version(0).time_to_live(LONG);
    let outcomes = map
        .batch()
        .get("key")
        .set("key", "one")
        .get("key")
        .set_with("key", "two", lease)
        .delete_if_version("key", 7)
        .get("")
        .delete("key")
        .delete("key")
        .set_with("key", "three", lease)
        .get("key")
        .run();
    let seen: Vec<_> = outcomes.iter().map(summary).collect();
    let expected = [
        "none",
        "created 1",
        "'one' 1",
        "AlreadyExists",
        "VersionMismatch { required: 7, found: 1 }",
        "InvalidKey { len: 0 }",
        "deleted 2",
        "none",
        "created 3",
        "'three' 3",
    ];
    expect("the results", seen, expected.map(str::to_owned).to_vec())?;
    let Some(Outcome::Get(Ok(Some(entry)))) = outcomes.last() else {
        anyhow::bail!("{outcomes:?}");
    };
    ensure!(entry.time_to_live.is_some(), "no time to live");
    Ok(())
}

/// A short text for the result of an operation.
fn summary(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Get(Ok(Some(entry))) => {
            let value = String::from_utf8_lossy(&entry.value);
            format!("'{value}' {}", entry.version)
        }
        Outcome::Set(Ok(set)) if set.created => format!("created {}", set.version),
        Outcome::Set(Ok(set)) => format!("updated {}", set.version),
        Outcome::Delete(Ok(Some(version))) => format!("deleted {version}"),
        Outcome::Get(Ok(None)) | Outcome::Delete(Ok(None)) => "none".to_owned(),
        Outcome::Get(Err(error)) => format!("{error:?}"),
        Outcome::Set(Err(error)) | Outcome::Delete(Err(error)) => format!("{error:?}"),
    }
}

fn a_value_beyond_the_room_of_a_batch_is_an_error(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("short", [1; 100])?;
    map.set("long", [2; 101])?;
    let outcomes = map
        .batch()
        .value_room(100)
        .get("long")
        .get("short")
        .get("long")
        .run();
    let too_small = "BufferTooSmall { len: 101, room: 100 }";
    for outcome in [&outcomes[0], &outcomes[2]] {
        expect("the long value", summary(outcome), too_small.to_owned())?;
    }
    let Outcome::Get(Ok(Some(entry))) = &outcomes[1] else {
        anyhow::bail!("{outcomes:?}");
    };
    expect_bytes("the short value", &entry.value, &[1; 100])?;
    let outcomes = map
        .batch()
        .value_room(0)
        .set("empty", "")
        .get("empty")
        .run();
    expect("without room", summary(&outcomes[1]), "'' 3".to_owned())
}

/// Many more entries than one call returns.
fn every_entry_is_listed_once(_: &Context) -> Result<()> {
    const COUNT: u64 = 5000;
    let map = open()?;
    expect("an empty map", map.entries().count(), 0)?;
    let value = |number: u64| stream_bytes(number, 0, (number % 300) as usize);
    let mut expected = BTreeMap::new();
    for number in 0..COUNT {
        let key = number.to_be_bytes().to_vec();
        let set = map.set(&key, value(number))?;
        expected.insert(key, (value(number), set.version));
    }
    let mut seen = BTreeMap::new();
    for item in map.entries() {
        let (key, entry) = item?;
        expect("its time to live", entry.time_to_live, None)?;
        let first = seen.insert(key, (entry.value, entry.version));
        expect("an earlier one", first, None)?;
    }
    ensure!(seen == expected, "{} entries, or others", seen.len());
    let mut keys = BTreeMap::new();
    for item in map.keys() {
        let (key, info) = item?;
        let first = keys.insert(key, (info.len, info.version));
        expect("an earlier one", first, None)?;
    }
    let lengths = |(key, (value, version)): (&Vec<u8>, &(Vec<u8>, u64))| {
        (key.clone(), (value.len(), *version))
    };
    let expected: BTreeMap<_, _> = expected.iter().map(lengths).collect();
    ensure!(keys == expected, "{} keys, or others", keys.len());
    Ok(())
}

fn an_entry_larger_than_a_page_of_the_list_is_listed(_: &Context) -> Result<()> {
    let map = open()?;
    let lengths = [0, 1 << 20, 10, 70_000, 65_536, 65_500];
    for length in lengths {
        map.set(length.to_string(), stream_bytes(length as u64, 0, length))?;
    }
    let mut seen = Vec::new();
    for item in map.entries() {
        let (key, entry) = item?;
        let length: usize = String::from_utf8(key)?.parse()?;
        let value = stream_bytes(length as u64, 0, length);
        expect_bytes("its value", &entry.value, &value)?;
        seen.push(length);
    }
    seen.sort_unstable();
    let mut expected = lengths.to_vec();
    expected.sort_unstable();
    expect("the lengths", seen, expected)
}

/// All of an event.
fn seen(event: &Event) -> (Change, &[u8], u64, u64, u64) {
    let Event {
        change,
        sequence,
        version,
        missed,
        ..
    } = *event;
    (change, &event.key, sequence, version, missed)
}

fn a_watcher_receives_every_change_in_order(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("before", "")?;
    let mut watcher = watch(&map)?;
    expect("its beginning", watcher.since(), 1)?;
    let long = [b'k'; 4096];
    map.set("a", "")?;
    map.set(long, "")?;
    map.set("a", "again")?;
    map.delete("a")?;
    // Neither is a change.
    map.delete("a")?;
    map.compare_and_set("before", 9, "")
        .err()
        .context("a set")?;
    map.set("a", "")?;
    for (change, key, sequence, version) in [
        (Change::Created, &b"a"[..], 2, 2),
        (Change::Created, &long[..], 3, 3),
        (Change::Updated, &b"a"[..], 4, 4),
        (Change::Deleted, &b"a"[..], 5, 4),
        (Change::Created, &b"a"[..], 6, 6),
    ] {
        let event = watcher.try_recv()?;
        expect(
            "an event",
            seen(&event),
            (change, key, sequence, version, 0),
        )?;
    }
    let empty = watcher.try_recv();
    ensure!(matches!(empty, Err(WatchError::Empty)), "{empty:?}");
    let info = map.info()?;
    expect("the state", (info.watchers, info.watched), (1, 6))
}

fn a_late_watcher_learns_what_it_has_missed(_: &Context) -> Result<()> {
    const EVENTS: u32 = 8;
    const CHANGES: u64 = 100;
    let map = open_with(entries().events(EVENTS))?;
    let mut watcher = watch(&map)?;
    for number in 1..=CHANGES {
        map.set(number.to_ne_bytes(), "")?;
    }
    let first = watcher.try_recv()?;
    let lost = CHANGES - u64::from(EVENTS);
    expect(
        "the first",
        (first.sequence, first.missed),
        (lost + 1, lost),
    )?;
    for sequence in lost + 2..=CHANGES {
        let event = watcher.try_recv()?;
        let expected = (
            Change::Created,
            &sequence.to_ne_bytes()[..],
            sequence,
            sequence,
            0,
        );
        expect("a later one", seen(&event), expected)?;
    }
    let empty = watcher.try_recv();
    ensure!(matches!(empty, Err(WatchError::Empty)), "{empty:?}");
    expect("the count", map.info()?.missed, lost)
}

fn a_watch_continues_after_a_sequence(_: &Context) -> Result<()> {
    let map = open()?;
    for number in 1..=10_u64 {
        map.set(number.to_ne_bytes(), "")?;
    }
    for after in [0, 1, 9] {
        let mut watcher = map.watch(WatchFrom::After(after))?;
        expect("its beginning", watcher.since(), after)?;
        let event = watcher.try_recv()?;
        expect("the next", (event.sequence, event.missed), (after + 1, 0))?;
    }
    let mut watcher = map.watch(WatchFrom::After(10))?;
    let empty = watcher.try_recv();
    ensure!(matches!(empty, Err(WatchError::Empty)), "{empty:?}");
    drop(watcher);
    let future = map.watch(WatchFrom::After(11)).map(drop);
    let expected = matches!(future, Err(WatchError::NoSuchChange { sequence: 11 }));
    ensure!(expected, "{future:?}");
    Ok(())
}

fn an_endpoint_has_one_watcher_at_a_time(_: &Context) -> Result<()> {
    let map = open()?;
    let mut first = watch(&map)?;
    let second = map.watch(WatchFrom::Now).map(drop);
    let expected = matches!(second, Err(WatchError::AlreadyWatched));
    ensure!(expected, "{second:?}");
    let other = open()?;
    let mut second = watch(&other)?;
    expect("watchers", map.info()?.watchers, 2)?;
    map.set("key", "")?;
    // Each receives it.
    expect("the first", first.try_recv()?.sequence, 1)?;
    expect("the second", second.try_recv()?.sequence, 1)?;
    drop(first);
    let mut first = map.watch(WatchFrom::After(0))?;
    expect("again", first.try_recv()?.sequence, 1)?;
    // A watcher keeps the endpoint.
    drop(map);
    other.set("key", "")?;
    expect("its next", first.try_recv()?.sequence, 2)
}

fn watches_that_do_not_wait_and_timeouts(_: &Context) -> Result<()> {
    let map = open()?;
    let nonblocking = entries().nonblocking(true).open_reader()?;
    let mut watchers = [watch(&nonblocking)?, watch(&map)?];
    let empty = watchers[0].recv();
    ensure!(matches!(empty, Err(WatchError::Empty)), "{empty:?}");
    for watcher in &mut watchers {
        let empty = watcher.try_recv();
        ensure!(matches!(empty, Err(WatchError::Empty)), "{empty:?}");
        let began = Instant::now();
        let late = watcher.recv_timeout(SHORT);
        ensure!(matches!(late, Err(WatchError::TimedOut(SHORT))), "{late:?}");
        ensure!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
    }
    let late = thread::spawn(move || {
        thread::sleep(SHORT);
        map.set("late", "").map(drop)
    });
    for watcher in &mut watchers {
        expect_bytes("late", &watcher.recv_timeout(LONG)?.key, b"late")?;
    }
    late.join()
        .map_err(|_| anyhow::anyhow!("a panic"))?
        .context("a set")
}

fn a_blocked_watcher_is_woken_by_a_change(_: &Context) -> Result<()> {
    let map = open()?;
    let blocked = spawn("a blocked watcher", || {
        let map = open()?;
        let event = watch(&map)?.recv()?;
        Ok(String::from_utf8(event.key)?)
    })?;
    blocked.wait_asleep_in(Call::Read)?;
    map.set("key", "")?;
    expect("its key", blocked.finish()?, "key".to_owned())
}

fn all_calls_end_when_the_map_is_destroyed(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("key", "")?;
    let other = open()?;
    let mut watcher = watch(&other)?;
    let blocked = thread::spawn(move || watcher.recv().map(drop));
    thread::sleep(SHORT);
    entries().destroy()?;
    let ended = blocked.join().map_err(|_| anyhow::anyhow!("a panic"))?;
    ensure!(matches!(ended, Err(WatchError::Destroyed)), "{ended:?}");
    let got = map.get("key");
    ensure!(matches!(got, Err(ReadError::Destroyed)), "{got:?}");
    let mut entries = map.entries();
    let listed = entries.next();
    let expected = matches!(listed, Some(Err(ReadError::Destroyed)));
    ensure!(expected, "{listed:?}");
    expect("the end of the list", entries.next().is_none(), true)?;
    let set = map.set("key", "");
    ensure!(matches!(set, Err(WriteError::Destroyed)), "{set:?}");
    let deleted = map.delete("key");
    ensure!(matches!(deleted, Err(WriteError::Destroyed)), "{deleted:?}");
    let watched = map.watch(WatchFrom::Now).map(drop);
    ensure!(matches!(watched, Err(WatchError::Destroyed)), "{watched:?}");
    let outcomes = map.batch().get("key").set("key", "").delete("key").run();
    let seen = outcomes.iter().map(summary).collect();
    expect("a batch", seen, vec!["Destroyed".to_owned(); 3])?;
    // A new one of the name.
    expect("the new map", open()?.get("key")?, None)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("a runtime")
}

fn an_idle_task_is_woken_by_a_change(_: &Context) -> Result<()> {
    let map = open()?;
    let watcher = watch(&map)?;
    runtime()?.block_on(async move {
        let mut watcher = AsyncWatcher::new(watcher)?;
        let late = watcher.recv_timeout(SHORT).await;
        ensure!(matches!(late, Err(WatchError::TimedOut(SHORT))), "{late:?}");
        let setting = tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            map.set("one", "")?;
            map.set("two", "")
        });
        expect_bytes("the first", &watcher.recv().await?.key, b"one")?;
        expect_bytes("the second", &watcher.recv().await?.key, b"two")?;
        setting.await?.context("a set")?;
        let destroying = tokio::spawn(async move {
            tokio::time::sleep(SHORT).await;
            entries().destroy().context("destroying the map")
        });
        for _ in 0..2 {
            let ended = watcher.recv().await;
            ensure!(matches!(ended, Err(WatchError::Destroyed)), "{ended:?}");
        }
        destroying.await?
    })
}

/// Many more than one read returns, by a task of the same thread.
fn a_stream_yields_all_events(_: &Context) -> Result<()> {
    const COUNT: u64 = 5000;
    let map = open_with(entries().events(8192))?;
    let watcher = watch(&map)?;
    runtime()?.block_on(async move {
        let mut watcher = AsyncWatcher::new(watcher)?;
        let setting = tokio::spawn(async move {
            for number in 1..=COUNT {
                map.set("key", number.to_ne_bytes())?;
                if number % 100 == 0 {
                    tokio::task::yield_now().await;
                }
            }
            anyhow::Ok(())
        });
        for sequence in 1..=COUNT {
            let event = poll_fn(|cx| Pin::new(&mut watcher).poll_next(cx)).await;
            let event = event.context("the end of the stream")??;
            expect("an event", (event.sequence, event.missed), (sequence, 0))?;
        }
        setting.await?.context("setting")
    })
}

type User = (String, Vec<u32>);

fn typed_entries_are_those_that_were_set(_: &Context) -> Result<()> {
    let map: TypedMap<(u32, String), User> = TypedMap::new(open()?);
    let mut watcher = map.watch(WatchFrom::Now)?;
    let key = |number: u32| (number, format!("user {number}"));
    let user = |number: u32| (format!("name {number}"), (0..number).collect());
    for number in 0..100 {
        let set = map.set(&key(number), &user(number))?;
        expect("its version", set.version, u64::from(number) + 1)?;
        let event = map.decode(watcher.try_recv()?)?;
        expect("the key of the event", event.key, key(number))?;
    }
    let entry = map.get(&key(99))?.context("no entry")?;
    expect("its value", entry.value, user(99))?;
    let mut listed = 0;
    for item in map.entries() {
        let (found, entry) = item?;
        expect("its key", &found, &key(found.0))?;
        expect("its value", entry.value, user(found.0))?;
        listed += 1;
    }
    expect("the entries", (listed, map.keys().count()), (100, 100))?;
    let late = map.compare_and_set(&key(5), 1, &user(5));
    let conflict = late.as_ref().is_err_and(|error| error.is_conflict());
    ensure!(conflict, "{late:?}");
    expect("a delete", map.delete(&key(5))?, Some(101))?;
    expect("afterwards", map.get(&key(5))?, None)?;
    let logins: TypedMap<String, u32> = TypedMap::new(open()?);
    logins.set("alice", &1)?;
    let owned = logins.get(&"alice".to_owned())?.context("no entry")?;
    expect("the value of a borrowed key", owned.value, 1)?;
    expect("a delete by it", logins.delete("alice")?.is_some(), true)?;
    // A value of another type is an error, and does not end the list.
    map.get_ref().set("odd", "")?;
    let invalid = map.entries().filter(Result::is_err).count();
    expect(
        "invalid entries",
        (invalid, map.entries().count()),
        (1, 100),
    )
}

fn a_full_map_refuses_entries_until_one_is_deleted(_: &Context) -> Result<()> {
    let is_full = |set: &Result<Set, WriteError>| matches!(set, Err(WriteError::Full));
    let map = open_with(entries().entries(3))?;
    for key in ["a", "b", "c"] {
        map.set(key, "")?;
    }
    let full = map.set("d", "");
    ensure!(is_full(&full), "{full:?}");
    map.set("c", "an existing key")?;
    map.delete("a")?;
    map.set("d", "")?;
    entries().unlink()?;
    let map = open_with(entries().capacity(256 << 10).events(64))?;
    let value = [0; 10_000];
    let mut set = 0_u64;
    let full = loop {
        match map.set(set.to_ne_bytes(), value) {
            Ok(_) => set += 1,
            failed => break failed,
        }
    };
    ensure!(is_full(&full), "{full:?}");
    ensure!((20..=26).contains(&set), "{set} values");
    let info = map.info()?;
    expect("entries", info.entries, set)?;
    ensure!(info.bytes <= info.capacity, "{info:?}");
    ensure!(info.bytes >= set * 10_000, "{info:?}");
    // More than the entry needs: the log of changes keeps the deleted keys.
    map.delete(0_u64.to_ne_bytes())?;
    map.delete(1_u64.to_ne_bytes())?;
    map.set("another", value)
        .map(drop)
        .context("after a delete")
}

fn an_endpoint_does_what_it_was_opened_for(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("key", "")?;
    let (reader, writer) = (entries().open_reader()?, entries().open_writer()?);
    reader.get("key")?.context("no entry")?;
    expect("the list", reader.keys().count(), 1)?;
    let set = reader.set("key", "");
    ensure!(matches!(set, Err(WriteError::NotWritable)), "{set:?}");
    let deleted = reader.delete("key");
    ensure!(
        matches!(deleted, Err(WriteError::NotWritable)),
        "{deleted:?}"
    );
    writer.set("key", "")?;
    let got = writer.get("key");
    ensure!(matches!(got, Err(ReadError::NotReadable)), "{got:?}");
    let listed = writer.entries().next();
    let expected = matches!(listed, Some(Err(ReadError::NotReadable)));
    ensure!(expected, "{listed:?}");
    let watched = writer.watch(WatchFrom::Now).map(drop);
    ensure!(
        matches!(watched, Err(WatchError::NotReadable)),
        "{watched:?}"
    );
    for (end, expected) in [
        (&reader, ["'' 2", "NotWritable"]),
        (&writer, ["NotReadable", "none"]),
    ] {
        let outcomes = end.batch().get("key").delete("none").run();
        let seen: Vec<_> = outcomes.iter().map(summary).collect();
        expect("a batch", seen, expected.map(str::to_owned).to_vec())?;
    }
    writer.info().map(drop).context("the state of a writer")
}

fn the_state_of_the_map_is_shown(_: &Context) -> Result<()> {
    let map = open_with(entries().capacity(1 << 20).entries(9).events(100))?;
    let empty = map.info()?;
    let limits = (empty.capacity, empty.entries_max, empty.events);
    expect("the limits", limits, (1 << 20, Some(9), 128))?;
    map.set("key", [0; 1000])?;
    map.set("other", "")?;
    map.delete("other")?;
    let reader = entries().open_reader()?;
    let mut watcher = reader.watch(WatchFrom::After(0))?;
    watcher.try_recv()?;
    let (of_channel, of_endpoint) = (entries().info()?, reader.info()?);
    // A read returns all changes.
    expect("this endpoint", of_endpoint.watched, 3)?;
    expect("no endpoint", of_channel.watched, 0)?;
    for info in [of_channel, of_endpoint] {
        expect("entries", (info.entries, info.sequence), (1, 3))?;
        expect("losses", (info.expired, info.missed), (0, 0))?;
        expect("watchers", info.watchers, 1)?;
        ensure!(
            info.bytes >= empty.bytes + 1003,
            "{info:?}, before {empty:?}"
        );
    }
    let info = entries().channel()?.info()?;
    let shown = (info.readers, info.writers, info.capacity);
    expect("the channel", shown, (2, 1, 1 << 20))?;
    ensure!(info.bytes >= 1003, "{info:?}");
    drop(map);
    Ok(())
}

fn an_endpoint_can_be_attached_again(_: &Context) -> Result<()> {
    let map = open()?;
    map.set("key", "value")?;
    let map = Map::attach(OwnedFd::from(map)).context("attaching the map")?;
    let entry = map.get("key")?.context("no entry")?;
    expect_bytes("its value", &entry.value, b"value")?;
    let sender = Bus::named("prices").create(true).sender()?;
    let wrong = Map::attach(sender.into()).map(drop);
    ensure!(matches!(wrong, Err(OpenError::NotAMap)), "{wrong:?}");
    let wrong = sluice::bus::Sender::attach(map.into()).map(drop);
    let expected = matches!(wrong, Err(sluice::bus::OpenError::NotABus));
    ensure!(expected, "{wrong:?}");
    Ok(())
}

fn each_failure_to_open_has_its_own_error(_: &Context) -> Result<()> {
    let missing = entries().open().map(drop);
    let expected = matches!(missing, Err(OpenError::Open(Error::NotFound { .. })));
    ensure!(expected, "{missing:?}");
    for options in [
        entries().capacity(u64::MAX),
        entries().capacity(1),
        entries().events(65_536).capacity(64 << 10),
        entries().events(65_537),
    ] {
        let invalid = options.create_persistent();
        let expected = matches!(invalid, Err(OpenError::InvalidOptions));
        ensure!(expected, "{options:?}: {invalid:?}");
    }
    entries().create_persistent()?;
    let taken = entries().create_persistent();
    let expected = matches!(taken, Err(OpenError::Open(Error::AlreadyExists { .. })));
    ensure!(expected, "{taken:?}");
    Ok(())
}
