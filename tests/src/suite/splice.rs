// SPDX-License-Identifier: MIT OR Apache-2.0
//! splice(2) and sendfile(2), to and from pipe(2) and files.

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{SpliceFFlags, tee, vmsplice};
use nix::sys::sendfile::sendfile;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, fill, read_all, read_some, read_to_end, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes, skip};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::fault_blocked::spawn_fault_blocked;
use crate::support::ioctl;
use crate::support::kernel::UnloadedModule;
use crate::support::memory::{GuardedBuffer, PAGE, read_at, write_at};
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::signals;
use crate::support::vfs_pipe::{move_all, move_bytes, move_bytes_nonblocking, pipe};

topic!(
    "splice",
    fifo: [
        a_splice_out_delivers_the_bytes_in_order,
        a_splice_in_delivers_the_bytes_in_order,
        unaligned_pieces_arrive_whole,
        a_splice_out_of_an_empty_pipe_blocks_until_data,
        a_blocked_splice_out_does_not_lock_its_target,
        a_nonblocking_splice_out_of_an_empty_pipe_is_eagain,
        a_splice_out_at_eof_is_0,
        a_splice_out_waits_for_room_that_others_have_taken,
        a_splice_out_to_a_pipe_that_has_lost_its_reader_is_epipe,
        a_splice_in_blocks_until_there_is_room,
        a_blocked_splice_in_does_not_lock_its_source,
        a_nonblocking_splice_into_a_full_pipe_is_eagain,
        a_splice_in_without_a_reader_is_epipe,
        sendfile_delivers_a_file,
        a_spliced_file_page_is_never_written_to,
        a_partly_read_file_page_is_never_written_to,
        sendfile_out_of_a_pipe_is_einval,
        a_killed_splice_leaves_no_lock_held,
        pages_spliced_out_are_never_modified,
    ],
    pipe_only: [
        sendfile_to_a_pipe_delivers_the_bytes,
        whole_pages_are_spliced_in_without_a_copy,
        whole_pages_are_spliced_out_without_a_copy,
        pages_are_copied_while_a_lap_of_them_is_held_by_the_receiver,
        bytes_survive_a_resize_with_spliced_pages,
        a_full_ring_with_a_half_read_file_page_can_grow,
        a_splice_blocked_on_its_source_keeps_no_wake_up,
        a_nonblocking_splice_blocks_for_the_lock_but_not_for_room,
        a_splice_out_waits_for_a_read_that_faults,
        tee_is_einval,
        vmsplice_is_ebadf,
        pages_spliced_out_outlive_the_module,
    ],
);

fn a_splice_out_delivers_the_bytes_in_order(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    expect_order(&both, [&both, &into], &out)
}

fn a_splice_in_delivers_the_bytes_in_order(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    expect_order(&into, [&out, &both], &both)
}

/// Moves three times the capacity: written, spliced from one pipe to the other, and read.
fn expect_order(writer: &OwnedFd, [from, to]: [&OwnedFd; 2], reader: &OwnedFd) -> Result<()> {
    let bytes = stream_bytes(1, 0, 3 * CAPACITY);
    for piece in bytes.chunks(CAPACITY / 2) {
        write_all(writer, piece)?;
        move_all(from, to, piece.len())?;
        expect_bytes("a piece", &read_all(reader, piece.len())?, piece)?;
    }
    Ok(())
}

/// Pieces that start and end at any offset of a page, spliced into the pipe and out again.
fn unaligned_pieces_arrive_whole(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (in_out, in_into) = pipe()?;
    let (out_out, out_into) = pipe()?;
    let mut at = 0;
    for count in [
        1, 4095, 4096, 4097, 100, 8192, 12_289, 3, 4096, 16_384, 20_000,
    ] {
        let bytes = stream_bytes(3, at, count);
        write_all(&in_into, &bytes)?;
        for (from, to) in [(&in_out, &both), (&both, &out_into)] {
            move_all(from, to, count)?;
        }
        expect_bytes(
            &format!("{count} bytes"),
            &read_all(&out_out, count)?,
            &bytes,
        )?;
        at += count as u64;
    }
    Ok(())
}

