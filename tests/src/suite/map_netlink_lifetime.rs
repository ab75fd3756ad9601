// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps over generic netlink: how long handles, watches and dumps exist, and what they keep.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::socket::{NetlinkAddr, bind};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::spawn;
use crate::support::credentials::{NOBODY, become_user};
use crate::support::ctl::{BOTH, CREATE, EXCL, READ, expect_no_channel};
use crate::support::kernel::expect_module_in_use;
use crate::support::map::{Dumped, Maps, NAME, NOW, delete, put};
use crate::support::netlink::{Attrs, HANDLES_MAX, Socket, VALUE_MAX, command, open_socket};

topic!(
    "map_netlink_lifetime",
    fifo: [],
    pipe_only: [
        a_handle_is_unknown_to_another_socket,
        a_handle_is_unknown_to_the_next_socket_of_its_port,
        a_closed_handle_ends_its_map,
        a_closed_socket_ends_its_maps_at_once,
        a_socket_has_at_most_64_handles,
        a_handle_keeps_the_module_loaded,
        a_watch_keeps_the_module_loaded,
        a_dump_keeps_the_module_loaded,
        a_dump_that_nobody_reads_is_freed,
        a_dump_outlives_the_permission_to_begin_it,
        a_dump_of_a_destroyed_map_ends_with_epipe,
        a_dump_has_each_lasting_entry_once,
        a_socket_has_one_dump_at_a_time,
    ],
);

const CREATE_NEW: u32 = BOTH | CREATE | EXCL;

fn named() -> Attrs {
    Attrs::new().name(NAME)
}

fn a_handle_is_unknown_to_another_socket(_: &Context) -> Result<()> {
    let (first, second) = (Socket::new()?, Socket::new()?);
    let handle = first.open(NAME, CREATE_NEW)?;
    let own = second.open(NAME, BOTH)?;
    ensure!(handle != own, "both have handle {own}");
    let on = Attrs::new().handle(handle);
    for command in [command::INFO, command::WATCH, command::CLOSE] {
        expect(
            "of the other",
            second.outcome(command, &on)?,
            Err(Errno::ENOENT),
        )?;
        expect("of its socket", first.outcome(command, &on)?, Ok(()))?;
    }
    Ok(())
}

fn a_handle_is_unknown_to_the_next_socket_of_its_port(_: &Context) -> Result<()> {
    const PORT: u32 = 0x5000_0001;
    let maps = Maps::new()?;
    let end = maps.create()?;
    let bound = || -> Result<Socket> {
        let fd = open_socket()?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(PORT, 0)).context("binding")?;
        Socket::from_fd(fd)
    };
    for _ in 0..20 {
        let first = bound()?;
        let handle = first.open(NAME, READ)?;
        first.watch(handle, NOW)?;
        drop(first);
        let second = bound()?;
        put(&end, b"key", b"")?;
        let info = second.outcome(command::INFO, &Attrs::new().handle(handle))?;
        expect("of the first", info, Err(Errno::ENOENT))?;
        second.expect_no_event()?;
    }
    Ok(())
}

fn a_closed_handle_ends_its_map(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    for _ in 0..20 {
        let handle = socket.open(NAME, CREATE_NEW)?;
        socket.watch(handle, NOW)?;
        socket.must(command::CLOSE, &Attrs::new().handle(handle))?;
    }
    expect_no_channel(&Maps::new()?.0)
}

fn a_closed_socket_ends_its_maps_at_once(_: &Context) -> Result<()> {
    for watches in [false, true] {
        for _ in 0..20 {
            let socket = Socket::new()?;
            let handle = socket.open(NAME, CREATE_NEW)?;
            socket.open("another", CREATE_NEW)?;
            if watches {
                socket.watch(handle, NOW)?;
                let on = Attrs::new().handle(handle).key(b"key").value(b"");
                socket.must(command::SET, &on)?;
            }
        }
    }
    expect_no_channel(&Maps::new()?.0)
}

fn a_socket_has_at_most_64_handles(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    let handles = (0..HANDLES_MAX).map(|_| socket.open(NAME, BOTH | CREATE));
    let handles: Vec<u32> = handles.collect::<Result<_>>()?;
    let one_more = named().flags(READ);
    let refusal = socket.call(command::OPEN, &one_more)?.err();
    let refusal = refusal.context("a handle more")?;
    expect("a handle more", refusal.errno, Errno::EMFILE)?;
    ensure!(refusal.text.is_some(), "no text");
    let new = Attrs::new().name("new").flags(CREATE_NEW);
    expect(
        "a new map",
        socket.outcome(command::OPEN, &new)?,
        Err(Errno::EMFILE),
    )?;
    let maps = Maps::new()?;
    let names = maps.0.names(crate::support::ctl::OWN);
    expect("names", names, Ok(vec![NAME.into()]))?;
    Socket::new()?
        .open(NAME, READ)
        .context("by another socket")?;
    socket.must(command::CLOSE, &Attrs::new().handle(handles[0]))?;
    socket.open(NAME, READ).context("after closing one")?;
    Ok(())
}

// ---- the module ----

fn a_handle_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    socket.open(NAME, CREATE_NEW)?;
    expect_module_in_use()
}

fn a_watch_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    let handle = socket.open(NAME, CREATE_NEW)?;
    socket.watch(handle, NOW)?;
    expect_module_in_use()
}

