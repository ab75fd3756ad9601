// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for whom in open(2), and what is left when an open does not succeed.

use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{Channel, read_some};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::notice::Notice;
use crate::support::proc::Call;
use crate::support::signals;

topic!(
    "open",
    fifo: [
        readonly_waits_for_a_writer,
        writeonly_waits_for_a_reader,
        readwrite_never_waits,
        readwrite_nonblocking_succeeds,
        readonly_nonblocking_succeeds_without_a_writer,
        writeonly_nonblocking_without_a_reader_is_enxio,
        writeonly_nonblocking_with_a_reader_succeeds,
        a_refused_nonblocking_open_leaves_no_writer_behind,
        a_waiting_opener_counts_as_the_other_sides_partner,
        readwrite_releases_a_waiting_reader,
        readwrite_releases_a_waiting_writer,
        another_reader_does_not_release_a_waiting_reader,
        another_writer_does_not_release_a_waiting_writer,
        a_reader_that_came_and_went_releases_a_waiting_writer,
        a_writer_that_came_and_went_releases_a_waiting_reader,
        one_writer_releases_all_waiting_readers,
        one_reader_releases_all_waiting_writers,
        a_signal_ends_a_waiting_readers_open_with_eintr,
        a_signal_ends_a_waiting_writers_open_with_eintr,
        an_interrupted_open_leaves_no_reader_behind,
        an_interrupted_open_leaves_no_writer_behind,
        a_killed_open_leaves_no_reader_behind,
        a_killed_open_leaves_no_writer_behind,
        a_restarting_signal_lets_a_readers_open_go_on,
        a_restarting_signal_lets_a_writers_open_go_on,
        neither_reading_nor_writing_is_einval,
        creating_and_truncating_flags_change_nothing,
    ],
    pipe_only: [],
);

/// A child that opens and tells with what result.
fn opener(channel: &Channel, flags: OFlag) -> Result<Child<Result<(), i32>>> {
    let what = format!("opening with {flags:?}");
    spawn(&what, || {
        Ok(channel.open(flags).map(drop).map_err(|errno| errno as i32))
    })
}

/// As `opener`, already asleep.
fn waiting_opener(channel: &Channel, flags: OFlag) -> Result<Child<Result<(), i32>>> {
    let child = opener(channel, flags)?;
    child.wait_asleep_in(Call::Open)?;
    Ok(child)
}

fn expect_released(child: Child<Result<(), i32>>) -> Result<()> {
    expect("result of the waiting open", child.finish()?, Ok(()))
}

fn readonly_waits_for_a_writer(context: &Context) -> Result<()> {
    let reader = waiting_opener(&context.channel, OFlag::O_RDONLY)?;
    reader.expect_still_asleep_in(Call::Open)?;
    let _writer = context.channel.open_writer()?;
    expect_released(reader)
}

fn writeonly_waits_for_a_reader(context: &Context) -> Result<()> {
    let writer = waiting_opener(&context.channel, OFlag::O_WRONLY)?;
    writer.expect_still_asleep_in(Call::Open)?;
    let _reader = context.channel.open_reader()?;
    expect_released(writer)
}

