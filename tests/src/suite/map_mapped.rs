// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a map that readers map: what can be mapped, what is found in it and what is not left in it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use sluice::Map;
use sluice::map::{MappedMap, OpenError, Options, ReadError, SetOptions};
use sluice_abi::map::{
    CELL_MAX, CELL_MIN, DURABLE, MAPPED, MMAP_HEADER, MMAP_TABLE, Params, TABLE_MAX,
};

use crate::registry::{Context, topic};
use crate::support::check::{expect, expect_bytes, skip};
use crate::support::child::spawn_keeping;
use crate::support::ctl::{BOTH, CREATE, READ, WRITE};
use crate::support::map::{Maps, delete, put, set_for, state};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::random::{stream_byte, stream_bytes};
use crate::support::ring::{READ_ONLY, READ_WRITE, Region, expect_not_executable};
use crate::support::time::{Deadline, eventually, scaled};

topic!(
    "map_mapped",
    fifo: [],
    pipe_only: [
        invalid_tables_are_einval,
        a_map_gets_no_table_later,
        the_table_counts_for_the_limits,
        only_the_header_and_the_table_can_be_mapped,
        the_table_can_only_be_read,
        a_store_by_another_way_changes_nothing,
        all_of_the_table_is_zero_at_first,
        nothing_is_left_of_what_was_removed,
        the_table_outlives_the_endpoint_and_the_map,
        what_was_set_is_found,
        entries_that_do_not_fit_are_found,
        more_entries_than_the_table_has_are_found,
        every_entry_is_listed_once,
        an_entry_that_has_expired_is_absent,
        a_time_namespace_has_no_effect,
        a_table_beyond_a_limit_is_not_allocated,
        a_cached_entry_is_current_until_it_changes,
        a_lookup_takes_no_system_call,
        a_child_reads_the_table,
        lookups_of_a_destroyed_map_fail,
        a_value_is_never_seen_in_part,
        a_get_after_an_event_is_as_new,
    ],
);

const TABLE: usize = 16 * PAGE;
const CELL: u32 = 128;

fn params(table: usize, cell: u32) -> Params {
    Params {
        flags: MAPPED,
        table: table as u64,
        cell,
        ..Params::default()
    }
}

fn create(maps: &Maps) -> Result<OwnedFd> {
    maps.create_with(params(TABLE, CELL), 1 << 20)
        .context("creating a map with a table")
}

fn mapped(end: &OwnedFd) -> Result<MappedMap> {
    Ok(Map::attach(end.try_clone()?)?.mapped()?)
}

fn table_of(end: &impl AsFd) -> nix::Result<Region> {
    Region::map(end, MMAP_TABLE, TABLE, READ_ONLY)
}

fn invalid_tables_are_einval(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let most = TABLE_MAX as usize;
    for (table, cell) in [
        (0, 0),
        (PAGE / 2, 64),
        (3 * PAGE, 64),
        (2 * most, 4096),
        (PAGE, CELL_MIN / 2),
        (TABLE, 2 * CELL_MAX),
        (TABLE, 96),
        (PAGE, 512),
    ] {
        let opened = maps.open_sized(BOTH | CREATE, params(table, cell), 1 << 20);
        let what = format!("{table} bytes, cells of {cell}");
        expect(&what, opened.map(drop), Err(Errno::EINVAL))?;
    }
    for params in [
        Params {
            table: PAGE as u64,
            ..Params::default()
        },
        Params {
            cell: 64,
            ..Params::default()
        },
        Params {
            flags: MAPPED | DURABLE,
            ..Params::default()
        },
    ] {
        let opened = maps.open_sized(BOTH | CREATE, params, 1 << 20);
        expect(&format!("{params:?}"), opened.map(drop), Err(Errno::EINVAL))?;
    }
    let end = maps.create_with(params(PAGE, 0), 1 << 20)?;
    let info = state(&end)?;
    let seen = (info.flags, info.table, info.cell);
    expect("the table", seen, (MAPPED, PAGE as u64, 128))
}

fn a_map_gets_no_table_later(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let again = maps.open_sized(BOTH | CREATE, params(PAGE, 64), 1 << 20);
    expect("an open for a table", again.map(drop), Err(Errno::EEXIST))?;
    let map = Region::map(&end, MMAP_TABLE, PAGE, READ_ONLY);
    expect("a mapping", map.map(drop), Err(Errno::ENODEV))?;
    let error = Map::attach(end)?.mapped().unwrap_err();
    ensure!(matches!(error, OpenError::NotMapped), "{error}");
    let named = |name| Map::named(name).create(true);
    let _plain = named("plain").open()?;
    let error = named("plain").mapped(10).open().unwrap_err();
    ensure!(matches!(error, OpenError::NotMapped), "{error}");
    // An open without a table finds one that has it.
    let _table = named("table").mapped(10).open()?;
    named("table").open_reader()?.mapped()?;
    Ok(())
}

