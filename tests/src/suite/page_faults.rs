// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader or writer that is blocked in a page fault in the middle of its copy: it must not block others, and its
//! bytes must be right in the end.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, PIPE_BUF, read_all, read_nowait, read_some, set_nonblocking, write_all, write_nowait,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::event::Event;
use crate::support::fault_blocked::{FAULT_BYTE, FaultBlocked, spawn_fault_blocked};
use crate::support::memory::{PAGE, read_at, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals;

topic!(
    "page_faults",
    fifo: [
        a_faulting_write_delivers_its_bytes,
        a_large_faulting_write_delivers_its_bytes,
        a_faulting_read_gets_its_bytes,
        a_faulting_writer_does_not_block_poll,
        a_faulting_reader_does_not_block_poll,
    ],
    pipe_only: [
        a_faulting_writer_does_not_block_a_reader_of_earlier_bytes,
        a_faulting_short_write_is_invisible_until_it_completes,
        a_faulting_reader_does_not_block_a_writer,
        a_faulting_endpoint_does_not_block_open_and_close,
        a_nowait_read_behind_a_faulting_reader_is_eagain,
        a_nowait_write_behind_a_faulting_writer_is_eagain,
        a_read_blocked_by_a_faulting_reader_is_interruptible,
        a_write_blocked_by_a_faulting_writer_is_interruptible,
    ],
);

/// A child blocked in a page fault of a write of `ready` resident pages and one missing page.
fn fault_blocked_writer(
    context: &Context,
    ready: usize,
) -> Result<FaultBlocked<Result<usize, i32>>> {
    spawn_fault_blocked("a writer in a page fault", ready, |buffer| {
        let fd = context.channel.open_read_write()?;
        Ok(write_at(&fd, buffer.start(), buffer.len()).map_err(|errno| errno as i32))
    })
}

/// A child blocked in a page fault of a read into a missing page; it returns the bytes read.
fn fault_blocked_reader(context: &Context) -> Result<FaultBlocked<Vec<u8>>> {
    spawn_fault_blocked("a reader in a page fault", 0, |buffer| {
        let fd = context.channel.open_read_write()?;
        let count = read_at(&fd, buffer.start(), buffer.len()).context("the read that faults")?;
        Ok(buffer.to_vec(count))
    })
}

fn a_faulting_write_delivers_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let writer = fault_blocked_writer(context, 0)?;
    expect("result of the write", writer.resume()?, Ok(PAGE))?;
    expect_bytes(
        "bytes written",
        &read_all(&both, PAGE)?,
        &[FAULT_BYTE; PAGE],
    )
}

fn a_large_faulting_write_delivers_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, &[b'.'; 100])?;
    let writer = fault_blocked_writer(context, 3)?;
    expect("result of the write", writer.resume()?, Ok(4 * PAGE))?;
    let expected = [vec![b'.'; 100], vec![0; 3 * PAGE], vec![FAULT_BYTE; PAGE]].concat();
    expect_bytes(
        "bytes written",
        &read_all(&both, expected.len())?,
        &expected,
    )
}

fn a_faulting_read_gets_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"contents")?;
    let reader = fault_blocked_reader(context)?;
    expect_bytes("bytes read", &reader.resume()?, b"contents")?;
    set_nonblocking(&both)?;
    expect("a read after it", read(&both, &mut [0]), Err(Errno::EAGAIN))
}

/// Polls in a child, so that a poll that blocks fails the test instead of hanging it.
fn expect_poll_answers(both: &OwnedFd, expected: &str) -> Result<()> {
    let poller = spawn_keeping("a poll beside a page fault", &[both.as_fd()], || {
        poll::state(both)
    })?;
    expect("result of the poll", poller.finish()?, expected.to_owned())
}

fn a_faulting_writer_does_not_block_poll(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"earlier")?;
    let writer = fault_blocked_writer(context, 0)?;
    expect_poll_answers(&both, "IN|OUT")?;
    writer.expect_still_blocked()?;
    expect("result of the write", writer.resume()?, Ok(PAGE))
}

fn a_faulting_reader_does_not_block_poll(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"x")?;
    let reader = fault_blocked_reader(context)?;
    expect_poll_answers(&both, "IN|OUT")?;
    reader.expect_still_blocked()?;
    expect_bytes("bytes read", &reader.resume()?, b"x")
}

/// Not on a FIFO, where readers and writers share one lock.
fn a_faulting_writer_does_not_block_a_reader_of_earlier_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"earlier")?;
    let writer = fault_blocked_writer(context, 0)?;
    let reader = spawn("a reader of earlier bytes", || {
        let fd = context.channel.open_read_write()?;
        read_some(&fd, CAPACITY).context("read")
    })?;
    expect_bytes("bytes read by the reader", &reader.finish()?, b"earlier")?;
    writer.expect_still_blocked()?;
    expect("result of the write", writer.resume()?, Ok(PAGE))?;
    expect_bytes(
        "bytes written",
        &read_all(&both, PAGE)?,
        &[FAULT_BYTE; PAGE],
    )
}

