// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process may be killed at any point, even in the middle of a copy: the other processes get EOF or EPIPE, and the
//! pipe keeps working. (open.rs has the tests of processes killed in open(2).)

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
use crate::support::fault_blocked::spawn_fault_blocked;
use crate::support::memory::{read_at, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::random::stream_bytes;
use crate::support::time::Deadline;

topic!(
    "sigkill",
    fifo: [
        a_blocked_writer_gets_epipe_when_the_reader_is_killed,
        a_blocked_reader_gets_eof_when_the_writer_is_killed,
        a_reader_killed_in_read_leaves_the_bytes_to_others,
        a_writer_killed_in_write_leaves_the_bytes_written,
        a_poller_killed_in_poll_leaves_no_endpoint,
        a_writer_killed_in_a_page_fault_leaves_no_bytes_of_its_write,
        a_reader_killed_in_a_page_fault_leaves_the_pipe_working,
        random_kills_leave_the_pipe_working,
    ],
    pipe_only: [],
);

/// Drops `held`, then fails if any reader or writer is still counted or the pipe carries no data. The pipe, and its
/// counts, would be freed with the last endpoint, so a new reader opens before `held` is dropped, and a new writer
/// before that reader is closed.
fn expect_healthy_without<T>(context: &Context, held: T) -> Result<()> {
    let reader = context.channel.open_reader_nonblocking()?;
    drop(held);
    while read_some(&reader, CAPACITY).is_ok_and(|bytes| !bytes.is_empty()) {}
    expect("a read with no writer left", read(&reader, &mut [0]), Ok(0))?;
    let writer = context.channel.open_writer_nonblocking()?;
    expect("bytes that fit", fill(&writer, b'.')?, CAPACITY)?;
    read_all(&reader, CAPACITY)?;
    drop(reader);
    expect(
        "a write with no reader left",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// A child that holds an endpoint without using it.
fn holder(context: &Context, flags: OFlag) -> Result<Child<()>> {
    spawn("a holder of an endpoint", || {
        let _fd = context.channel.open(flags).context("open")?;
        loop {
            std::thread::park();
        }
    })
}

fn a_blocked_writer_gets_epipe_when_the_reader_is_killed(context: &Context) -> Result<()> {
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

fn a_blocked_reader_gets_eof_when_the_writer_is_killed(context: &Context) -> Result<()> {
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

fn a_reader_killed_in_read_leaves_the_bytes_to_others(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let reader: Child<()> = spawn("a reader", || {
        let fd = context.channel.open_read_write()?;
        read(&fd, &mut [0]).map(drop).context("read")
    })?;
    reader.wait_asleep_in(Call::Read)?;
    reader.kill()?;
    write_all(&both, b"unharmed")?;
    expect_bytes(
        "bytes read by the next reader",
        &read_some(&both, 64).context("read")?,
        b"unharmed",
    )?;
    expect_healthy_without(context, both)
}

fn a_writer_killed_in_write_leaves_the_bytes_written(context: &Context) -> Result<()> {
    let bytes = stream_bytes(0, 0, CAPACITY + PIPE_BUF);
    let writer: Child<()> = spawn("a writer", || {
        let fd = context.channel.open_writer()?;
        write(&fd, &bytes).map(drop).context("write")
    })?;
    let reader = context.channel.open_reader()?;
    writer.wait_asleep_in(Call::Write)?;
    writer.kill()?;
    expect_bytes("bytes written", &read_to_end(&reader)?, &bytes[..CAPACITY])?;
    expect_healthy_without(context, reader)
}

fn a_poller_killed_in_poll_leaves_no_endpoint(context: &Context) -> Result<()> {
    let poller: Child<i16> = spawn("a poller", || {
        let fd = context.channel.open_reader_nonblocking()?;
        poll::wait(&fd, poll::IN, -1).context("poll")
    })?;
    poller.wait_asleep_in(Call::Poll)?;
    let both = context.channel.open_read_write()?;
    poller.kill()?;
    expect_healthy_without(context, both)
}

fn a_writer_killed_in_a_page_fault_leaves_no_bytes_of_its_write(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"before")?;
    let writer = spawn_fault_blocked::<(), _>("a writer in a page fault", 0, |buffer| {
        let fd = context.channel.open_read_write()?;
        write_at(&fd, buffer.start(), buffer.len())
            .map(drop)
            .context("write")
    })?;
    writer.kill()?;
    write_all(&both, b" and after")?;
    expect_bytes(
        "bytes in the pipe",
        &read_some(&both, CAPACITY).context("read")?,
        b"before and after",
    )?;
    expect_healthy_without(context, both)
}

/// How many bytes of its read are lost is unspecified; no byte may come twice, and all later ones must come.
fn a_reader_killed_in_a_page_fault_leaves_the_pipe_working(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let bytes = stream_bytes(0, 0, 3 * PIPE_BUF);
    write_all(&both, &bytes)?;
    let reader = spawn_fault_blocked::<(), _>("a reader in a page fault", 1, |buffer| {
        let fd = context.channel.open_read_write()?;
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
        "whether all bytes that it did not request are left",
        rest.len() >= PIPE_BUF,
        true,
    )?;
    let from = bytes.len().saturating_sub(rest.len());
    expect_bytes("what remains", &rest, &bytes[from..])?;
    expect_healthy_without(context, both)
}

/// Opens in random modes and makes random calls until it is killed.
fn run_at_random(context: &Context, seed: u64) -> Result<()> {
    let mut random = Rng::with_seed(seed);
    let mut buffer = vec![0; 2 * CAPACITY];
    loop {
        let mode = [OFlag::O_RDONLY, OFlag::O_WRONLY, OFlag::O_RDWR][random.usize(..=2)];
        let nonblock = [OFlag::empty(), OFlag::O_NONBLOCK][random.usize(..=1)];
        let Ok(fd) = context.channel.open(mode | nonblock) else {
            continue;
        };
        for _ in 0..random.usize(1..=20) {
            let most = [3000, 3000, 3000, 2 * CAPACITY][random.usize(0..=3)];
            let count = random.usize(1..=most);
            step(&fd, mode, random.usize(0..=4), &mut buffer[..count])?;
        }
    }
}

/// Errors are expected; only the state afterwards matters.
fn step(fd: &OwnedFd, mode: OFlag, choice: usize, buffer: &mut [u8]) -> Result<()> {
    let (reads, writes) = (mode != OFlag::O_WRONLY, mode != OFlag::O_RDONLY);
    match choice {
        0 => drop(poll::wait(fd, poll::IN | poll::OUT, 1)),
        1 | 2 if reads => drop(read(fd, buffer)),
        _ if writes => drop(write(fd, buffer)),
        _ => drop(read(fd, buffer)),
    }
    Ok(())
}

fn random_kills_leave_the_pipe_working(context: &Context) -> Result<()> {
    const PROCESSES: usize = 6;
    let mut random = Rng::with_seed(4);
    let mut seeds = 0..;
    let mut spawn_next = || {
        let seed = seeds.next().context("seeds never end")?;
        spawn::<(), _>(&format!("process {seed}"), || run_at_random(context, seed))
    };
    let mut processes = (0..PROCESSES)
        .map(|_| spawn_next())
        .collect::<Result<Vec<_>>>()?;
    let deadline = Deadline::after(Duration::from_secs(3));
    while !deadline.passed() {
        std::thread::sleep(Duration::from_micros(random.usize(0..=3000) as u64));
        let victim = random.usize(..PROCESSES);
        processes[victim].signal(Signal::SIGKILL)?;
        std::mem::replace(&mut processes[victim], spawn_next()?).wait_end()?;
    }
    let reader = context.channel.open_reader_nonblocking()?;
    processes.into_iter().try_for_each(Child::kill)?;
    expect_healthy_without(context, reader)
}
