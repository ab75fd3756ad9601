// SPDX-License-Identifier: MIT OR Apache-2.0
//! The byte stream: order, counts, blocking for bytes and for room, and closing either side.

use std::io::{IoSlice, IoSliceMut};

use anyhow::{Context as _, Result, bail};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::uio::{preadv, pwritev, readv, writev};
use nix::sys::wait::WaitStatus;
use nix::unistd::{Whence, lseek, read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, PIPE_BUF, fill, read_all, read_nowait, read_some, read_to_end, set_nonblocking,
    write_all, write_nowait,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::signals;

topic!(
    "read_write",
    fifo: [
        bytes_arrive_in_order_around_the_ring,
        a_read_write_endpoint_reads_its_own_bytes,
        a_read_returns_available_bytes_without_blocking,
        a_read_returns_at_most_the_requested_bytes,
        the_capacity_is_65536_bytes,
        short_writes_use_the_whole_capacity,
        a_blocked_read_is_woken_by_data,
        a_blocked_write_continues_as_room_appears,
        a_blocked_short_write_completes_once_all_of_it_fits,
        a_nonblocking_read_of_an_empty_pipe_is_eagain,
        a_nonblocking_write_to_a_full_pipe_is_eagain,
        a_nonblocking_write_up_to_pipe_buf_is_all_or_nothing,
        a_nonblocking_write_over_pipe_buf_writes_what_fits,
        an_empty_read_returns_at_once,
        an_empty_write_returns_at_once,
        readv_and_writev_scatter_and_gather,
        eof_follows_the_last_writer_and_the_last_byte,
        a_blocked_read_ends_with_the_last_writer,
        a_read_before_any_writer_is_eof,
        a_new_writer_clears_eof,
        unread_bytes_remain_while_a_writer_remains,
        unread_bytes_are_discarded_with_the_last_endpoint,
        a_write_without_a_reader_is_epipe,
        a_write_without_a_reader_raises_sigpipe,
        a_blocked_write_ends_with_the_last_reader,
        a_write_ended_by_the_last_reader_returns_the_bytes_written,
        lseek_is_espipe,
        pread_and_pwrite_are_espipe,
    ],
    pipe_only: [
        a_nowait_read_returns_available_bytes_or_eagain,
        a_nowait_write_accepts_what_fits_or_is_eagain,
    ],
);

fn bytes_arrive_in_order_around_the_ring(context: &Context) -> Result<()> {
    const TOTAL: usize = 24 * CAPACITY + 12_345;
    let writer = spawn("a writer of random amounts", || {
        let fd = context.channel.open_writer()?;
        let (mut random, mut written) = (Rng::with_seed(1), 0);
        while written < TOTAL {
            let count = random.usize(1..=3 * PIPE_BUF).min(TOTAL - written);
            write_all(&fd, &stream_bytes(0, written as u64, count))?;
            written += count;
        }
        Ok(())
    })?;
    let fd = context.channel.open_reader()?;
    let (mut random, mut seen) = (Rng::with_seed(2), 0);
    loop {
        let piece = read_some(&fd, random.usize(1..=3 * PIPE_BUF)).context("read")?;
        if piece.is_empty() {
            break;
        }
        let expected = stream_bytes(0, seen, piece.len());
        expect_bytes(
            &format!("{} bytes from byte {seen} on", piece.len()),
            &piece,
            &expected,
        )?;
        seen += piece.len() as u64;
    }
    writer.finish()?;
    expect("bytes in all", seen, TOTAL as u64)
}

fn a_read_write_endpoint_reads_its_own_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"to myself")?;
    expect_bytes(
        "bytes read",
        &read_some(&both, 64).context("read")?,
        b"to myself",
    )
}

fn a_read_returns_available_bytes_without_blocking(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"short")?;
    expect_bytes(
        "bytes read",
        &read_some(&reader, CAPACITY).context("read")?,
        b"short",
    )
}

