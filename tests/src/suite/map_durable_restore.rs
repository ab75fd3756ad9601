// SPDX-License-Identifier: MIT OR Apache-2.0
//! The restoration of stored maps: entries, versions, times to live, owner and parameters.

use std::os::fd::{AsRawFd, OwnedFd};
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
use crate::support::child::spawn;
use crate::support::credentials::become_user;
use crate::support::ctl::{OWN, PERSISTENT, READ, WRITE};
use crate::support::durable::{DURABLE, INTERVAL, REFUSE};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    EXPIRE, Entry, Keeper, LIMIT, Map, RESTORE, RESTORE_MAX, RESUME, Restore, SET, Stored,
};
use crate::support::map::{
    self, Dumped, Info, KEY_MAX, Maps, NAME, NOW, VALUE_MAX, dump, dump_with, events, get,
    get_entry, put, set_if, state, watch,
};
use crate::support::memory::PAGE;
use crate::support::netlink::{Attrs, Socket};
use crate::support::random::stream_bytes;
use crate::support::restored::{KEY, SEQUENCE, begin, restored, restored_as, stored};
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
        a_restored_map_survives_its_keeper,
    ],
);

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

/// Restores a map with `count` expired entries and one entry without a time to live. The stream has no number left, so
/// the expired entries are not removed. Returns the stream and an endpoint.
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
        // RESTORE skips an entry that has already expired; then there are fewer.
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
