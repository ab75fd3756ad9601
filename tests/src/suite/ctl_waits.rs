// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who waits for whom when a channel is opened by its name, and what is left when an open does not succeed.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE,
    expect_no_channel,
};
use crate::support::notice::Notice;
use crate::support::proc::Call;
use crate::support::signals;

topic!(
    "ctl_waits",
    fifo: [],
    pipe_only: [
        a_reader_waits_for_a_writer,
        a_writer_waits_for_a_reader,
        both_ways_never_waits,
        a_nonblocking_reader_does_not_wait,
        a_nonblocking_writer_without_a_reader_is_enxio_and_leaves_no_channel,
        a_nonblocking_writer_without_a_reader_leaves_a_channel_that_was_there,
        an_interrupted_open_is_eintr_and_leaves_no_channel,
        an_open_restarts_after_a_signal_that_says_so,
        an_exclusive_persistent_open_restarts_after_a_signal_that_says_so,
        an_exclusive_open_whose_channel_another_has_open_is_eintr,
        a_failed_open_leaves_a_channel_that_another_has_open,
        a_failed_open_leaves_a_channel_that_another_made_persistent,
        a_killed_open_leaves_no_channel,
    ],
);

const EINTR: Result<(), i32> = Err(Errno::EINTR as i32);
/// What an open that creates a channel may ask for besides.
const CREATOR_FLAGS: [u32; 4] = [0, EXCL, PERSIST, EXCL | PERSIST];

/// The flags of an open for one side that creates a channel, in every variant.
fn sides_of_creators() -> impl Iterator<Item = u32> {
    let of_side = |side| CREATOR_FLAGS.map(|more| side | CREATE | more);
    [READ, WRITE].into_iter().flat_map(of_side)
}

/// Opens without waiting for the result; what comes back is whether it worked, and how not.
fn opener(request: Open) -> Result<Child<Result<(), i32>>> {
    spawn("an open by name", || {
        let opened = Ctl::new()?.open(request);
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })
}

fn waiting_opener(request: Open) -> Result<Child<Result<(), i32>>> {
    let child = opener(request)?;
    child.wait_asleep_in(Call::Ioctl)?;
    Ok(child)
}

fn a_reader_waits_for_a_writer(_: &Context) -> Result<()> {
    let reader = waiting_opener(Open::new("channel", READ | CREATE))?;
    reader.expect_still_asleep_in(Call::Ioctl)?;
    let _writer = Ctl::new()?.open(Open::new("channel", WRITE))?;
    expect("the waiting open", reader.finish()?, Ok(()))
}

fn a_writer_waits_for_a_reader(_: &Context) -> Result<()> {
    let writer = waiting_opener(Open::new("channel", WRITE | CREATE))?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    let _reader = Ctl::new()?.open(Open::new("channel", READ))?;
    expect("the waiting open", writer.finish()?, Ok(()))
}

fn both_ways_never_waits(_: &Context) -> Result<()> {
    let opened = opener(Open::new("channel", BOTH | CREATE))?;
    expect("the open", opened.finish()?, Ok(()))
}

fn a_nonblocking_reader_does_not_wait(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let reader = ctl.open(Open::new("channel", READ | CREATE | NONBLOCK))?;
    expect("a read without a writer", read(&reader, &mut [0]), Ok(0))?;
    let writer = ctl.open(Open::new("channel", WRITE | NONBLOCK));
    writer.context("a nonblocking writer, now that there is a reader")?;
    Ok(())
}

fn expect_refused_writer(more: u32) -> Result<()> {
    let ctl = Ctl::new()?;
    let flags = WRITE | NONBLOCK | CREATE | more;
    expect(
        &format!("an open with flags {flags:#x}"),
        ctl.open(Open::new("channel", flags)).map(drop),
        Err(Errno::ENXIO),
    )?;
    expect_no_channel(&ctl)
}

fn a_nonblocking_writer_without_a_reader_is_enxio_and_leaves_no_channel(_: &Context) -> Result<()> {
    CREATOR_FLAGS
        .into_iter()
        .try_for_each(expect_refused_writer)
}

fn a_nonblocking_writer_without_a_reader_leaves_a_channel_that_was_there(
    _: &Context,
) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel").context("making it")?;
    for flags in [WRITE | NONBLOCK, WRITE | NONBLOCK | CREATE | PERSIST] {
        expect(
            &format!("an open with flags {flags:#x}"),
            ctl.open(Open::new("channel", flags)).map(drop),
            Err(Errno::ENXIO),
        )?;
    }
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("flags", info.flags, PERSISTENT)?;
    expect("endpoints", (info.readers, info.writers), (0, 0))?;
    ctl.unlink(OWN, "channel").context("unlinking it")
}

