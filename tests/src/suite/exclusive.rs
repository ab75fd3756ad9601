// SPDX-License-Identifier: MIT OR Apache-2.0
//! EPOLLEXCLUSIVE, as workers that share one pipe use it: an event wakes one of those who wait. What the others are owed
//! is the next event, not the rest of this one: a sleeper in read(2) passes on what it leaves, an epoll waiter does not,
//! and what one that was woken has not read when it dies stays in the pipe and wakes nobody until something comes.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use nix::sys::epoll::{Epoll, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::notice::Notice;
use crate::support::poll::{epoll_event, epoll_on};
use crate::support::proc::{self, Call};
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "exclusive",
    fifo: [
        one_event_wakes_one_of_many,
        the_next_event_gets_through_though_the_woken_one_left_data,
        each_event_wakes_another_one,
        the_last_writers_leaving_wakes_everyone,
        before_a_reader_the_waiter_is_served_and_then_the_reader,
        behind_a_reader_the_waiter_is_served_next,
        a_reader_passes_on_to_a_waiter_what_it_leaves,
        a_woken_waiter_that_is_killed_leaves_its_bytes_to_the_next_event,
        a_sleeping_waiter_that_is_killed_does_not_block_the_next_event,
    ],
    pipe_only: [],
);

const CROWD: usize = 8;

fn watch(context: &Context) -> Result<(OwnedFd, Epoll)> {
    let fd = context.channel.open_reader_now()?;
    let epoll = epoll_on(&fd, EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE)?;
    Ok((fd, epoll))
}

/// Waits, for as long as it takes, for an event.
fn wait_for_event(epoll: &Epoll) -> Result<EpollFlags> {
    let event = epoll_event(epoll, EpollTimeout::NONE).context("epoll_wait")?;
    event.context("epoll_wait without a time limit came back without an event")
}

/// A child, asleep, that waits for one event and then reads up to `most` bytes.
fn waiter(context: &Context, most: usize) -> Result<Child<Vec<u8>>> {
    let child = spawn("an exclusive epoll waiter", || {
        let (fd, epoll) = watch(context)?;
        wait_for_event(&epoll)?;
        read_some(&fd, most).context("read")
    })?;
    child.wait_asleep_in(Call::Epoll)?;
    Ok(child)
}

fn waiters(context: &Context, most: usize) -> Result<Vec<Child<Vec<u8>>>> {
    (0..CROWD).map(|_| waiter(context, most)).collect()
}

/// A child asleep in read(2).
fn reader(context: &Context) -> Result<Child<Vec<u8>>> {
    let child = spawn("a reader", || {
        let fd = context.channel.open_both_ways()?;
        read_some(&fd, 1).context("read")
    })?;
    child.wait_asleep_in(Call::Read)?;
    Ok(child)
}

/// Takes the one that was woken out of these, and says what it read.
fn served(waiting: &mut Vec<Child<Vec<u8>>>) -> Result<Vec<u8>> {
    let index = eventually("one waiter is woken", || {
        for (index, waiter) in waiting.iter().enumerate() {
            if waiter.has_ended()? {
                return Ok(Some(index));
            }
        }
        Ok(None)
    })?;
    waiting.remove(index).finish()
}

fn sleeps(waiting: &[Child<Vec<u8>>]) -> Result<Vec<(i32, u64)>> {
    waiting
        .iter()
        .map(|child| Ok((child.pid().as_raw(), proc::sleep_count(child.pid())?)))
        .collect()
}

fn one_event_wakes_one_of_many(context: &Context) -> Result<()> {
    // Before they sleep: the coming of a first writer is an event too, and makes a FIFO wake them all for a look.
    let (_reader, writer) = context.channel.open_ends()?;
    let mut waiting = waiters(context, 1)?;
    let before = sleeps(&waiting)?;
    write_all(&writer, b"x")?;
    expect_bytes("what the woken one read", &served(&mut waiting)?, b"x")?;
    wait_grace_period();
    for waiter in &waiting {
        waiter.wait_asleep_in(Call::Epoll)?;
    }
    for one in sleeps(&waiting)? {
        ensure!(
            before.contains(&one),
            "process {} was woken too: it has now gone to sleep {} times, before the event {before:?}",
            one.0,
            one.1
        );
    }
    expect("those who were not woken", waiting.len(), CROWD - 1)
}

