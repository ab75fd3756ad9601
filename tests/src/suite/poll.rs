// SPDX-License-Identifier: MIT OR Apache-2.0
//! What poll, select and epoll say in every state, and what wakes those who wait in them.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result};
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::select::{FdSet, select};
use nix::sys::time::TimeVal;

use crate::registry::{Context, topic};
use crate::support::channel::{
    CAPACITY, Channel, PIPE_BUF, fill, read_all, set_nonblocking, write_all,
};
use crate::support::check::expect;
use crate::support::child::{Child, spawn};
use crate::support::poll::{self, epoll_event, epoll_on};
use crate::support::proc::Call;
use crate::support::sched::{stay_on_first_cpu, take_first_cpu};

topic!(
    "poll",
    fifo: [
        a_reader_before_any_writer_sees_nothing,
        a_reader_of_an_empty_pipe_sees_nothing,
        a_reader_sees_data,
        a_reader_sees_data_and_the_hang_up_together,
        a_reader_sees_the_hang_up_after_the_last_writer,
        a_reader_sees_no_hang_up_while_one_writer_remains,
        a_reader_that_came_after_the_writer_left_sees_no_hang_up,
        a_new_writer_ends_the_hang_up,
        a_reader_whose_data_waits_for_it_from_before_sees_it,
        a_writer_of_an_empty_pipe_sees_room,
        a_writer_sees_room_as_long_as_pipe_buf_is_free,
        a_writer_of_a_full_pipe_sees_nothing,
        a_writer_without_a_reader_sees_an_error,
        a_writer_of_a_full_pipe_without_a_reader_sees_only_the_error,
        a_new_reader_ends_the_error,
        both_ways_empty_sees_room,
        both_ways_with_data_sees_both,
        both_ways_full_sees_only_data,
        data_wakes_a_poll,
        the_last_writers_leaving_wakes_a_poll,
        room_wakes_a_poll,
        the_last_readers_leaving_wakes_a_poll,
        a_first_writers_coming_does_not_wake_a_poll_for_data,
        a_poll_with_a_time_limit_comes_back_empty,
        select_tells_of_data_and_room,
        select_takes_a_broken_pipe_for_writable,
        data_wakes_a_select,
        level_triggered_epoll_tells_until_the_data_is_gone,
        edge_triggered_epoll_tells_once_of_each_write,
        edge_triggered_epoll_tells_of_each_write_while_a_woken_reader_has_not_run,
        edge_triggered_epoll_tells_a_writer_of_new_room,
        epoll_tells_of_the_hang_up,
        a_poll_wakes_every_waiter,
    ],
    pipe_only: [],
);

fn expect_state(what: &str, fd: &impl AsFd, expected: &str) -> Result<()> {
    expect(
        &format!("poll: {what}"),
        poll::state(fd)?,
        expected.to_owned(),
    )
}

fn a_reader_before_any_writer_sees_nothing(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_now()?;
    expect_state("before any writer", &reader, "nothing")
}

fn a_reader_of_an_empty_pipe_sees_nothing(context: &Context) -> Result<()> {
    let (reader, _writer) = context.channel.open_ends()?;
    expect_state("empty, with a writer", &reader, "nothing")
}

fn a_reader_sees_data(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"x")?;
    expect_state("one byte, with a writer", &reader, "IN")?;
    read_all(&reader, 1)?;
    expect_state("after it was read", &reader, "nothing")
}

fn a_reader_sees_data_and_the_hang_up_together(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"x")?;
    drop(writer);
    expect_state("one byte, the writer left", &reader, "IN|HUP")
}

fn a_reader_sees_the_hang_up_after_the_last_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(writer);
    expect_state("empty, the writer left", &reader, "HUP")
}

fn a_reader_sees_no_hang_up_while_one_writer_remains(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let second = context.channel.open_writer()?;
    drop(writer);
    expect_state("empty, one of two writers left", &reader, "nothing")?;
    drop(second);
    expect_state("empty, both left", &reader, "HUP")
}

fn a_reader_that_came_after_the_writer_left_sees_no_hang_up(context: &Context) -> Result<()> {
    let (first, writer) = context.channel.open_ends()?;
    drop(writer);
    let second = context.channel.open_reader_now()?;
    expect_state("the reader that saw the writer", &first, "HUP")?;
    expect_state("the reader that did not", &second, "nothing")?;
    drop(context.channel.open_writer()?);
    expect_state("now that it saw one come and go", &second, "HUP")
}

fn a_new_writer_ends_the_hang_up(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(writer);
    let _writer = context.channel.open_writer()?;
    expect_state("empty, a new writer came", &reader, "nothing")
}

fn a_reader_whose_data_waits_for_it_from_before_sees_it(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"x")?;
    drop(reader);
    let reader = context.channel.open_reader_now()?;
    expect_state("one byte from before it came", &reader, "IN")
}

