// SPDX-License-Identifier: MIT OR Apache-2.0
//! What belongs to one end: its direction, its flags, its duplicates.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::fstat;
use nix::unistd::{dup, read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, set_blocking, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::proc::Call;
use crate::support::time::wait_grace_period;

topic!(
    "ends",
    fifo: [
        an_end_serves_only_its_own_direction,
        writes_leave_no_boundaries,
        nonblocking_can_be_turned_on_and_off,
        a_duplicate_keeps_the_endpoint,
        a_forked_child_keeps_the_writing_end,
        a_forked_child_keeps_the_reading_end,
        a_direct_open_is_einval_and_leaves_nobody_behind,
    ],
    pipe_only: [
        packet_mode_cannot_be_turned_on,
        the_capacity_calls_of_the_kernels_own_pipes_are_ebadf,
        reading_and_writing_leave_the_times_alone,
    ],
);

fn an_end_serves_only_its_own_direction(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    expect(
        "a write to the reading end",
        write(&reader, b"x"),
        Err(Errno::EBADF),
    )?;
    expect(
        "a read from the writing end",
        read(&writer, &mut [0]),
        Err(Errno::EBADF),
    )
}

fn writes_leave_no_boundaries(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    for piece in [&b"one"[..], b"", b"two", b"three"] {
        write_all(&writer, piece)?;
    }
    let seen = read_some(&reader, 64).context("read")?;
    expect_bytes("what one read gets", &seen, b"onetwothree")
}

fn nonblocking_can_be_turned_on_and_off(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    set_nonblocking(&reader)?;
    expect(
        "a read while it is on",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    set_blocking(&reader)?;
    let child = spawn_keeping("a read while it is off", &[reader.as_fd()], || {
        read_some(&reader, 64).context("read")
    })?;
    child.wait_asleep_in(Call::Read)?;
    write_all(&writer, b"x")?;
    expect_bytes("what it got", &child.finish()?, b"x")
}

fn a_duplicate_keeps_the_endpoint(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    let duplicate = dup(&writer).context("dup")?;
    drop(writer);
    expect(
        "a read while the duplicate is open",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    write_all(&duplicate, b"same")?;
    expect_bytes(
        "what the duplicate wrote",
        &read_some(&reader, 64).context("read")?,
        b"same",
    )?;
    drop(duplicate);
    expect("a read after it was closed", read(&reader, &mut [0]), Ok(0))
}

/// A child that has inherited this end and does nothing with it.
fn holder(end: &OwnedFd) -> Result<Child<()>> {
    spawn_keeping("a child that holds an end", &[end.as_fd()], || {
        loop {
            std::thread::park();
        }
    })
}

fn a_forked_child_keeps_the_writing_end(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    let child = holder(&writer)?;
    drop(writer);
    expect(
        "a read while the child lives",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    child.kill()?;
    expect("a read after its end", read(&reader, &mut [0]), Ok(0))
}

fn a_forked_child_keeps_the_reading_end(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    let child = holder(&reader)?;
    drop(reader);
    expect("a write while the child lives", write(&writer, b"x"), Ok(1))?;
    child.kill()?;
    expect(
        "a write after its end",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// The kernel refuses only after the pipe has been opened, and closes it again.
fn a_direct_open_is_einval_and_leaves_nobody_behind(context: &Context) -> Result<()> {
    // Only open(2) takes this flag.
    context.channel.path()?;
    let reader = context.channel.open_reader_now()?;
    let refused = context.channel.open(OFlag::O_RDWR | OFlag::O_DIRECT);
    expect("result of the open", refused.map(drop), Err(Errno::EINVAL))?;
    expect("a read without a writer", read(&reader, &mut [0]), Ok(0))
}

/// On a FIFO it can: then each read gets one write. Asked for in vain, it must not seem to be there.
fn packet_mode_cannot_be_turned_on(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    expect(
        "setting O_DIRECT",
        fcntl(&both, FcntlArg::F_SETFL(OFlag::O_DIRECT)),
        Err(Errno::EINVAL),
    )
}

/// There is SLUICE_PIPE_SET_CAPACITY instead.
fn the_capacity_calls_of_the_kernels_own_pipes_are_ebadf(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    expect(
        "F_GETPIPE_SZ",
        fcntl(&both, FcntlArg::F_GETPIPE_SZ),
        Err(Errno::EBADF),
    )?;
    expect(
        "F_SETPIPE_SZ",
        fcntl(&both, FcntlArg::F_SETPIPE_SZ(4096)),
        Err(Errno::EBADF),
    )
}

/// The node is one for all cgroups: its times would tell each what the others do.
fn reading_and_writing_leave_the_times_alone(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let times = || -> Result<_> {
        let stat = fstat(&both).context("fstat")?;
        Ok([
            (stat.st_atime, stat.st_atime_nsec),
            (stat.st_mtime, stat.st_mtime_nsec),
        ])
    };
    let before = times()?;
    wait_grace_period();
    write_all(&both, b"x")?;
    read_some(&both, 1).context("read")?;
    expect("the times after a write and a read", times()?, before)
}