/// Several messages.
const LARGE_ENTRIES: u8 = 8;

/// A persistent map whose dump has several messages.
fn large_map() -> Result<Maps> {
    let maps = Maps::new()?;
    let end = maps.persist()?;
    for key in 0..LARGE_ENTRIES {
        put(&end, &[key], &[key; VALUE_MAX])?;
    }
    Ok(maps)
}

fn a_dump_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let socket = Socket::new()?;
    let dump = {
        let maps = large_map()?;
        let dump = socket.begin_dump(&named())?;
        maps.unlink().context("unlinking")?;
        dump
    };
    // Only the dump has the map.
    expect_module_in_use()?;
    let entries = collect(&socket, dump)?;
    expect("entries", entries.len(), LARGE_ENTRIES.into())?;
    expect_no_channel(&Maps::new()?.0)
}

// ---- dumps ----

fn collect(socket: &Socket, dump: u32) -> Result<Vec<Dumped>> {
    let mut entries = Vec::new();
    while let Some(next) = socket.next_of_dump(dump)? {
        entries.extend(next);
    }
    Ok(entries)
}

fn a_dump_that_nobody_reads_is_freed(_: &Context) -> Result<()> {
    let maps = large_map()?;
    for _ in 0..20 {
        Socket::new()?.begin_dump(&named())?;
    }
    maps.unlink().context("unlinking")?;
    expect_no_channel(&maps.0)
}

fn a_dump_outlives_the_permission_to_begin_it(_: &Context) -> Result<()> {
    let maps = large_map()?;
    let reader = spawn("the reader", || {
        let socket = Socket::new()?;
        let dump = socket.begin_dump(&named())?;
        become_user(NOBODY)?;
        let mut entries = collect(&socket, dump)?;
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        let values: Vec<_> = entries
            .iter()
            .map(|entry| (&entry.key[..], &entry.value[..]))
            .collect();
        let numbers: Vec<u8> = (0..LARGE_ENTRIES).collect();
        let expected: Vec<_> = numbers
            .iter()
            .map(|key| ([*key], [*key; VALUE_MAX]))
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(key, value)| (&key[..], &value[..]))
            .collect();
        expect("whether each entry is there", values == expected, true)?;
        let again = socket.outcome(command::DUMP, &named())?;
        expect("a dump that begins now", again, Err(Errno::EACCES))
    })?;
    reader.finish()?;
    maps.unlink().context("unlinking")
}

fn a_dump_of_a_destroyed_map_ends_with_epipe(_: &Context) -> Result<()> {
    let maps = large_map()?;
    let socket = Socket::new()?;
    let dump = socket.begin_dump(&named())?;
    maps.destroy().context("destroying")?;
    match socket.finish(dump)? {
        Err(refusal) => expect("the end of the dump", refusal.errno, Errno::EPIPE)?,
        Ok(entries) => bail!("the dump ended after {} entries", entries.len()),
    }
    expect_no_channel(&maps.0)
}

fn a_dump_has_each_lasting_entry_once(_: &Context) -> Result<()> {
    const LASTING: u32 = 300;
    const OTHERS: u32 = 500;
    let maps = Maps::new()?;
    let end = maps.create()?;
    let socket = Socket::new()?;
    let handle = Attrs::new().handle(socket.open(NAME, READ)?);
    let lasting = |number: u32| [b"lasting".as_slice(), &number.to_ne_bytes()].concat();
    for number in 0..LASTING {
        put(&end, &lasting(number), &[0; 500])?;
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        // The table grows and shrinks meanwhile.
        let writer = scope.spawn(|| -> Result<()> {
            while !done.load(Ordering::Relaxed) {
                for number in 0..OTHERS {
                    put(&end, &number.to_ne_bytes(), b"")?;
                }
                for number in 0..OTHERS {
                    delete(&end, &number.to_ne_bytes()).context("deleting")?;
                }
            }
            Ok(())
        });
        let checked = (0..5).try_for_each(|_| {
            let dump = socket.begin_dump(&handle)?;
            let mut seen: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
            for entry in collect(&socket, dump)? {
                *seen.entry(entry.key).or_default() += 1;
            }
            for number in 0..LASTING {
                let count = seen.get(&lasting(number)).copied().unwrap_or(0);
                expect(&format!("how often entry {number} is there"), count, 1)?;
            }
            Ok(())
        });
        done.store(true, Ordering::Relaxed);
        let written = writer.join().expect("the thread does not panic");
        checked.and(written)
    })
}

fn a_socket_has_one_dump_at_a_time(_: &Context) -> Result<()> {
    let maps = large_map()?;
    let socket = Socket::new()?;
    let dump = socket.begin_dump(&named())?;
    let mut count = 0;
    let next = |count: &mut usize| -> Result<()> {
        let entries = socket.next_of_dump(dump)?;
        *count += entries.context("the dump has ended")?.len();
        Ok(())
    };
    next(&mut count)?;
    let another = socket.begin_dump(&named())?;
    // It was there before.
    next(&mut count)?;
    let refusal = socket.finish(another)?.err().context("another dump")?;
    expect("another dump", refusal.errno, Errno::EBUSY)?;
    count += collect(&socket, dump)?.len();
    expect("entries of the first", count, LARGE_ENTRIES.into())?;
    maps.unlink().context("unlinking")
}