fn a_read_returns_at_most_the_requested_bytes(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"abcdef")?;
    expect_bytes(
        "the first read",
        &read_some(&reader, 4).context("read")?,
        b"abcd",
    )?;
    expect_bytes(
        "the second read",
        &read_some(&reader, 4).context("read")?,
        b"ef",
    )
}

fn the_capacity_is_65536_bytes(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    expect(
        "bytes that one large write puts in",
        write(&writer, &[1; 2 * CAPACITY]),
        Ok(CAPACITY),
    )?;
    expect(
        "bytes read",
        read_some(&reader, 2 * CAPACITY).map(|b| b.len()),
        Ok(CAPACITY),
    )
}

fn short_writes_use_the_whole_capacity(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    let mut filled = 0;
    loop {
        match write(&writer, &stream_bytes(0, filled, 64)) {
            Ok(count) => filled += count as u64,
            Err(Errno::EAGAIN) => break,
            Err(error) => bail!("a short write after {filled} bytes: {error}"),
        }
    }
    expect("bytes that fit", filled, CAPACITY as u64)?;
    let seen = read_all(&reader, CAPACITY)?;
    expect_bytes("bytes read", &seen, &stream_bytes(0, 0, CAPACITY))
}

fn a_blocked_read_is_woken_by_data(context: &Context) -> Result<()> {
    let reader = spawn("a reader", || {
        let fd = context.channel.open_read_write()?;
        read_some(&fd, 64).context("read")
    })?;
    reader.wait_asleep_in(Call::Read)?;
    reader.expect_still_asleep_in(Call::Read)?;
    write_all(&context.channel.open_writer()?, b"wake")?;
    expect_bytes("bytes read by the reader", &reader.finish()?, b"wake")
}

/// A child that writes `count` bytes of stream 0 in one call and returns the result.
fn single_write(context: &Context, count: usize) -> Result<Child<Result<usize, i32>>> {
    let child = spawn(&format!("a write of {count} bytes"), || {
        let fd = context.channel.open_writer()?;
        Ok(write(&fd, &stream_bytes(0, 0, count)).map_err(|errno| errno as i32))
    })?;
    Ok(child)
}

fn a_blocked_write_continues_as_room_appears(context: &Context) -> Result<()> {
    const TOTAL: usize = 3 * CAPACITY + 1;
    let writer = single_write(context, TOTAL)?;
    let reader = context.channel.open_reader()?;
    writer.wait_asleep_in(Call::Write)?;
    let seen = read_all(&reader, TOTAL)?;
    expect("result of the write", writer.finish()?, Ok(TOTAL))?;
    expect_bytes("bytes read", &seen, &stream_bytes(0, 0, TOTAL))
}

fn a_blocked_short_write_completes_once_all_of_it_fits(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    fill(&both, b'.')?;
    let writer = single_write(context, PIPE_BUF)?;
    writer.wait_asleep_in(Call::Write)?;
    read_all(&both, PIPE_BUF - 1)?;
    writer.expect_still_asleep_in(Call::Write)?;
    read_all(&both, 1)?;
    expect("result of the write", writer.finish()?, Ok(PIPE_BUF))?;
    read_all(&both, CAPACITY - PIPE_BUF)?;
    expect_bytes(
        "bytes read",
        &read_all(&both, PIPE_BUF)?,
        &stream_bytes(0, 0, PIPE_BUF),
    )
}

fn a_nonblocking_read_of_an_empty_pipe_is_eagain(context: &Context) -> Result<()> {
    let (reader, _writer) = context.channel.open_ends_nonblocking()?;
    expect(
        "result of the read",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )
}

fn a_nonblocking_write_to_a_full_pipe_is_eagain(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    expect(
        "a write of one byte",
        write(&writer, b"x"),
        Err(Errno::EAGAIN),
    )?;
    expect(
        "a large write",
        write(&writer, &[0; CAPACITY]),
        Err(Errno::EAGAIN),
    )
}

