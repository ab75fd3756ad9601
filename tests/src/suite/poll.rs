// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of poll, select and epoll in every state, and what wakes them.

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
use crate::support::sched::{pin_to_first_cpu, run_realtime_on_first_cpu};

topic!(
    "poll",
    fifo: [
        a_reader_before_any_writer_sees_nothing,
        a_reader_of_an_empty_pipe_sees_nothing,
        a_reader_sees_data,
        a_reader_sees_data_and_the_hang_up_together,
        a_reader_sees_the_hang_up_after_the_last_writer,
        a_reader_sees_no_hang_up_while_one_writer_remains,
        a_reader_opened_after_the_writer_closed_sees_no_hang_up,
        a_new_writer_clears_the_hang_up,
        a_reader_sees_data_written_before_its_open,
        a_writer_of_an_empty_pipe_sees_room,
        a_writer_sees_room_while_pipe_buf_is_free,
        a_writer_of_a_full_pipe_sees_nothing,
        a_writer_without_a_reader_sees_an_error,
        a_writer_of_a_full_pipe_without_a_reader_sees_only_the_error,
        a_new_reader_clears_the_error,
        a_read_write_endpoint_of_an_empty_pipe_sees_room,
        a_read_write_endpoint_sees_data_and_room,
        a_read_write_endpoint_of_a_full_pipe_sees_only_data,
        data_wakes_a_poll,
        closing_the_last_writer_wakes_a_poll,
        room_wakes_a_poll,
        closing_the_last_reader_wakes_a_poll,
        opening_the_first_writer_does_not_wake_a_poll_for_data,
        a_poll_with_a_timeout_returns_without_an_event,
        select_reports_data_and_room,
        select_reports_a_pipe_without_readers_as_writable,
        data_wakes_a_select,
        level_triggered_epoll_reports_until_the_data_is_read,
        edge_triggered_epoll_reports_each_write_once,
        edge_triggered_epoll_reports_each_write_before_a_woken_reader_runs,
        edge_triggered_epoll_reports_new_room_to_a_writer,
        a_read_of_a_pipe_that_is_not_full_is_no_edge_for_a_writer,
        epoll_reports_the_hang_up,
        one_write_wakes_every_poll,
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
    let reader = context.channel.open_reader_nonblocking()?;
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
    expect_state("one byte, the writer closed", &reader, "IN|HUP")
}

fn a_reader_sees_the_hang_up_after_the_last_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(writer);
    expect_state("empty, the writer closed", &reader, "HUP")
}

fn a_reader_sees_no_hang_up_while_one_writer_remains(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let second = context.channel.open_writer()?;
    drop(writer);
    expect_state("empty, one of two writers closed", &reader, "nothing")?;
    drop(second);
    expect_state("empty, both closed", &reader, "HUP")
}

fn a_reader_opened_after_the_writer_closed_sees_no_hang_up(context: &Context) -> Result<()> {
    let (first, writer) = context.channel.open_ends()?;
    drop(writer);
    let second = context.channel.open_reader_nonblocking()?;
    expect_state("the reader that saw the writer", &first, "HUP")?;
    expect_state("the reader that did not", &second, "nothing")?;
    drop(context.channel.open_writer()?);
    expect_state("after a writer opened and closed", &second, "HUP")
}

fn a_new_writer_clears_the_hang_up(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(writer);
    let _writer = context.channel.open_writer()?;
    expect_state("empty, with a new writer", &reader, "nothing")
}

fn a_reader_sees_data_written_before_its_open(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    write_all(&writer, b"x")?;
    drop(reader);
    let reader = context.channel.open_reader_nonblocking()?;
    expect_state("one byte written before its open", &reader, "IN")
}

fn a_writer_of_an_empty_pipe_sees_room(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends()?;
    expect_state("empty, with a reader", &writer, "OUT")
}

fn a_writer_sees_room_while_pipe_buf_is_free(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF - 1)?;
    expect_state("one byte less than PIPE_BUF is free", &writer, "nothing")?;
    read_all(&reader, 1)?;
    expect_state("PIPE_BUF is free", &writer, "OUT")?;
    write_all(&writer, &[0; PIPE_BUF])?;
    expect_state("it was filled again", &writer, "nothing")
}

fn a_writer_of_a_full_pipe_sees_nothing(context: &Context) -> Result<()> {
    let (_reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    expect_state("full, with a reader", &writer, "nothing")
}

fn a_writer_without_a_reader_sees_an_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    expect_state("empty, the reader closed", &writer, "OUT|ERR")
}

