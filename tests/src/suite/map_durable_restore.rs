// SPDX-License-Identifier: MIT OR Apache-2.0
//! The restoration of stored maps, for an open and by the keeper itself.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use sluice_abi::map::{MAPPED, MMAP_TABLE};
use sluice_testkit::time::eventually;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::set_nonblocking;
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::credentials::become_user;
use crate::support::ctl::{
    BOTH, CREATE, Ctl, OWN, Open, PERSIST, PERSISTENT, READ, WRITE, expect_no_channel,
};
use crate::support::durable::{
    DURABLE, INTERVAL, NEW, NOWAIT, REFUSE, STREAM_MAX, blocked, durable, failed, open_result,
    set_with,
};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    Create, EXPIRE, Entry, Keeper, LIMIT, Map, Message, OPEN, RESTORE, RESTORE_MAX, RESUME,
    Restore, SET, Stored, answering,
};
use crate::support::kernel::expect_no_objects;
use crate::support::map::{
    self, DEFAULT_CAPACITY, Dumped, Info, KEY_MAX, Maps, NAME, NOW, VALUE_MAX, dump, dump_with,
    events, get, get_entry, put, set_if, state, watch,
};
use crate::support::memcg::{Accounts, SLACK, memory_current};
use crate::support::memory::PAGE;
use crate::support::netlink::{Attrs, Socket};
use crate::support::parameter::Parameter;
use crate::support::random::stream_bytes;
use crate::support::ring::{READ_ONLY, Region};

topic!(
    "map_durable_restore",
    fifo: [],
    pipe_only: [
        the_keeper_restores_a_map_without_an_open,
        a_map_is_restored_in_any_cgroup,
        a_restored_map_has_its_owner_and_mode,
        a_restored_map_has_its_parameters,
        the_longest_keys_and_values_are_restored,
        times_to_live_go_on,
        a_time_that_has_passed_is_not_restored,
        a_restored_entry_expires,
        a_dump_over_netlink_passes_over_expired_entries_in_parts,
        expired_entries_of_an_ended_map_are_removed_without_a_change,
        many_entries_are_restored_in_any_order,
        a_restored_version_can_be_required,
        a_dump_of_a_restored_map_is_exact,
        a_watch_begins_after_the_stored_changes,
        a_key_is_restored_once,
        an_invalid_entry_is_einval,
        an_entry_in_inaccessible_memory_is_efault,
        at_most_256_entries_are_restored_by_a_call,
        a_full_map_is_enospc,
        only_between_create_and_ready_is_anything_restored,
        a_map_is_not_found_before_it_is_ready,
        a_name_that_is_taken_is_eexist,
        a_name_that_is_taken_meanwhile_is_eexist,
        an_open_finds_a_map_that_was_restored_meanwhile,
        an_error_of_the_keeper_drops_its_own_map,
        invalid_maps_are_refused,
        a_map_of_an_open_is_created_once_and_by_its_name,
        without_a_limit_no_change_is_admitted,
        a_restored_map_survives_its_keeper,
        a_restored_map_is_charged_to_its_owner,
        a_map_of_an_open_is_charged_to_the_opener,
        a_scope_at_its_limit_is_enospc,
        memory_is_charged_to_the_cgroup_of_the_map,
        the_cgroup_of_a_map_may_be_removed_meanwhile,
    ],
);

const KEY: &[u8] = b"key";
const SEQUENCE: u64 = 1000;

/// A stored map of root with this name.
fn stored_as(name: &str) -> Map {
    Map {
        mode: 0o600,
        events: 1024,
        capacity: 8 << 20,
        deadline_ms: durable(0).deadline_ms,
        interval_ms: 1000,
        ..Map::new(name, DURABLE | INTERVAL)
    }
}

fn stored() -> Map {
    stored_as(NAME)
}

/// The keeper begins to restore it in the own cgroup; the stream.
fn begin(keeper: &Keeper, map: &Map) -> Result<u64> {
    let created = keeper.create_at(0, OWN, map, SEQUENCE, LIMIT);
    created.context("CREATE")
}

/// The keeper restores it in the own cgroup; the stream.
fn restore(keeper: &Keeper, map: &Map, entries: &[Stored]) -> Result<u64> {
    let stream = begin(keeper, map)?;
    let count = keeper.restore(stream, entries).context("RESTORE")?;
    expect("restored", count, entries.len())?;
    keeper.ready(stream).context("READY")?;
    Ok(stream)
}

