// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps with a table that readers map: what the keeper is told, and what is restored.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use sluice::Map as Library;
use sluice_abi::map::{MAPPED, MMAP_TABLE};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::Child;
use crate::support::ctl::{OWN, Open};
use crate::support::durable::{
    DURABLE, NEW, STREAM_MAX, blocked, durable, failed, open, open_result, post, set_with,
};
use crate::support::ioctl::raw;
use crate::support::keeper::{
    Ack, CREATE, Create, Keeper, LIMIT, Map, Message, OPEN, RESUME, SET, Stored, answering,
};
use crate::support::map::{self, Maps, NAME, Params, get_entry, state};
use crate::support::memory::PAGE;
use crate::support::ring::{READ_ONLY, Region};
use crate::support::time::eventually;

topic!(
    "map_durable_mapped",
    fifo: [],
    pipe_only: [
        the_keeper_is_told_of_the_table,
        a_change_is_found_before_it_is_stored,
        a_restored_map_has_its_table,
        a_large_table_does_not_delay_other_calls_of_the_keeper,
        an_open_allocates_the_table_that_is_stored,
        an_open_forgets_the_table_that_is_not_stored_any_more,
        an_open_that_asks_again_is_charged_once,
        a_table_is_not_used_after_an_open_that_failed,
        a_map_that_is_stored_without_a_table_is_eexist,
        a_keeper_without_tables_is_eprotonosupport,
        an_open_that_waits_for_a_keeper_without_tables_fails,
        the_table_is_charged_to_the_opener,
        an_invalid_table_is_not_restored,
    ],
);

const TABLE: u64 = 16 * PAGE as u64;
const CELL: u32 = 128;
const KEY: &[u8] = b"key";
const VALUE: &[u8] = b"a value of the table, long enough to be found nowhere else";
const SEQUENCE: u64 = 1000;

fn mapped(table: u64, cell: u32) -> Params {
    let flags = if table == 0 { 0 } else { MAPPED };
    Params {
        table,
        cell,
        ..durable(flags)
    }
}

/// A stored map with this table; 0: without one.
fn stored(table: u64, cell: u32) -> Map {
    let flags = if table == 0 { 0 } else { MAPPED };
    Map {
        mode: 0o600,
        events: 1024,
        capacity: 8 << 20,
        deadline_ms: durable(0).deadline_ms,
        cell,
        table,
        ..Map::new(NAME, DURABLE | flags)
    }
}

fn table_of(end: &OwnedFd) -> Result<(u32, u64, u32)> {
    let info = state(end)?;
    Ok((info.flags & MAPPED, info.table, info.cell))
}

/// A lookup that makes no system call: the value is in the table.
fn expect_in_table(end: &OwnedFd, key: &[u8], value: &[u8]) -> Result<()> {
    let region = Region::map(end, MMAP_TABLE, TABLE as usize, READ_ONLY)?;
    let bytes = region.read(0, TABLE as usize);
    let is_there = bytes.windows(value.len()).any(|window| window == value);
    ensure!(is_there, "the value is not in the table");
    let found = Library::attach(end.try_clone()?)?.mapped()?.get(key)?;
    let found = found.context("the table has no entry")?;
    expect("the value", found.value.as_slice(), value)?;
    let version = get_entry(end, key).context("getting")?.version;
    expect("its version", found.version, version)
}

/// The first message of an open, and the open, which waits in a process.
fn waiting_open(
    keeper: &Keeper,
    maps: &Maps,
    params: Params,
) -> Result<(Child<Result<(), i32>>, Message)> {
    let opener = blocked(&maps.0, || open_result(maps, NEW, params))?;
    Ok((opener, keeper.next_of(OPEN)?))
}

fn the_keeper_is_told_of_the_table(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    let of = |message: &Message| -> Result<_> {
        let map = message.map()?;
        Ok((map.flags, map.table, map.cell, map.reserved))
    };
    let expected = (DURABLE | MAPPED, TABLE, CELL, 0);
    let opening = || open(&maps, NEW, mapped(TABLE, 0));
    let (opened, stream) = answering(opening, || {
        let asked = keeper.next_of(OPEN)?;
        expect("OPEN", of(&asked)?, expected)?;
        keeper.create(&asked, 0)?;
        keeper.ready(asked.stream).context("READY")?;
        Ok(asked.stream)
    })?;
    let end = opened.context("opening")?;
    expect("its table", table_of(&end)?, (MAPPED, TABLE, CELL))?;
    keeper.restart()?;
    let resumed = keeper.expect_next(RESUME, stream)?;
    expect("RESUME", of(&resumed)?, expected)
}