fn a_writer_of_a_full_pipe_without_a_reader_sees_only_the_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    drop(reader);
    expect_state("full, the reader closed", &writer, "ERR")
}

fn a_new_reader_clears_the_error(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    drop(reader);
    let _reader = context.channel.open_reader_nonblocking()?;
    expect_state("empty, with a new reader", &writer, "OUT")
}

fn a_read_write_endpoint_of_an_empty_pipe_sees_room(context: &Context) -> Result<()> {
    expect_state("empty", &context.channel.open_read_write()?, "OUT")
}

fn a_read_write_endpoint_sees_data_and_room(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    write_all(&both, b"x")?;
    expect_state("one byte", &both, "IN|OUT")
}

fn a_read_write_endpoint_of_a_full_pipe_sees_only_data(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
    set_nonblocking(&both)?;
    fill(&both, b'.')?;
    expect_state("full", &both, "IN")
}

/// A child that polls what `open` opens, without a timeout, and returns what it saw.
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
    expect("result of the poll", poller.finish()?, expected.to_owned())
}

fn data_wakes_a_poll(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_nonblocking)?;
    write_all(&context.channel.open_writer()?, b"x")?;
    // The writer may have closed again before the poll looked.
    let seen = poller.finish()?;
    expect("whether the poll saw data", seen.starts_with("IN"), true)
}

fn closing_the_last_writer_wakes_a_poll(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_nonblocking)?;
    let writer = context.channel.open_writer()?;
    poller.expect_still_asleep_in(Call::Poll)?;
    drop(writer);
    expect_woken(poller, "HUP")
}

fn room_wakes_a_poll(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let poller = poller(&context.channel, poll::OUT, Channel::open_writer)?;
    read_all(&reader, PIPE_BUF - 1)?;
    poller.expect_still_asleep_in(Call::Poll)?;
    read_all(&reader, 1)?;
    expect_woken(poller, "OUT")
}

fn closing_the_last_reader_wakes_a_poll(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let poller = poller(&context.channel, poll::OUT, Channel::open_writer)?;
    drop(reader);
    expect_woken(poller, "ERR")
}

fn opening_the_first_writer_does_not_wake_a_poll_for_data(context: &Context) -> Result<()> {
    let poller = poller(&context.channel, poll::IN, Channel::open_reader_nonblocking)?;
    let _writer = context.channel.open_writer()?;
    poller.expect_still_asleep_in(Call::Poll)
}

fn a_poll_with_a_timeout_returns_without_an_event(context: &Context) -> Result<()> {
    let (reader, _writer) = context.channel.open_ends()?;
    expect(
        "events after 10 ms of nothing",
        poll::wait(&reader, poll::IN, 10),
        Ok(0),
    )
}

/// Whether select(2) reports the file as readable and as writable.
fn selected(fd: &impl AsFd) -> Result<(bool, bool)> {
    let (mut readable, mut writable) = (FdSet::new(), FdSet::new());
    readable.insert(fd.as_fd());
    writable.insert(fd.as_fd());
    let mut at_once = TimeVal::new(0, 0);
    select(None, &mut readable, &mut writable, None, &mut at_once).context("select")?;
    Ok((readable.contains(fd.as_fd()), writable.contains(fd.as_fd())))
}

fn select_reports_data_and_room(context: &Context) -> Result<()> {
    let both = context.channel.open_read_write()?;
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

/// A write would fail at once, not block.
fn select_reports_a_pipe_without_readers_as_writable(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    expect("whether it is when full", selected(&writer)?.1, false)?;
    drop(reader);
    expect("whether it is without a reader", selected(&writer)?.1, true)
}

fn data_wakes_a_select(context: &Context) -> Result<()> {
    let child = spawn("a select", || {
        let fd = context.channel.open_reader_nonblocking()?;
        let mut readable = FdSet::new();
        readable.insert(fd.as_fd());
        select(None, &mut readable, None, None, None).context("select")
    })?;
    child.wait_asleep_in(Call::Select)?;
    write_all(&context.channel.open_writer()?, b"x")?;
    expect("files that are ready", child.finish()?, 1)
}

const EDGE: EpollFlags = EpollFlags::EPOLLET;

/// Whether an event that is pending now includes this one.
fn reported(epoll: &nix::sys::epoll::Epoll, event: EpollFlags) -> Result<bool> {
    let seen = epoll_event(epoll, EpollTimeout::ZERO).context("epoll_wait")?;
    Ok(seen.is_some_and(|events| events.contains(event)))
}

fn level_triggered_epoll_reports_until_the_data_is_read(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN)?;
    expect(
        "reported when empty",
        reported(&epoll, EpollFlags::EPOLLIN)?,
        false,
    )?;
    write_all(&writer, b"xy")?;
    expect(
        "reported with data",
        reported(&epoll, EpollFlags::EPOLLIN)?,
        true,
    )?;
    read_all(&reader, 1)?;
    expect(
        "reported again with data left",
        reported(&epoll, EpollFlags::EPOLLIN)?,
        true,
    )?;
    read_all(&reader, 1)?;
    expect(
        "reported after it was read",
        reported(&epoll, EpollFlags::EPOLLIN)?,
        false,
    )
}