/// A process that splices bytes of the channel, which has none, to a pipe, and sleeps.
fn sleeping_splice(context: &Context, into: &OwnedFd) -> Result<Child<usize>> {
    let mover = spawn_keeping("the splice", &[into.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        move_bytes(&fd, into, 100).context("splice")
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    Ok(mover)
}

fn a_splice_out_of_an_empty_pipe_blocks_until_data(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    let mover = sleeping_splice(context, &into)?;
    write_all(&both, b"at last")?;
    expect("bytes moved", mover.finish()?, 7)?;
    expect_bytes("bytes", &read_all(&out, 7)?, b"at last")
}

/// A splice locks its target pipe, but not while it blocks.
fn a_blocked_splice_out_does_not_lock_its_target(context: &Context) -> Result<()> {
    let _both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    let mover = sleeping_splice(context, &into)?;
    write_all(&into, b"meanwhile")?;
    expect_bytes("bytes written", &read_all(&out, 9)?, b"meanwhile")?;
    mover.expect_still_asleep_in(Call::Splice)?;
    mover.kill()
}

fn a_nonblocking_splice_out_of_an_empty_pipe_is_eagain(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (_out, into) = pipe()?;
    expect(
        "with SPLICE_F_NONBLOCK",
        move_bytes_nonblocking(&both, &into, 1),
        Err(Errno::EAGAIN),
    )?;
    set_nonblocking(&both)?;
    expect(
        "with O_NONBLOCK",
        move_bytes(&both, &into, 1),
        Err(Errno::EAGAIN),
    )
}

fn a_splice_out_at_eof_is_0(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let (_out, into) = pipe()?;
    write_all(&writer, b"rest")?;
    drop(writer);
    expect("the rest", move_bytes(&reader, &into, 100), Ok(4))?;
    expect("the end", move_bytes(&reader, &into, 100), Ok(0))
}

fn a_splice_in_blocks_until_there_is_room(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let filled = fill(&both, b'x')?;
    let (out, into) = pipe()?;
    write_all(&into, b"last")?;
    let mover = spawn_keeping("the splice", &[out.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        move_bytes(&out, &fd, 4).context("splice")
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    read_all(&both, filled)?;
    expect("bytes moved", mover.finish()?, 4)?;
    expect_bytes("bytes", &read_all(&both, 4)?, b"last")
}

fn a_blocked_splice_in_does_not_lock_its_source(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    fill(&both, b'x')?;
    let (out, into) = pipe()?;
    write_all(&into, b"first")?;
    let mover = spawn_keeping("the splice", &[out.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        move_bytes(&out, &fd, 5).context("splice")
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    write_all(&into, b" second")?;
    expect_bytes("what is read", &read_all(&out, 6)?, b"first ")?;
    mover.expect_still_asleep_in(Call::Splice)?;
    mover.kill()
}

fn a_nonblocking_splice_into_a_full_pipe_is_eagain(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    fill(&both, b'x')?;
    let (out, into) = pipe()?;
    write_all(&into, b"more")?;
    expect(
        "the splice",
        move_bytes_nonblocking(&out, &both, 4),
        Err(Errno::EAGAIN),
    )?;
    expect_bytes("bytes left", &read_all(&out, 4)?, b"more")
}

fn a_splice_in_without_a_reader_is_epipe(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    let (out, into) = pipe()?;
    write_all(&into, b"no reader")?;
    signals::ignore_sigpipe()?;
    expect(
        "the splice",
        move_bytes(&out, &writer, 9),
        Err(Errno::EPIPE),
    )
}

fn scratch_file(context: &Context, bytes: &[u8]) -> Result<File> {
    let path = context.scratch.join("file");
    std::fs::write(&path, bytes).context("writing the file")?;
    File::options()
        .read(true)
        .write(true)
        .open(&path)
        .context("opening the file")
}

fn sendfile_delivers_a_file(context: &Context) -> Result<()> {
    let bytes = stream_bytes(4, 0, 300_001);
    let file = scratch_file(context, &bytes)?;
    let (reader, writer) = context.channel.open_ends()?;
    let sender = spawn_keeping("the sender", &[file.as_fd(), writer.as_fd()], || {
        let mut sent = 0;
        while sent < bytes.len() {
            sent += sendfile(&writer, &file, None, bytes.len() - sent).context("sendfile")?;
        }
        Ok(sent)
    })?;
    drop(writer);
    expect_bytes("the file", &read_to_end(&reader)?, &bytes)?;
    expect("bytes sent", sender.finish()?, bytes.len())
}

/// A page of a file must not be reused as a page of the pipe in the next lap.
fn a_spliced_file_page_is_never_written_to(context: &Context) -> Result<()> {
    let bytes = stream_bytes(5, 0, 4 * PAGE);
    let file = scratch_file(context, &bytes)?;
    let both = context.channel.open_read_write()?;
    let sent = sendfile(&both, &file, None, bytes.len()).context("sendfile")?;
    expect("bytes sent", sent, bytes.len())?;
    expect_bytes("the file's bytes", &read_all(&both, sent)?, &bytes)?;
    for _ in 0..3 * CAPACITY / PAGE {
        expect("a write", write(&both, &[0xee; PAGE]), Ok(PAGE))?;
        expect("a read", read(&both, &mut [0; PAGE]), Ok(PAGE))?;
    }
    let after = std::fs::read(context.scratch.join("file")).context("reading the file")?;
    expect_bytes("the file afterwards", &after, &bytes)
}

/// The space before a half-read page is room for the next lap, but not in a page of a file. The page is partly read by
/// read(2), by splice(2), and by a read whose buffer ends in unmapped memory.
fn a_partly_read_file_page_is_never_written_to(context: &Context) -> Result<()> {
    const PART: usize = 100;
    let bytes = stream_bytes(6, 0, CAPACITY);
    let ways: [fn(&OwnedFd) -> Result<()>; 3] = [
        |both| expect("a short read", read(both, &mut [0; PART]), Ok(PART)),
        |both| {
            let (_out, into) = pipe()?;
            expect("a short splice", move_bytes(both, &into, PART), Ok(PART))
        },
        |both| {
            let buffer = GuardedBuffer::new(PART)?;
            // A FIFO reads nothing in that case.
            match read_at(both, buffer.start(), PAGE) {
                Err(Errno::EFAULT) => expect("a short read", read(both, &mut [0; PART]), Ok(PART)),
                cut_off => expect("a read that faults", cut_off, Ok(PART)),
            }
        },
    ];
    for part in ways {
        let file = scratch_file(context, &bytes)?;
        let both = context.channel.open_read_write()?;
        expect(
            "bytes sent",
            sendfile(&both, &file, None, CAPACITY),
            Ok(CAPACITY),
        )?;
        set_nonblocking(&both)?;
        part(&both)?;
        let wrote = write(&both, &[0xee; PART]);
        ensure!(
            matches!(wrote, Ok(_) | Err(Errno::EAGAIN)),
            "a write into the room: {wrote:?}"
        );
        let after = std::fs::read(context.scratch.join("file")).context("reading the file")?;
        expect_bytes("the file afterwards", &after, &bytes)?;
        let mut rest = bytes[PART..].to_vec();
        rest.extend(std::iter::repeat_n(0xee, wrote.unwrap_or(0)));
        expect_bytes("bytes in the pipe", &read_all(&both, rest.len())?, &rest)?;
    }
    Ok(())
}

fn a_killed_splice_leaves_no_lock_held(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    for _ in 0..10 {
        let mover = spawn_keeping("the splice", &[into.as_fd()], || {
            let fd = context.channel.open_read_write()?;
            move_bytes(&fd, &into, 100).context("splice")
        })?;
        mover.wait_asleep_in(Call::Splice)?;
        mover.kill()?;
    }
    write_all(&both, b"on")?;
    expect("a splice afterwards", move_bytes(&both, &into, 2), Ok(2))?;
    expect_bytes("its bytes", &read_all(&out, 2)?, b"on")
}

/// Spliced-out pages belong to the receiver: later bytes of the pipe must not appear in them.
fn pages_spliced_out_are_never_modified(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    let bytes = stream_bytes(10, 0, CAPACITY);
    write_all(&both, &bytes)?;
    move_all(&both, &into, CAPACITY)?;
    for _ in 0..3 {
        write_all(&both, &[0xee; CAPACITY])?;
        expect_bytes("later", &read_all(&both, CAPACITY)?, &[0xee; CAPACITY])?;
    }
    expect_bytes("bytes moved", &read_all(&out, CAPACITY)?, &bytes)
}

fn whole_pages_are_spliced_in_without_a_copy(context: &Context) -> Result<()> {
    let bytes = stream_bytes(6, 0, 8 * PAGE + 10);
    let file = scratch_file(context, &bytes)?;
    let both = context.channel.open_read_write()?;
    expect(
        "bytes sent",
        sendfile(&both, &file, None, bytes.len()),
        Ok(bytes.len()),
    )?;
    let info = ioctl::info(&both)?;
    expect("pages spliced in", info.pages_spliced_in, 8)?;
    expect(
        "pages allocated, behind those and for the rest",
        info.pages_allocated,
        9,
    )?;
    expect_bytes("the file", &read_all(&both, bytes.len())?, &bytes)
}

fn whole_pages_are_spliced_out_without_a_copy(context: &Context) -> Result<()> {
    let bytes = stream_bytes(7, 0, 8 * PAGE + 10);
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    write_all(&both, &bytes)?;
    move_all(&both, &into, bytes.len())?;
    expect(
        "pages spliced out",
        ioctl::info(&both)?.pages_spliced_out,
        8,
    )?;
    expect_bytes("the bytes", &read_all(&out, bytes.len())?, &bytes)
}

/// A pipe has up to twice its capacity in pages. While receivers hold as many pages as the capacity, further ones are
/// copied.
fn pages_are_copied_while_a_lap_of_them_is_held_by_the_receiver(context: &Context) -> Result<()> {
    const PAGES: u64 = (CAPACITY / PAGE) as u64;
    let both = context.channel.open_read_write()?;
    let mut kept = Vec::new();
    for lap in 1..5 {
        let bytes = stream_bytes(lap, 0, CAPACITY);
        let (out, into) = pipe()?;
        write_all(&both, &bytes)?;
        move_all(&both, &into, CAPACITY)?;
        kept.push((out, into, bytes));
        expect(
            &format!("pages spliced out after lap {lap}"),
            ioctl::info(&both)?.pages_spliced_out,
            PAGES,
        )?;
    }
    for (out, _into, bytes) in &kept {
        expect_bytes("a lap", &read_all(out, CAPACITY)?, bytes)?;
    }
    let (_out, into) = pipe()?;
    write_all(&both, &[0; CAPACITY])?;
    move_all(&both, &into, CAPACITY)?;
    expect(
        "pages spliced out once the others are free",
        ioctl::info(&both)?.pages_spliced_out,
        2 * PAGES,
    )
}

fn sendfile_out_of_a_pipe_is_einval(context: &Context) -> Result<()> {
    let file = scratch_file(context, b"")?;
    let both = context.channel.open_read_write()?;
    write_all(&both, b"bytes")?;
    expect(
        "sendfile",
        sendfile(&file, &both, None, CAPACITY),
        Err(Errno::EINVAL),
    )?;
    expect_bytes("bytes left", &read_all(&both, 5)?, b"bytes")
}

/// To a pipe(2) it needs no input that can seek, unlike to any other file. (It is EINVAL from a FIFO.)
fn sendfile_to_a_pipe_delivers_the_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"bytes")?;
    let (out, into) = pipe()?;
    expect("sendfile", sendfile(&into, &both, None, CAPACITY), Ok(5))?;
    expect_bytes("bytes received", &read_all(&out, 5)?, b"bytes")
}

fn bytes_survive_a_resize_with_spliced_pages(context: &Context) -> Result<()> {
    let bytes = stream_bytes(9, 0, 6 * PAGE);
    let file = scratch_file(context, &bytes)?;
    let both = context.channel.open_read_write()?;
    sendfile(&both, &file, None, bytes.len()).context("sendfile")?;
    expect_bytes("the start", &read_some(&both, 100)?, &bytes[..100])?;
    for pages in [32, 8] {
        ioctl::set(&both, ioctl::SET_CAPACITY, pages * PAGE as u64).context("resizing")?;
    }
    expect_bytes(
        "the rest",
        &read_all(&both, bytes.len() - 100)?,
        &bytes[100..],
    )?;
    // A second reader, which would notice that a page was freed twice.
    let other = spawn("a second user", || {
        let fd = context.channel.open_read_write()?;
        write_all(&fd, &[1; PAGE])?;
        Ok(read_all(&fd, PAGE)? == [1; PAGE])
    })?;
    expect("the ring still works", other.finish()?, true)
}

/// A full ring with a half-read page of a file: the last bytes written are in the pipe's own page of the same slot.
fn a_full_ring_with_a_half_read_file_page_can_grow(context: &Context) -> Result<()> {
    for (taken, put) in [(100, 50), (100, 100), (PAGE - 1, 1), (1, 1)] {
        let bytes = stream_bytes(11, 0, CAPACITY + put + PAGE);
        let file = scratch_file(context, &bytes[..CAPACITY])?;
        let both = context.channel.open_read_write()?;
        expect(
            "bytes sent",
            sendfile(&both, &file, None, CAPACITY),
            Ok(CAPACITY),
        )?;
        expect_bytes("the start", &read_all(&both, taken)?, &bytes[..taken])?;
        write_all(&both, &bytes[CAPACITY..CAPACITY + put])?;
        ioctl::set(&both, ioctl::SET_CAPACITY, 2 * CAPACITY as u64).context("growing")?;
        write_all(&both, &bytes[CAPACITY + put..])?;
        expect_bytes(
            &format!("bytes after {taken} read and {put} written"),
            &read_all(&both, bytes.len() - taken)?,
            &bytes[taken..],
        )?;
        let after = std::fs::read(context.scratch.join("file")).context("reading the file")?;
        expect_bytes("the file afterwards", &after, &bytes[..CAPACITY])?;
    }
    Ok(())
}

/// A splice that is woken for room and then blocks on the lock of its source must first have woken the next writer.
fn a_splice_blocked_on_its_source_keeps_no_wake_up(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    ioctl::set(&both, ioctl::SET_CAPACITY, PAGE as u64)?;
    let filled = fill(&both, b'x')?;
    let (out, into) = pipe()?;
    write_all(&into, b"last")?;
    let mover = spawn_keeping("the splice", &[out.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        move_bytes(&out, &fd, 4).context("splice")
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    let writer = spawn("the writer", || {
        let fd = context.channel.open_read_write()?;
        write_all(&fd, &[b'w'; PAGE])
    })?;
    writer.wait_asleep_in(Call::Write)?;
    let source = format!("/proc/{}/fd/{}", std::process::id(), out.as_raw_fd());
    let holder = spawn_fault_blocked("a read of the source", 0, |slow| {
        let file = File::open(&source).with_context(|| format!("opening {source}"))?;
        read_at(&file, slow.start(), 4).context("the read that faults")
    })?;
    read_all(&both, filled)?;
    writer.finish()?;
    holder.expect_still_blocked()?;
    // The splice blocks uninterruptibly on the lock that the holder has.
    holder.kill()?;
    mover.kill()
}

/// While one writer is in the middle of its copy and another is blocked for PIPE_BUF of room, a short splice fits: it
/// blocks until the first writer releases the lock, not until a reader makes room.
fn a_nonblocking_splice_blocks_for_the_lock_but_not_for_room(context: &Context) -> Result<()> {
    const STARTED: usize = 100;
    let both = context.channel.open_read_write()?;
    ioctl::set(&both, ioctl::SET_CAPACITY, 2 * PAGE as u64)?;
    write_all(&both, &[b'x'; PAGE + STARTED])?;
    let holder = spawn_fault_blocked("a write that faults", 0, |slow| {
        let file = File::from(context.channel.open_read_write()?);
        write_at(&file, slow.start(), STARTED).context("the write that faults")
    })?;
    let sleeper = spawn("the blocked writer", || {
        let fd = context.channel.open_read_write()?;
        write_all(&fd, &[b'w'; PAGE])
    })?;
    sleeper.wait_asleep_in(Call::Write)?;
    let (out, into) = pipe()?;
    write_all(&into, b"now")?;
    let mover = spawn_keeping("the splice", &[out.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        move_bytes_nonblocking(&out, &fd, 3).context("splice")
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    expect("bytes written", holder.resume()?, STARTED)?;
    expect("bytes moved", mover.finish()?, 3)?;
    sleeper.kill()
}

/// The target is full by the time at which there are bytes.
fn a_splice_out_waits_for_room_that_others_have_taken(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    let mover = sleeping_splice(context, &into)?;
    set_nonblocking(&into)?;
    let filled = fill(&into, b'x')?;
    write_all(&both, b"late")?;
    mover.expect_still_asleep_in(Call::Splice)?;
    read_all(&out, filled)?;
    expect("bytes moved", mover.finish()?, 4)?;
    expect_bytes("bytes", &read_all(&out, 4)?, b"late")
}

/// The target has no reader by the time at which there are bytes; they stay.
fn a_splice_out_to_a_pipe_that_has_lost_its_reader_is_epipe(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    let mover = spawn_keeping("the splice", &[into.as_fd()], || {
        let fd = context.channel.open_read_write()?;
        signals::ignore_sigpipe()?;
        Ok(move_bytes(&fd, &into, 100).map_err(|error| error as i32))
    })?;
    mover.wait_asleep_in(Call::Splice)?;
    drop(out);
    write_all(&both, b"kept")?;
    expect("the splice", mover.finish()?, Err(Errno::EPIPE as i32))?;
    expect_bytes("bytes left", &read_all(&both, 4)?, b"kept")
}

fn a_splice_out_waits_for_a_read_that_faults(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"first second")?;
    let holder = spawn_fault_blocked("a read that faults", 0, |slow| {
        let file = File::from(context.channel.open_read_write()?);
        read_at(&file, slow.start(), 6).context("the read that faults")
    })?;
    let (out, into) = pipe()?;
    let mover = sleeping_splice(context, &into)?;
    expect("bytes read", holder.resume()?, 6)?;
    expect("bytes moved", mover.finish()?, 6)?;
    expect_bytes("bytes", &read_all(&out, 6)?, b"second")
}

/// tee(2) requires pipe(2) on both sides.
fn tee_is_einval(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"kept")?;
    let (out, into) = pipe()?;
    write_all(&into, b"kept too")?;
    let flags = SpliceFFlags::SPLICE_F_NONBLOCK;
    expect(
        "tee out of it",
        tee(&both, &into, 4, flags),
        Err(Errno::EINVAL),
    )?;
    expect(
        "tee into it",
        tee(&out, &both, 8, flags),
        Err(Errno::EINVAL),
    )?;
    expect_bytes(
        "what remains",
        &read_some(&both, 64).context("read")?,
        b"kept",
    )
}

fn vmsplice_is_ebadf(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let pieces = [IoSlice::new(b"x")];
    let result = vmsplice(&both, &pieces, SpliceFFlags::SPLICE_F_NONBLOCK);
    expect("result of vmsplice", result, Err(Errno::EBADF))
}

/// A buffer in a pipe(2) does not keep the module loaded.
fn pages_spliced_out_outlive_the_module(context: &Context) -> Result<()> {
    let file = context.modules.own.as_ref().ok_or_else(|| {
        skip("the module's file was not given; name the one that is loaded with --module")
    })?;
    let bytes = stream_bytes(12, 0, CAPACITY);
    let both = context.channel.open_read_write()?;
    let (out, into) = pipe()?;
    write_all(&both, &bytes)?;
    move_all(&both, &into, CAPACITY)?;
    drop(both);
    let unloaded = UnloadedModule::module(file)?;
    expect_bytes("bytes moved", &read_all(&out, CAPACITY)?, &bytes)?;
    unloaded.load_again()
}