/// A restored map with these entries, and an endpoint in non-blocking mode.
struct Restored {
    end: OwnedFd,
    stream: u64,
    maps: Maps,
    keeper: Keeper,
}

fn restored(entries: &[Stored]) -> Result<Restored> {
    restored_as(&stored(), entries)
}

fn restored_as(map: &Map, entries: &[Stored]) -> Result<Restored> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = restore(&keeper, map, entries)?;
    Ok(Restored {
        end: maps.attach()?,
        stream,
        maps,
        keeper,
    })
}

// ---- what is restored ----

fn the_keeper_restores_a_map_without_an_open(_: &Context) -> Result<()> {
    let entries = [Stored::new(b"a", b"1", 900), Stored::new(b"b", b"", 3)];
    let map = restored(&entries)?;
    for entry in &entries {
        let seen = get_entry(&map.end, &entry.key).context("getting")?;
        let expected = map::Entry {
            value: entry.value.clone(),
            version: entry.version,
            ttl_ns: 0,
        };
        expect("an entry", seen, expected)?;
    }
    let (channel, _) = map.maps.info().context("asking by name")?;
    expect("its flags", channel.flags, PERSISTENT)?;
    let seen = state(&map.end)?;
    let numbers = (seen.entries, seen.sequence, seen.stored, seen.pending);
    expect("entries and numbers", numbers, (2, SEQUENCE, SEQUENCE, 0))?;
    expect("the next number", put(&map.end, b"a", b"")?, SEQUENCE + 1)?;
    let record = map.keeper.expect_next(SET, map.stream)?;
    expect("its record", record.sequence, SEQUENCE + 1)?;
    map.keeper.expect_nothing()
}

fn a_map_is_restored_in_any_cgroup(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let inner = context.cgroup()?.create_child("inner")?;
    let directory = inner.directory()?;
    for (scope_fd, cgroup) in [
        (directory.as_raw_fd(), &inner),
        (sluice_abi::SCOPE_ROOT, &Cgroup::root()?),
    ] {
        let created = keeper.create_at(0, scope_fd, &stored(), SEQUENCE, LIMIT);
        let stream = created.context("CREATE")?;
        keeper.ready(stream).context("READY")?;
        let user = cgroup.spawn("a process in the cgroup", || {
            let end = Maps::new()?.attach()?;
            put(&end, KEY, b"value")
        })?;
        expect("its number", user.finish()?, SEQUENCE + 1)?;
        keeper.expect_next(SET, stream)?;
        keeper.ack(stream, SEQUENCE + 1)?;
        expect("END", keeper.detach(stream), Ok(()))?;
    }
    Ok(())
}

fn a_restored_map_has_its_owner_and_mode(_: &Context) -> Result<()> {
    let of_user = Map {
        uid: 1001,
        gid: 2001,
        mode: 0o640,
        ..stored()
    };
    let map = restored_as(&of_user, &[Stored::new(KEY, b"value", 1)])?;
    let (channel, _) = map.maps.info().context("asking by name")?;
    let owner = (channel.uid, channel.gid, channel.mode);
    expect("owner and mode", owner, (1001, 2001, 0o640))?;
    for (user, reads, writes) in [
        (1001, Ok(()), Ok(())),
        (1002, Err(Errno::EACCES), Err(Errno::EACCES)),
    ] {
        let child = spawn("a user", || {
            become_user(user)?;
            let maps = Maps::new()?;
            let opened = [READ, WRITE].map(|flags| maps.open(flags).map(drop));
            Ok(opened.map(|result| result.map_err(|errno| errno as i32)))
        })?;
        let expected = [reads, writes].map(|result| result.map_err(|errno| errno as i32));
        expect(&format!("user {user}"), child.finish()?, expected)?;
    }
    Ok(())
}

fn a_restored_map_has_its_parameters(_: &Context) -> Result<()> {
    for flags in [DURABLE, DURABLE | INTERVAL, DURABLE | INTERVAL | REFUSE] {
        let described = Map {
            flags,
            events: 64,
            capacity: 123 << 10,
            entries: 77,
            deadline_ms: 4321,
            interval_ms: if flags & INTERVAL != 0 { 99 } else { 0 },
            ..stored()
        };
        let map = restored_as(&described, &[])?;
        let seen = state(&map.end)?;
        let expected = Info {
            flags,
            capacity: described.capacity,
            bytes: seen.bytes,
            entries_max: 77,
            sequence: SEQUENCE,
            stored: SEQUENCE,
            events: 64,
            deadline_ms: 4321,
            interval_ms: described.interval_ms,
            ..Info::default()
        };
        expect("its state", seen, expected)?;
    }
    Ok(())
}

