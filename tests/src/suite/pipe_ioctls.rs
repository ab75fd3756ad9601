// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipe's ioctls: capacity, spin limit and information.

use std::ptr;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::{Uid, read, seteuid, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, fill, read_all, set_nonblocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::spawn;
use crate::support::fault_blocked::spawn_fault_blocked;
use crate::support::ioctl::{self, INFO, Info, SET_CAPACITY, SET_SPIN, Setting};
use crate::support::memory::{PAGE, write_at};
use crate::support::parameter::Parameter;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::vfs_pipe::{move_all, pipe};

topic!(
    "pipe_ioctls",
    fifo: [],
    pipe_only: [
        growing_keeps_the_bytes_and_makes_room,
        growing_wakes_a_blocked_write,
        a_resize_that_waits_for_a_writer_does_not_block_readers,
        shrinking_keeps_the_bytes,
        shrinking_below_the_bytes_is_ebusy_and_loses_nothing,
        a_wrapped_ring_can_grow_and_shrink,
        a_full_ring_with_a_half_read_page_can_grow,
        the_current_capacity_can_be_set_whatever_the_pipe_holds,
        shrinking_below_the_spliced_out_pages_is_ebusy_until_they_are_released,
        a_capacity_is_rounded_up_to_a_power_of_two_of_pages,
        a_capacity_of_zero_or_more_than_a_gibibyte_is_einval,
        an_unprivileged_capacity_above_the_modules_limit_is_eperm,
        only_the_owner_grows_a_pipe,
        a_one_page_pipe_keeps_short_writes_atomic,
        info_reports_the_state,
        the_spin_limit_is_per_endpoint_and_capped_by_the_module,
        an_unknown_flag_is_einval,
        a_too_short_structure_is_einval,
        a_longer_structure_is_accepted_if_the_rest_is_zero,
        a_bad_pointer_is_efault,
    ],
);

fn growing_keeps_the_bytes_and_makes_room(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let bytes = stream_bytes(1, 0, 4 * CAPACITY);
    expect("bytes before", write(&both, &bytes), Ok(CAPACITY))?;
    expect(
        "the new capacity",
        ioctl::set(&both, SET_CAPACITY, 4 * CAPACITY as u64),
        Ok(4 * CAPACITY as u64),
    )?;
    expect(
        "bytes after",
        write(&both, &bytes[CAPACITY..]),
        Ok(3 * CAPACITY),
    )?;
    expect_bytes("all of them", &read_all(&both, 4 * CAPACITY)?, &bytes)
}

fn growing_wakes_a_blocked_write(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    fill(&both, b'x')?;
    let writer = spawn("the waiting writer", || {
        let fd = context.channel.open_read_write()?;
        write(&fd, b"late").context("write")
    })?;
    writer.wait_asleep_in(Call::Write)?;
    ioctl::set(&both, SET_CAPACITY, 2 * CAPACITY as u64).context("growing")?;
    expect("bytes written", writer.finish()?, 4)
}

/// The writer is inside its copy and holds the mutex of the writers. A resize needs both mutexes, and must not keep the
/// readers' while it waits.
fn a_resize_that_waits_for_a_writer_does_not_block_readers(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    write_all(&both, b"here")?;
    let writer = spawn_fault_blocked("a write that faults", 0, |slow| {
        let fd = context.channel.open_read_write()?;
        write_at(&fd, slow.start(), PAGE).context("the write that faults")
    })?;
    let resizer = spawn("the resize", || {
        let fd = context.channel.open_read_write()?;
        Ok(ioctl::set(&fd, SET_CAPACITY, 2 * CAPACITY as u64)?)
    })?;
    resizer.wait_asleep_in(Call::Ioctl)?;
    let reader = spawn("a reader", || {
        let fd = context.channel.open_read_write()?;
        set_nonblocking(&fd)?;
        read_all(&fd, 4)
    })?;
    expect_bytes("what is read", &reader.finish()?, b"here")?;
    writer.expect_still_blocked()?;
    expect("bytes written", writer.resume()?, PAGE)?;
    expect("the capacity", resizer.finish()?, 2 * CAPACITY as u64)
}

fn shrinking_keeps_the_bytes(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let bytes = stream_bytes(2, 0, 2 * PAGE);
    write_all(&both, &bytes)?;
    expect(
        "the new capacity",
        ioctl::set(&both, SET_CAPACITY, 2 * PAGE as u64),
        Ok(2 * PAGE as u64),
    )?;
    expect("a write to it", write(&both, b"x"), Err(Errno::EAGAIN))?;
    expect_bytes("its content", &read_all(&both, bytes.len())?, &bytes)?;
    expect("room now", fill(&both, b'x')?, 2 * PAGE)
}

fn shrinking_below_the_bytes_is_ebusy_and_loses_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let bytes = stream_bytes(3, 0, 2 * PAGE + 1);
    write_all(&both, &bytes)?;
    expect(
        "shrinking to one byte less than there are",
        ioctl::set(&both, SET_CAPACITY, 2 * PAGE as u64),
        Err(Errno::EBUSY),
    )?;
    expect(
        "the capacity",
        ioctl::info(&both)?.capacity,
        CAPACITY as u64,
    )?;
    expect_bytes("its content", &read_all(&both, bytes.len())?, &bytes)
}