fn readwrite_never_waits(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDWR)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn readwrite_nonblocking_succeeds(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDWR | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn readonly_nonblocking_succeeds_without_a_writer(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

fn writeonly_nonblocking_without_a_reader_is_enxio(context: &Context) -> Result<()> {
    let child = opener(&context.channel, OFlag::O_WRONLY | OFlag::O_NONBLOCK)?;
    expect(
        "result of the open",
        child.finish()?,
        Err(Errno::ENXIO as i32),
    )
}

fn writeonly_nonblocking_with_a_reader_succeeds(context: &Context) -> Result<()> {
    let _reader = context.channel.open_reader_now()?;
    let child = opener(&context.channel, OFlag::O_WRONLY | OFlag::O_NONBLOCK)?;
    expect("result of the open", child.finish()?, Ok(()))
}

/// A pipe goes with its last endpoint, and wrong counts with it: somebody else has to be there to see them. Here that is
/// another reader; once it has left too, a writer must find the pipe broken.
fn expect_no_reader_after(
    context: &Context,
    what_happens: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let witness = waiting_opener(&context.channel, OFlag::O_RDONLY)?;
    what_happens()?;
    let writer = context.channel.open_writer_now()?;
    expect_released(witness)?;
    expect(
        "a write after the last reader left",
        write(&writer, b"x"),
        Err(Errno::EPIPE),
    )
}

/// As above for writers: a reader must find the end of the file.
fn expect_no_writer_after(
    context: &Context,
    what_happens: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let witness = waiting_opener(&context.channel, OFlag::O_WRONLY)?;
    what_happens()?;
    let reader = context.channel.open_reader_now()?;
    expect_released(witness)?;
    expect(
        "a read after the last writer left",
        read(&reader, &mut [0]),
        Ok(0),
    )
}

fn a_refused_nonblocking_open_leaves_no_writer_behind(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || {
        let refused = context.channel.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK);
        expect("result of the open", refused.map(drop), Err(Errno::ENXIO))
    })
}

fn a_waiting_opener_counts_as_the_other_sides_partner(context: &Context) -> Result<()> {
    let reader = waiting_opener(&context.channel, OFlag::O_RDONLY)?;
    let _writer = context
        .channel
        .open_writer_now()
        .context("there is a reader, though it still waits")?;
    expect_released(reader)
}

fn readwrite_releases_a_waiting_reader(context: &Context) -> Result<()> {
    let reader = waiting_opener(&context.channel, OFlag::O_RDONLY)?;
    let _both = context.channel.open_both_ways()?;
    expect_released(reader)
}

fn readwrite_releases_a_waiting_writer(context: &Context) -> Result<()> {
    let writer = waiting_opener(&context.channel, OFlag::O_WRONLY)?;
    let _both = context.channel.open_both_ways()?;
    expect_released(writer)
}

fn another_reader_does_not_release_a_waiting_reader(context: &Context) -> Result<()> {
    let reader = waiting_opener(&context.channel, OFlag::O_RDONLY)?;
    let _other = context.channel.open_reader_now()?;
    reader.expect_still_asleep_in(Call::Open)
}

fn another_writer_does_not_release_a_waiting_writer(context: &Context) -> Result<()> {
    let writer = waiting_opener(&context.channel, OFlag::O_WRONLY)?;
    let _other = waiting_opener(&context.channel, OFlag::O_WRONLY)?;
    writer.expect_still_asleep_in(Call::Open)
}

fn a_reader_that_came_and_went_releases_a_waiting_writer(context: &Context) -> Result<()> {
    let gone = Notice::new()?;
    let writer = spawn_keeping("a writer that waits, then writes", &gone.fds(), || {
        let writer = context.channel.open_writer()?;
        gone.wait("the reader is gone")?;
        Ok(write(&writer, b"x").map_err(|errno| errno as i32))
    })?;
    writer.wait_asleep_in(Call::Open)?;
    drop(context.channel.open_reader_now()?);
    gone.give()?;
    let written = writer.finish()?;
    expect("the write after it", written, Err(Errno::EPIPE as i32))
}

fn a_writer_that_came_and_went_releases_a_waiting_reader(context: &Context) -> Result<()> {
    let reader = spawn("a reader that waits, then reads", || {
        let reader = context.channel.open_reader()?;
        Ok(read(&reader, &mut [0]).map_err(|errno| errno as i32))
    })?;
    reader.wait_asleep_in(Call::Open)?;
    drop(context.channel.open_writer_now()?);
    expect("the read after it", reader.finish()?, Ok(0))
}

const CROWD: usize = 8;

fn expect_crowd_released(context: &Context, crowd: OFlag, by: OFlag) -> Result<()> {
    let waiting = (0..CROWD)
        .map(|_| waiting_opener(&context.channel, crowd))
        .collect::<Result<Vec<_>>>()?;
    let _partner: OwnedFd = context.channel.open(by).context("opening the other side")?;
    waiting.into_iter().try_for_each(expect_released)
}

fn one_writer_releases_all_waiting_readers(context: &Context) -> Result<()> {
    expect_crowd_released(context, OFlag::O_RDONLY, OFlag::O_WRONLY)
}

