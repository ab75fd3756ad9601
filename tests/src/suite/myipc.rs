// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive driver that the benchmark compares with. A comparison is only valid with a working driver: no bytes lost
//! or changed, no process stuck, nothing leaked.

use std::ffi::CStr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};
use serde::{Serialize, de::DeserializeOwned};

use crate::registry::{Context, topic};
use crate::support::channel::{Channel, read_all, read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::event::Event;
use crate::support::kernel::LoadedModule;
use crate::support::memory::{GuardedBuffer, read_at, write_at};
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::signals;

topic!(
    "myipc",
    fifo: [],
    pipe_only: [
        bytes_arrive_unchanged_in_both_directions,
        bytes_reach_a_reader_in_another_cgroup,
        a_write_accepts_what_fits_contiguously,
        a_reader_blocks_for_bytes_and_a_writer_for_room,
        a_signal_ends_a_blocked_call_with_eintr,
        processes_killed_while_blocked_leave_it_working,
        bad_memory_moves_nothing,
        it_unloads_only_when_closed_and_leaves_no_node,
        an_invalid_ring_size_is_einval,
    ],
);

const NODES: [&str; 2] = ["/dev/myipc0", "/dev/myipc1"];
/// One of the ring's 4096 bytes is never used.
const HOLDS: usize = 4095;

fn load(context: &Context, parameters: &CStr) -> Result<nix::Result<LoadedModule>> {
    LoadedModule::load(context.baseline("myipc")?, c"myipc", parameters)
}

/// Loads the driver with the benchmark's parameters; returns it and its two nodes.
fn loaded(context: &Context) -> Result<(LoadedModule, [Channel; 2])> {
    let module = load(context, c"")?.context("loading the naive driver")?;
    Ok((module, NODES.map(Channel::new)))
}

fn bytes_arrive_unchanged_in_both_directions(context: &Context) -> Result<()> {
    // Neither divides the other, so that messages end at every offset of the ring.
    const MESSAGE: usize = 1237;
    const TOTAL: usize = 200 * MESSAGE;
    let (_module, [there, back]) = loaded(context)?;
    let echo = spawn("an echo", || {
        let (reader, writer) = (there.open_read_write()?, back.open_read_write()?);
        for _ in 0..TOTAL / MESSAGE {
            write_all(&writer, &read_all(&reader, MESSAGE)?)?;
        }
        Ok(())
    })?;
    let sender = spawn("a sender", || {
        write_all(&there.open_writer()?, &stream_bytes(1, 0, TOTAL))
    })?;
    let came = read_all(&back.open_reader()?, TOTAL)?;
    expect_bytes("bytes returned", &came, &stream_bytes(1, 0, TOTAL))?;
    sender.finish()?;
    echo.finish()
}

/// All cgroups share its buffer, so bytes reach the reader that waits first, here a reader of the other pair. The pipe
/// has one buffer for each cgroup: `cgroup_isolation::two_cgroups_never_receive_each_others_bytes`.
fn bytes_reach_a_reader_in_another_cgroup(context: &Context) -> Result<()> {
    let (_module, [node, _]) = loaded(context)?;
    let home = context.cgroup()?;
    let pairs = [
        (home.create_child("first")?, *b"first "),
        (home.create_child("second")?, *b"second"),
    ];
    for [(own, bytes), (other, _)] in [[&pairs[0], &pairs[1]], [&pairs[1], &pairs[0]]] {
        let read = || read_all(&node.open_reader()?, bytes.len());
        let reader = other.spawn("a reader in the other cgroup", read)?;
        reader.wait_asleep_in(Call::Read)?;
        let writer = own.spawn("a writer", || write_all(&node.open_writer()?, bytes))?;
        writer.finish()?;
        expect_bytes("bytes of the other pair", &reader.finish()?, bytes)?;
    }
    Ok(())
}

fn a_write_accepts_what_fits_contiguously(context: &Context) -> Result<()> {
    let (_module, [node, _]) = loaded(context)?;
    let both = node.open_read_write()?;
    let bytes = stream_bytes(2, 0, 2 * HOLDS);
    expect("a write of nothing", write(&both, &[]), Ok(0))?;
    expect("a write that is too large", write(&both, &bytes), Ok(HOLDS))?;
    expect("a read of nothing", read(&both, &mut []), Ok(0))?;
    expect_bytes("the first bytes", &read_all(&both, 1000)?, &bytes[..1000])?;
    // The ring now has one free byte at its end, and 999 at its beginning.
    expect("a write up to the end", write(&both, &bytes), Ok(1))?;
    expect("a write from the beginning", write(&both, &bytes), Ok(999))?;
    expect_bytes(
        "a read up to the end",
        &read_some(&both, 2 * HOLDS)?,
        &[&bytes[1000..HOLDS], &bytes[..1]].concat(),
    )?;
    expect_bytes(
        "a read from the beginning",
        &read_some(&both, 2 * HOLDS)?,
        &bytes[..999],
    )
}

/// A child that blocks until there is a byte.
fn waiting_reader(node: &Channel) -> Result<Child<Vec<u8>>> {
    let reader = spawn("a reader", || Ok(read_some(&node.open_reader()?, 64)?))?;
    reader.wait_asleep_in(Call::Read)?;
    Ok(reader)
}

/// A child that blocks until it can write `x` to the full ring.
fn waiting_writer(node: &Channel) -> Result<Child<usize>> {
    let writer = spawn("a writer", || Ok(write(&node.open_writer()?, b"x")?))?;
    writer.wait_asleep_in(Call::Write)?;
    Ok(writer)
}

fn a_reader_blocks_for_bytes_and_a_writer_for_room(context: &Context) -> Result<()> {
    let (_module, nodes) = loaded(context)?;
    for node in &nodes {
        let both = node.open_read_write()?;
        let reader = waiting_reader(node)?;
        reader.expect_still_asleep_in(Call::Read)?;
        write_all(&both, b"hello")?;
        expect_bytes("bytes read by the reader", &reader.finish()?, b"hello")?;

        write_all(&both, &[b'.'; HOLDS])?;
        let writer = waiting_writer(node)?;
        writer.expect_still_asleep_in(Call::Write)?;
        read_all(&both, 1)?;
        expect("result of the write", writer.finish()?, 1)?;
        let rest = read_all(&both, HOLDS)?;
        expect_bytes("the last byte", &rest[HOLDS - 1..], b"x")?;
    }
    Ok(())
}

/// Runs `body` in a child, interrupts it while it sleeps in `call`, and returns its result.
fn interrupted<T: Serialize + DeserializeOwned>(
    call: Call,
    body: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let handled = Event::new()?;
    let child = signals::spawn_blocked_with_handler(call, &handled, false, body)?;
    child.signal(Signal::SIGUSR1)?;
    child.finish()
}

fn a_signal_ends_a_blocked_call_with_eintr(context: &Context) -> Result<()> {
    let (_module, [node, _]) = loaded(context)?;
    let both = node.open_read_write()?;
    let returned = interrupted(Call::Read, || {
        Ok(read(&node.open_reader()?, &mut [0]).map_err(|errno| errno as i32))
    })?;
    expect("result of the read", returned, Err(Errno::EINTR as i32))?;

    write_all(&both, &[b'.'; HOLDS])?;
    let returned = interrupted(Call::Write, || {
        Ok(write(&node.open_writer()?, b"x").map_err(|errno| errno as i32))
    })?;
    expect("result of the write", returned, Err(Errno::EINTR as i32))?;
    expect_bytes("its content", &read_all(&both, HOLDS)?, &[b'.'; HOLDS])
}

fn processes_killed_while_blocked_leave_it_working(context: &Context) -> Result<()> {
    let (_module, [node, _]) = loaded(context)?;
    waiting_reader(&node)?.kill()?;
    let both = node.open_read_write()?;
    write_all(&both, &[b'.'; HOLDS])?;
    waiting_writer(&node)?.kill()?;
    expect_bytes("its content", &read_all(&both, HOLDS)?, &[b'.'; HOLDS])?;
    write_all(&both, b"unharmed")?;
    expect_bytes("the next bytes", &read_all(&both, 8)?, b"unharmed")
}

fn bad_memory_moves_nothing(context: &Context) -> Result<()> {
    let (_module, [node, _]) = loaded(context)?;
    let both = node.open_read_write()?;
    let edge = GuardedBuffer::new(8)?;
    expect(
        "a write from beyond the edge",
        write_at(&both, edge.start(), 16),
        Err(Errno::EFAULT),
    )?;
    write_all(&both, b"sixteen bytes ok")?;
    expect(
        "a read to beyond the edge",
        read_at(&both, edge.start(), 16),
        Err(Errno::EFAULT),
    )?;
    expect_bytes("its content", &read_some(&both, 64)?, b"sixteen bytes ok")
}

fn it_unloads_only_when_closed_and_leaves_no_node(context: &Context) -> Result<()> {
    let (mut module, nodes) = loaded(context)?;
    for node in &nodes {
        let both = node.open_read_write()?;
        write_all(&both, b"left behind")?;
        expect("unloading", module.unload(), Err(Errno::EWOULDBLOCK))?;
    }
    module.unload().context("unloading")?;
    for trace in [NODES[0], NODES[1], "/sys/class/myipc", "/sys/module/myipc"] {
        ensure!(!Path::new(trace).exists(), "{trace} is still there");
    }
    Ok(())
}

fn an_invalid_ring_size_is_einval(context: &Context) -> Result<()> {
    for parameters in [c"size=1", c"size=0", c"size=-4096", c"size=16777217"] {
        let refused = load(context, parameters)?.err();
        expect(
            &format!("loading with {parameters:?}"),
            refused,
            Some(Errno::EINVAL),
        )?;
    }
    let _module = load(context, c"size=2")?.context("loading with the smallest size")?;
    let node = Channel::new(NODES[0]);
    let sender = spawn("a sender", || {
        write_all(&node.open_writer()?, b"byte by byte")
    })?;
    let came = read_all(&node.open_reader()?, 12)?;
    expect_bytes("bytes received", &came, b"byte by byte")?;
    sender.finish()
}