/// Bytes that wrap around the end of the ring must stay in order when its size changes.
fn a_wrapped_ring_can_grow_and_shrink(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut at = 0;
    let mut read_to = 0;
    for pages in [16, 32, 8, 64, 4, 16] {
        let capacity = pages * PAGE;
        // An odd distance, so that each round starts at another offset of the ring.
        let count = (3 * PAGE - 1000).min(capacity);
        for _ in 0..9 {
            write_all(&both, &stream_bytes(4, at, count))?;
            at += count as u64;
            ioctl::set(&both, SET_CAPACITY, capacity as u64).context("changing the capacity")?;
            expect_bytes(
                &format!("bytes with a ring of {pages} pages"),
                &read_all(&both, count)?,
                &stream_bytes(4, read_to, count),
            )?;
            read_to += count as u64;
        }
    }
    Ok(())
}

/// In a full ring with a half-read page, the last bytes written are in the same page as the next bytes to read.
fn a_full_ring_with_a_half_read_page_can_grow(context: &Context) -> Result<()> {
    for (taken, put) in [(100, 50), (100, 100), (PAGE - 1, 1), (1, 1)] {
        let both = context.channel.open_read_write()?;
        write_all(&both, &stream_bytes(7, 0, CAPACITY))?;
        expect_bytes(
            "bytes read before",
            &read_all(&both, taken)?,
            &stream_bytes(7, 0, taken),
        )?;
        write_all(&both, &stream_bytes(7, CAPACITY as u64, put))?;
        ioctl::set(&both, SET_CAPACITY, 2 * CAPACITY as u64).context("growing")?;
        write_all(&both, &stream_bytes(7, (CAPACITY + put) as u64, PAGE))?;
        let rest = CAPACITY + put + PAGE - taken;
        expect_bytes(
            &format!("bytes after {taken} read and {put} written"),
            &read_all(&both, rest)?,
            &stream_bytes(7, taken as u64, rest),
        )?;
    }
    Ok(())
}

/// A full ring with a half-read page uses one page more than its capacity.
fn the_current_capacity_can_be_set_whatever_the_pipe_holds(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let capacity = CAPACITY as u64;
    let set = |what| {
        expect(
            what,
            ioctl::set(&both, SET_CAPACITY, capacity),
            Ok(capacity),
        )
    };
    let bytes = stream_bytes(8, 0, CAPACITY + 100);
    set("empty")?;
    write_all(&both, &bytes[..CAPACITY])?;
    set("full")?;
    expect_bytes("the start", &read_all(&both, 100)?, &bytes[..100])?;
    write_all(&both, &bytes[CAPACITY..])?;
    set("full, with a half-read page")?;
    expect_bytes("all of it", &read_all(&both, CAPACITY)?, &bytes[100..])
}

