// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers that are unmapped, wholly or in part, and calls that a pipe does not support.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::{fsync, read};

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, PIPE_BUF, read_all, read_some, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::memory::{GuardedBuffer, Mapping, PAGE, read_at, write_at};
use crate::support::proc::Call;
use crate::support::random::stream_bytes;

topic!(
    "bad_buffers",
    fifo: [
        a_read_into_bad_memory_is_efault_and_loses_nothing,
        a_read_into_partly_bad_memory_neither_loses_nor_repeats,
        a_write_from_bad_memory_is_efault_and_writes_nothing,
        a_short_write_from_partly_bad_memory_is_efault_and_writes_nothing,
        a_large_write_from_partly_bad_memory_returns_the_bytes_written,
        a_fault_leaves_no_lock_held,
        a_buffer_modified_during_a_write_arrives_as_old_or_new_bytes,
        a_buffer_unmapped_during_a_write_shortens_the_write,
        a_buffer_unmapped_during_a_read_is_efault_and_loses_nothing,
        fionread_counts_the_bytes,
        fionread_into_bad_memory_is_efault,
        an_unknown_ioctl_is_enotty,
        mmap_is_enodev,
        fsync_is_einval,
    ],
    pipe_only: [],
);

fn a_read_into_bad_memory_is_efault_and_loses_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let bytes = stream_bytes(0, 0, 10_000);
    write_all(&both, &bytes)?;
    let bad = GuardedBuffer::new(0)?;
    expect(
        "result of the read",
        read_at(&both, bad.start(), 100),
        Err(Errno::EFAULT),
    )?;
    expect_bytes(
        "bytes of a valid read",
        &read_all(&both, bytes.len())?,
        &bytes,
    )
}

/// The count that a partly faulting read returns is unspecified; the next read must continue there.
fn a_read_into_partly_bad_memory_neither_loses_nor_repeats(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    for (good, total) in [
        (1, 2),
        (1000, 4096),
        (PAGE, 2 * PAGE),
        (PAGE + 10, 5 * PAGE),
        (5000, CAPACITY),
    ] {
        let what = format!("a read of {total} bytes into a buffer of {good}");
        let bytes = stream_bytes(total as u64, 0, total);
        write_all(&both, &bytes)?;
        let buffer = GuardedBuffer::new(good)?;
        let mut seen = match read_at(&both, buffer.start(), total) {
            Ok(count) => buffer.to_vec(count),
            Err(Errno::EFAULT) => Vec::new(),
            Err(error) => return Err(error).context(what),
        };
        while let Ok(more) = read_some(&both, CAPACITY) {
            seen.extend(more);
        }
        expect_bytes(&format!("{what}, and the reads after it"), &seen, &bytes)?;
    }
    Ok(())
}

fn a_write_from_bad_memory_is_efault_and_writes_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let bad = GuardedBuffer::new(0)?;
    for count in [1, PIPE_BUF, CAPACITY, 2 * CAPACITY] {
        let what = format!("a write of {count} bytes");
        expect(
            &what,
            write_at(&both, bad.start(), count),
            Err(Errno::EFAULT),
        )?;
        expect(
            &format!("a read after {what}"),
            read(&both, &mut [0]),
            Err(Errno::EAGAIN),
        )?;
    }
    Ok(())
}

/// A write of up to PIPE_BUF bytes is never visible in part, even if its buffer is partly unmapped.
fn a_short_write_from_partly_bad_memory_is_efault_and_writes_nothing(
    context: &Context,
) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    // Earlier bytes, so that the write starts in the middle of a page and ends in the next one.
    write_all(&both, &[b'.'; 3000])?;
    for (good, total) in [(1, 2), (1000, 2000), (PIPE_BUF - 1, PIPE_BUF)] {
        let mut buffer = GuardedBuffer::new(good)?;
        buffer.fill_from(&vec![b'x'; good]);
        let what = format!("a write of {total} bytes from a buffer of {good}");
        expect(
            &what,
            write_at(&both, buffer.start(), total),
            Err(Errno::EFAULT),
        )?;
    }
    write_all(&both, b"!")?;
    let seen = read_some(&both, CAPACITY).context("read")?;
    expect_bytes(
        "bytes of the valid writes",
        &seen,
        &[&[b'.'; 3000], &b"!"[..]].concat(),
    )
}

