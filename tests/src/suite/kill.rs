// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process may be killed at any point, even in the middle of a copy: whoever is left gets what is due, and the next
//! one finds a pipe that works. (Those who are killed while they wait in open(2) are in open.rs.)

use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, PIPE_BUF, fill, read_all, read_some, read_to_end, set_nonblocking, write_all,
};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn};
use crate::support::memory::{read_at, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::stall::spawn_stalled;
use crate::support::time::Deadline;

topic!(
    "kill",
    fifo: [
        a_killed_reader_breaks_the_pipe_of_a_waiting_writer,
        a_killed_writer_ends_the_file_of_a_waiting_reader,
        a_reader_killed_in_its_read_leaves_the_bytes_to_others,
        a_writer_killed_in_its_write_leaves_what_it_wrote,
        a_poller_killed_in_its_poll_leaves_nothing_behind,
        a_writer_killed_in_a_page_fault_leaves_nothing_of_its_write,
        a_reader_killed_in_a_page_fault_leaves_the_pipe_working,
        killing_at_random_leaves_the_pipe_working,
    ],
    pipe_only: [],
);

/// Once `held` is gone too, nobody is left who counts as a reader or writer, and the pipe carries data. What it counts
/// would go with its last endpoint, so a new reader comes before the others leave, and a new writer before it leaves.
fn expect_healthy_without<T>(context: &Context, held: T) -> Result<()> {
    let reader = context.channel.open_reader_now()?;
    drop(held);
    while read_some(&reader, CAPACITY).is_ok_and(|bytes| !bytes.is_empty()) {}
    expect("a read with no writer left", read(&reader, &mut [0]), Ok(0))?;
    let writer = context.channel.open_writer_now()?;
    expect("bytes that fit", fill(&writer, b'.')?, CAPACITY)?;
    read_all(&reader, CAPACITY)?;
    drop(reader);
    expect(
        "a write with no reader left",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// A child that holds an endpoint and does nothing with it.
fn holder(context: &Context, flags: OFlag) -> Result<Child<()>> {
    spawn("a holder of an endpoint", || {
        let _fd = context.channel.open(flags).context("open")?;
        loop {
            std::thread::park();
        }
    })
}

fn a_killed_reader_breaks_the_pipe_of_a_waiting_writer(context: &Context) -> Result<()> {
    let reader = holder(context, OFlag::O_RDONLY)?;
    let writer = spawn("a writer", || {
        let fd = context.channel.open_writer()?;
        write_all(&fd, &[0; CAPACITY])?;
        Ok(write(&fd, b"x").map_err(|errno| errno as i32))
    })?;
    writer.wait_asleep_in(Call::Write)?;
    reader.kill()?;
    expect(
        "result of the write",
        writer.finish()?,
        Err(Errno::EPIPE as i32),
    )?;
    expect_healthy_without(context, ())
}

fn a_killed_writer_ends_the_file_of_a_waiting_reader(context: &Context) -> Result<()> {
    let writer = holder(context, OFlag::O_WRONLY)?;
    let reader = spawn("a reader", || {
        let fd = context.channel.open_reader()?;
        Ok(read(&fd, &mut [0]).map_err(|errno| errno as i32))
    })?;
    reader.wait_asleep_in(Call::Read)?;
    writer.kill()?;
    expect("result of the read", reader.finish()?, Ok(0))?;
    expect_healthy_without(context, ())
}

fn a_reader_killed_in_its_read_leaves_the_bytes_to_others(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let reader: Child<()> = spawn("a reader", || {
        let fd = context.channel.open_both_ways()?;
        read(&fd, &mut [0]).map(drop).context("read")
    })?;
    reader.wait_asleep_in(Call::Read)?;
    reader.kill()?;
    write_all(&both, b"unharmed")?;
    expect_bytes(
        "what the next one reads",
        &read_some(&both, 64).context("read")?,
        b"unharmed",
    )?;
    expect_healthy_without(context, both)
}

fn a_writer_killed_in_its_write_leaves_what_it_wrote(context: &Context) -> Result<()> {
    let bytes = stream_bytes(0, 0, CAPACITY + PIPE_BUF);
    let writer: Child<()> = spawn("a writer", || {
        let fd = context.channel.open_writer()?;
        write(&fd, &bytes).map(drop).context("write")
    })?;
    let reader = context.channel.open_reader()?;
    writer.wait_asleep_in(Call::Write)?;
    writer.kill()?;
    expect_bytes("what it wrote", &read_to_end(&reader)?, &bytes[..CAPACITY])?;
    expect_healthy_without(context, reader)
}

fn a_poller_killed_in_its_poll_leaves_nothing_behind(context: &Context) -> Result<()> {
    let poller: Child<i16> = spawn("a poller", || {
        let fd = context.channel.open_reader_now()?;
        poll::wait(&fd, poll::IN, -1).context("poll")
    })?;
    poller.wait_asleep_in(Call::Poll)?;
    let both = context.channel.open_both_ways()?;
    poller.kill()?;
    expect_healthy_without(context, both)
}

fn a_writer_killed_in_a_page_fault_leaves_nothing_of_its_write(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"before")?;
    let writer = spawn_stalled::<(), _>("a writer in a page fault", 0, |buffer| {
        let fd = context.channel.open_both_ways()?;
        write_at(&fd, buffer.start(), buffer.len())
            .map(drop)
            .context("write")
    })?;
    writer.kill()?;
    write_all(&both, b" and after")?;
    expect_bytes(
        "what is in the pipe",
        &read_some(&both, CAPACITY).context("read")?,
        b"before and after",
    )?;
    expect_healthy_without(context, both)
}

/// How much of what it was reading went with it is open; that nothing comes twice and the rest comes is not.
fn a_reader_killed_in_a_page_fault_leaves_the_pipe_working(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let bytes = stream_bytes(0, 0, 3 * PIPE_BUF);
    write_all(&both, &bytes)?;
    let reader = spawn_stalled::<(), _>("a reader in a page fault", 1, |buffer| {
        let fd = context.channel.open_both_ways()?;
        read_at(&fd, buffer.start(), buffer.len())
            .map(drop)
            .context("read")
    })?;
    reader.kill()?;
    set_nonblocking(&both)?;
    let mut rest = Vec::new();
    while let Ok(more) = read_some(&both, CAPACITY) {
        rest.extend(more);
    }
    expect(
        "whether all is left that it did not ask for",
        rest.len() >= PIPE_BUF,
        true,
    )?;
    let from = bytes.len().saturating_sub(rest.len());
    expect_bytes("what is left", &rest, &bytes[from..])?;
    expect_healthy_without(context, both)
}

/// Opens in any mode and does anything, again and again, until it is killed.
fn act_at_random(context: &Context, seed: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let mut buffer = vec![0; 2 * CAPACITY];
    loop {
        let mode = [OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDWR][random.usize(..=2)];
        let nonblock = [OFlag::empty(), OFlag::O_NONBLOCK][random.usize(..=1)];
        let Ok(fd) = context.channel.open(mode | nonblock) else {
            continue;
        };
        for _ in 0..random.usize(1..=20) {
            let most = [3000, 3000, 3000, 2 * CAPACITY][random.usize(..=3)];
            let count = random.usize(1..=most);
            act_once(&fd, mode, random.usize(..=4), &mut buffer[..count])?;
        }
    }
}

/// Errors are part of the game: what matters is what is left afterwards.
fn act_once(fd: &OwnedFd, mode: OFlag, choice: usize, buffer: &mut [u8]) -> Result<()> {
    let (reads, writes) = (mode != OFlag::O_WRONLY, mode != OFlag::O_RDONLY);
    match choice {
        0 => drop(poll::wait(fd, poll::IN | poll::OUT, 1)),
        1 | 2 if reads => drop(read(fd, buffer)),
        _ if writes => drop(write(fd, buffer)),
        _ => drop(read(fd, buffer)),
    }
    Ok(())
}

fn killing_at_random_leaves_the_pipe_working(context: &Context) -> Result<()> {
    const CROWD: usize = 6;
    let mut random = Rng::with_seed(4);
    let mut seeds = 0..;
    let mut recruit = || {
        let seed = seeds.next().context("seeds never end")?;
        spawn::<(), _>(&format!("actor {seed}"), || act_at_random(context, seed))
    };
    let mut crowd = (0..CROWD).map(|_| recruit()).collect::<Result<Vec<_>>>()?;
    let deadline = Deadline::after(Duration::from_secs(3));
    while !deadline.passed() {
        std::thread::sleep(Duration::from_micros(random.u64(..=3000)));
        let victim = random.usize(..CROWD);
        crowd[victim].signal(Signal::SIGKILL)?;
        std::mem::replace(&mut crowd[victim], recruit()?).wait_end()?;
    }
    let reader = context.channel.open_reader_now()?;
    crowd.into_iter().try_for_each(Child::kill)?;
    expect_healthy_without(context, reader)
}