fn the_longest_keys_and_values_are_restored(_: &Context) -> Result<()> {
    let entries: Vec<Stored> = [(KEY_MAX, VALUE_MAX), (1, 0), (1000, 5000), (KEY_MAX - 1, 1)]
        .iter()
        .zip(1..)
        .map(|((key, value), version)| {
            let (key, value) = (stream_bytes(1, 0, *key), stream_bytes(2, 0, *value));
            Stored::new(&key, &value, version)
        })
        .collect();
    let map = restored(&entries)?;
    for entry in &entries {
        let value = get(&map.end, &entry.key).context("getting")?;
        expect_bytes("the value", &value, &entry.value)?;
    }
    Ok(())
}

/// The time of CLOCK_BOOTTIME after this span.
fn after(span: Duration) -> Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok((now + span).as_nanos() as u64)
}

fn timed(key: &[u8], expires_ns: u64) -> Stored {
    Stored {
        expires_ns,
        ..Stored::new(key, b"value", 1)
    }
}

fn times_to_live_go_on(_: &Context) -> Result<()> {
    const LONG: Duration = Duration::from_secs(3600);
    let map = restored(&[timed(KEY, after(LONG)?)])?;
    let left = get_entry(&map.end, KEY).context("getting")?.ttl_ns;
    let span = LONG.as_nanos() as u64;
    ensure!(
        (span - 20_000_000_000..=span).contains(&left),
        "{left} ns of {span} are left"
    );
    map.keeper.expect_nothing()
}

fn a_time_that_has_passed_is_not_restored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    for (key, expires_ns) in [(&b"past"[..], 1), (b"now", after(Duration::ZERO)?)] {
        keeper
            .restore(stream, &[timed(key, expires_ns)])
            .context("RESTORE")?;
    }
    keeper.ready(stream).context("READY")?;
    let end = maps.attach()?;
    for key in [&b"past"[..], b"now"] {
        expect("a get", get(&end, key), Err(Errno::ENOENT))?;
    }
    Ok(())
}

fn a_restored_entry_expires(_: &Context) -> Result<()> {
    let expires = after(Duration::from_millis(200))?;
    let map = restored(&[timed(b"short", expires), Stored::new(KEY, b"value", 2)])?;
    let record = map.keeper.expect_next(EXPIRE, map.stream)?;
    expect("its number", record.sequence, SEQUENCE + 1)?;
    expect_bytes("its key", &record.key, b"short")?;
    map.keeper.ack(map.stream, record.sequence)?;
    expect("a get", get(&map.end, b"short"), Err(Errno::ENOENT))?;
    expect("the other", get(&map.end, KEY), Ok(b"value".to_vec()))?;
    expect("entries", state(&map.end)?.entries, 1)
}

/// Restores a map with so many entries whose time has passed, and one without a limit. The stream has no number left, so
/// that they are not removed. The stream, and an endpoint.
fn restore_expired(keeper: &Keeper, map: &Map, count: u64) -> Result<(u64, OwnedFd)> {
    let mut span = Duration::from_secs(1);
    loop {
        let expires = after(span)?;
        let stream = keeper.create_at(0, OWN, map, count + 1, count + 1);
        let stream = stream.context("CREATE")?;
        let keys: Vec<u64> = (0..count).collect();
        for part in keys.chunks(RESTORE_MAX) {
            let entries = part.iter().map(|key| timed(&key.to_ne_bytes(), expires));
            let entries: Vec<Stored> = entries.collect();
            let restored = keeper.restore(stream, &entries).context("RESTORE")?;
            expect("restored", restored, part.len())?;
        }
        let lasting = [Stored::new(KEY, b"another", 1)];
        expect("RESTORE", keeper.restore(stream, &lasting), Ok(1))?;
        keeper.ready(stream).context("READY")?;
        let end = Maps::new()?.attach()?;
        // None is restored after its time.
        if state(&end)?.entries == count + 1 {
            thread::sleep(Duration::from_nanos(
                expires.saturating_sub(after(Duration::ZERO)?),
            ));
            return Ok((stream, end));
        }
        expect("END", keeper.detach(stream), Ok(()))?;
        span *= 2;
    }
}