fn a_large_write_from_partly_bad_memory_returns_the_bytes_written(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    for (good, total) in [
        (100, PIPE_BUF + 1),
        (PAGE, 2 * PAGE),
        (3 * PAGE + 5, 8 * PAGE),
        (5000, CAPACITY),
    ] {
        let what = format!("a write of {total} bytes from a buffer of {good}");
        let bytes = stream_bytes(total as u64, 0, good);
        let mut buffer = GuardedBuffer::new(good)?;
        buffer.fill_from(&bytes);
        let written = match write_at(&both, buffer.start(), total) {
            Ok(count) => count,
            Err(Errno::EFAULT) => 0,
            Err(error) => return Err(error).context(what),
        };
        let seen = read_some(&both, CAPACITY).unwrap_or_default();
        expect_bytes(
            &format!("bytes read after {what}"),
            &seen,
            &bytes[..written],
        )?;
    }
    Ok(())
}

fn a_fault_leaves_no_lock_held(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let bad = GuardedBuffer::new(0)?;
    for round in 0..100 {
        let byte = [round];
        expect(
            "a write from bad memory",
            write_at(&both, bad.start(), 5),
            Err(Errno::EFAULT),
        )?;
        write_all(&both, &byte)?;
        expect(
            "a read into bad memory",
            read_at(&both, bad.start(), 1),
            Err(Errno::EFAULT),
        )?;
        expect_bytes("a valid read", &read_all(&both, 1)?, &byte)?;
    }
    Ok(())
}

/// Each byte may arrive with either of its two values, but with no other.
fn a_buffer_modified_during_a_write_arrives_as_old_or_new_bytes(context: &Context) -> Result<()> {
    const CONTENTS: [u8; 2] = [0x55, 0xaa];
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let buffer = Mapping::new(CAPACITY / PAGE)?;
    buffer.fill(CONTENTS[0]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                CONTENTS.iter().for_each(|&byte| buffer.fill(byte));
            }
        });
        let result = (0..200).try_for_each(|round| {
            let count = [1, PIPE_BUF, PIPE_BUF + 1, CAPACITY][round % 4];
            expect(
                "result of the write",
                write_at(&both, buffer.start(), count),
                Ok(count),
            )?;
            let seen = read_some(&both, 2 * CAPACITY).context("read")?;
            expect("bytes that arrived", seen.len(), count)?;
            let unexpected = seen.iter().find(|byte| !CONTENTS.contains(byte)).copied();
            expect("a byte with neither value", unexpected, None)
        });
        done.store(true, Ordering::Relaxed);
        result
    })
}

/// A child blocked in a transfer between the pipe and a buffer that the test can unmap meanwhile.
struct Unmapped {
    child: Child<Result<usize, i32>>,
    unmap: Event,
    unmapped: Event,
}

impl Unmapped {
    /// The first `kept` pages of the buffer, which is filled with `FILLING`, stay mapped.
    fn spawn(
        pages: usize,
        kept: usize,
        call: Call,
        body: impl FnOnce(&Mapping) -> Result<nix::Result<usize>>,
    ) -> Result<Self> {
        let (unmap, unmapped) = (Event::new()?, Event::new()?);
        let keep = [unmap.fds(), unmapped.fds()].concat();
        let child = spawn_keeping("a child whose buffer is unmapped", &keep, || {
            let buffer = Mapping::new(pages)?;
            buffer.fill(FILLING);
            std::thread::scope(|scope| {
                let unmapper = scope.spawn(|| {
                    unmap.wait("the test requests the unmapping")?;
                    buffer.unmap_from(kept * PAGE)?;
                    unmapped.notify()
                });
                let moved = body(&buffer)?;
                unmapper
                    .join()
                    .expect("the unmapping thread does not panic")?;
                Ok(moved.map_err(|errno| errno as i32))
            })
        })?;
        child.wait_asleep_in(call)?;
        Ok(Unmapped {
            child,
            unmap,
            unmapped,
        })
    }

    fn unmap_buffer(&self) -> Result<()> {
        self.unmap.notify()?;
        self.unmapped.wait("the buffer is unmapped")
    }
}

const FILLING: u8 = b'f';

fn a_buffer_unmapped_during_a_write_shortens_the_write(context: &Context) -> Result<()> {
    const KEPT: usize = CAPACITY / PAGE + 2;
    let both = context.channel.open_read_write()?;
    let writer = Unmapped::spawn(2 * KEPT, KEPT, Call::Write, |buffer| {
        let fd = context.channel.open_writer()?;
        Ok(write_at(&fd, buffer.start(), buffer.len()))
    })?;
    writer.unmap_buffer()?;
    let first = read_all(&both, CAPACITY)?;
    let written = writer.child.finish()?.map_err(Errno::from_raw);
    let written = written.context("a partial write")?;
    ensure!(
        (CAPACITY..=KEPT * PAGE).contains(&written),
        "the write of {} bytes, of which the last were unmapped, returned {written}",
        2 * KEPT * PAGE
    );
    let rest = read_all(&both, written - CAPACITY)?;
    expect_bytes(
        "bytes received",
        &[first, rest].concat(),
        &vec![FILLING; written],
    )?;
    expect_empty_and_working(&both)
}

