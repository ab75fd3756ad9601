// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reader or writer that sits in a page fault, for as long as user space pleases, in the middle of its copy: what
//! the others can do meanwhile, and that its bytes are right in the end.

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
use crate::support::memory::{PAGE, read_at, write_at};
use crate::support::notice::Notice;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::stall::{SLOW_BYTE, Stalled, spawn_stalled};

topic!(
    "faults",
    fifo: [
        a_write_that_faults_delivers_its_bytes,
        a_large_write_that_faults_delivers_its_bytes,
        a_read_that_faults_gets_its_bytes,
        a_faulting_writer_does_not_delay_poll,
        a_faulting_reader_does_not_delay_poll,
    ],
    pipe_only: [
        a_faulting_writer_does_not_delay_the_reader_of_earlier_bytes,
        a_short_write_shows_nothing_until_its_fault_ends,
        a_faulting_reader_does_not_delay_a_writer,
        a_faulting_endpoint_does_not_delay_open_and_close,
        behind_a_faulting_reader_a_read_without_waiting_is_eagain,
        behind_a_faulting_writer_a_write_without_waiting_is_eagain,
        a_read_that_waits_behind_a_faulting_reader_can_be_interrupted,
        a_write_that_waits_behind_a_faulting_writer_can_be_interrupted,
    ],
);

/// A child whose write of `ready` good pages and a slow one sits in its fault.
fn stalled_writer(context: &Context, ready: usize) -> Result<Stalled<Result<usize, i32>>> {
    spawn_stalled("a writer in a page fault", ready, |buffer| {
        let fd = context.channel.open_both_ways()?;
        Ok(write_at(&fd, buffer.start(), buffer.len()).map_err(|errno| errno as i32))
    })
}

/// A child whose read, into a slow page, sits in its fault; it tells what it got.
fn stalled_reader(context: &Context) -> Result<Stalled<Vec<u8>>> {
    spawn_stalled("a reader in a page fault", 0, |buffer| {
        let fd = context.channel.open_both_ways()?;
        let count = read_at(&fd, buffer.start(), buffer.len()).context("the read that faults")?;
        Ok(buffer.to_vec(count))
    })
}

fn a_write_that_faults_delivers_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let writer = stalled_writer(context, 0)?;
    expect("result of the write", writer.resume()?, Ok(PAGE))?;
    expect_bytes("what it wrote", &read_all(&both, PAGE)?, &[SLOW_BYTE; PAGE])
}

fn a_large_write_that_faults_delivers_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, &[b'.'; 100])?;
    let writer = stalled_writer(context, 3)?;
    expect("result of the write", writer.resume()?, Ok(4 * PAGE))?;
    let expected = [vec![b'.'; 100], vec![0; 3 * PAGE], vec![SLOW_BYTE; PAGE]].concat();
    expect_bytes(
        "what was written",
        &read_all(&both, expected.len())?,
        &expected,
    )
}

fn a_read_that_faults_gets_its_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"patience")?;
    let reader = stalled_reader(context)?;
    expect_bytes("what it read", &reader.resume()?, b"patience")?;
    set_nonblocking(&both)?;
    expect("a read after it", read(&both, &mut [0]), Err(Errno::EAGAIN))
}

/// Asks in a child, so that an answer that does not come is told as what it is.
fn expect_poll_answers(both: &OwnedFd, expected: &str) -> Result<()> {
    let poller = spawn_keeping("a poll beside a page fault", &[both.as_fd()], || {
        poll::state(both)
    })?;
    expect("what poll says", poller.finish()?, expected.to_owned())
}

fn a_faulting_writer_does_not_delay_poll(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"earlier")?;
    let writer = stalled_writer(context, 0)?;
    expect_poll_answers(&both, "IN|OUT")?;
    writer.expect_still_stalled()?;
    expect("result of the write", writer.resume()?, Ok(PAGE))
}

fn a_faulting_reader_does_not_delay_poll(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"x")?;
    let reader = stalled_reader(context)?;
    expect_poll_answers(&both, "IN|OUT")?;
    reader.expect_still_stalled()?;
    expect_bytes("what it read", &reader.resume()?, b"x")
}

/// Not on a FIFO, whose readers and writers share one lock.
fn a_faulting_writer_does_not_delay_the_reader_of_earlier_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"earlier")?;
    let writer = stalled_writer(context, 0)?;
    let reader = spawn("a reader of earlier bytes", || {
        let fd = context.channel.open_both_ways()?;
        read_some(&fd, CAPACITY).context("read")
    })?;
    expect_bytes("what the reader got", &reader.finish()?, b"earlier")?;
    writer.expect_still_stalled()?;
    expect("result of the write", writer.resume()?, Ok(PAGE))?;
    expect_bytes("what it wrote", &read_all(&both, PAGE)?, &[SLOW_BYTE; PAGE])
}