fn a_dump_over_netlink_passes_over_expired_entries_in_parts(_: &Context) -> Result<()> {
    /// For one message the kernel looks at about a third of them.
    const EXPIRED_ENTRIES: u64 = 3 * 4096;
    let keeper = Keeper::new()?;
    let (_, end) = restore_expired(&keeper, &stored(), EXPIRED_ENTRIES)?;
    let socket = Socket::new()?;
    let dump = socket.begin_dump(&Attrs::new().name(NAME))?;
    let (mut found, mut empty) = (Vec::new(), 0);
    while let Some(entries) = socket.next_of_dump(dump)? {
        empty += u32::from(entries.is_empty());
        found.extend(entries.into_iter().map(|entry| entry.key));
    }
    expect("what it returns", found, vec![KEY.to_vec()])?;
    ensure!(empty > 1, "{empty} messages were without entries");
    expect("entries", state(&end)?.entries, EXPIRED_ENTRIES + 1)
}

fn expired_entries_of_an_ended_map_are_removed_without_a_change(_: &Context) -> Result<()> {
    const EXPIRED_ENTRIES: u64 = 100;
    let keeper = Keeper::new()?;
    let table = 16 * PAGE as u64;
    let mapped = Map {
        table,
        cell: 128,
        flags: stored().flags | MAPPED,
        ..stored()
    };
    for map in [stored(), mapped] {
        let (stream, end) = restore_expired(&keeper, &map, EXPIRED_ENTRIES)?;
        let bytes = state(&end)?.bytes;
        expect("END", keeper.detach(stream), Ok(()))?;
        eventually("the expired entries are removed", || {
            Ok((state(&end)?.entries == 1).then_some(()))
        })?;
        let seen = state(&end)?;
        let numbers = (seen.expired, seen.sequence);
        expect(
            "expired, the last change",
            numbers,
            (EXPIRED_ENTRIES, EXPIRED_ENTRIES + 1),
        )?;
        eventually("their memory is free", || {
            Ok((state(&end)?.bytes + 100 * EXPIRED_ENTRIES < bytes).then_some(()))
        })?;
        expect("the other", get(&end, KEY), Ok(b"another".to_vec()))?;
        if map.table != 0 {
            let cells = Region::map(&end, MMAP_TABLE, table as usize, READ_ONLY)?;
            let cells = cells.read(0, table as usize);
            let is_left = cells.windows(5).any(|bytes| bytes == b"value");
            ensure!(!is_left, "the table has values of removed entries");
        }
    }
    Ok(())
}

/// Entries in another order than that of keys and of versions.
fn many_entries() -> Vec<Stored> {
    const COUNT: u64 = 600;
    (0..COUNT)
        .map(|number| {
            let key = (number * 7 % COUNT).to_ne_bytes();
            let value = stream_bytes(3, number, (number % 300) as usize);
            Stored::new(&key, &value, 1 + number * 13 % COUNT)
        })
        .collect()
}

/// All records of a dump, by key.
fn sorted(mut records: Vec<Dumped>) -> Vec<Dumped> {
    records.sort_by(|a, b| a.key.cmp(&b.key));
    records
}

fn dumped(entries: &[Stored]) -> Vec<Dumped> {
    let dumped = |entry: &Stored| Dumped {
        key: entry.key.clone(),
        value: entry.value.clone(),
        version: entry.version,
        ttl_ns: 0,
    };
    sorted(entries.iter().map(dumped).collect())
}

/// Restores entries 200 by 200.
fn restore_many(keeper: &Keeper, entries: &[Stored]) -> Result<u64> {
    let stream = begin(keeper, &stored())?;
    for part in entries.chunks(200) {
        let count = keeper.restore(stream, part).context("RESTORE")?;
        expect("restored", count, part.len())?;
    }
    keeper.ready(stream).context("READY")?;
    Ok(stream)
}

fn many_entries_are_restored_in_any_order(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let entries = many_entries();
    restore_many(&keeper, &entries)?;
    let end = maps.attach()?;
    for entry in &entries {
        let seen = get_entry(&end, &entry.key).context("getting")?;
        expect("the version", seen.version, entry.version)?;
        expect_bytes("the value", &seen.value, &entry.value)?;
    }
    expect("entries", state(&end)?.entries, entries.len() as u64)
}