fn the_table_counts_for_the_limits(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let bytes = || -> Result<u64> { Ok(sluice::usage(&sluice::Scope::own())?.scope.bytes) };
    let before = bytes()?;
    let end = create(&maps)?;
    let counted = (1 << 20) + TABLE as u64 + 2 * PAGE as u64;
    expect("bytes of the scope", bytes()? - before, counted)?;
    drop(end);
    eventually("the map has ended", || {
        Ok((bytes()? == before).then_some(()))
    })
}

fn only_the_header_and_the_table_can_be_mapped(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    let map = |offset, len| Region::map(&end, offset, len, READ_ONLY).map(drop);
    expect("the header", map(MMAP_HEADER, PAGE), Ok(()))?;
    expect("the table", map(MMAP_TABLE, TABLE), Ok(()))?;
    for (offset, len) in [
        (MMAP_HEADER, 2 * PAGE),
        (MMAP_TABLE, PAGE),
        (MMAP_TABLE, TABLE + PAGE),
        (MMAP_TABLE, 2 * TABLE),
        (MMAP_TABLE + PAGE as u64, TABLE - PAGE),
        (PAGE as u64, PAGE),
        (0x10_0000, PAGE),
    ] {
        let what = format!("{len} bytes at {offset:#x}");
        expect(&what, map(offset, len), Err(Errno::EINVAL))?;
    }
    let writer = maps.open(WRITE)?;
    let seen = Region::map(&writer, MMAP_TABLE, TABLE, READ_ONLY);
    expect("a writer", seen.map(drop), Err(Errno::EACCES))
}

fn the_table_can_only_be_read(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    for (offset, len) in [(MMAP_HEADER, PAGE), (MMAP_TABLE, TABLE)] {
        let map = |protection| Region::map(&end, offset, len, protection).map(drop);
        expect_not_executable("a mapping", map(executable))?;
        for protection in [READ_WRITE, libc::PROT_WRITE] {
            expect("mapping it so", map(protection), Err(Errno::EACCES))?;
        }
        let region = Region::map(&end, offset, len, READ_ONLY)?;
        for protection in [READ_WRITE, executable] {
            let seen = region.protect(protection);
            expect("mprotect", seen, Err(Errno::EACCES))?;
        }
        let private = libc::MAP_PRIVATE;
        let seen = Region::map_with(&end, offset, len, READ_ONLY, private);
        expect("a private mapping", seen.map(drop), Err(Errno::EINVAL))?;
    }
    Ok(())
}

/// Root's debuggers write to read-only memory by /proc/PID/mem, but to no page of the table.
fn a_store_by_another_way_changes_nothing(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    put(&end, b"key", b"value")?;
    let region = table_of(&end)?;
    let before = region.read(0, TABLE);
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    for offset in [0, TABLE / 2, TABLE - 8] {
        let stored = memory.write_at(&[0xff; 8], region.at(offset) as u64);
        ensure!(stored.is_err(), "{stored:?} bytes were stored");
    }
    expect_bytes("the table", &region.read(0, TABLE), &before)?;
    expect(
        "a get",
        mapped(&end)?.get("key")?.map(|entry| entry.value),
        Some(b"value".to_vec()),
    )
}

fn all_of_the_table_is_zero_at_first(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    ensure!(table_of(&end)?.is_zero(), "the table has old bytes");
    let header = Region::map(&end, MMAP_HEADER, PAGE, READ_ONLY)?;
    let rest = header.read(
        size_of::<sluice_abi::map::Header>(),
        PAGE - size_of::<sluice_abi::map::Header>(),
    );
    ensure!(
        rest.iter().all(|byte| *byte == 0),
        "the header has old bytes"
    );
    Ok(())
}

const SECRET: &[u8] = b"a secret of sixty-four bytes, which nobody may find after its end";

fn has(region: &Region, bytes: &[u8]) -> bool {
    region
        .read(0, TABLE)
        .windows(bytes.len())
        .any(|window| window == bytes)
}

