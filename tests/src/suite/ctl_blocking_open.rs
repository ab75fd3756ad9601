// SPDX-License-Identifier: MIT OR Apache-2.0
//! When an open by name blocks, and what a failed open leaves.

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::{Child, spawn};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, EXCL, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE,
    expect_no_channel,
};
use crate::support::event::Event;
use crate::support::proc::Call;
use crate::support::signals;

topic!(
    "ctl_blocking_open",
    fifo: [],
    pipe_only: [
        a_reader_blocks_until_a_writer_opens,
        a_writer_blocks_until_a_reader_opens,
        read_write_never_blocks,
        a_nonblocking_reader_does_not_block,
        a_nonblocking_writer_without_a_reader_is_enxio_and_leaves_no_channel,
        a_nonblocking_writer_without_a_reader_leaves_an_existing_channel,
        an_interrupted_open_is_eintr_and_leaves_no_channel,
        an_open_restarts_with_sa_restart,
        an_exclusive_persistent_open_restarts_with_sa_restart,
        an_interrupted_exclusive_open_of_a_channel_in_use_is_eintr,
        a_failed_open_leaves_a_channel_in_use,
        a_failed_open_leaves_a_channel_made_persistent_by_another,
        a_killed_open_leaves_no_channel,
    ],
);

const EINTR: Result<(), i32> = Err(Errno::EINTR as i32);
/// Flags that an open with CREATE may have in addition.
const CREATOR_FLAGS: [u32; 4] = [0, EXCL, PERSIST, EXCL | PERSIST];

/// The flags of an open for reading or writing with CREATE, in every combination.
fn sides_of_creators() -> impl Iterator<Item = u32> {
    let of_side = |side| CREATOR_FLAGS.map(|more| side | CREATE | more);
    [READ, WRITE].into_iter().flat_map(of_side)
}

/// Opens in a child, which returns the result.
fn opener(request: Open) -> Result<Child<Result<(), i32>>> {
    spawn("an open by name", || {
        let opened = Ctl::new()?.open(request);
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })
}

fn blocked_opener(request: Open) -> Result<Child<Result<(), i32>>> {
    let child = opener(request)?;
    child.wait_asleep_in(Call::Ioctl)?;
    Ok(child)
}

fn a_reader_blocks_until_a_writer_opens(_: &Context) -> Result<()> {
    let reader = blocked_opener(Open::new("channel", READ | CREATE))?;
    reader.expect_still_asleep_in(Call::Ioctl)?;
    let _writer = Ctl::new()?.open(Open::new("channel", WRITE))?;
    expect("the waiting open", reader.finish()?, Ok(()))
}

fn a_writer_blocks_until_a_reader_opens(_: &Context) -> Result<()> {
    let writer = blocked_opener(Open::new("channel", WRITE | CREATE))?;
    writer.expect_still_asleep_in(Call::Ioctl)?;
    let _reader = Ctl::new()?.open(Open::new("channel", READ))?;
    expect("the waiting open", writer.finish()?, Ok(()))
}

fn read_write_never_blocks(_: &Context) -> Result<()> {
    let opened = opener(Open::new("channel", BOTH | CREATE))?;
    expect("the open", opened.finish()?, Ok(()))
}

fn a_nonblocking_reader_does_not_block(_: &Context) -> Result<()> {
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

fn a_nonblocking_writer_without_a_reader_leaves_an_existing_channel(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    ctl.persist(OWN, "channel")
        .context("creating the channel")?;
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
        signals::interrupt_on_usr1()?;
        let waiting = blocked_opener(Open::new("channel", flags))?;
        waiting.signal(Signal::SIGUSR1)?;
        expect("the interrupted open", waiting.finish()?, EINTR)?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}

/// An open that is blocked again after it was restarted by a signal handler with SA_RESTART.
fn signalled_opener(request: Open) -> Result<Child<Result<(), i32>>> {
    let handled = Event::new()?;
    let waiting = signals::spawn_blocked_with_handler(Call::Ioctl, &handled, true, || {
        let opened = Ctl::new()?.open(request);
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    signals::interrupt(&waiting, &handled)?;
    Ok(waiting)
}

fn an_open_restarts_with_sa_restart(_: &Context) -> Result<()> {
    let waiting = signalled_opener(Open::new("channel", READ | CREATE))?;
    waiting.expect_still_asleep_in(Call::Ioctl)?;
    // The reader's channel may not exist between its first and its restarted call.
    let _writer = Ctl::new()?.open(Open::new("channel", WRITE | CREATE))?;
    expect("the restarted open", waiting.finish()?, Ok(()))
}

/// The restarted call must not fail because of the channel that the first one created.
fn an_exclusive_persistent_open_restarts_with_sa_restart(_: &Context) -> Result<()> {
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

/// A restarted call would fail with EEXIST for the channel that it created itself.
fn an_interrupted_exclusive_open_of_a_channel_in_use_is_eintr(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in [0, PERSIST] {
        let handled = Event::new()?;
        let waiting = signals::spawn_blocked_with_handler(Call::Ioctl, &handled, true, || {
            let request = Open::new("channel", READ | CREATE | EXCL | more);
            let opened = Ctl::new()?.open(request);
            Ok(opened.map(drop).map_err(|errno| errno as i32))
        })?;
        let reader = ctl.open(Open::new("channel", READ | NONBLOCK))?;
        waiting.signal(Signal::SIGUSR1)?;
        expect("the interrupted open", waiting.finish()?, EINTR)?;
        let info = ctl.info(OWN, "channel").context("the channel")?;
        expect("endpoints", (info.readers, info.writers), (1, 0))?;
        // Fails, and may, if the channel was removed with its last endpoint.
        let _ = ctl.unlink(OWN, "channel");
        drop(reader);
        expect_no_channel(&ctl)?;
    }
    Ok(())
}

fn a_failed_open_leaves_a_channel_in_use(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in CREATOR_FLAGS {
        let waiting = blocked_opener(Open::new("channel", READ | CREATE | more))?;
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

/// The other call succeeded, so its channel must stay persistent, although its endpoint is closed.
fn a_failed_open_leaves_a_channel_made_persistent_by_another(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    for more in CREATOR_FLAGS {
        let waiting = blocked_opener(Open::new("channel", READ | CREATE | more))?;
        let request = Open::new("channel", READ | NONBLOCK | CREATE | PERSIST);
        ctl.open(request).context("setting persistence")?;
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
        blocked_opener(Open::new("channel", flags))?.kill()?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}