fn a_restored_version_can_be_required(_: &Context) -> Result<()> {
    let map = restored(&[Stored::new(KEY, b"value", 123)])?;
    let other = set_if(&map.end, KEY, b"", 124).map(drop);
    expect("another version", other, Err(Errno::ESTALE))?;
    let none = set_if(&map.end, KEY, b"", 0).map(drop);
    expect("no entry", none, Err(Errno::EEXIST))?;
    let done = set_if(&map.end, KEY, b"new", 123).context("its version")?;
    expect("the new one", done.version, SEQUENCE + 1)?;
    let deleted = map::delete_if(&map.end, KEY, SEQUENCE + 1);
    expect("a delete", deleted, Ok(SEQUENCE + 2))
}

fn a_dump_of_a_restored_map_is_exact(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let entries = many_entries();
    restore_many(&keeper, &entries)?;
    let end = maps.attach()?;
    let expected = dumped(&entries);
    for room in [500, 5000, 1 << 20] {
        let seen = sorted(dump_with(&end, 0, room)?);
        expect("the dump", seen == expected, true)?;
    }
    // Later entries and changes are dumped as in any map.
    let number = put(&end, b"new", b"value")?;
    let changed = put(&end, &entries[5].key, b"changed")?;
    map::delete(&end, &entries[6].key).context("deleting")?;
    let mut expected = expected;
    expected.retain(|entry| entry.key != entries[6].key);
    for entry in &mut expected {
        if entry.key == entries[5].key {
            (entry.value, entry.version) = (b"changed".to_vec(), changed);
        }
    }
    expected.push(Dumped {
        key: b"new".to_vec(),
        value: b"value".to_vec(),
        version: number,
        ttl_ns: 0,
    });
    expect("the dump", dump(&end)? == sorted(expected), true)
}

fn a_watch_begins_after_the_stored_changes(_: &Context) -> Result<()> {
    let map = restored(&[Stored::new(KEY, b"value", 5)])?;
    expect("now", watch(&map.end, NOW), Ok(SEQUENCE))?;
    expect("events", events(&map.end)?.len(), 0)?;
    put(&map.end, KEY, b"")?;
    let seen = events(&map.end)?;
    let last = seen.last().context("there is no event")?;
    let numbers = (seen.len(), last.sequence, last.missed);
    expect("the event", numbers, (1, SEQUENCE + 1, 0))?;
    expect("from the last", watch(&map.end, SEQUENCE), Ok(SEQUENCE))?;
    expect("events", events(&map.end)?.len(), 1)?;
    let later = watch(&map.end, SEQUENCE + 2);
    expect("from a later one", later, Err(Errno::EINVAL))?;
    // A watcher that was there before the restoration has missed what was stored since.
    expect("from an earlier one", watch(&map.end, 990), Ok(990))?;
    let seen = events(&map.end)?;
    let last = seen.last().context("there is no event")?;
    expect("missed", (last.sequence, last.missed), (SEQUENCE + 1, 10))
}

// ---- entries ----

fn a_key_is_restored_once(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    let (first, second) = (Stored::new(b"a", b"1", 5), Stored::new(b"b", b"2", 6));
    let restored = keeper.restore(stream, std::slice::from_ref(&first));
    expect("the first", restored, Ok(1))?;
    for version in [5, 6, 7] {
        let again = keeper.restore(stream, &[Stored::new(b"a", b"other", version)]);
        expect("again", again, Err(Errno::EEXIST))?;
    }
    // An error after the first entry ends the call.
    let part = keeper.restore(stream, &[second, first.clone(), Stored::new(b"c", b"3", 8)]);
    expect("restored", part, Ok(1))?;
    keeper.ready(stream).context("READY")?;
    let end = maps.attach()?;
    let expected = dumped(&[first, Stored::new(b"b", b"2", 6)]);
    expect("the map", dump(&end)?, expected)
}