fn a_nonblocking_write_up_to_pipe_buf_is_all_or_nothing(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF - 1)?;
    expect(
        "a write with one byte too little room",
        write(&writer, &[1; PIPE_BUF]),
        Err(Errno::EAGAIN),
    )?;
    read_all(&reader, 1)?;
    expect(
        "a write with just enough room",
        write(&writer, &[1; PIPE_BUF]),
        Ok(PIPE_BUF),
    )
}

fn a_nonblocking_write_over_pipe_buf_writes_what_fits(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF)?;
    let bytes = stream_bytes(0, 0, 2 * PIPE_BUF);
    expect(
        "a write with half the room it needs",
        write(&writer, &bytes),
        Ok(PIPE_BUF),
    )?;
    read_all(&reader, CAPACITY - PIPE_BUF)?;
    expect_bytes(
        "bytes read",
        &read_all(&reader, PIPE_BUF)?,
        &bytes[..PIPE_BUF],
    )
}

fn an_empty_read_returns_at_once(context: &Context) -> Result<()> {
    let (reader, _writer) = context.channel.open_ends()?;
    expect(
        "an empty read of an empty pipe that has a writer",
        read(&reader, &mut []),
        Ok(0),
    )
}

/// Even where a write of one byte is EPIPE.
fn an_empty_write_returns_at_once(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    expect("an empty write", write(&writer, &[]), Ok(0))?;
    drop(reader);
    expect(
        "an empty write without a reader",
        write(&writer, &[]),
        Ok(0),
    )
}

fn readv_and_writev_scatter_and_gather(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let large = stream_bytes(0, 0, 5000);
    let pieces = [IoSlice::new(b"ab"), IoSlice::new(b""), IoSlice::new(&large)];
    expect(
        "bytes that writev wrote",
        writev(&writer, &pieces),
        Ok(5002),
    )?;
    let (mut front, mut back) = ([0; 3], vec![0; 8000]);
    let mut pieces = [IoSliceMut::new(&mut front), IoSliceMut::new(&mut back)];
    expect(
        "bytes that readv read",
        readv(&reader, &mut pieces),
        Ok(5002),
    )?;
    expect_bytes("the first piece", &front, &[b'a', b'b', large[0]])?;
    expect_bytes("the second piece", &back[..4999], &large[1..])
}

fn eof_follows_the_last_writer_and_the_last_byte(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let second = context.channel.open_writer()?;
    write_all(&writer, b"left behind")?;
    drop(writer);
    expect_bytes(
        "bytes of the first writer",
        &read_some(&reader, 64).context("read")?,
        b"left behind",
    )?;
    set_nonblocking(&reader)?;
    expect(
        "a read while one writer remains",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    write_all(&second, b"last")?;
    drop(second);
    expect_bytes(
        "bytes of the last writer",
        &read_some(&reader, 64).context("read")?,
        b"last",
    )?;
    expect("a read after it", read(&reader, &mut [0]), Ok(0))?;
    expect("the end of the file, again", read(&reader, &mut [0]), Ok(0))
}

fn a_blocked_read_ends_with_the_last_writer(context: &Context) -> Result<()> {
    let reader = spawn("a reader", || {
        let fd = context.channel.open_reader()?;
        read_to_end(&fd)
    })?;
    let writer = context.channel.open_writer()?;
    reader.wait_asleep_in(Call::Read)?;
    drop(writer);
    expect_bytes("bytes read by the reader", &reader.finish()?, b"")
}

fn a_read_before_any_writer_is_eof(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_nonblocking()?;
    expect("a read", read(&reader, &mut [0]), Ok(0))
}

fn a_new_writer_clears_eof(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    drop(writer);
    expect(
        "a read after the writer closed",
        read(&reader, &mut [0]),
        Ok(0),
    )?;
    let writer = context.channel.open_writer_nonblocking()?;
    expect(
        "a read with a new writer",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    write_all(&writer, b"again")?;
    expect_bytes(
        "bytes written",
        &read_some(&reader, 64).context("read")?,
        b"again",
    )
}

fn unread_bytes_remain_while_a_writer_remains(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"unread")?;
    drop(reader);
    let reader = context.channel.open_reader_nonblocking()?;
    expect_bytes(
        "bytes read by the next reader",
        &read_some(&reader, 64).context("read")?,
        b"unread",
    )
}

fn unread_bytes_are_discarded_with_the_last_endpoint(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"lost")?;
    drop((reader, writer));
    let (reader, _writer) = context.channel.open_ends_nonblocking()?;
    expect(
        "a read of the next pipe",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )
}