/// Pages that were spliced out count until the receiver has released them.
fn shrinking_below_the_spliced_out_pages_is_ebusy_until_they_are_released(
    context: &Context,
) -> Result<()> {
    const PAGES: usize = CAPACITY / PAGE;
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    let (out, into) = pipe()?;
    let bytes = stream_bytes(9, 0, CAPACITY);
    write_all(&both, &bytes)?;
    move_all(&both, &into, CAPACITY)?;
    let set = |pages: usize| ioctl::set(&both, SET_CAPACITY, (pages * PAGE) as u64);
    expect(
        "with all pages held by the receiver",
        set(PAGES / 2),
        Err(Errno::EBUSY),
    )?;
    expect("growing meanwhile", set(2 * PAGES), Ok(2 * CAPACITY as u64))?;
    let (first, rest) = bytes.split_at(CAPACITY / 2);
    expect_bytes("the first half", &read_all(&out, first.len())?, first)?;
    expect(
        "to as many as are held",
        set(PAGES / 2),
        Ok(CAPACITY as u64 / 2),
    )?;
    expect("to fewer", set(PAGES / 4), Err(Errno::EBUSY))?;
    for _ in 0..3 {
        expect("bytes that fit", fill(&both, b'x')?, CAPACITY / 2)?;
        expect_bytes(
            "that",
            &read_all(&both, CAPACITY / 2)?,
            &[b'x'; CAPACITY / 2],
        )?;
    }
    expect_bytes("the second half", &read_all(&out, rest.len())?, rest)?;
    expect("with none held", set(1), Ok(PAGE as u64))
}

fn a_capacity_is_rounded_up_to_a_power_of_two_of_pages(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for (asked, given) in [
        (1, PAGE),
        (PAGE, PAGE),
        (PAGE + 1, 2 * PAGE),
        (5 * PAGE, 8 * PAGE),
        (1_000_000, 1 << 20),
    ] {
        expect(
            &format!("the capacity when {asked} is asked for"),
            ioctl::set(&both, SET_CAPACITY, asked as u64),
            Ok(given as u64),
        )?;
        expect(
            "the reported capacity",
            ioctl::info(&both)?.capacity,
            given as u64,
        )?;
    }
    Ok(())
}

fn a_capacity_of_zero_or_more_than_a_gibibyte_is_einval(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for value in [0, (1 << 30) + 1, u64::MAX] {
        expect(
            &format!("a capacity of {value}"),
            ioctl::set(&both, SET_CAPACITY, value),
            Err(Errno::EINVAL),
        )?;
    }
    Ok(())
}

fn an_unprivileged_capacity_above_the_modules_limit_is_eperm(context: &Context) -> Result<()> {
    let limit = Parameter::get("pipe_max_size")?;
    let as_nobody = spawn("an unprivileged process", || {
        seteuid(Uid::from_raw(65534)).context("seteuid")?;
        let fd = context.channel.open_read_write()?;
        Ok([limit, limit + 1]
            .map(|value| ioctl::set(&fd, SET_CAPACITY, value).map_err(|error| error as i32)))
    })?;
    expect(
        "at the limit, and above it",
        as_nobody.finish()?,
        [Ok(limit), Err(Errno::EPERM as i32)],
    )?;
    let both = context.channel.open_read_write()?;
    expect(
        "above it with privilege",
        ioctl::set(&both, SET_CAPACITY, 2 * limit),
        Ok(2 * limit),
    )
}

/// Its pages are charged to the creator, whoever writes.
fn only_the_owner_grows_a_pipe(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let capacity = CAPACITY as u64;
    let by_another = spawn("another user", || {
        seteuid(Uid::from_raw(65534)).context("seteuid")?;
        let fd = context.channel.open_reader_nonblocking()?;
        Ok([2 * capacity, capacity, capacity / 2]
            .map(|value| ioctl::set(&fd, SET_CAPACITY, value).map_err(|error| error as i32)))
    })?;
    expect(
        "growing, the same, and shrinking by another user",
        by_another.finish()?,
        [Err(Errno::EPERM as i32), Ok(capacity), Ok(capacity / 2)],
    )?;
    expect(
        "growing by the owner",
        ioctl::set(&both, SET_CAPACITY, capacity),
        Ok(capacity),
    )
}

