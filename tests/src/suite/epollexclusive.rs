// SPDX-License-Identifier: MIT OR Apache-2.0
//! EPOLLEXCLUSIVE with several waiters on one pipe: an event wakes one of them. The others are woken by the next event,
//! not by data left from this one: a reader blocked in read(2) wakes the next waiter if it leaves bytes, an epoll
//! waiter does not. Bytes that a woken waiter has not read when it is killed stay in the pipe and wake no other waiter
//! until the next event.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use nix::sys::epoll::{Epoll, EpollFlags, EpollTimeout};
use nix::sys::signal::Signal;

use crate::registry::{Context, topic};
use crate::support::channel::{read_some, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::event::Event;
use crate::support::poll::{epoll_event, epoll_on};
use crate::support::proc::{self, Call};
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "epollexclusive",
    fifo: [
        one_event_wakes_one_waiter,
        the_next_event_wakes_another_waiter_even_with_data_left,
        each_event_wakes_another_waiter,
        closing_the_last_writer_wakes_every_waiter,
        a_waiter_queued_before_a_reader_is_woken_first,
        a_waiter_queued_after_a_reader_is_woken_next,
        a_reader_that_leaves_bytes_wakes_a_waiter,
        the_bytes_of_a_killed_woken_waiter_stay_for_the_next_event,
        a_killed_sleeping_waiter_does_not_block_the_next_event,
    ],
    pipe_only: [],
);

const WAITERS: usize = 8;

fn watch(context: &Context) -> Result<(OwnedFd, Epoll)> {
    let fd = context.channel.open_reader_nonblocking()?;
    let epoll = epoll_on(&fd, EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE)?;
    Ok((fd, epoll))
}

/// Waits for an event, without a timeout.
fn wait_for_event(epoll: &Epoll) -> Result<EpollFlags> {
    let event = epoll_event(epoll, EpollTimeout::NONE).context("epoll_wait")?;
    event.context("epoll_wait without a time limit came back without an event")
}

/// A sleeping child that waits for one event and then reads up to `most` bytes.
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
    (0..WAITERS).map(|_| waiter(context, most)).collect()
}

/// A child that sleeps in read(2).
fn reader(context: &Context) -> Result<Child<Vec<u8>>> {
    let child = spawn("a reader", || {
        let fd = context.channel.open_read_write()?;
        read_some(&fd, 1).context("read")
    })?;
    child.wait_asleep_in(Call::Read)?;
    Ok(child)
}

/// Removes the woken child from the list and returns what it read.
fn take_woken(waiting: &mut Vec<Child<Vec<u8>>>) -> Result<Vec<u8>> {
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

fn sleep_count(waiting: &[Child<Vec<u8>>]) -> Result<Vec<(i32, u64)>> {
    waiting
        .iter()
        .map(|child| Ok((child.pid().as_raw(), proc::sleep_count(child.pid())?)))
        .collect()
}

fn one_event_wakes_one_waiter(context: &Context) -> Result<()> {
    // The writer opens before they sleep: the first writer is an event too, for which a FIFO wakes them all.
    let (_reader, writer) = context.channel.open_ends()?;
    let mut waiting = waiters(context, 1)?;
    let before = sleep_count(&waiting)?;
    write_all(&writer, b"x")?;
    expect_bytes(
        "bytes read by the woken waiter",
        &take_woken(&mut waiting)?,
        b"x",
    )?;
    wait_grace_period();
    for waiter in &waiting {
        waiter.wait_asleep_in(Call::Epoll)?;
    }
    for one in sleep_count(&waiting)? {
        ensure!(
            before.contains(&one),
            "process {} was woken too: it went to sleep {} times, before the event {before:?}",
            one.0,
            one.1
        );
    }
    expect("waiters not woken", waiting.len(), WAITERS - 1)
}

fn the_next_event_wakes_another_waiter_even_with_data_left(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    let mut waiting = waiters(context, 1)?;
    write_all(&writer, b"abc")?;
    let mut seen = take_woken(&mut waiting)?;
    write_all(&writer, b"d")?;
    seen.extend(take_woken(&mut waiting)?);
    expect_bytes("bytes read by the two woken waiters", &seen, b"ab")?;
    let rest = read_some(&reader, 64).context("reading the rest")?;
    expect_bytes("bytes left", &rest, b"cd")
}

fn each_event_wakes_another_waiter(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let mut waiting = waiters(context, 1)?;
    for round in 0..WAITERS {
        let byte = [round as u8];
        write_all(&writer, &byte)?;
        expect_bytes(
            "bytes read by the woken waiter",
            &take_woken(&mut waiting)?,
            &byte,
        )?;
    }
    Ok(())
}

fn closing_the_last_writer_wakes_every_waiter(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let waiting = waiters(context, 1)?;
    drop(writer);
    for waiter in waiting {
        expect_bytes("bytes read", &waiter.finish()?, b"")?;
    }
    Ok(())
}

fn a_waiter_queued_before_a_reader_is_woken_first(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (first, second) = (waiter(context, 1)?, reader(context)?);
    write_all(&both, b"1")?;
    expect_bytes("bytes read by the waiter", &first.finish()?, b"1")?;
    second.expect_still_asleep_in(Call::Read)?;
    write_all(&both, b"2")?;
    expect_bytes("bytes read by the reader", &second.finish()?, b"2")
}

fn a_waiter_queued_after_a_reader_is_woken_next(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (first, second) = (reader(context)?, waiter(context, 1)?);
    write_all(&both, b"1")?;
    expect_bytes("bytes read by the reader", &first.finish()?, b"1")?;
    second.expect_still_asleep_in(Call::Epoll)?;
    write_all(&both, b"2")?;
    expect_bytes("bytes read by the waiter", &second.finish()?, b"2")
}

fn a_reader_that_leaves_bytes_wakes_a_waiter(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let (first, second) = (reader(context)?, waiter(context, 1)?);
    write_all(&both, b"12")?;
    expect_bytes("bytes read by the reader", &first.finish()?, b"1")?;
    expect_bytes("bytes read by the waiter", &second.finish()?, b"2")
}

/// A sleeping child that waits for one event, reports it, and never reads.
fn idle_waiter(context: &Context, woken: &Event) -> Result<Child<()>> {
    let child = spawn_keeping("a waiter that does not read", &woken.fds(), || {
        let (_fd, epoll) = watch(context)?;
        wait_for_event(&epoll)?;
        woken.notify()?;
        loop {
            std::thread::park();
        }
    })?;
    child.wait_asleep_in(Call::Epoll)?;
    Ok(child)
}

/// A FIFO does not wake another waiter for these bytes either, but that is unspecified; that the bytes stay is not.
fn the_bytes_of_a_killed_woken_waiter_stay_for_the_next_event(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    let woken = Event::new()?;
    let first = idle_waiter(context, &woken)?;
    let second = waiter(context, 64)?;
    write_all(&writer, b"a")?;
    woken.wait("the first waiter is woken")?;
    first.kill()?;
    {
        let (_fd, epoll) = watch(context)?;
        let event = wait_for_event(&epoll)?;
        expect("the event of a new waiter", event, EpollFlags::EPOLLIN)?;
    }
    write_all(&writer, b"b")?;
    expect_bytes("bytes read by the second waiter", &second.finish()?, b"ab")
}

/// The first event may wake the process that is being killed; the next one must not.
fn a_killed_sleeping_waiter_does_not_block_the_next_event(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
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
        expect_bytes("bytes read by the second waiter, and left", &seen, b"ab")?;
    }
    Ok(())
}
