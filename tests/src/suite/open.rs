// SPDX-License-Identifier: MIT OR Apache-2.0
//! When open(2) blocks, and what a failed open leaves.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{Channel, read_some};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::event::Event;
use crate::support::proc::Call;
use crate::support::signals;

topic!(
    "open",
    fifo: [
        readonly_blocks_until_a_writer_opens,
        writeonly_blocks_until_a_reader_opens,
        readwrite_never_blocks,
        readwrite_nonblocking_succeeds,
        readonly_nonblocking_succeeds_without_a_writer,
        writeonly_nonblocking_without_a_reader_is_enxio,
        writeonly_nonblocking_with_a_reader_succeeds,
        a_failed_nonblocking_open_leaves_no_writer,
        a_blocked_open_counts_as_a_peer,
        readwrite_unblocks_an_open_for_reading,
        readwrite_unblocks_an_open_for_writing,
        another_reader_does_not_unblock_an_open_for_reading,
        another_writer_does_not_unblock_an_open_for_writing,
        a_reader_that_closes_at_once_unblocks_an_open_for_writing,
        a_writer_that_closes_at_once_unblocks_an_open_for_reading,
        one_writer_unblocks_all_opens_for_reading,
        one_reader_unblocks_all_opens_for_writing,
        a_signal_ends_a_blocked_open_for_reading_with_eintr,
        a_signal_ends_a_blocked_open_for_writing_with_eintr,
        an_interrupted_open_leaves_no_reader,
        an_interrupted_open_leaves_no_writer,
        a_killed_open_leaves_no_reader,
        a_killed_open_leaves_no_writer,
        an_open_for_reading_restarts_with_sa_restart,
        an_open_for_writing_restarts_with_sa_restart,
        neither_reading_nor_writing_is_einval,
        o_creat_o_trunc_and_o_append_have_no_effect,
    ],
    pipe_only: [],
);

/// A child that opens and returns the result.
fn opener(channel: &Channel, flags: OFlag) -> Result<Child<Result<(), i32>>> {
    let what = format!("opening with {flags:?}");
    spawn(&what, || {
        Ok(channel.open(flags).map(drop).map_err(|errno| errno as i32))
    })
}

/// As `opener`, once it is blocked.
fn blocked_opener(channel: &Channel, flags: OFlag) -> Result<Child<Result<(), i32>>> {
    let child = opener(channel, flags)?;
    child.wait_asleep_in(Call::Open)?;
    Ok(child)
}

fn expect_unblocked(child: Child<Result<(), i32>>) -> Result<()> {
    expect("result of the waiting open", child.finish()?, Ok(()))
}

fn readonly_blocks_until_a_writer_opens(context: &Context) -> Result<()> {
    let reader = blocked_opener(&context.channel, OFlag::O_RDONLY)?;
    reader.expect_still_asleep_in(Call::Open)?;
    let _writer = context.channel.open_writer()?;
    expect_unblocked(reader)
}

fn writeonly_blocks_until_a_reader_opens(context: &Context) -> Result<()> {
    let writer = blocked_opener(&context.channel, OFlag::O_WRONLY)?;
    writer.expect_still_asleep_in(Call::Open)?;
    let _reader = context.channel.open_reader()?;
    expect_unblocked(writer)
}