fn a_buffer_unmapped_during_a_read_is_efault_and_loses_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let reader = Unmapped::spawn(1, 0, Call::Read, |buffer| {
        let fd = context.channel.open_reader()?;
        Ok(read_at(&fd, buffer.start(), buffer.len()))
    })?;
    reader.unmap_buffer()?;
    write_all(&both, b"kept")?;
    expect(
        "result of the read",
        reader.child.finish()?,
        Err(Errno::EFAULT as i32),
    )?;
    expect_bytes("what remains", &read_all(&both, 4)?, b"kept")?;
    expect_empty_and_working(&both)
}

/// Fails if the pipe holds bytes that were not written, or does not work any more.
fn expect_empty_and_working(both: &OwnedFd) -> Result<()> {
    set_nonblocking(both)?;
    expect(
        "a read of the rest",
        read(both, &mut [0]),
        Err(Errno::EAGAIN),
    )?;
    write_all(both, b"on")?;
    expect_bytes("the next bytes", &read_all(both, 2)?, b"on")
}

/// FIONREAD with any result address.
fn bytes_waiting(fd: &impl AsFd, result: *mut libc::c_int) -> nix::Result<()> {
    // SAFETY: the kernel checks the address, and callers pass memory that no Rust reference covers.
    let ret = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::FIONREAD, result) };
    Errno::result(ret).map(drop)
}

fn expect_waiting(what: &str, fd: &impl AsFd, expected: usize) -> Result<()> {
    let memory = Mapping::new(1)?;
    let result: *mut libc::c_int = memory.start().cast();
    bytes_waiting(fd, result).with_context(|| format!("FIONREAD, {what}"))?;
    // SAFETY: the kernel just wrote there, within our own mapping.
    let count = unsafe { result.read() };
    expect(
        &format!("bytes waiting, {what}"),
        count,
        expected as libc::c_int,
    )
}

fn fionread_counts_the_bytes(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    expect_waiting("at the start", &reader, 0)?;
    write_all(&writer, &[0; 5000])?;
    expect_waiting("after 5000 were written", &reader, 5000)?;
    expect_waiting("asked at the other end", &writer, 5000)?;
    read_all(&reader, 4999)?;
    expect_waiting("after 4999 of them were read", &reader, 1)?;
    read_all(&reader, 1)?;
    write_all(&writer, &[0; CAPACITY])?;
    expect_waiting("when it is full", &reader, CAPACITY)?;
    drop(writer);
    expect_waiting("after the writer closed", &reader, CAPACITY)
}

fn fionread_into_bad_memory_is_efault(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let bad = GuardedBuffer::new(0)?;
    expect(
        "result of FIONREAD",
        bytes_waiting(&both, bad.start().cast()),
        Err(Errno::EFAULT),
    )
}

fn an_unknown_ioctl_is_enotty(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    // TCGETS, which isatty(3) uses, and an unassigned number.
    for command in [0x5401, 0x1234_5678] {
        // SAFETY: if the command did exist, it would write to valid memory.
        let ret = unsafe { libc::ioctl(both.as_raw_fd(), command, Mapping::new(1)?.start()) };
        expect(
            &format!("ioctl {command:#x}"),
            Errno::result(ret),
            Err(Errno::ENOTTY),
        )?;
    }
    Ok(())
}

fn mmap_is_enodev(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (protection, null) = (libc::PROT_READ | libc::PROT_WRITE, std::ptr::null_mut());
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let start = unsafe {
        libc::mmap(
            null,
            PAGE,
            protection,
            libc::MAP_SHARED,
            both.as_raw_fd(),
            0,
        )
    };
    let result = if start == libc::MAP_FAILED {
        Err(Errno::last())
    } else {
        Ok(())
    };
    expect("result of mmap", result, Err(Errno::ENODEV))
}

fn fsync_is_einval(context: &Context) -> Result<()> {
    let file = File::from(context.channel.open_read_write()?);
    expect("result of fsync", fsync(&file), Err(Errno::EINVAL))
}
