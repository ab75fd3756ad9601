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
        a_nonblocking_writer_without_a_reader_leaves_the_persistent_channel_that_it_made,
        a_nonblocking_writer_without_a_reader_leaves_a_channel_that_was_there,
        an_interrupted_open_is_eintr_and_leaves_no_channel,
        an_open_restarts_after_a_signal_that_says_so,
        a_killed_open_leaves_no_channel,
    ],
);

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
    expect_refused_writer(0)?;
    expect_refused_writer(EXCL)
}

/// As a file that an open made stays when the open then fails.
fn a_nonblocking_writer_without_a_reader_leaves_the_persistent_channel_that_it_made(
    _: &Context,
) -> Result<()> {
    let ctl = Ctl::new()?;
    let refused = ctl.open(Open::new("channel", WRITE | NONBLOCK | CREATE | PERSIST));
    expect("the open", refused.map(drop), Err(Errno::ENXIO))?;
    let info = ctl.info(OWN, "channel").context("info")?;
    expect("flags", info.flags, PERSISTENT)?;
    ctl.unlink(OWN, "channel").context("unlinking it")
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
    for side in [READ, WRITE] {
        signals::let_usr1_interrupt()?;
        let waiting = waiting_opener(Open::new("channel", side | CREATE))?;
        waiting.signal(Signal::SIGUSR1)?;
        expect(
            "the interrupted open",
            waiting.finish()?,
            Err(Errno::EINTR as i32),
        )?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}

fn an_open_restarts_after_a_signal_that_says_so(_: &Context) -> Result<()> {
    let handled = Notice::new()?;
    signals::handle_usr1(&handled, true)?;
    let keep = handled.fds();
    let waiting = spawn_keeping("a reader that waits", &keep, || {
        let opened = Ctl::new()?.open(Open::new("channel", READ | CREATE));
        Ok(opened.map(drop).map_err(|errno| errno as i32))
    })?;
    waiting.wait_asleep_in(Call::Ioctl)?;
    waiting.signal(Signal::SIGUSR1)?;
    handled.wait("the signal is handled")?;
    waiting.expect_still_asleep_in(Call::Ioctl)?;
    // Between the two calls of the reader its channel may be gone.
    let _writer = Ctl::new()?.open(Open::new("channel", WRITE | CREATE))?;
    expect("the restarted open", waiting.finish()?, Ok(()))
}

fn a_killed_open_leaves_no_channel(_: &Context) -> Result<()> {
    for side in [READ, WRITE] {
        waiting_opener(Open::new("channel", side | CREATE))?.kill()?;
        expect_no_channel(&Ctl::new()?)?;
    }
    Ok(())
}