fn a_writer_of_an_empty_pipe_sees_room(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    expect_state("empty, with a reader", &writer, "OUT")
}

fn a_writer_sees_room_as_long_as_pipe_buf_is_free(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF - 1)?;
    expect_state("one byte less than PIPE_BUF is free", &writer, "nothing")?;
    read_all(&reader, 1)?;
    expect_state("PIPE_BUF is free", &writer, "OUT")?;
    write_all(&writer, &[0; PIPE_BUF])?;
    expect_state("it was filled again", &writer, "nothing")
}

fn a_writer_of_a_full_pipe_sees_nothing(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    expect_state("full, with a reader", &writer, "nothing")
}

fn a_writer_without_a_reader_sees_an_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    expect_state("empty, the reader left", &writer, "OUT|ERR")
}

fn a_writer_of_a_full_pipe_without_a_reader_sees_only_the_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    drop(reader);
    expect_state("full, the reader left", &writer, "ERR")
}

fn a_new_reader_ends_the_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    let _reader = context.channel.open_reader_now()?;
    expect_state("empty, a new reader came", &writer, "OUT")
}

fn both_ways_empty_sees_room(context: &Context) -> Result<()> {
    expect_state("empty", &context.channel.open_both_ways()?, "OUT")
}

fn both_ways_with_data_sees_both(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write_all(&both, b"x")?;
    expect_state("one byte", &both, "IN|OUT")
}

fn both_ways_full_sees_only_data(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    set_nonblocking(&both)?;
    fill(&both, b'.')?;
    expect_state("full", &both, "IN")
}

/// A child that waits in poll(2), for as long as it takes, on what `open` opens and tells what it saw.
fn poller(
    channel: &Channel,
    events: i16,
    open: impl FnOnce(&Channel) -> Result<OwnedFd>,
) -> Result<Child<String>> {
    let child = spawn("a poll", || {
        let mask = poll::wait(&open(channel)?, events, -1).context("poll")?;
        Ok(poll::name(mask))
    })?;
    child.wait_asleep_in(Call::Poll)?;
    Ok(child)
}

fn expect_woken(poller: Child<String>, expected: &str) -> Result<()> {
    expect("what the poll saw", poller.finish()?, expected.to_owned())
}

fn data_wakes_a_poll(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_now)?;
    write_all(&context.channel.open_writer()?, b"x")?;
    // The writer may have left again before the poller looked.
    let seen = poller.finish()?;
    expect("whether the poll saw data", seen.starts_with("IN"), true)
}

fn the_last_writers_leaving_wakes_a_poll(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_now)?;
    let writer = context.channel.open_writer()?;
    poller.expect_still_asleep_in(Call::Poll)?;
    drop(writer);
    expect_woken(poller, "HUP")
}

fn room_wakes_a_poll(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let poller = poller(&context.channel, poll::OUT, Channel::open_writer)?;
    read_all(&reader, PIPE_BUF - 1)?;
    poller.expect_still_asleep_in(Call::Poll)?;
    read_all(&reader, 1)?;
    expect_woken(poller, "OUT")
}

fn the_last_readers_leaving_wakes_a_poll(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let poller = poller(&context.channel, poll::OUT, Channel::open_writer)?;
    drop(reader);
    expect_woken(poller, "ERR")
}

fn a_first_writers_coming_does_not_wake_a_poll_for_data(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_now)?;
    let _writer = context.channel.open_writer()?;
    poller.expect_still_asleep_in(Call::Poll)
}

fn a_poll_with_a_time_limit_comes_back_empty(context: &Context) -> Result<()> {
    let (reader, _writer) = context.channel.open_ends()?;
    expect(
        "events after 10 ms of nothing",
        poll::wait(&reader, poll::IN, 10),
        Ok(0),
    )
}

/// Whether select(2) finds the file readable and writable, without waiting.
fn selected(fd: &impl AsFd) -> Result<(bool, bool)> {
    let (mut readable, mut writable) = (FdSet::new(), FdSet::new());
    readable.insert(fd.as_fd());
    writable.insert(fd.as_fd());
    let mut at_once = TimeVal::new(0, 0);
    select(None, &mut readable, &mut writable, None, &mut at_once).context("select")?;
    Ok((readable.contains(fd.as_fd()), writable.contains(fd.as_fd())))
}

fn select_tells_of_data_and_room(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    set_nonblocking(&both)?;
    expect(
        "(readable, writable) when empty",
        selected(&both)?,
        (false, true),
    )?;
    write_all(&both, b"x")?;
    expect(
        "(readable, writable) with data",
        selected(&both)?,
        (true, true),
    )?;
    read_all(&both, 1)?;
    fill(&both, b'.')?;
    expect(
        "(readable, writable) when full",
        selected(&both)?,
        (true, false),
    )?;
    drop(both);
    let (reader, writer) = context.channel.open_ends()?;
    drop(writer);
    expect(
        "whether the end of the file is readable",
        selected(&reader)?.0,
        true,
    )
}