fn a_change_is_found_before_it_is_stored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let (opened, stream) = answering(
        || open(&maps, NEW, mapped(TABLE, CELL)),
        || keeper.answer_open(LIMIT),
    )?;
    let end = opened.context("opening")?;
    post(&end, KEY, VALUE)?;
    expect_in_table(&end, KEY, VALUE)?;
    keeper.expect_next(SET, stream)?;
    // What is refused is not found.
    keeper.fail(stream, Errno::EIO)?;
    let refused = set_with(&end, KEY, b"other", 0);
    expect("a set", refused, failed(Errno::EIO, 0))?;
    expect_in_table(&end, KEY, VALUE)
}

fn a_restored_map_has_its_table(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for cell in [CELL, 0] {
        let map = stored(TABLE, cell);
        let stream = keeper.create_at(0, OWN, &map, SEQUENCE, LIMIT);
        let stream = stream.context("CREATE")?;
        let entries = [
            Stored::new(KEY, VALUE, 7),
            Stored::new(b"long", &[1; 300], 8),
        ];
        let restored = keeper.restore(stream, &entries);
        expect("restored", restored, Ok(entries.len()))?;
        keeper.ready(stream).context("READY")?;
        let end = maps.attach()?;
        expect("its table", table_of(&end)?, (MAPPED, TABLE, CELL))?;
        expect_in_table(&end, KEY, VALUE)?;
        let changed = [VALUE, b" changed"].concat();
        post(&end, KEY, &changed)?;
        expect_in_table(&end, KEY, &changed)?;
        keeper.expect_next(SET, stream)?;
        keeper.ack(stream, SEQUENCE + 1)?;
        expect("END", keeper.detach(stream), Ok(()))?;
    }
    Ok(())
}

fn a_large_table_does_not_delay_other_calls_of_the_keeper(_: &Context) -> Result<()> {
    const LARGE: u64 = 128 << 20;
    let keeper = Keeper::new()?;
    let ended = AtomicBool::new(false);
    let map = stored(LARGE, 0);
    let fd = keeper.as_fd();
    let (creation, longest) = thread::scope(|scope| {
        let creator = scope.spawn(|| {
            let begin = Instant::now();
            let mut create = Create::new(0, OWN, &map, SEQUENCE, LIMIT);
            let created = raw(&fd, CREATE, &mut create);
            ended.store(true, Ordering::Release);
            created.map(|()| (create.stream, begin.elapsed()))
        });
        let mut longest = Duration::ZERO;
        while !ended.load(Ordering::Acquire) {
            let begin = Instant::now();
            let acknowledged = keeper.send_ack(Ack::new(u64::MAX, 0, 0, 0));
            expect("ACK", acknowledged, Err(Errno::ENOENT))?;
            longest = longest.max(begin.elapsed());
        }
        let creation = creator
            .join()
            .map_err(|_| anyhow!("the creator panicked"))?;
        anyhow::Ok((creation.context("CREATE")?, longest))
    })?;
    let (stream, duration) = creation;
    expect("READY", keeper.refuse(stream, Errno::EIO), Ok(()))?;
    ensure!(
        longest < duration / 2,
        "a call took {longest:?} of the {duration:?} that the table took"
    );
    Ok(())
}

