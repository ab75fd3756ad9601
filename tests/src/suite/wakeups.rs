// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who is woken when several sleep: one for each event, in order of arrival, and nobody for nothing.

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
use crate::support::sched::{stay_on_first_cpu, take_first_cpu};
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "wakeups",
    fifo: [
        one_byte_wakes_one_reader_and_no_other,
        readers_are_served_in_order_of_arrival,
        one_large_write_feeds_many_readers,
        the_last_writers_leaving_wakes_every_reader,
        room_for_one_wakes_one_writer_and_no_other,
        writers_are_served_in_order_of_arrival,
        one_large_read_releases_many_writers,
        the_last_readers_leaving_wakes_every_writer,
        a_killed_sleeper_does_not_swallow_the_wake_up,
        a_burst_of_writes_wakes_one_reader,
        a_burst_of_reads_wakes_one_writer,
    ],
    pipe_only: [
        a_short_write_does_not_pass_a_sleeping_longer_one,
        a_reader_woken_for_nothing_keeps_its_place,
    ],
);

const CROWD: usize = 6;

/// Readers of one byte, each asleep before the next one comes.
fn sleeping_readers(context: &Context, count: usize) -> Result<Vec<Child<Vec<u8>>>> {
    (0..count)
        .map(|index| {
            let child = spawn(&format!("reader {index}"), || {
                let fd = context.channel.open_both_ways()?;
                read_some(&fd, 1).context("read")
            })?;
            child.wait_asleep_in(Call::Read)?;
            Ok(child)
        })
        .collect()
}

/// Fails if one of these was woken since its sleeps were counted.
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
            &format!("how often sleeper {index} of the rest went to sleep"),
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
    let both = context.channel.open_both_ways()?;
    let mut readers = sleeping_readers(context, CROWD)?;
    let sleeps = counted_sleeps(&readers)?;
    write_all(&both, b"x")?;
    expect_bytes(
        "what the first reader got",
        &readers.remove(0).finish()?,
        b"x",
    )?;
    expect_undisturbed(&readers, &sleeps[1..], Call::Read)
}

fn readers_are_served_in_order_of_arrival(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    for (index, reader) in sleeping_readers(context, CROWD)?.into_iter().enumerate() {
        let byte = [index as u8];
        write_all(&both, &byte)?;
        expect_bytes(
            &format!("what reader {index} got"),
            &reader.finish()?,
            &byte,
        )?;
    }
    Ok(())
}

fn one_large_write_feeds_many_readers(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let readers = sleeping_readers(context, CROWD)?;
    write_all(&both, b"abcdef")?;
    let mut seen = readers
        .into_iter()
        .map(Child::finish)
        .collect::<Result<Vec<_>>>()?
        .concat();
    seen.sort_unstable();
    expect_bytes("what all readers got", &seen, b"abcdef")
}

fn the_last_writers_leaving_wakes_every_reader(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_now()?;
    let writer = context.channel.open_writer()?;
    let readers = (0..CROWD)
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

/// Writers of a page of their own number, each asleep before the next one comes; the pipe is full.
fn sleeping_writers(context: &Context) -> Result<Vec<Child<Result<usize, i32>>>> {
    (0..CROWD)
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
    let (reader, writer) = context.channel.open_ends_now()?;
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

fn writers_are_served_in_order_of_arrival(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    for child in sleeping_writers(context)? {
        read_all(&reader, PIPE_BUF)?;
        expect("result of a waiting write", child.finish()?, Ok(PIPE_BUF))?;
    }
    read_all(&reader, CAPACITY - CROWD * PIPE_BUF)?;
    let expected: Vec<u8> = (0..CROWD)
        .flat_map(|index| [index as u8; PIPE_BUF])
        .collect();
    expect_bytes(
        "what they wrote",
        &read_all(&reader, CROWD * PIPE_BUF)?,
        &expected,
    )
}

fn one_large_read_releases_many_writers(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let writers = sleeping_writers(context)?;
    let first = read_some(&reader, CAPACITY).context("read")?;
    ensure!(!first.is_empty(), "a read of the full pipe got nothing");
    for child in writers {
        expect("result of a waiting write", child.finish()?, Ok(PIPE_BUF))?;
    }
    Ok(())
}

fn the_last_readers_leaving_wakes_every_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
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

/// The first in line may be dead by the time it is chosen: the next one must then get the byte.
fn a_killed_sleeper_does_not_swallow_the_wake_up(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
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
                // The first may have taken the byte on its way out; that is no fault, the second then needs another.
                if poll::state(&both)? == "OUT" {
                    write_all(&both, b"x")?;
                }
                Ok(second.has_ended()?.then_some(()))
            },
        )?;
        expect_bytes("what the second reader got", &second.finish()?, b"x")?;
        while read_some(&both, CAPACITY).is_ok() {}
    }
    Ok(())
}