fn an_invalid_entry_is_einval(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = begin(&keeper, &stored())?;
    let long = vec![0; VALUE_MAX + 1];
    for (what, entry) in [
        ("no version", Stored::new(KEY, b"", 0)),
        ("a version to come", Stored::new(KEY, b"", SEQUENCE + 1)),
        ("the last version", Stored::new(KEY, b"", u64::MAX)),
        ("no key", Stored::new(b"", b"", 1)),
        ("a long key", Stored::new(&long[..KEY_MAX + 1], b"", 1)),
        ("a long value", Stored::new(KEY, &long, 1)),
    ] {
        let seen = keeper.restore(stream, &[entry]);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    let greatest = [Stored::new(KEY, b"", SEQUENCE)];
    expect("the greatest", keeper.restore(stream, &greatest), Ok(1))
}

fn an_entry_in_inaccessible_memory_is_efault(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = begin(&keeper, &stored())?;
    let valid = Entry::new(KEY, b"value", 1, 0);
    for (what, entry) in [
        ("the key", Entry { key: 1, ..valid }),
        ("the value", Entry { value: 1, ..valid }),
        (
            "the key of the kernel",
            Entry {
                key: 0xffff_8880_0000_0000,
                ..valid
            },
        ),
        (
            "the last address",
            Entry {
                value: u64::MAX,
                ..valid
            },
        ),
    ] {
        let mut restore = Restore::new(stream, std::slice::from_ref(&entry));
        let seen = raw(&keeper, RESTORE, &mut restore);
        expect(what, seen, Err(Errno::EFAULT))?;
    }
    let mut restore = Restore::new(stream, std::slice::from_ref(&valid));
    expect("valid", raw(&keeper, RESTORE, &mut restore), Ok(()))?;
    expect("restored", restore.count, 1)
}

fn at_most_256_entries_are_restored_by_a_call(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let stream = begin(&keeper, &stored())?;
    let entries = many_entries();
    expect("none", keeper.restore(stream, &[]), Ok(0))?;
    expect("restored", keeper.restore(stream, &entries), Ok(256))?;
    expect(
        "one more",
        keeper.restore(stream, &entries[256..257]),
        Ok(1),
    )
}

fn a_full_map_is_enospc(_: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let small = Map {
        capacity: 256 << 10,
        entries: 3,
        ..stored()
    };
    let stream = begin(&keeper, &small)?;
    let large = [Stored::new(b"large", &vec![1; 300 << 10], 1)];
    let seen = keeper.restore(stream, &large);
    expect("beyond the bytes", seen, Err(Errno::ENOSPC))?;
    let entries = [b"a", b"b", b"c", b"d"].map(|key| Stored::new(key, b"", 1));
    expect("restored", keeper.restore(stream, &entries), Ok(3))?;
    let seen = keeper.restore(stream, &entries[3..]);
    expect("beyond the entries", seen, Err(Errno::ENOSPC))
}

// ---- order ----

/// A process that waits in an open of a durable map, and the message to the keeper.
fn waiting_open(keeper: &Keeper, maps: &Maps) -> Result<(Child<Result<(), i32>>, Message)> {
    let opener = blocked(&maps.0, || open_result(maps, NEW, durable(0)))?;
    Ok((opener, keeper.next_of(OPEN)?))
}

fn only_between_create_and_ready_is_anything_restored(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let entries = [Stored::new(KEY, b"value", 1)];
    let (opener, asked) = waiting_open(&keeper, &maps)?;
    let early = keeper.restore(asked.stream, &entries);
    expect("RESTORE before CREATE", early, Err(Errno::EINVAL))?;
    let early = keeper.ready(asked.stream);
    expect("READY before CREATE", early, Err(Errno::EINVAL))?;
    keeper.create(&asked, 10)?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))?;
    for _ in 0..2 {
        let late = keeper.restore(asked.stream, &entries);
        expect("RESTORE after READY", late, Err(Errno::EINVAL))?;
        for late in [
            keeper.ready(asked.stream),
            keeper.refuse(asked.stream, Errno::EIO),
        ] {
            expect("READY again", late, Err(Errno::EINVAL))?;
        }
        let late = keeper.create_at(asked.stream, OWN, &asked.map()?, 10, LIMIT);
        expect("CREATE again", late, Err(Errno::EINVAL))?;
        // Neither by the next keeper.
        keeper.restart()?;
        keeper.expect_next(RESUME, asked.stream)?;
    }
    let end = maps.attach()?;
    expect("entries", state(&end)?.entries, 0)
}

fn a_map_is_not_found_before_it_is_ready(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    keeper
        .restore(stream, &[Stored::new(KEY, b"value", 1)])
        .context("RESTORE")?;
    expect("an open", maps.open(BOTH).map(drop), Err(Errno::ENOENT))?;
    expect("its state", maps.info().map(drop), Err(Errno::ENOENT))?;
    expect("an unlink", maps.unlink(), Err(Errno::ENOENT))?;
    expect("names", maps.0.names(OWN), Ok(vec![]))?;
    keeper.ready(stream).context("READY")?;
    expect("an open", maps.open(BOTH).map(drop), Ok(()))
}

fn a_name_that_is_taken_is_eexist(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let taken = || {
        let seen = keeper.create_at(0, OWN, &stored(), SEQUENCE, LIMIT);
        expect("CREATE", seen, Err(Errno::EEXIST))
    };
    let volatile = maps.create()?;
    taken()?;
    drop(volatile);
    let stream = restore(&keeper, &stored(), &[])?;
    taken()?;
    expect("END", keeper.detach(stream), Ok(()))?;
    restore(&keeper, &stored(), &[]).map(drop)
}