/// Its first half is copied, its second is not: the fault comes in the middle of the write, and the write itself lies
/// across the end of a page of the pipe. Not on a FIFO, where the reader could not even look.
fn a_short_write_shows_nothing_until_its_fault_ends(context: &Context) -> Result<()> {
    const HALF: usize = 100;
    let both = context.channel.open_both_ways()?;
    write_all(&both, &[b'.'; PAGE - HALF / 2])?;
    let writer = spawn_stalled("a writer in a page fault", 1, |buffer| {
        let fd = context.channel.open_both_ways()?;
        // SAFETY: within the buffer.
        let start = unsafe { buffer.start().add(PAGE - HALF) };
        write_at(&fd, start, 2 * HALF).context("the write that faults")
    })?;
    set_nonblocking(&both)?;
    expect_bytes(
        "what is there before it",
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
    let expected = [[0; HALF], [SLOW_BYTE; HALF]].concat();
    expect_bytes("what it wrote", &read_all(&both, 2 * HALF)?, &expected)
}

/// Not on a FIFO, whose readers and writers share one lock.
fn a_faulting_reader_does_not_delay_a_writer(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"first")?;
    let reader = stalled_reader(context)?;
    let writer = spawn("a writer beside it", || {
        let fd = context.channel.open_both_ways()?;
        write_all(&fd, b"second")
    })?;
    writer.finish()?;
    reader.expect_still_stalled()?;
    let mut seen = reader.resume()?;
    ensure!(
        seen.starts_with(b"first"),
        "the reader got {seen:?} instead of what came first"
    );
    // It may take the second too, as it was there by the time that it could go on.
    set_nonblocking(&both)?;
    seen.extend(read_some(&both, CAPACITY).unwrap_or_default());
    expect_bytes("what came out in all", &seen, b"firstsecond")
}

/// Not on a FIFO, where open and close take the lock that the copy holds.
fn a_faulting_endpoint_does_not_delay_open_and_close(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"x")?;
    let writer = stalled_writer(context, 0)?;
    let reader = stalled_reader(context)?;
    let opener = spawn("one who opens and closes", || {
        drop(context.channel.open_ends()?);
        drop(context.channel.open_both_ways()?);
        Ok(())
    })?;
    opener.finish()?;
    writer.expect_still_stalled()?;
    reader.expect_still_stalled()?;
    expect_bytes("what the reader got", &reader.resume()?, b"x")?;
    expect("result of the write", writer.resume()?, Ok(PAGE))
}

/// In a child, so that a wait where none should be is told as what it is.
fn in_a_child(
    context: &Context,
    call: fn(&OwnedFd) -> nix::Result<usize>,
) -> Result<Result<usize, i32>> {
    let child = spawn("one who does not wait", || {
        let fd = context.channel.open_both_ways()?;
        Ok(call(&fd).map_err(|errno| errno as i32))
    })?;
    child.finish()
}

/// Not on a FIFO, which does not offer RWF_NOWAIT.
fn behind_a_faulting_reader_a_read_without_waiting_is_eagain(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, &[1; 2 * PIPE_BUF])?;
    let reader = stalled_reader(context)?;
    let result = in_a_child(context, |fd| read_nowait(fd, 1).map(|bytes| bytes.len()))?;
    expect("result of the read", result, Err(Errno::EAGAIN as i32))?;
    expect(
        "bytes that the slow reader got",
        reader.resume()?.len(),
        PAGE,
    )
}

/// Not on a FIFO, which does not offer RWF_NOWAIT.
fn behind_a_faulting_writer_a_write_without_waiting_is_eagain(context: &Context) -> Result<()> {
    let _both = context.channel.open_both_ways()?;
    let writer = stalled_writer(context, 0)?;
    let result = in_a_child(context, |fd| write_nowait(fd, b"x"))?;
    expect("result of the write", result, Err(Errno::EAGAIN as i32))?;
    expect("result of the slow write", writer.resume()?, Ok(PAGE))
}

/// A child that waits for the other's lock, then gets a signal.
fn expect_interruptible(
    call: Call,
    body: impl FnOnce() -> Result<Result<usize, i32>>,
) -> Result<()> {
    let handled = Notice::new()?;
    let child = spawn_keeping("one who waits behind it", &handled.fds(), || {
        signals::handle_usr1(&handled, false)?;
        body()
    })?;
    child.wait_asleep_in(call)?;
    child.signal(Signal::SIGUSR1)?;
    expect(
        "result of the call",
        child.finish()?,
        Err(Errno::EINTR as i32),
    )
}

/// Not on a FIFO, where it sleeps uninterruptibly.
fn a_read_that_waits_behind_a_faulting_reader_can_be_interrupted(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, &[1; 2 * PIPE_BUF])?;
    let reader = stalled_reader(context)?;
    expect_interruptible(Call::Read, || {
        let fd = context.channel.open_both_ways()?;
        Ok(read(&fd, &mut [0]).map_err(|errno| errno as i32))
    })?;
    expect(
        "bytes that the slow reader got",
        reader.resume()?.len(),
        PAGE,
    )
}

/// Not on a FIFO, where it sleeps uninterruptibly.
fn a_write_that_waits_behind_a_faulting_writer_can_be_interrupted(context: &Context) -> Result<()> {
    let _both = context.channel.open_both_ways()?;
    let writer = stalled_writer(context, 0)?;
    expect_interruptible(Call::Write, || {
        let fd = context.channel.open_both_ways()?;
        Ok(write(&fd, b"x").map_err(|errno| errno as i32))
    })?;
    expect("result of the slow write", writer.resume()?, Ok(PAGE))
}