fn an_open_allocates_the_table_that_is_stored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    for asked_for in [mapped(0, 0), mapped(4 * TABLE, CELL), mapped(TABLE, 64)] {
        let (opener, first) = waiting_open(&keeper, &maps, asked_for)?;
        let map = stored(TABLE, CELL);
        let create = |asked: &Message| keeper.create_at(asked.stream, OWN, &map, SEQUENCE, LIMIT);
        for _ in 0..2 {
            expect("CREATE", create(&first), Err(Errno::ESTALE))?;
        }
        let refused = keeper.refuse(first.stream, Errno::ESTALE);
        expect("READY", refused, Ok(()))?;
        let again = keeper.next_of(OPEN)?;
        expect("CREATE again", create(&again), Ok(again.stream))?;
        let restored = keeper.restore(again.stream, &[Stored::new(KEY, VALUE, 7)]);
        expect("RESTORE", restored, Ok(1))?;
        keeper.ready(again.stream).context("READY")?;
        expect("the open", opener.finish()?, Ok(()))?;
        let end = maps.attach()?;
        expect("its table", table_of(&end)?, (MAPPED, TABLE, CELL))?;
        expect_in_table(&end, KEY, VALUE)?;
        expect("END", keeper.detach(again.stream), Ok(()))?;
    }
    Ok(())
}

fn an_open_forgets_the_table_that_is_not_stored_any_more(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    for restarts in [false, true] {
        let (opener, first) = waiting_open(&keeper, &maps, durable(0))?;
        let map = stored(TABLE, CELL);
        let create = keeper.create_at(first.stream, OWN, &map, SEQUENCE, LIMIT);
        expect("CREATE", create, Err(Errno::ESTALE))?;
        let refused = keeper.refuse(first.stream, Errno::ESTALE);
        expect("READY", refused, Ok(()))?;
        // The map is unlinked now, so the open creates one.
        let mut again = keeper.next_of(OPEN)?;
        if restarts {
            keeper.restart()?;
            again = keeper.next_of(OPEN)?;
        }
        let map = again.map()?;
        let asked_for = (map.flags & MAPPED, map.table, map.cell);
        expect("OPEN again", asked_for, (0, 0, 0))?;
        // After the restart the open has begun anew.
        if !restarts {
            let create = keeper.create_at(again.stream, OWN, &map, 0, LIMIT);
            expect("CREATE again", create, Err(Errno::ESTALE))?;
            let refused = keeper.refuse(again.stream, Errno::ESTALE);
            expect("READY again", refused, Ok(()))?;
            again = keeper.next_of(OPEN)?;
        }
        keeper.create(&again, 0)?;
        keeper.ready(again.stream).context("the last READY")?;
        expect("the open", opener.finish()?, Ok(()))?;
        let end = maps.attach()?;
        expect("its table", table_of(&end)?, (0, 0, 0))?;
        expect("END", keeper.detach(again.stream), Ok(()))?;
    }
    Ok(())
}

fn an_open_that_asks_again_is_charged_once(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let large = 4 << 20;
    let scope = || -> Result<_> { Ok(sluice::usage(&sluice::Scope::own())?.scope) };
    let before = scope()?;
    let (opener, first) = waiting_open(&keeper, &maps, mapped(TABLE, CELL))?;
    let map = stored(large, CELL);
    for asked in [Some(first), None] {
        let asked = asked.map_or_else(|| keeper.next_of(OPEN), Ok)?;
        let create = keeper.create_at(asked.stream, OWN, &map, SEQUENCE, LIMIT);
        let usage = scope()?;
        expect("channels", usage.channels - before.channels, 1)?;
        let most = map.capacity + STREAM_MAX + large + 2 * PAGE as u64;
        expect("bytes", usage.bytes - before.bytes, most)?;
        if create.is_err() {
            let refused = keeper.refuse(asked.stream, Errno::ESTALE);
            expect("READY", refused, Ok(()))?;
        } else {
            keeper.ready(asked.stream).context("READY")?;
        }
    }
    expect("the open", opener.finish()?, Ok(()))
}

/// The open frees its table while times to live end. A kernel with KASAN finds a worker that clears their cells in it.
fn a_table_is_not_used_after_an_open_that_failed(_: &Context) -> Result<()> {
    const LARGE: u64 = 32 << 20;
    const SPAN: Duration = Duration::from_millis(400);
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let params = mapped(LARGE, CELL);
    let request = Open {
        capacity: 2 * LARGE,
        ..map::request(NEW, &params)
    };
    for _ in 0..5 {
        let (opened, ()) = answering(
            || maps.0.open(request).map(drop),
            || {
                let asked = keeper.next_of(OPEN)?;
                keeper.create(&asked, SEQUENCE)?;
                for number in 0..256_u32 {
                    let mut entry = Stored::new(&number.to_ne_bytes(), VALUE, 1);
                    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
                    entry.expires_ns = (now + SPAN * number / 256).as_nanos() as u64;
                    keeper.restore(asked.stream, &[entry]).context("RESTORE")?;
                }
                keeper.refuse(asked.stream, Errno::ENOMEM).context("READY")
            },
        )?;
        expect("the open", opened, Err(Errno::ENOMEM))?;
    }
    thread::sleep(2 * SPAN);
    Ok(())
}