fn a_name_that_is_taken_meanwhile_is_eexist(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, &stored())?;
    keeper
        .restore(stream, &[Stored::new(KEY, b"value", 1)])
        .context("RESTORE")?;
    let volatile = maps.create()?;
    expect("READY", keeper.ready(stream), Err(Errno::EEXIST))?;
    expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    keeper.expect_nothing()?;
    expect("entries", state(&volatile)?.entries, 0)?;
    drop(volatile);
    expect_no_channel(&maps.0)
}

/// The keeper restores a map on its own account while an open of it waits.
fn an_open_finds_a_map_that_was_restored_meanwhile(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for answers_estale in [true, false] {
        let (opener, asked) = waiting_open(&keeper, &maps)?;
        let stream = restore(&keeper, &stored(), &[Stored::new(KEY, b"value", 1)])?;
        if answers_estale {
            let refused = keeper.refuse(asked.stream, Errno::ESTALE);
            expect("READY", refused, Ok(()))?;
        } else {
            // A second map of the name is not kept, whoever is told.
            keeper.create(&asked, 0)?;
            let ready = keeper.ready(asked.stream);
            ensure!([Ok(()), Err(Errno::EEXIST)].contains(&ready), "{ready:?}");
        }
        expect("the open", opener.finish()?, Ok(()))?;
        let end = maps.attach()?;
        expect("its entry", get(&end, KEY), Ok(b"value".to_vec()))?;
        let others = keeper.take()?;
        let of_other = |message: &Message| message.stream == asked.stream;
        ensure!(others.iter().all(of_other), "{others:?}");
        expect("END", keeper.detach(stream), Ok(()))?;
    }
    expect_no_channel(&maps.0)
}

fn an_error_of_the_keeper_drops_its_own_map(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for errno in [Errno::EIO, Errno::ESTALE, Errno::ENOMEM] {
        let stream = begin(&keeper, &stored())?;
        keeper
            .restore(stream, &[Stored::new(KEY, b"value", 1)])
            .context("RESTORE")?;
        expect("READY", keeper.refuse(stream, errno), Ok(()))?;
        expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    }
    keeper.expect_nothing()?;
    expect_no_channel(&maps.0)
}

// ---- invalid calls ----

fn invalid_maps_are_refused(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let valid = stored();
    let long_name = Map {
        name: [b'x'; 64],
        ..valid
    };
    let after_the_end = {
        let mut map = stored_as("x");
        map.name[10] = b'y';
        map
    };
    for (what, map) in [
        ("volatile", Map { flags: 0, ..valid }),
        (
            "no durable flag",
            Map {
                flags: INTERVAL,
                ..valid
            },
        ),
        (
            "an unknown flag",
            Map {
                flags: DURABLE | 0x08,
                ..valid
            },
        ),
        (
            "the mode",
            Map {
                mode: 0o1000,
                ..valid
            },
        ),
        ("events", Map { events: 3, ..valid }),
        (
            "a capacity below the log",
            Map {
                capacity: 1,
                ..valid
            },
        ),
        (
            "the capacity",
            Map {
                capacity: u64::MAX,
                ..valid
            },
        ),
        (
            "the user",
            Map {
                uid: u32::MAX,
                ..valid
            },
        ),
        (
            "the group",
            Map {
                gid: u32::MAX,
                ..valid
            },
        ),
        ("no name", stored_as("")),
        ("the name of the directory", stored_as(".")),
        ("a name with a slash", stored_as("a/b")),
        ("a name without an end", long_name),
        ("a name with more after its end", after_the_end),
    ] {
        let seen = keeper.create_at(0, OWN, &map, SEQUENCE, LIMIT);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    for (what, sequence, limit) in [
        ("a sequence above the limit", 2, 1),
        ("the last sequence", u64::MAX, u64::MAX),
        ("the last limit", 0, u64::MAX),
    ] {
        let seen = keeper.create_at(0, OWN, &valid, sequence, limit);
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    // As by a call of ctl.
    for scope_fd in [-3, RawFd::MAX, keeper.as_fd().as_raw_fd()] {
        let seen = keeper.create_at(0, scope_fd, &valid, 0, LIMIT).map(drop);
        let of_ctl = maps.0.attach(scope_fd, "none").map(drop);
        expect(&format!("scope {scope_fd}"), seen, of_ctl)?;
    }
    expect_no_channel(&maps.0)
}

fn a_map_of_an_open_is_created_once_and_by_its_name(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let (opener, asked) = waiting_open(&keeper, &maps)?;
    let described = asked.map()?;
    let other_name = Map {
        name: sluice_abi::padded("other"),
        ..described
    };
    let create = |scope_fd, map: &Map, sequence| {
        let mut create = Create::new(asked.stream, scope_fd, map, sequence, LIMIT);
        raw(&keeper, crate::support::keeper::CREATE, &mut create)
    };
    for (what, seen) in [
        ("another name", create(OWN, &other_name, 0)),
        ("a scope", create(sluice_abi::SCOPE_ROOT, &described, 0)),
        (
            "volatile",
            create(
                OWN,
                &Map {
                    flags: 0,
                    ..described
                },
                0,
            ),
        ),
        ("beyond the limit", create(OWN, &described, LIMIT + 1)),
    ] {
        expect(what, seen, Err(Errno::EINVAL))?;
    }
    expect("CREATE", create(OWN, &described, 5), Ok(()))?;
    let again = create(OWN, &described, 6);
    expect("a second time", again, Err(Errno::EINVAL))?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))?;
    expect("changes", state(&maps.attach()?)?.sequence, 5)
}