/// The first half is copied, the second faults; in the pipe, the write crosses a page boundary. Not on a FIFO, where
/// the reader would block.
fn a_faulting_short_write_is_invisible_until_it_completes(context: &Context) -> Result<()> {
    const HALF: usize = 100;
    let both = context.channel.open_read_write()?;
    write_all(&both, &[b'.'; PAGE - HALF / 2])?;
    let writer = spawn_fault_blocked("a writer in a page fault", 1, |buffer| {
        let fd = context.channel.open_read_write()?;
        // SAFETY: within the buffer.
        let start = unsafe { buffer.start().add(PAGE - HALF) };
        write_at(&fd, start, 2 * HALF).context("the write that faults")
    })?;
    set_nonblocking(&both)?;
    expect_bytes(
        "bytes before it",
        &read_some(&both, CAPACITY).context("read")?,
        &[b'.'; PAGE - HALF / 2],
    )?;
    expect(
        "a read meanwhile",
        read(&both, &mut [0; PAGE]),
        Err(Errno::EAGAIN),
    )?;
    expect_poll_answers(&both, "OUT")?;
    expect("bytes that it wrote", writer.resume()?, 2 * HALF)?;
    let expected = [[0; HALF], [FAULT_BYTE; HALF]].concat();
    expect_bytes("bytes written", &read_all(&both, 2 * HALF)?, &expected)
}

/// Not on a FIFO, where readers and writers share one lock.
fn a_faulting_reader_does_not_block_a_writer(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"first")?;
    let reader = fault_blocked_reader(context)?;
    let writer = spawn("a writer beside it", || {
        let fd = context.channel.open_read_write()?;
        write_all(&fd, b"second")
    })?;
    writer.finish()?;
    reader.expect_still_blocked()?;
    let mut seen = reader.resume()?;
    ensure!(
        seen.starts_with(b"first"),
        "the reader got {seen:?} instead of what came first"
    );
    // It may include the second write, which came before the read continued.
    set_nonblocking(&both)?;
    seen.extend(read_some(&both, CAPACITY).unwrap_or_default());
    expect_bytes("all bytes read", &seen, b"firstsecond")
}

/// Not on a FIFO, where open and close take the lock that is held during a copy.
fn a_faulting_endpoint_does_not_block_open_and_close(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"x")?;
    let writer = fault_blocked_writer(context, 0)?;
    let reader = fault_blocked_reader(context)?;
    let opener = spawn("an open and close", || {
        drop(context.channel.open_ends()?);
        drop(context.channel.open_read_write()?);
        Ok(())
    })?;
    opener.finish()?;
    writer.expect_still_blocked()?;
    reader.expect_still_blocked()?;
    expect_bytes("bytes read by the reader", &reader.resume()?, b"x")?;
    expect("result of the write", writer.resume()?, Ok(PAGE))
}

/// Runs `call` in a child, so that a call that blocks fails the test instead of hanging it.
fn in_a_child(
    context: &Context,
    call: fn(&OwnedFd) -> nix::Result<usize>,
) -> Result<Result<usize, i32>> {
    let child = spawn("a call that does not block", || {
        let fd = context.channel.open_read_write()?;
        Ok(call(&fd).map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// Not on a FIFO, which does not support RWF_NOWAIT.
fn a_nowait_read_behind_a_faulting_reader_is_eagain(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, &[1; 2 * PIPE_BUF])?;
    let reader = fault_blocked_reader(context)?;
    let result = in_a_child(context, |fd| read_nowait(fd, 1).map(|bytes| bytes.len()))?;
    expect("result of the read", result, Err(Errno::EAGAIN as i32))?;
    expect(
        "bytes read by the faulting reader",
        reader.resume()?.len(),
        PAGE,
    )
}

/// Not on a FIFO, which does not support RWF_NOWAIT.
fn a_nowait_write_behind_a_faulting_writer_is_eagain(context: &Context) -> Result<()> {
    let _both = context.channel.open_read_write()?;
    let writer = fault_blocked_writer(context, 0)?;
    let result = in_a_child(context, |fd| write_nowait(fd, b"x"))?;
    expect("result of the write", result, Err(Errno::EAGAIN as i32))?;
    expect("result of the slow write", writer.resume()?, Ok(PAGE))
}

/// A child that blocks on the lock of the faulting process is interrupted by a signal.
fn expect_interruptible(
    call: Call,
    body: impl FnOnce() -> Result<Result<usize, i32>>,
) -> Result<()> {
    let handled = Event::new()?;
    let child = signals::spawn_blocked_with_handler(call, &handled, false, body)?;
    child.signal(Signal::SIGUSR1)?;
    expect(
        "result of the call",
        child.finish()?,
        Err(Errno::EINTR as i32),
    )
}

/// Not on a FIFO, where this sleep is uninterruptible.
fn a_read_blocked_by_a_faulting_reader_is_interruptible(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, &[1; 2 * PIPE_BUF])?;
    let reader = fault_blocked_reader(context)?;
    expect_interruptible(Call::Read, || {
        let fd = context.channel.open_read_write()?;
        Ok(read(&fd, &mut [0]).map_err(|errno| errno as i32))
    })?;
    expect(
        "bytes read by the faulting reader",
        reader.resume()?.len(),
        PAGE,
    )
}

/// Not on a FIFO, where this sleep is uninterruptible.
fn a_write_blocked_by_a_faulting_writer_is_interruptible(context: &Context) -> Result<()> {
    let _both = context.channel.open_read_write()?;
    let writer = fault_blocked_writer(context, 0)?;
    expect_interruptible(Call::Write, || {
        let fd = context.channel.open_read_write()?;
        Ok(write(&fd, b"x").map_err(|errno| errno as i32))
    })?;
    expect("result of the slow write", writer.resume()?, Ok(PAGE))
}