/// A write would not wait, it would fail.
fn select_takes_a_broken_pipe_for_writable(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    expect("whether it is when full", selected(&writer)?.1, false)?;
    drop(reader);
    expect("whether it is without a reader", selected(&writer)?.1, true)
}

fn data_wakes_a_select(context: &Context) -> Result<()> {
    let child = spawn("a select", || {
        let fd = context.channel.open_reader_now()?;
        let mut readable = FdSet::new();
        readable.insert(fd.as_fd());
        select(None, &mut readable, None, None, None).context("select")
    })?;
    child.wait_asleep_in(Call::Select)?;
    write_all(&context.channel.open_writer()?, b"x")?;
    expect("files that are ready", child.finish()?, 1)
}

const EDGE: EpollFlags = EpollFlags::EPOLLET;

/// Whether the event that can be had without waiting includes this one.
fn told(epoll: &nix::sys::epoll::Epoll, event: EpollFlags) -> Result<bool> {
    let seen = epoll_event(epoll, EpollTimeout::ZERO).context("epoll_wait")?;
    Ok(seen.is_some_and(|events| events.contains(event)))
}

fn level_triggered_epoll_tells_until_the_data_is_gone(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN)?;
    expect("told when empty", told(&epoll, EpollFlags::EPOLLIN)?, false)?;
    write_all(&writer, b"xy")?;
    expect("told with data", told(&epoll, EpollFlags::EPOLLIN)?, true)?;
    read_all(&reader, 1)?;
    expect(
        "told again with data left",
        told(&epoll, EpollFlags::EPOLLIN)?,
        true,
    )?;
    read_all(&reader, 1)?;
    expect(
        "told when it is gone",
        told(&epoll, EpollFlags::EPOLLIN)?,
        false,
    )
}

/// Even while older data still waits: programs rely on that since pipes have always done it.
fn edge_triggered_epoll_tells_once_of_each_write(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN | EDGE)?;
    for round in 1..=3 {
        write_all(&writer, b"x")?;
        expect(
            &format!("told of write {round}"),
            told(&epoll, EpollFlags::EPOLLIN)?,
            true,
        )?;
        expect(
            &format!("told of write {round} twice"),
            told(&epoll, EpollFlags::EPOLLIN)?,
            false,
        )?;
    }
    Ok(())
}

fn edge_triggered_epoll_tells_of_each_write_while_a_woken_reader_has_not_run(
    context: &Context,
) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    let reader = spawn("a reader", || {
        stay_on_first_cpu()?;
        let fd = context.channel.open_both_ways()?;
        read_all(&fd, 1)
    })?;
    reader.wait_asleep_in(Call::Read)?;
    let watcher = spawn("a writer that watches", || {
        let fd = context.channel.open_both_ways()?;
        let epoll = epoll_on(&fd, EpollFlags::EPOLLIN | EDGE)?;
        take_first_cpu()?;
        let told = || Ok(epoll_event(&epoll, EpollTimeout::ZERO)?.is_some());
        (0..3)
            .map(|_| {
                write_all(&fd, b"x")?;
                told()
            })
            .collect::<Result<Vec<bool>>>()
    })?;
    expect(
        "whether each write was told of",
        watcher.finish()?,
        vec![true; 3],
    )?;
    reader.finish()?;
    drop(both);
    Ok(())
}

fn edge_triggered_epoll_tells_a_writer_of_new_room(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let epoll = epoll_on(&writer, EpollFlags::EPOLLOUT | EDGE)?;
    expect("told when full", told(&epoll, EpollFlags::EPOLLOUT)?, false)?;
    read_all(&reader, CAPACITY)?;
    expect(
        "told when emptied",
        told(&epoll, EpollFlags::EPOLLOUT)?,
        true,
    )?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF)?;
    expect(
        "told when there is room again",
        told(&epoll, EpollFlags::EPOLLOUT)?,
        true,
    )
}

fn epoll_tells_of_the_hang_up(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN | EDGE)?;
    expect(
        "told while the writer is there",
        told(&epoll, EpollFlags::EPOLLHUP)?,
        false,
    )?;
    drop(writer);
    expect(
        "told when it left",
        told(&epoll, EpollFlags::EPOLLHUP)?,
        true,
    )
}

const CROWD: usize = 4;

fn a_poll_wakes_every_waiter(context: &Context) -> Result<()> {
    let pollers = (0..CROWD)
        .map(|_| poller(&context.channel, poll::IN, Channel::open_reader_now))
        .collect::<Result<Vec<_>>>()?;
    let writer = context.channel.open_writer()?;
    write_all(&writer, b"x")?;
    pollers
        .into_iter()
        .try_for_each(|poller| expect_woken(poller, "IN"))
}
