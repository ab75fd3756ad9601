// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of several blocked processes is woken: one per event, in order of arrival, and none without an event.

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};
use serde::de::DeserializeOwned;

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, PIPE_BUF, fill, read_all, read_some, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::poll;
use crate::support::proc::{self, Call};
use crate::support::sched::{pin_to_first_cpu, run_realtime_on_first_cpu};
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "wake_one",
    fifo: [
        one_byte_wakes_one_reader_and_no_other,
        readers_are_woken_in_order_of_arrival,
        one_large_write_wakes_many_readers,
        closing_the_last_writer_wakes_every_reader,
        room_for_one_wakes_one_writer_and_no_other,
        writers_are_woken_in_order_of_arrival,
        one_large_read_wakes_many_writers,
        closing_the_last_reader_wakes_every_writer,
        a_killed_waiter_does_not_lose_the_wake_up,
        a_burst_of_writes_wakes_one_reader,
        a_burst_of_reads_wakes_one_writer,
    ],
    pipe_only: [
        a_short_write_does_not_overtake_a_blocked_longer_one,
        a_reader_woken_without_data_keeps_its_queue_position,
        a_burst_after_a_poll_wakes_one_reader,
    ],
);

const WAITERS: usize = 6;

/// Readers of one byte, each blocked before the next one starts.
fn sleeping_readers(context: &Context, count: usize) -> Result<Vec<Child<Vec<u8>>>> {
    (0..count)
        .map(|index| {
            let child = spawn(&format!("reader {index}"), || {
                let fd = context.channel.open_read_write()?;
                read_some(&fd, 1).context("read")
            })?;
            child.wait_asleep_in(Call::Read)?;
            Ok(child)
        })
        .collect()
}

/// Fails if one of these was woken since `before`.
fn expect_undisturbed<T: DeserializeOwned>(
    sleepers: &[Child<T>],
    sleeps: &[u64],
    call: Call,
) -> Result<()> {
    wait_grace_period();
    for (index, (sleeper, &before)) in sleepers.iter().zip(sleeps).enumerate() {
        sleeper.wait_asleep_in(call)?;
        let now = proc::sleep_count(sleeper.pid())?;
        expect(
            &format!("sleeps of waiter {index} of the rest"),
            now,
            before,
        )?;
    }
    Ok(())
}

fn counted_sleeps<T: DeserializeOwned>(sleepers: &[Child<T>]) -> Result<Vec<u64>> {
    sleepers
        .iter()
        .map(|child| proc::sleep_count(child.pid()))
        .collect()
}

fn one_byte_wakes_one_reader_and_no_other(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut readers = sleeping_readers(context, WAITERS)?;
    let sleeps = counted_sleeps(&readers)?;
    write_all(&both, b"x")?;
    expect_bytes(
        "bytes read by the first reader",
        &readers.remove(0).finish()?,
        b"x",
    )?;
    expect_undisturbed(&readers, &sleeps[1..], Call::Read)
}

fn readers_are_woken_in_order_of_arrival(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    for (index, reader) in sleeping_readers(context, WAITERS)?.into_iter().enumerate() {
        let byte = [index as u8];
        write_all(&both, &byte)?;
        expect_bytes(
            &format!("bytes read by reader {index}"),
            &reader.finish()?,
            &byte,
        )?;
    }
    Ok(())
}

fn one_large_write_wakes_many_readers(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let readers = sleeping_readers(context, WAITERS)?;
    write_all(&both, b"abcdef")?;
    let mut seen = readers
        .into_iter()
        .map(Child::finish)
        .collect::<Result<Vec<_>>>()?
        .concat();
    seen.sort_unstable();
    expect_bytes("bytes read by all readers", &seen, b"abcdef")
}

fn closing_the_last_writer_wakes_every_reader(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_nonblocking()?;
    let writer = context.channel.open_writer()?;
    let readers = (0..WAITERS)
        .map(|index| {
            let child = spawn(&format!("reader {index}"), || {
                let fd = context.channel.open_reader()?;
                read(&fd, &mut [0]).context("read")
            })?;
            child.wait_asleep_in(Call::Read)?;
            Ok(child)
        })
        .collect::<Result<Vec<_>>>()?;
    drop(writer);
    for child in readers {
        expect("result of a waiting read", child.finish()?, 0)?;
    }
    drop(reader);
    Ok(())
}