fn nothing_is_left_of_what_was_removed(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    let region = table_of(&end)?;
    let tail = &SECRET[32..];
    put(&end, b"updated", SECRET)?;
    ensure!(has(&region, SECRET), "the value is not in the table");
    put(&end, b"updated", b"short")?;
    ensure!(
        !has(&region, &tail[..16]),
        "a part of the old value is left"
    );
    put(&end, b"deleted", SECRET)?;
    delete(&end, b"deleted")?;
    ensure!(
        !has(&region, &SECRET[..16]) && !has(&region, b"deleted"),
        "a deleted entry is left"
    );
    set_for(&end, b"expired", SECRET, Duration::from_millis(20))?;
    eventually("the entry has expired", || {
        Ok((state(&end)?.expired == 1).then_some(()))
    })?;
    ensure!(
        !has(&region, &SECRET[..16]) && !has(&region, b"expired"),
        "an expired entry is left"
    );
    put(&end, b"long", SECRET)?;
    put(&end, b"long", &[7; 4096])?;
    ensure!(
        !has(&region, &SECRET[..16]),
        "the value before a long one is left"
    );
    Ok(())
}

fn the_table_outlives_the_endpoint_and_the_map(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = create(&maps)?;
    put(&end, b"key", SECRET)?;
    let region = table_of(&end)?;
    drop(end);
    ensure!(has(&region, SECRET), "the mapping has no value");
    let found = maps.open(READ);
    ensure!(
        found.is_ok(),
        "the mapping does not keep the map: {found:?}"
    );
    Ok(())
}

/// Random changes; the table says what the calls say.
fn compare(options: Options, keys: u64, changes: u64, longest: usize) -> Result<()> {
    let map = options.create(true).open()?;
    let table = map.mapped()?;
    let mut expected = BTreeMap::new();
    for change in 0..changes {
        let number = stream_byte(1, change) as u64 * 256 + stream_byte(2, change) as u64;
        let key = format!("{:01$}", number % keys, 1 + (number % 40) as usize);
        if stream_byte(3, change) < 60 {
            map.delete(&key)?;
            expected.remove(&key);
        } else {
            let length = stream_byte(4, change) as usize * longest / 256;
            let value = stream_bytes(change, 0, length);
            map.set(&key, &value)?;
            expected.insert(key.clone(), value);
        }
        let (found, called) = (table.get(&key)?, map.get(&key)?);
        expect(&format!("'{key}' after change {change}"), found, called)?;
    }
    let found = table.get_many(expected.keys())?;
    for ((key, value), found) in expected.iter().zip(found) {
        expect(key, found.map(|entry| entry.value), Some(value.clone()))?;
    }
    let mut listed = BTreeMap::new();
    for entry in table.entries() {
        let (key, entry) = entry?;
        let before = listed.insert(String::from_utf8(key)?, entry.value);
        ensure!(before.is_none(), "an entry is listed twice");
    }
    expect("the list", listed, expected)
}

fn what_was_set_is_found(_: &Context) -> Result<()> {
    compare(Map::named("entries").mapped(500), 500, 4000, 80)
}

fn entries_that_do_not_fit_are_found(_: &Context) -> Result<()> {
    compare(Map::named("entries").mapped(300).cell(64), 200, 2000, 3000)
}

fn more_entries_than_the_table_has_are_found(_: &Context) -> Result<()> {
    compare(Map::named("entries").mapped(1), 300, 3000, 80)
}

fn every_entry_is_listed_once(_: &Context) -> Result<()> {
    for entries in [1, 10, 1000] {
        let map = Map::named(format!("entries-{entries}"))
            .create(true)
            .mapped(entries)
            .open()?;
        for number in 0..entries {
            map.set(number.to_string(), number.to_ne_bytes())?;
        }
        let table = map.mapped()?;
        let mut seen = table
            .entries()
            .map(|entry| Ok(u64::from_ne_bytes(entry?.1.value[..].try_into()?)))
            .collect::<Result<Vec<_>>>()?;
        seen.sort_unstable();
        expect("the entries", seen, (0..entries).collect())?;
    }
    Ok(())
}

fn an_entry_that_has_expired_is_absent(_: &Context) -> Result<()> {
    let map = Map::named("entries").create(true).mapped(10).open()?;
    let table = map.mapped()?;
    let time = Duration::from_millis(100);
    let options = SetOptions::new().time_to_live(time);
    for round in 0..20 {
        map.set_with("key", [round], options)?;
        let deadline = Instant::now() + time;
        let cached = table.get_cached("key")?.context("no entry")?;
        let left = cached.entry().time_to_live.context("no time to live")?;
        ensure!(left <= time, "{left:?} are left");
        while Instant::now() < deadline {
            thread::yield_now();
        }
        expect("after its time", table.get("key")?, None)?;
        ensure!(!table.is_current(&cached), "it is still current");
    }
    Ok(())
}