/// Also while older data is unread: existing programs rely on it.
fn edge_triggered_epoll_reports_each_write_once(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN | EDGE)?;
    for round in 1..=3 {
        write_all(&writer, b"x")?;
        expect(
            &format!("write {round} reported"),
            reported(&epoll, EpollFlags::EPOLLIN)?,
            true,
        )?;
        expect(
            &format!("write {round} reported twice"),
            reported(&epoll, EpollFlags::EPOLLIN)?,
            false,
        )?;
    }
    Ok(())
}

fn edge_triggered_epoll_reports_each_write_before_a_woken_reader_runs(
    context: &Context,
) -> Result<()> {
    let both = context.channel.open_read_write()?;
    let reader = spawn("a reader", || {
        pin_to_first_cpu()?;
        let fd = context.channel.open_read_write()?;
        read_all(&fd, 1)
    })?;
    reader.wait_asleep_in(Call::Read)?;
    let watcher = spawn("a writer with epoll", || {
        let fd = context.channel.open_read_write()?;
        let epoll = epoll_on(&fd, EpollFlags::EPOLLIN | EDGE)?;
        run_realtime_on_first_cpu()?;
        let reported = || Ok(epoll_event(&epoll, EpollTimeout::ZERO)?.is_some());
        (0..3)
            .map(|_| {
                write_all(&fd, b"x")?;
                reported()
            })
            .collect::<Result<Vec<bool>>>()
    })?;
    expect(
        "whether each write was reported",
        watcher.finish()?,
        vec![true; 3],
    )?;
    reader.finish()?;
    drop(both);
    Ok(())
}

fn edge_triggered_epoll_reports_new_room_to_a_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let epoll = epoll_on(&writer, EpollFlags::EPOLLOUT | EDGE)?;
    expect(
        "reported when full",
        reported(&epoll, EpollFlags::EPOLLOUT)?,
        false,
    )?;
    read_all(&reader, CAPACITY)?;
    expect(
        "reported when emptied",
        reported(&epoll, EpollFlags::EPOLLOUT)?,
        true,
    )?;
    fill(&writer, b'.')?;
    read_all(&reader, PIPE_BUF)?;
    expect(
        "reported when there is room again",
        reported(&epoll, EpollFlags::EPOLLOUT)?,
        true,
    )
}

fn a_read_of_a_pipe_that_is_not_full_is_no_edge_for_a_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    write_all(&writer, &[b'.'; 5])?;
    let epoll = epoll_on(&writer, EpollFlags::EPOLLOUT | EDGE)?;
    expect(
        "reported at first",
        reported(&epoll, EpollFlags::EPOLLOUT)?,
        true,
    )?;
    for number in 1..=5 {
        read_all(&reader, 1)?;
        expect(
            &format!("read {number} reported"),
            reported(&epoll, EpollFlags::EPOLLOUT)?,
            false,
        )?;
    }
    Ok(())
}

fn epoll_reports_the_hang_up(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let epoll = epoll_on(&reader, EpollFlags::EPOLLIN | EDGE)?;
    expect(
        "reported with a writer",
        reported(&epoll, EpollFlags::EPOLLHUP)?,
        false,
    )?;
    drop(writer);
    expect(
        "reported after it closed",
        reported(&epoll, EpollFlags::EPOLLHUP)?,
        true,
    )
}

const WAITERS: usize = 4;

fn one_write_wakes_every_poll(context: &Context) -> Result<()> {
    let pollers = (0..WAITERS)
        .map(|_| poller(&context.channel, poll::IN, Channel::open_reader_nonblocking))
        .collect::<Result<Vec<_>>>()?;
    let writer = context.channel.open_writer()?;
    write_all(&writer, b"x")?;
    pollers
        .into_iter()
        .try_for_each(|poller| expect_woken(poller, "IN"))
}