/// Writers of one page filled with their index, each blocked before the next one starts; the pipe is full.
fn sleeping_writers(context: &Context) -> Result<Vec<Child<Result<usize, i32>>>> {
    (0..WAITERS)
        .map(|index| {
            let child = spawn(&format!("writer {index}"), || {
                let fd = context.channel.open_writer()?;
                Ok(write(&fd, &[index as u8; PIPE_BUF]).map_err(|errno| errno as i32))
            })?;
            child.wait_asleep_in(Call::Write)?;
            Ok(child)
        })
        .collect()
}

fn room_for_one_wakes_one_writer_and_no_other(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let mut writers = sleeping_writers(context)?;
    let sleeps = counted_sleeps(&writers)?;
    read_all(&reader, PIPE_BUF)?;
    expect(
        "result of the first write",
        writers.remove(0).finish()?,
        Ok(PIPE_BUF),
    )?;
    expect_undisturbed(&writers, &sleeps[1..], Call::Write)
}

fn writers_are_woken_in_order_of_arrival(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    for child in sleeping_writers(context)? {
        read_all(&reader, PIPE_BUF)?;
        expect("result of a waiting write", child.finish()?, Ok(PIPE_BUF))?;
    }
    read_all(&reader, CAPACITY - WAITERS * PIPE_BUF)?;
    let expected: Vec<u8> = (0..WAITERS)
        .flat_map(|index| [index as u8; PIPE_BUF])
        .collect();
    expect_bytes(
        "bytes written",
        &read_all(&reader, WAITERS * PIPE_BUF)?,
        &expected,
    )
}

fn one_large_read_wakes_many_writers(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let writers = sleeping_writers(context)?;
    let first = read_some(&reader, CAPACITY).context("read")?;
    ensure!(!first.is_empty(), "a read of the full pipe got nothing");
    for child in writers {
        expect("result of a waiting write", child.finish()?, Ok(PIPE_BUF))?;
    }
    Ok(())
}

fn closing_the_last_reader_wakes_every_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let writers = sleeping_writers(context)?;
    drop(reader);
    for child in writers {
        expect(
            "result of a waiting write",
            child.finish()?,
            Err(Errno::EPIPE as i32),
        )?;
    }
    Ok(())
}

/// The first waiter may be killed when it is chosen: the next one must then get the byte.
fn a_killed_waiter_does_not_lose_the_wake_up(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    for _ in 0..10 {
        let mut readers = sleeping_readers(context, 2)?;
        let first = readers.remove(0);
        let second = readers.remove(0);
        first.signal(Signal::SIGKILL)?;
        write_all(&both, b"x")?;
        first.wait_end()?;
        eventually(
            "the second reader is served though the first was killed",
            || {
                // The first may have read the byte before it died, which is allowed; the second then needs another
                // byte.
                if poll::state(&both)? == "OUT" {
                    write_all(&both, b"x")?;
                }
                Ok(second.has_ended()?.then_some(()))
            },
        )?;
        expect_bytes("bytes read by the second reader", &second.finish()?, b"x")?;
        while read_some(&both, CAPACITY).is_ok() {}
    }
    Ok(())
}

/// Readers, each blocked before the next one starts, that cannot run while another process occupies the first CPU.
fn readers_on_first_cpu(context: &Context, most: usize) -> Result<Vec<Child<Vec<u8>>>> {
    (0..WAITERS)
        .map(|index| {
            let child = spawn(&format!("reader {index}"), || {
                pin_to_first_cpu()?;
                let fd = context.channel.open_read_write()?;
                read_some(&fd, most).context("read")
            })?;
            child.wait_asleep_in(Call::Read)?;
            Ok(child)
        })
        .collect()
}

/// The woken reader runs only after the later writes, and reads their bytes too.
fn a_burst_of_writes_wakes_one_reader(context: &Context) -> Result<()> {
    let _both = context.channel.open_read_write()?;
    expect_one_woken_by_a_burst(context)
}

/// While there are pollers every write is an event of its own; a FIFO remembers for good that it was polled.
fn a_burst_after_a_poll_wakes_one_reader(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    expect("the poll", poll::wait(&both, poll::IN, 10)?, 0)?;
    expect_one_woken_by_a_burst(context)
}