fn one_reader_releases_all_waiting_writers(context: &Context) -> Result<()> {
    expect_crowd_released(context, OFlag::O_WRONLY, OFlag::O_RDONLY)
}

/// An opener, asleep, that has a handler for SIGUSR1 which gives `handled`.
fn interruptible_opener(
    channel: &Channel,
    flags: OFlag,
    handled: &Notice,
    restart: bool,
) -> Result<Child<Result<(), i32>>> {
    let what = format!("opening with {flags:?} until a signal comes");
    let child = spawn_keeping(&what, &handled.fds(), || {
        signals::handle_usr1(handled, restart)?;
        Ok(channel.open(flags).map(drop).map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Open)?;
    Ok(child)
}

fn expect_interrupted(context: &Context, flags: OFlag) -> Result<()> {
    let child = interruptible_opener(&context.channel, flags, &Notice::new()?, false)?;
    child.signal(Signal::SIGUSR1)?;
    expect(
        "result of the interrupted open",
        child.finish()?,
        Err(Errno::EINTR as i32),
    )
}

fn a_signal_ends_a_waiting_readers_open_with_eintr(context: &Context) -> Result<()> {
    expect_interrupted(context, OFlag::O_RDONLY)
}

fn a_signal_ends_a_waiting_writers_open_with_eintr(context: &Context) -> Result<()> {
    expect_interrupted(context, OFlag::O_WRONLY)
}

fn an_interrupted_open_leaves_no_reader_behind(context: &Context) -> Result<()> {
    expect_no_reader_after(context, || expect_interrupted(context, OFlag::O_RDONLY))
}

fn an_interrupted_open_leaves_no_writer_behind(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || expect_interrupted(context, OFlag::O_WRONLY))
}

fn kill_waiting_opener(context: &Context, flags: OFlag) -> Result<()> {
    waiting_opener(&context.channel, flags)?.kill()
}

fn a_killed_open_leaves_no_reader_behind(context: &Context) -> Result<()> {
    expect_no_reader_after(context, || kill_waiting_opener(context, OFlag::O_RDONLY))
}

fn a_killed_open_leaves_no_writer_behind(context: &Context) -> Result<()> {
    expect_no_writer_after(context, || kill_waiting_opener(context, OFlag::O_WRONLY))
}

fn expect_restarted(context: &Context, flags: OFlag, partner: OFlag) -> Result<()> {
    let handled = Notice::new()?;
    let child = interruptible_opener(&context.channel, flags, &handled, true)?;
    child.signal(Signal::SIGUSR1)?;
    handled.wait("the signal handler runs")?;
    child.wait_asleep_in(Call::Open)?;
    child.expect_still_asleep_in(Call::Open)?;
    let _partner = context
        .channel
        .open(partner)
        .context("opening the other side")?;
    expect_released(child)
}

fn a_restarting_signal_lets_a_readers_open_go_on(context: &Context) -> Result<()> {
    expect_restarted(context, OFlag::O_RDONLY, OFlag::O_WRONLY)
}

fn a_restarting_signal_lets_a_writers_open_go_on(context: &Context) -> Result<()> {
    expect_restarted(context, OFlag::O_WRONLY, OFlag::O_RDONLY)
}

/// Linux takes the access mode 3 as a wish for neither; a pipe has nothing to offer for that.
fn neither_reading_nor_writing_is_einval(context: &Context) -> Result<()> {
    let result = context.channel.open(OFlag::O_ACCMODE | OFlag::O_NONBLOCK);
    expect("result of the open", result.map(drop), Err(Errno::EINVAL))
}

/// What a shell does for `> pipe`.
fn creating_and_truncating_flags_change_nothing(context: &Context) -> Result<()> {
    let both = context.channel.open_both_ways()?;
    write(&both, b"kept").context("writing before the open")?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_APPEND;
    let _writer = context
        .channel
        .open(flags)
        .context("opening as a shell does")?;
    let kept = read_some(&both, 64).context("reading after the open")?;
    expect_bytes("what was in the pipe", &kept, b"kept")
}