fn readwrite_never_blocks(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDWR)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn readwrite_nonblocking_succeeds(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDWR | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn readonly_nonblocking_succeeds_without_a_writer(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn writeonly_nonblocking_without_a_reader_is_enxio(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_WRONLY | OFlag::O_NONBLOCK)?;
    expect(
        "result of the open",
        child.finish()?,
        Err(Errno::ENXIO as i32),
    )
}

fn writeonly_nonblocking_with_a_reader_succeeds(context: &Context) -> Result<()> {
    let _reader = context.channel.open_reader_nonblocking()?;
    let child = opener(&context.channel, OFlag::O_WRONLY | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

/// A pipe is freed with its last endpoint, and wrong counts with it, so another process must hold an endpoint. Here it
/// is a reader; once that has closed too, a writer must get EPIPE.
fn expect_no_reader_after(
    context: &Context,
    what_happens: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let observer = blocked_opener(&context.channel, OFlag::O_RDONLY)?;
    what_happens()?;
    let writer = context.channel.open_writer_nonblocking()?;
    expect_unblocked(observer)?;
    expect(
        "a write after the last reader closed",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// As above for writers: a reader must get EOF.
fn expect_no_writer_after(
    context: &Context,
    what_happens: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let observer = blocked_opener(&context.channel, OFlag::O_WRONLY)?;
    what_happens()?;
    let reader = context.channel.open_reader_nonblocking()?;
    expect_unblocked(observer)?;
    expect(
        "a read after the last writer closed",
        read(&reader, &mut [0]),
        Ok(0),
    )
}

fn a_failed_nonblocking_open_leaves_no_writer(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || {
        let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
        expect("result of the open", refused.map(drop), Err(Errno::ENXIO))
    })
}

fn a_blocked_open_counts_as_a_peer(context: &Context) -> Result<()> {
    let reader = blocked_opener(&context.channel, OFlag::O_RDONLY)?;
    let _writer = context
        .channel
        .open_writer_nonblocking()
        .context("there is a reader, though it still waits")?;
    expect_unblocked(reader)
}

fn readwrite_unblocks_an_open_for_reading(context: &Context) -> Result<()> {
    let reader = blocked_opener(&context.channel, OFlag::O_RDONLY)?;
    let _both = context.channel.open_read_write()?;
    expect_unblocked(reader)
}

fn readwrite_unblocks_an_open_for_writing(context: &Context) -> Result<()> {
    let writer = blocked_opener(&context.channel, OFlag::O_WRONLY)?;
    let _both = context.channel.open_read_write()?;
    expect_unblocked(writer)
}

fn another_reader_does_not_unblock_an_open_for_reading(context: &Context) -> Result<()> {
    let reader = blocked_opener(&context.channel, OFlag::O_RDONLY)?;
    let _other = context.channel.open_reader_nonblocking()?;
    reader.expect_still_asleep_in(Call::Open)
}

fn another_writer_does_not_unblock_an_open_for_writing(context: &Context) -> Result<()> {
    let writer = blocked_opener(&context.channel, OFlag::O_WRONLY)?;
    let _other = blocked_opener(&context.channel, OFlag::O_WRONLY)?;
    writer.expect_still_asleep_in(Call::Open)
}

fn a_reader_that_closes_at_once_unblocks_an_open_for_writing(context: &Context) -> Result<()> {
    let gone = Event::new()?;
    let writer = spawn_keeping("a writer that waits, then writes", &gone.fds(), || {
        let writer = context.channel.open_writer()?;
        gone.wait("the reader is gone")?;
        Ok(write(&writer, b"x").map_err(|errno| errno as i32))
    })?;
    writer.wait_asleep_in(Call::Open)?;
    drop(context.channel.open_reader_nonblocking()?);
    gone.notify()?;
    let written = writer.finish()?;
    expect("the write after it", written, Err(Errno::EPIPE as i32))
}

fn a_writer_that_closes_at_once_unblocks_an_open_for_reading(context: &Context) -> Result<()> {
    let reader = spawn("a reader that waits, then reads", || {
        let reader = context.channel.open_reader()?;
        Ok(read(&reader, &mut [0]).map_err(|errno| errno as i32))
    })?;
    reader.wait_asleep_in(Call::Open)?;
    drop(context.channel.open_writer_nonblocking()?);
    expect("the read after it", reader.finish()?, Ok(0))
}

const WAITERS: usize = 8;

fn expect_all_unblocked(context: &Context, side: OFlag, by: OFlag) -> Result<()> {
    let waiting = (0..WAITERS)
        .map(|_| blocked_opener(&context.channel, side))
        .collect::<Result<Vec<_>>>()?;
    let _peer: OwnedFd = context.channel.open(by).context("opening the other side")?;
    waiting.into_iter().try_for_each(expect_unblocked)
}

fn one_writer_unblocks_all_opens_for_reading(context: &Context) -> Result<()> {
    expect_all_unblocked(context, OFlag::O_RDONLY, OFlag::O_WRONLY)
}

fn one_reader_unblocks_all_opens_for_writing(context: &Context) -> Result<()> {
    expect_all_unblocked(context, OFlag::O_WRONLY, OFlag::O_RDONLY)
}

/// A blocked opener with a handler for SIGUSR1 that notifies `handled`.
fn interruptible_opener(
    channel: &Channel,
    flags: OFlag,
    handled: &Event,
    restart: bool,
) -> Result<Child<Result<(), i32>>> {
    signals::spawn_blocked_with_handler(Call::Open, handled, restart, || {
        Ok(channel.open(flags).map(drop).map_err(|errno| errno as i32))
    })
}

fn expect_interrupted(context: &Context, flags: OFlag) -> Result<()> {
    let child = interruptible_opener(&context.channel, flags, &Event::new()?, false)?;
    child.signal(Signal::SIGUSR1)?;
    expect(
        "result of the interrupted open",
        child.finish()?,
        Err(Errno::EINTR as i32),
    )
}

fn a_signal_ends_a_blocked_open_for_reading_with_eintr(context: &Context) -> Result<()> {
    expect_interrupted(context, OFlag::O_RDONLY)
}

fn a_signal_ends_a_blocked_open_for_writing_with_eintr(context: &Context) -> Result<()> {
    expect_interrupted(context, OFlag::O_WRONLY)
}

fn an_interrupted_open_leaves_no_reader(context: &Context) -> Result<()> {
    expect_no_reader_after(context, || expect_interrupted(context, OFlag::O_RDONLY))
}

fn an_interrupted_open_leaves_no_writer(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || expect_interrupted(context, OFlag::O_WRONLY))
}

fn kill_waiting_opener(context: &Context, flags: OFlag) -> Result<()> {
    blocked_opener(&context.channel, flags)?.kill()
}

fn a_killed_open_leaves_no_reader(context: &Context) -> Result<()> {
    expect_no_reader_after(context, || kill_waiting_opener(context, OFlag::O_RDONLY))
}

fn a_killed_open_leaves_no_writer(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || kill_waiting_opener(context, OFlag::O_WRONLY))
}

fn expect_restarted(context: &Context, flags: OFlag, peer: OFlag) -> Result<()> {
    let handled = Event::new()?;
    let child = interruptible_opener(&context.channel, flags, &handled, true)?;
    signals::interrupt(&child, &handled)?;
    child.wait_asleep_in(Call::Open)?;
    child.expect_still_asleep_in(Call::Open)?;
    let _peer = context
        .channel
        .open(peer)
        .context("opening the other side")?;
    expect_unblocked(child)
}

fn an_open_for_reading_restarts_with_sa_restart(context: &Context) -> Result<()> {
    expect_restarted(context, OFlag::O_RDONLY, OFlag::O_WRONLY)
}

fn an_open_for_writing_restarts_with_sa_restart(context: &Context) -> Result<()> {
    expect_restarted(context, OFlag::O_WRONLY, OFlag::O_RDONLY)
}

/// In Linux, access mode 3 means neither; a pipe does not support it.
fn neither_reading_nor_writing_is_einval(context: &Context) -> Result<()> {
    let result = context.channel.open(OFlag::O_ACCMODE | OFlag::O_NONBLOCK);
    expect("result of the open", result.map(drop), Err(Errno::EINVAL))
}

/// The flags that a shell uses for `> pipe`.
fn o_creat_o_trunc_and_o_append_have_no_effect(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write(&both, b"kept").context("writing before the open")?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_APPEND;
    let _writer = context
        .channel
        .open(flags)
        .context("opening as a shell does")?;
    let kept = read_some(&both, 64).context("reading after the open")?;
    expect_bytes("bytes in the pipe", &kept, b"kept")
}