/// Readers, each asleep before the next one comes, that cannot run while another has the first processor.
fn readers_on_first_cpu(context: &Context, most: usize) -> Result<Vec<Child<Vec<u8>>>> {
    (0..CROWD)
        .map(|index| {
            let child = spawn(&format!("reader {index}"), || {
                stay_on_first_cpu()?;
                let fd = context.channel.open_both_ways()?;
                read_some(&fd, most).context("read")
            })?;
            child.wait_asleep_in(Call::Read)?;
            Ok(child)
        })
        .collect()
}

/// The woken reader has not run by the time of the later writes, and takes what they wrote, too.
fn a_burst_of_writes_wakes_one_reader(context: &Context) -> Result<()> {
    let _both = context.channel.open_both_ways()?;
    let mut readers = readers_on_first_cpu(context, CAPACITY)?;
    let sleeps = counted_sleeps(&readers)?;
    let writer = spawn("a writer", || {
        let fd = context.channel.open_both_ways()?;
        take_first_cpu()?;
        [b"a", b"b", b"c", b"d"]
            .iter()
            .try_for_each(|byte| write_all(&fd, *byte))
    })?;
    writer.finish()?;
    expect_bytes(
        "what the first reader got",
        &readers.remove(0).finish()?,
        b"abcd",
    )?;
    expect_undisturbed(&readers, &sleeps[1..], Call::Read)
}

/// The woken writer has not run by the time of the later reads, and fills all the room that they made.
fn a_burst_of_reads_wakes_one_writer(context: &Context) -> Result<()> {
    const PAGES: usize = 4;
    let (_reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let mut writers = (0..CROWD)
        .map(|index| {
            let child = spawn(&format!("writer {index}"), || {
                stay_on_first_cpu()?;
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
        take_first_cpu()?;
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

/// There would be room for it. If short writes took that, a longer one could wait for ever. A FIFO wakes the longer one as
/// soon as anything is read, finds no free page for it, and puts it behind the short one.
fn a_short_write_does_not_pass_a_sleeping_longer_one(context: &Context) -> Result<()> {
    const SHORT: usize = 64;
    let (reader, writer) = context.channel.open_ends_now()?;
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
        "what they wrote",
        &read_all(&reader, PIPE_BUF + SHORT)?,
        &expected,
    )
}

/// Someone else took the byte that it was woken for. pipe(2) sends it to the end of the queue.
fn a_reader_woken_for_nothing_keeps_its_place(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let mut readers = readers_on_first_cpu(context, 1)?;
    let thief = spawn("a reader that is faster", || {
        let fd = context.channel.open_both_ways()?;
        take_first_cpu()?;
        write_all(&fd, b"x")?;
        read_some(&fd, 1).context("read")
    })?;
    expect_bytes("what the faster one got", &thief.finish()?, b"x")?;
    wait_grace_period();
    readers[0].wait_asleep_in(Call::Read)?;
    for (index, byte) in [b"0", b"1"].into_iter().enumerate() {
        write_all(&both, byte)?;
        expect_bytes(
            &format!("what reader {index} got"),
            &readers.remove(0).finish()?,
            byte,
        )?;
    }
    Ok(())
}
