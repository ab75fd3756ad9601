// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe with io_uring: READ, WRITE and POLL_ADD may stay pending and can be cancelled.

use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use io_uring::{opcode, squeue};
use nix::errno::Errno;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, PIPE_BUF, fill, read_all, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::ctl::{Ctl, OWN};
use crate::support::signals;
use crate::support::time::Deadline;
use crate::support::uring::{REQUEST, Ring, number, poll_for, read_into};

topic!(
    "uring",
    fifo: [
        a_read_returns_available_bytes,
        a_read_of_an_empty_pipe_completes_with_data,
        a_pending_read_completes_at_eof,
        a_pending_read_can_be_cancelled_and_reads_nothing,
        a_write_is_delivered,
        a_write_to_a_full_pipe_completes_with_room,
        a_pending_write_can_be_cancelled_and_writes_nothing,
        a_write_without_a_reader_is_epipe,
        a_poll_completes_with_data,
        a_poll_for_room_completes_with_room,
        a_pending_poll_can_be_cancelled,
        closing_the_ring_ends_its_pending_requests,
    ],
    pipe_only: [
        pending_requests_fail_when_the_pipe_is_destroyed,
    ],
);

fn write_from(fd: &impl AsFd, bytes: &[u8]) -> squeue::Entry {
    opcode::Write::new(number(fd), bytes.as_ptr(), bytes.len() as u32).build()
}

fn a_read_returns_available_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"there")?;
    let mut ring = Ring::new()?;
    let mut buffer = [0; 100];
    ring.submit(read_into(&both, &mut buffer), REQUEST)?;
    expect("result", ring.result(REQUEST)?, Ok(5))?;
    expect_bytes("bytes", &buffer[..5], b"there")
}

fn a_read_of_an_empty_pipe_completes_with_data(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut buffer = [0; 100];
    let mut ring = Ring::pending(read_into(&both, &mut buffer))?;
    write_all(&both, b"later")?;
    expect("result", ring.result(REQUEST)?, Ok(5))?;
    expect_bytes("bytes", &buffer[..5], b"later")
}

fn a_pending_read_completes_at_eof(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let mut buffer = [0; 100];
    let mut ring = Ring::pending(read_into(&reader, &mut buffer))?;
    drop(writer);
    expect("result", ring.result(REQUEST)?, Ok(0))
}

fn a_pending_read_can_be_cancelled_and_reads_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut buffer = [0; 100];
    let mut ring = Ring::pending(read_into(&both, &mut buffer))?;
    ring.cancel()?;
    write_all(&both, b"mine")?;
    expect_bytes("bytes read afterwards", &read_all(&both, 4)?, b"mine")
}

fn a_write_is_delivered(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut ring = Ring::new()?;
    ring.submit(write_from(&both, b"in"), REQUEST)?;
    expect("result", ring.result(REQUEST)?, Ok(2))?;
    expect_bytes("bytes", &read_all(&both, 2)?, b"in")
}

/// A full pipe with a blocking endpoint, so that requests stay pending.
fn full(context: &Context) -> Result<(OwnedFd, usize)> {
    let filler = context.channel.open_read_write()?;
    let both = context.channel.open_read_write()?;
    set_nonblocking(&filler)?;
    let filled = fill(&filler, b'x')?;
    expect("bytes in the full pipe", filled, CAPACITY)?;
    Ok((both, filled))
}

fn a_write_to_a_full_pipe_completes_with_room(context: &Context) -> Result<()> {
    let (both, filled) = full(context)?;
    let mut ring = Ring::pending(write_from(&both, b"last"))?;
    read_all(&both, filled)?;
    expect("result", ring.result(REQUEST)?, Ok(4))?;
    expect_bytes("bytes", &read_all(&both, 4)?, b"last")
}

fn a_pending_write_can_be_cancelled_and_writes_nothing(context: &Context) -> Result<()> {
    let (both, filled) = full(context)?;
    let mut ring = Ring::pending(write_from(&both, b"never"))?;
    ring.cancel()?;
    read_all(&both, filled)?;
    write_all(&both, b"mine")?;
    expect_bytes("bytes read afterwards", &read_all(&both, 4)?, b"mine")
}

fn a_write_without_a_reader_is_epipe(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    signals::ignore_sigpipe()?;
    let mut ring = Ring::new()?;
    ring.submit(write_from(&writer, b"no reader"), REQUEST)?;
    expect("result", ring.result(REQUEST)?, Err(Errno::EPIPE))
}

fn a_poll_completes_with_data(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut ring = Ring::pending(poll_for(&both, libc::POLLIN))?;
    write_all(&both, b"x")?;
    expect("result", ring.result(REQUEST)?, Ok(libc::POLLIN.into()))
}

fn a_poll_for_room_completes_with_room(context: &Context) -> Result<()> {
    let (both, _) = full(context)?;
    let mut ring = Ring::pending(poll_for(&both, libc::POLLOUT))?;
    read_all(&both, PIPE_BUF)?;
    expect("result", ring.result(REQUEST)?, Ok(libc::POLLOUT.into()))
}

fn a_pending_poll_can_be_cancelled(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut ring = Ring::pending(poll_for(&both, libc::POLLIN))?;
    ring.cancel()
}

fn pending_requests_fail_when_the_pipe_is_destroyed(_: &Context) -> Result<()> {
    signals::ignore_sigpipe()?;
    let ctl = Ctl::new()?;
    let mut buffer = [0; 100];
    for bytes in [0, CAPACITY] {
        let both = ctl.create("channel").context("creating the channel")?;
        write_all(&both, &vec![b'x'; bytes])?;
        let (request, events) = match bytes {
            0 => (read_into(&both, &mut buffer), libc::POLLIN),
            _ => (write_from(&both, b"never"), libc::POLLOUT),
        };
        let mut ring = Ring::new()?;
        let mut other = Ring::new()?;
        ring.submit(request, REQUEST)?;
        other.submit(poll_for(&both, events), REQUEST)?;
        ring.expect_pending()?;
        other.expect_pending()?;
        ctl.destroy(OWN, "channel").context("destroying it")?;
        let seen = ring.result(REQUEST)?;
        expect("the read or write", seen, Err(Errno::EPIPE))?;
        let hang_up = (libc::POLLHUP | libc::POLLERR).into();
        expect("the poll", other.result(REQUEST)?, Ok(hang_up))?;
    }
    Ok(())
}

/// A closed ring must not keep the endpoint open.
fn closing_the_ring_ends_its_pending_requests(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let mut buffer = [0; 100];
    let ring = Ring::pending(read_into(&reader, &mut buffer))?;
    drop(ring);
    drop(reader);
    signals::ignore_sigpipe()?;
    let deadline = Deadline::for_event();
    while write(&writer, b"x") != Err(Errno::EPIPE) {
        if deadline.passed() {
            bail!(
                "the reader was still there {:?} after its ring and its file were closed",
                deadline.span()
            );
        }
        sleep(Duration::from_millis(1));
    }
    Ok(())
}