/// In the namespace CLOCK_BOOTTIME is a second behind, or an hour ahead.
fn a_time_namespace_has_no_effect(_: &Context) -> Result<()> {
    const TIME: Duration = Duration::from_secs(600);
    if !fs::exists("/proc/self/ns/time")? {
        return Err(skip("the kernel has no time namespaces"));
    }
    let map = Map::named("entries").create(true).mapped(10).open()?;
    map.set_with("key", "value", SetOptions::new().time_to_live(TIME))?;
    for offset in [-1, 3600] {
        let child = spawn_keeping("a child", &[map.as_fd()], || {
            unshare(CloneFlags::from_bits_retain(libc::CLONE_NEWTIME))?;
            // What the children of this process get.
            fs::write("/proc/self/timens_offsets", format!("boottime {offset} 0"))?;
            let inner = spawn_keeping("a child in the namespace", &[map.as_fd()], || {
                let entry = map.mapped()?.get("key")?.context("no entry")?;
                let left = entry.time_to_live.context("no time to live")?;
                ensure!(left <= TIME && left > TIME / 2, "{left:?} are left");
                let cached = map.mapped()?.get_cached("key")?.context("no entry")?;
                ensure!(map.mapped()?.is_current(&cached), "it is not current");
                Ok(())
            })?;
            inner.finish()
        })?;
        child.finish().with_context(|| format!("{offset} s"))?;
    }
    Ok(())
}

fn a_table_beyond_a_limit_is_not_allocated(_: &Context) -> Result<()> {
    const LARGE: usize = 256 << 20;
    let maps = Maps::new()?;
    let _limit = Parameter::set("scope_max_bytes", LARGE as u64 / 2)?;
    // Pages that the whole system has allocated.
    let allocated = || -> Result<usize> {
        let text = fs::read_to_string("/proc/vmstat")?;
        let lines = text.lines().filter(|line| line.starts_with("pgalloc_"));
        let numbers = lines.filter_map(|line| line.split_once(' ')?.1.parse::<usize>().ok());
        Ok(numbers.sum())
    };
    let before = allocated()?;
    let opened = maps.open_sized(BOTH | CREATE, params(LARGE, 0), 1 << 20);
    expect("a large table", opened.map(drop), Err(Errno::ENOSPC))?;
    let pages = allocated()? - before;
    ensure!(pages < LARGE / PAGE / 2, "{pages} pages were allocated");
    Ok(())
}

fn a_cached_entry_is_current_until_it_changes(_: &Context) -> Result<()> {
    let map = Map::named("entries").create(true).mapped(10).open()?;
    let table = map.mapped()?;
    for value in [&b"one"[..], &[2; 200], b"three"] {
        map.set("key", value)?;
        let cached = table.get_cached("key")?.context("no entry")?;
        expect("the value", &cached.entry().value[..], value)?;
        // A value that is not in the table may have changed.
        expect("current", table.is_current(&cached), value.len() < 90)?;
        map.set("other", "value")?;
        expect(
            "after another change",
            table.is_current(&cached),
            value.len() < 90,
        )?;
        map.set("key", value)?;
        ensure!(!table.is_current(&cached), "it is current after a set");
    }
    let cached = table.get_cached("key")?.context("no entry")?;
    map.delete("key")?;
    ensure!(!table.is_current(&cached), "it is current after a deletion");
    Ok(())
}

/// In the strict mode of seccomp, any system call but read, write, exit and sigreturn kills the process.
fn a_lookup_takes_no_system_call(_: &Context) -> Result<()> {
    let map = Map::named("entries").create(true).mapped(10).open()?;
    map.set("key", "value")?;
    // It does not fit, so that a call is needed: the check detects it.
    map.set("long", [0; 200])?;
    let table = map.mapped()?;
    let child = |key: &'static str, expected: Option<usize>| {
        let keep = [table.map().as_fd()];
        let child = spawn_keeping("a child that looks up", &keep, || {
            let mut room = [0; 256];
            // Its pages are mapped, and the code is bound.
            let before = table.get_into(key, &mut room);
            // SAFETY: the call has no memory.
            let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
            let found = table.get_into(key, &mut room);
            let length = found.map(|info| info.map(|info| info.len));
            let status = match (strict, before.is_ok(), length) {
                (0, true, Ok(found)) if found == expected => 0,
                _ => 1,
            };
            // SAFETY: ends this thread, the only one, with a call that is permitted.
            unsafe { libc::syscall(libc::SYS_exit, status) };
            Ok(())
        });
        child?.wait_end()
    };
    for (key, expected) in [("key", Some(5)), ("absent", None)] {
        let end = child(key, expected)?;
        ensure!(matches!(end, WaitStatus::Exited(_, 0)), "'{key}': {end:?}");
    }
    let end = child("long", Some(200))?;
    let is_killed = matches!(end, WaitStatus::Signaled(_, Signal::SIGKILL, _));
    ensure!(is_killed, "a call was permitted: {end:?}");
    Ok(())
}