fn a_write_without_a_reader_is_epipe(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    expect(
        "result of the write",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

fn a_write_without_a_reader_raises_sigpipe(context: &Context) -> Result<()> {
    let child: Child<usize> = spawn("a writer without a reader", || {
        signals::restore_default(Signal::SIGPIPE)?;
        let (reader, writer) = context.channel.open_ends()?;
        drop(reader);
        write(&writer, b"x").context("write")
    })?;
    let pid = child.pid();
    expect(
        "its exit status",
        child.wait_end()?,
        WaitStatus::Signaled(pid, Signal::SIGPIPE, false),
    )
}

fn a_blocked_write_ends_with_the_last_reader(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let waiting = single_write(context, 1)?;
    waiting.wait_asleep_in(Call::Write)?;
    drop(reader);
    expect(
        "result of the write",
        waiting.finish()?,
        Err(Errno::EPIPE as i32),
    )
}

fn a_write_ended_by_the_last_reader_returns_the_bytes_written(context: &Context) -> Result<()> {
    let writer = single_write(context, 2 * CAPACITY)?;
    let reader = context.channel.open_reader()?;
    writer.wait_asleep_in(Call::Write)?;
    drop(reader);
    expect("result of the write", writer.finish()?, Ok(CAPACITY))
}

fn lseek_is_espipe(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for whence in [Whence::SeekSet, Whence::SeekCur, Whence::SeekEnd] {
        expect(
            &format!("lseek with {whence:?}"),
            lseek(&both, 0, whence),
            Err(Errno::ESPIPE),
        )?;
    }
    Ok(())
}

fn pread_and_pwrite_are_espipe(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"x")?;
    for offset in [0, 1] {
        let mut byte = [0];
        let read = preadv(&both, &mut [IoSliceMut::new(&mut byte)], offset);
        expect(&format!("a read at {offset}"), read, Err(Errno::ESPIPE))?;
        let written = pwritev(&both, &[IoSlice::new(b"y")], offset);
        expect(&format!("a write at {offset}"), written, Err(Errno::ESPIPE))?;
    }
    Ok(())
}

/// Not on a FIFO, which returns EOPNOTSUPP because its lock may make the caller sleep.
fn a_nowait_read_returns_available_bytes_or_eagain(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    expect(
        "a read of nothing",
        read_nowait(&reader, 64),
        Err(Errno::EAGAIN),
    )?;
    write_all(&writer, b"now")?;
    expect(
        "a read of three bytes",
        read_nowait(&reader, 64),
        Ok(b"now".to_vec()),
    )?;
    drop(writer);
    expect(
        "a read at the end",
        read_nowait(&reader, 64),
        Ok(Vec::new()),
    )
}

/// Not on a FIFO, for the same reason.
fn a_nowait_write_accepts_what_fits_or_is_eagain(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let bytes = stream_bytes(0, 0, 2 * CAPACITY);
    expect("a write", write_nowait(&writer, &bytes), Ok(CAPACITY))?;
    expect(
        "a write to the full pipe",
        write_nowait(&writer, b"x"),
        Err(Errno::EAGAIN),
    )?;
    expect_bytes(
        "bytes read",
        &read_all(&reader, CAPACITY)?,
        &bytes[..CAPACITY],
    )
}