fn a_map_that_is_stored_without_a_table_is_eexist(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let (opener, asked) = waiting_open(&keeper, &maps, mapped(TABLE, CELL))?;
    let created = keeper.create_at(asked.stream, OWN, &stored(0, 0), SEQUENCE, LIMIT);
    expect("CREATE", created, Err(Errno::ESTALE))?;
    let refused = keeper.refuse(asked.stream, Errno::ESTALE);
    expect("READY", refused, Ok(()))?;
    expect("the open", opener.finish()?, Err(Errno::EEXIST as i32))?;
    keeper.expect_nothing()
}

fn a_keeper_without_tables_is_eprotonosupport(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    keeper.stop();
    keeper.start_with(0)?;
    let opener = blocked(&maps.0, || open_result(&maps, NEW, mapped(TABLE, CELL)))?;
    expect("messages", keeper.take()?, vec![])?;
    let refused = Err(Errno::EPROTONOSUPPORT as i32);
    expect("the open", opener.finish()?, refused)?;
    keeper.expect_nothing()?;
    let (opened, _) = answering(
        || open(&maps, NEW, durable(0)).map(drop),
        || keeper.answer_open(LIMIT),
    )?;
    expect("an open without a table", opened, Ok(()))
}

fn an_open_that_waits_for_a_keeper_without_tables_fails(_: &Context) -> Result<()> {
    let (mut keeper, maps) = (Keeper::new()?, Maps::new()?);
    keeper.stop();
    let opener = blocked(&maps.0, || open_result(&maps, NEW, mapped(TABLE, CELL)))?;
    let plain = blocked(&maps.0, || open_result(&maps, NEW, durable(0)))?;
    keeper.start_with(0)?;
    // The messages of others come.
    keeper.answer_open(LIMIT)?;
    expect("the other", plain.finish()?, Ok(()))?;
    let refused = Err(Errno::EPROTONOSUPPORT as i32);
    expect("the open", opener.finish()?, refused)?;
    keeper.expect_nothing()
}

fn the_table_is_charged_to_the_opener(_: &Context) -> Result<()> {
    let bytes = || -> Result<u64> { Ok(sluice::usage(&sluice::Scope::own())?.scope.bytes) };
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let mut charged = Vec::new();
    for table in [0, TABLE] {
        let before = bytes()?;
        let (opened, stream) = answering(
            || open(&maps, NEW, mapped(table, 0)),
            || keeper.answer_open(LIMIT),
        )?;
        let end = opened.context("opening")?;
        charged.push(bytes()? - before);
        drop(end);
        expect("END", keeper.detach(stream), Ok(()))?;
        eventually("the map has ended", || {
            Ok((bytes()? == before).then_some(()))
        })?;
    }
    let expected = TABLE + 2 * PAGE as u64;
    expect("of the table", charged[1] - charged[0], expected)
}

fn an_invalid_table_is_not_restored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let valid = stored(TABLE, CELL);
    let (opener, asked) = waiting_open(&keeper, &maps, mapped(TABLE, CELL))?;
    for map in [
        Map { table: 0, ..valid },
        Map {
            table: 3 * PAGE as u64,
            ..valid
        },
        Map { cell: 96, ..valid },
        Map {
            flags: DURABLE,
            ..valid
        },
        Map {
            reserved: 1,
            ..valid
        },
    ] {
        for stream in [0, asked.stream] {
            let created = keeper.create_at(stream, OWN, &map, SEQUENCE, LIMIT);
            expect(&format!("{map:?}"), created, Err(Errno::EINVAL))?;
        }
    }
    let created = keeper.create_at(asked.stream, OWN, &valid, SEQUENCE, LIMIT);
    expect("valid", created, Ok(asked.stream))?;
    keeper.ready(asked.stream).context("READY")?;
    expect("the open", opener.finish()?, Ok(()))
}