fn expect_one_woken_by_a_burst(context: &Context) -> Result<()> {
    let mut readers = readers_on_first_cpu(context, CAPACITY)?;
    let sleeps = counted_sleeps(&readers)?;
    let writer = spawn("a writer", || {
        let fd = context.channel.open_read_write()?;
        run_realtime_on_first_cpu()?;
        [b"a", b"b", b"c", b"d"]
            .iter()
            .try_for_each(|byte| write_all(&fd, *byte))
    })?;
    writer.finish()?;
    expect_bytes(
        "bytes read by the first reader",
        &readers.remove(0).finish()?,
        b"abcd",
    )?;
    expect_undisturbed(&readers, &sleeps[1..], Call::Read)
}

/// The woken writer runs only after the later reads, and fills all the room.
fn a_burst_of_reads_wakes_one_writer(context: &Context) -> Result<()> {
    const PAGES: usize = 4;
    let (_reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let mut writers = (0..WAITERS)
        .map(|index| {
            let child = spawn(&format!("writer {index}"), || {
                pin_to_first_cpu()?;
                let fd = context.channel.open_writer()?;
                write(&fd, &[index as u8; PAGES * PIPE_BUF]).context("write")
            })?;
            child.wait_asleep_in(Call::Write)?;
            Ok(child)
        })
        .collect::<Result<Vec<_>>>()?;
    let sleeps = counted_sleeps(&writers)?;
    let reader = spawn("a reader", || {
        let fd = context.channel.open_reader()?;
        run_realtime_on_first_cpu()?;
        (0..PAGES).try_for_each(|_| read_all(&fd, PIPE_BUF).map(drop))
    })?;
    reader.finish()?;
    expect(
        "result of the first write",
        writers.remove(0).finish()?,
        PAGES * PIPE_BUF,
    )?;
    expect_undisturbed(&writers, &sleeps[1..], Call::Write)
}

/// The short write would fit. If short writes went first, a longer one could wait forever. A FIFO wakes the longer one
/// at the first read, which finds no free page and queues again behind the short one.
fn a_short_write_does_not_overtake_a_blocked_longer_one(context: &Context) -> Result<()> {
    const SHORT: usize = 64;
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let single_write = |len: usize, byte: u8| {
        let child = spawn("a writer", || {
            let fd = context.channel.open_writer()?;
            write(&fd, &vec![byte; len]).context("write")
        })?;
        child.wait_asleep_in(Call::Write)?;
        Ok::<_, anyhow::Error>(child)
    };
    let long = single_write(PIPE_BUF, b'l')?;
    read_all(&reader, PIPE_BUF / 2)?;
    let short = single_write(SHORT, b's')?;
    read_all(&reader, PIPE_BUF / 2)?;
    expect("result of the long write", long.finish()?, PIPE_BUF)?;
    read_all(&reader, PIPE_BUF)?;
    expect("result of the short write", short.finish()?, SHORT)?;
    read_all(&reader, CAPACITY - 2 * PIPE_BUF)?;
    let expected = [vec![b'l'; PIPE_BUF], vec![b's'; SHORT]].concat();
    expect_bytes(
        "bytes written",
        &read_all(&reader, PIPE_BUF + SHORT)?,
        &expected,
    )
}

/// Another reader took the byte. pipe(2) queues the woken reader at the end again.
fn a_reader_woken_without_data_keeps_its_queue_position(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let mut readers = readers_on_first_cpu(context, 1)?;
    let faster = spawn("a faster reader", || {
        let fd = context.channel.open_read_write()?;
        run_realtime_on_first_cpu()?;
        write_all(&fd, b"x")?;
        read_some(&fd, 1).context("read")
    })?;
    expect_bytes("bytes read by the faster one", &faster.finish()?, b"x")?;
    wait_grace_period();
    readers[0].wait_asleep_in(Call::Read)?;
    for (index, byte) in [b"0", b"1"].into_iter().enumerate() {
        write_all(&both, byte)?;
        expect_bytes(
            &format!("bytes read by reader {index}"),
            &readers.remove(0).finish()?,
            byte,
        )?;
    }
    Ok(())
}