fn a_child_reads_the_table(_: &Context) -> Result<()> {
    let map = Map::named("entries").create(true).mapped(10).open()?;
    let table = map.mapped()?;
    map.set("key", "before")?;
    let value = || Ok::<_, ReadError>(table.get("key")?.map(|entry| entry.value));
    let child = spawn_keeping("a child", &[map.as_fd()], || {
        expect("before", value()?, Some(b"before".to_vec()))?;
        map.set("key", "after")?;
        expect("after", value()?, Some(b"after".to_vec()))
    })?;
    child.finish()?;
    expect("in the parent", value()?, Some(b"after".to_vec()))
}

fn lookups_of_a_destroyed_map_fail(_: &Context) -> Result<()> {
    let options = Map::named("entries").mapped(10);
    let map = options.clone().create(true).open()?;
    map.set("key", "value")?;
    let table = map.mapped()?;
    let cached = table.get_cached("key")?.context("no entry")?;
    options.destroy()?;
    for key in ["key", "absent"] {
        let found = table.get(key);
        ensure!(matches!(found, Err(ReadError::Destroyed)), "{found:?}");
    }
    ensure!(!table.is_current(&cached), "it is still current");
    let again = map.mapped();
    ensure!(again.is_err(), "a destroyed map can be mapped");
    Ok(())
}

/// A writer changes length and content; a value is of one change, and versions only grow.
fn a_value_is_never_seen_in_part(_: &Context) -> Result<()> {
    const KEYS: u64 = 3;
    // A change of a long value takes long.
    let map = Map::named("entries")
        .create(true)
        .mapped(10)
        .cell(4096)
        .open()?;
    let table = map.mapped()?;
    let done = AtomicBool::new(false);
    let deadline = Deadline::after(scaled(Duration::from_secs(2)));
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<u64> {
            let mut changes = 0_u64;
            while !deadline.passed() {
                let key = (changes % KEYS).to_string();
                match changes % 7 {
                    6 => drop(map.delete(&key)?),
                    _ => {
                        let length = 360 * (1 + changes % 11) as usize;
                        map.set(&key, vec![changes as u8; length])?;
                    }
                }
                changes += 1;
            }
            done.store(true, Ordering::Relaxed);
            Ok(changes)
        });
        let (mut last, mut found) = ([0; KEYS as usize], 0);
        while !done.load(Ordering::Relaxed) && !writer.is_finished() {
            for key in 0..KEYS {
                let Some(entry) = table.get(key.to_string())? else {
                    continue;
                };
                let value = &entry.value;
                ensure!(
                    value.iter().all(|byte| *byte == value[0]),
                    "{value:?} is of two changes"
                );
                let last = &mut last[key as usize];
                ensure!(
                    *last <= entry.version,
                    "version {} after {last}",
                    entry.version
                );
                *last = entry.version;
                found += 1;
            }
        }
        let changes = writer.join().expect("the writer does not panic")?;
        ensure!(
            changes > 100 && found > 100,
            "{changes} changes, {found} lookups"
        );
        Ok(())
    })
}

fn a_get_after_an_event_is_as_new(_: &Context) -> Result<()> {
    const CHANGES: u64 = 500;
    let map = Map::named("entries")
        .create(true)
        .mapped(10)
        .events(1024)
        .open()?;
    let reader = Map::named("entries").open_reader()?;
    let table = reader.mapped()?;
    let mut watcher = reader.watch(sluice::map::WatchFrom::Now)?;
    thread::scope(|scope| {
        let writer = scope.spawn(|| -> Result<()> {
            for number in 0..CHANGES {
                map.set("key", number.to_ne_bytes())?;
            }
            Ok(())
        });
        for _ in 0..CHANGES {
            let event = watcher.recv_timeout(Duration::from_secs(60))?;
            let entry = table.get("key")?.context("no entry")?;
            ensure!(
                entry.version >= event.version,
                "version {} after the event of {}",
                entry.version,
                event.version
            );
        }
        writer.join().expect("the writer does not panic")
    })
}