fn without_a_limit_no_change_is_admitted(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let created = keeper.create_at(0, OWN, &stored(), SEQUENCE, SEQUENCE);
    let stream = created.context("CREATE")?;
    keeper.ready(stream).context("READY")?;
    let end = maps.attach()?;
    let refused = set_with(&end, KEY, b"", NOWAIT);
    expect("a set", refused, failed(Errno::EAGAIN, 0))?;
    expect("changes", state(&end)?.sequence, SEQUENCE)
}

fn a_restored_map_survives_its_keeper(_: &Context) -> Result<()> {
    let mut map = restored(&[Stored::new(KEY, b"value", 1)])?;
    drop(map.end);
    map.keeper.restart()?;
    let resume = map.keeper.expect_next(RESUME, map.stream)?;
    expect("stored", resume.sequence, SEQUENCE)?;
    let described = Map {
        open_flags: 0,
        administrator: 0,
        ..stored()
    };
    expect("the map", resume.map()?, described)?;
    let end = map.maps.attach()?;
    set_nonblocking(&end)?;
    expect("its entry", get(&end, KEY), Ok(b"value".to_vec()))?;
    expect("the next number", put(&end, KEY, b"")?, SEQUENCE + 1)
}

// ---- limits ----

const USER: u32 = 1001;

fn of_user(name: &str, uid: u32) -> Map {
    Map {
        uid,
        gid: uid,
        ..stored_as(name)
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

fn the_cgroup_of_a_map_may_be_removed_meanwhile(context: &Context) -> Result<()> {
    let keeper = Keeper::new()?;
    let home = context.cgroup()?;
    let cgroup = home.create_child("removed")?;
    let directory = cgroup.directory()?;
    let create = || keeper.create_at(0, directory.as_raw_fd(), &stored(), SEQUENCE, LIMIT);
    let stream = create().context("CREATE")?;
    cgroup.remove()?;
    let entries = [Stored::new(KEY, b"value", 1)];
    expect("RESTORE", keeper.restore(stream, &entries), Ok(1))?;
    expect("READY", keeper.ready(stream), Err(Errno::ENOENT))?;
    expect("its stream", keeper.ready(stream), Err(Errno::ENOENT))?;
    expect("CREATE", create(), Err(Errno::ENOENT))?;
    // That of an open.
    let cgroup = home.create_child("of-an-open")?;
    let directory = cgroup.directory()?;
    let params = durable(0);
    let request = Open {
        scope_fd: directory.as_raw_fd(),
        ..map::request(BOTH | CREATE | PERSIST, &params)
    };
    let ctl = Ctl::new()?;
    let (opened, ready) = answering(
        || ctl.open(request).map(drop),
        || {
            let asked = keeper.next_of(OPEN)?;
            keeper.create(&asked, 0)?;
            cgroup.remove()?;
            Ok(keeper.ready(asked.stream))
        },
    )?;
    expect("the open", opened, Err(Errno::ENOENT))?;
    ensure!(
        [Ok(()), Err(Errno::ENOENT)].contains(&ready),
        "READY: {ready:?}"
    );
    drop((directory, keeper));
    expect_no_objects()
}