fn the_next_event_gets_through_though_the_woken_one_left_data(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    let mut waiting = waiters(context, 1)?;
    write_all(&writer, b"abc")?;
    let mut seen = served(&mut waiting)?;
    write_all(&writer, b"d")?;
    seen.extend(served(&mut waiting)?);
    expect_bytes("what the two woken ones read", &seen, b"ab")?;
    let rest = read_some(&reader, 64).context("reading the rest")?;
    expect_bytes("what they left", &rest, b"cd")
}

fn each_event_wakes_another_one(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let mut waiting = waiters(context, 1)?;
    for round in 0..CROWD {
        let byte = [round as u8];
        write_all(&writer, &byte)?;
        expect_bytes("what the woken one read", &served(&mut waiting)?, &byte)?;
    }
    Ok(())
}

fn the_last_writers_leaving_wakes_everyone(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let waiting = waiters(context, 1)?;
    drop(writer);
    for waiter in waiting {
        expect_bytes("what it read", &waiter.finish()?, b"")?;
    }
    Ok(())
}

fn before_a_reader_the_waiter_is_served_and_then_the_reader(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let (first, second) = (waiter(context, 1)?, reader(context)?);
    write_all(&both, b"1")?;
    expect_bytes("what the waiter got", &first.finish()?, b"1")?;
    second.expect_still_asleep_in(Call::Read)?;
    write_all(&both, b"2")?;
    expect_bytes("what the reader got", &second.finish()?, b"2")
}

fn behind_a_reader_the_waiter_is_served_next(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let (first, second) = (reader(context)?, waiter(context, 1)?);
    write_all(&both, b"1")?;
    expect_bytes("what the reader got", &first.finish()?, b"1")?;
    second.expect_still_asleep_in(Call::Epoll)?;
    write_all(&both, b"2")?;
    expect_bytes("what the waiter got", &second.finish()?, b"2")
}

fn a_reader_passes_on_to_a_waiter_what_it_leaves(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let (first, second) = (reader(context)?, waiter(context, 1)?);
    write_all(&both, b"12")?;
    expect_bytes("what the reader got", &first.finish()?, b"1")?;
    expect_bytes("what the waiter got", &second.finish()?, b"2")
}

/// A child, asleep, that waits for one event, says so, and never reads.
fn idler(context: &Context, woken: &Notice) -> Result<Child<()>> {
    let child = spawn_keeping("a waiter that does not read", &woken.fds(), || {
        let (_fd, epoll) = watch(context)?;
        wait_for_event(&epoll)?;
        woken.give()?;
        loop {
            std::thread::park();
        }
    })?;
    child.wait_asleep_in(Call::Epoll)?;
    Ok(child)
}

/// That its bytes wake nobody else is what a FIFO does too, but nothing to rely on; that they stay is.
fn a_woken_waiter_that_is_killed_leaves_its_bytes_to_the_next_event(
    context: &Context,
) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let woken = Notice::new()?;
    let first = idler(context, &woken)?;
    let second = waiter(context, 64)?;
    write_all(&writer, b"a")?;
    woken.wait("the first waiter is woken")?;
    first.kill()?;
    {
        let (_fd, epoll) = watch(context)?;
        let event = wait_for_event(&epoll)?;
        expect(
            "the event that a newcomer finds",
            event,
            EpollFlags::EPOLLIN,
        )?;
    }
    write_all(&writer, b"b")?;
    expect_bytes("what the second waiter got", &second.finish()?, b"ab")
}

/// The event may fall to one that is dying; the one after it must not.
fn a_sleeping_waiter_that_is_killed_does_not_block_the_next_event(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    for _ in 0..10 {
        let (first, second) = (waiter(context, 64)?, waiter(context, 64)?);
        first.signal(Signal::SIGKILL)?;
        write_all(&writer, b"a")?;
        first.wait_end()?;
        write_all(&writer, b"b")?;
        let mut seen = second.finish()?;
        ensure!(
            !seen.is_empty(),
            "the second waiter was woken, but found nothing"
        );
        if seen.len() < 2 {
            seen.extend(read_some(&reader, 64).context("reading the rest")?);
        }
        expect_bytes("what the second waiter got, and left", &seen, b"ab")?;
    }
    Ok(())
}