fn a_one_page_pipe_keeps_short_writes_atomic(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    ioctl::set(&both, SET_CAPACITY, PAGE as u64).context("shrinking")?;
    let bytes = stream_bytes(5, 0, PAGE);
    write_all(&both, &bytes[..100])?;
    expect("too much", write(&both, &bytes), Err(Errno::EAGAIN))?;
    expect_bytes("the beginning", &read_all(&both, 100)?, &bytes[..100])?;
    expect("what fits exactly", write(&both, &bytes), Ok(PAGE))?;
    expect_bytes("all of it", &read_all(&both, PAGE)?, &bytes)
}

fn info_reports_the_state(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let _second = context.channel.open_writer()?;
    write_all(&writer, &[0; PAGE + 1])?;
    let info = ioctl::info(&reader)?;
    expect("size", info.size as usize, size_of::<Info>())?;
    expect("readers", info.readers, 1)?;
    expect("writers", info.writers, 2)?;
    expect("reserved", info.reserved, 0)?;
    expect("capacity", info.capacity, CAPACITY as u64)?;
    expect("bytes", info.bytes, PAGE as u64 + 1)?;
    expect("pages allocated", info.pages_allocated, 2)?;
    expect("pages spliced in", info.pages_spliced_in, 0)?;
    expect("pages spliced out", info.pages_spliced_out, 0)
}

fn the_spin_limit_is_per_endpoint_and_capped_by_the_module(context: &Context) -> Result<()> {
    let module_us = Parameter::get("spin_limit_us")?;
    let one = context.channel.open_read_write()?;
    let other = context.channel.open_read_write()?;
    let module_ns = module_us * 1000;
    expect("off", ioctl::set(&one, SET_SPIN, 0), Ok(0))?;
    expect("one's", ioctl::info(&one)?.spin_limit_ns, 0)?;
    expect("the other's", ioctl::info(&other)?.spin_limit_ns, module_ns)?;
    expect(
        "too much",
        ioctl::set(&one, SET_SPIN, u64::MAX),
        Ok(module_ns),
    )
}

fn an_unknown_flag_is_einval(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for command in [SET_CAPACITY, SET_SPIN] {
        for bit in 0..32 {
            let mut setting = Setting {
                flags: 1 << bit,
                ..Setting::new(PAGE as u64)
            };
            expect(
                &format!("command {command:#x} with flag {bit}"),
                ioctl::raw(&both, command, &mut setting),
                Err(Errno::EINVAL),
            )?;
        }
    }
    Ok(())
}

fn a_too_short_structure_is_einval(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for size in [0, 1, 3, 4, 8, 15] {
        let mut setting = Setting {
            size,
            ..Setting::new(PAGE as u64)
        };
        expect(
            &format!("a size of {size}"),
            ioctl::raw(&both, SET_CAPACITY, &mut setting),
            Err(Errno::EINVAL),
        )?;
    }
    for size in [0, 3, 8, 63] {
        let mut info = Info {
            size,
            ..Info::default()
        };
        expect(
            &format!("an info of {size}"),
            ioctl::raw(&both, INFO, &mut info),
            Err(Errno::EINVAL),
        )?;
    }
    Ok(())
}

fn a_longer_structure_is_accepted_if_the_rest_is_zero(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut words = vec![0u64; 100];
    words[0] = 800;
    words[1] = PAGE as u64;
    expect(
        "followed by zeros",
        ioctl::raw(&both, SET_CAPACITY, words.as_mut_ptr()),
        Ok(()),
    )?;
    words[99] = 1;
    expect(
        "followed by something else",
        ioctl::raw(&both, SET_CAPACITY, words.as_mut_ptr()),
        Err(Errno::E2BIG),
    )
}

fn a_bad_pointer_is_efault(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for command in [SET_CAPACITY, SET_SPIN, INFO] {
        expect(
            &format!("command {command:#x}"),
            ioctl::raw::<u8>(&both, command, ptr::null_mut()),
            Err(Errno::EFAULT),
        )?;
    }
    expect("a read after it", read(&both, &mut []), Ok(0))
}