fn an_interrupted_open_is_eintr_and_leaves_no_channel(_: &Context) -> Result<()> {
    for flags in sides_of_creators() {
        signals::let_usr1_interrupt()?;
        let waiting = waiting_opener(Open::new("channel", flags))?;
        waiting.signal(Signal::SIGUSR1)?;
        expect("the interrupted open", waiting.finish()?, EINTR)?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}

/// An open that waits and has handled a signal after which it goes on.
fn signalled_opener(request: Open) -> Result<Child<Result<(), i32>>> {
    let handled = Notice::new()?;
    signals::handle_usr1(&handled, true)?;
    let waiting = spawn_keeping("an open by name", &handled.fds(), || {
        let opened = Ctl::new()?.open(request);
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    waiting.wait_asleep_in(Call::Ioctl)?;
    waiting.signal(Signal::SIGUSR1)?;
    handled.wait("the signal is handled")?;
    Ok(waiting)
}

fn an_open_restarts_after_a_signal_that_says_so(_: &Context) -> Result<()> {
    let waiting = signalled_opener(Open::new("channel", READ | CREATE))?;
    waiting.expect_still_asleep_in(Call::Ioctl)?;
    // Between the two calls of the reader its channel may be gone.
    let _writer = Ctl::new()?.open(Open::new("channel", WRITE | CREATE))?;
    expect("the restarted open", waiting.finish()?, Ok(()))
}

/// What it created itself must not be in the way of its second call.
fn an_exclusive_persistent_open_restarts_after_a_signal_that_says_so(_: &Context) -> Result<()> {
    for flags in sides_of_creators() {
        let waiting = signalled_opener(Open::new("channel", flags))?;
        waiting.expect_still_asleep_in(Call::Ioctl)?;
        let ctl = Ctl::new()?;
        let both = ctl.attach(OWN, "channel").context("the other side")?;
        let what = format!("the restarted open with flags {flags:#x}");
        expect(&what, waiting.finish()?, Ok(()))?;
        let expected = match flags & PERSIST {
            0 => 0,
            _ => PERSISTENT,
        };
        let seen = ctl.info(OWN, "channel").map(|info| info.flags);
        expect("flags", seen, Ok(expected))?;
        ctl.unlink(OWN, "channel").context("unlinking it")?;
        drop(both);
        expect_no_channel(&ctl)?;
    }
    Ok(())
}

/// A restarted call would answer EEXIST about a channel that it created itself.
fn an_exclusive_open_whose_channel_another_has_open_is_eintr(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in [0, PERSIST] {
        let handled = Notice::new()?;
        signals::handle_usr1(&handled, true)?;
        let waiting = spawn_keeping("an exclusive open", &handled.fds(), || {
            let request = Open::new("channel", READ | CREATE | EXCL | more);
            let opened = Ctl::new()?.open(request);
            Ok(opened.map(drop).map_err(|errno| errno as i32))
        })?;
        waiting.wait_asleep_in(Call::Ioctl)?;
        let reader = ctl.open(Open::new("channel", READ | NONBLOCK))?;
        waiting.signal(Signal::SIGUSR1)?;
        expect("the interrupted open", waiting.finish()?, EINTR)?;
        let info = ctl.info(OWN, "channel").context("the channel")?;
        expect("endpoints", (info.readers, info.writers), (1, 0))?;
        // Ignored where the channel goes with its last endpoint.
        let _ = ctl.unlink(OWN, "channel");
        drop(reader);
        expect_no_channel(&ctl)?;
    }
    Ok(())
}

fn a_failed_open_leaves_a_channel_that_another_has_open(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in CREATOR_FLAGS {
        let waiting = waiting_opener(Open::new("channel", READ | CREATE | more))?;
        let reader = ctl.open(Open::new("channel", READ | NONBLOCK))?;
        waiting.kill()?;
        let info = ctl.info(OWN, "channel").context("the channel")?;
        expect("endpoints", (info.readers, info.writers), (1, 0))?;
        let persistent = info.flags & PERSISTENT != 0;
        expect("persistence", persistent, more & PERSIST != 0)?;
        ctl.unlink(OWN, "channel").context("unlinking it")?;
        drop(reader);
        expect_no_channel(&ctl)?;
    }
    Ok(())
}

/// That call has succeeded: what it was told to keep is kept, although it has closed its endpoint.
fn a_failed_open_leaves_a_channel_that_another_made_persistent(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in CREATOR_FLAGS {
        let waiting = waiting_opener(Open::new("channel", READ | CREATE | more))?;
        let request = Open::new("channel", READ | NONBLOCK | CREATE | PERSIST);
        ctl.open(request).context("making it persistent")?;
        waiting.kill()?;
        let info = ctl.info(OWN, "channel").context("the channel")?;
        expect("flags", info.flags, PERSISTENT)?;
        ctl.unlink(OWN, "channel").context("unlinking it")?;
        expect_no_channel(&ctl)?;
    }
    Ok(())
}

fn a_killed_open_leaves_no_channel(_: &Context) -> Result<()> {
    for flags in sides_of_creators() {
        waiting_opener(Open::new("channel", flags))?.kill()?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}
