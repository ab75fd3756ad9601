// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that meet a sleeping read, write or poll, and the signal that tells of data (SIGIO).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, read, write};
use serde::{Serialize, de::DeserializeOwned};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, fill, read_all, read_some, set_blocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::notice::Notice;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::time::event_timeout;

topic!(
    "interrupts",
    fifo: [
        a_signal_ends_a_waiting_read_with_eintr,
        a_restarting_signal_lets_a_read_go_on,
        a_signal_ends_a_waiting_write_with_eintr,
        a_restarting_signal_lets_a_write_go_on,
        a_signal_in_mid_write_returns_the_part_written,
        a_signal_ends_a_waiting_poll_with_eintr,
        sigio_tells_a_reader_of_data,
        sigio_tells_a_reader_of_the_last_writers_leaving,
        sigio_tells_a_writer_of_room,
        sigio_can_be_another_signal_that_names_its_file,
        sigio_ends_with_o_async,
        sigio_ends_with_the_endpoint,
    ],
    pipe_only: [],
);

/// A child with a handler for SIGUSR1 that sleeps in `call`.
fn sleeper<T: Serialize + DeserializeOwned>(
    call: Call,
    handled: &Notice,
    restart: bool,
    body: impl FnOnce() -> Result<T>,
) -> Result<Child<T>> {
    let child = spawn_keeping(&format!("a child in {call:?}"), &handled.fds(), || {
        signals::handle_usr1(handled, restart)?;
        body()
    })?;
    child.wait_asleep_in(call)?;
    Ok(child)
}

fn interrupt(child: &Child<impl DeserializeOwned>, handled: &Notice) -> Result<()> {
    child.signal(Signal::SIGUSR1)?;
    handled.wait("the signal handler runs")
}

fn a_signal_ends_a_waiting_read_with_eintr(context: &Context) -> Result<()> {
    let handled = Notice::new()?;
    let reader = sleeper(Call::Read, &handled, false, || {
        let fd = context.channel.open_both_ways()?;
        Ok(read(&fd, &mut [0]).map_err(|errno| errno as i32))
    })?;
    interrupt(&reader, &handled)?;
    expect(
        "result of the read",
        reader.finish()?,
        Err(Errno::EINTR as i32),
    )
}

fn a_restarting_signal_lets_a_read_go_on(context: &Context) -> Result<()> {
    let handled = Notice::new()?;
    let reader = sleeper(Call::Read, &handled, true, || {
        let fd = context.channel.open_both_ways()?;
        read_some(&fd, 64).context("read")
    })?;
    interrupt(&reader, &handled)?;
    reader.wait_asleep_in(Call::Read)?;
    write_all(&context.channel.open_writer()?, b"later")?;
    expect_bytes("what the reader got", &reader.finish()?, b"later")
}

/// A child that waits for room to write one byte, `x`, in the full pipe.
fn waiting_writer(
    context: &Context,
    handled: &Notice,
    restart: bool,
) -> Result<Child<Result<usize, i32>>> {
    sleeper(Call::Write, handled, restart, || {
        let fd = context.channel.open_writer()?;
        Ok(write(&fd, b"x").map_err(|errno| errno as i32))
    })
}

fn a_signal_ends_a_waiting_write_with_eintr(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let handled = Notice::new()?;
    let waiting = waiting_writer(context, &handled, false)?;
    interrupt(&waiting, &handled)?;
    expect(
        "result of the write",
        waiting.finish()?,
        Err(Errno::EINTR as i32),
    )?;
    read_all(&reader, CAPACITY)?;
    expect(
        "a read after what was there before",
        read(&reader, &mut [0]),
        Err(Errno::EAGAIN),
    )
}

fn a_restarting_signal_lets_a_write_go_on(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    let handled = Notice::new()?;
    let waiting = waiting_writer(context, &handled, true)?;
    interrupt(&waiting, &handled)?;
    waiting.wait_asleep_in(Call::Write)?;
    read_all(&reader, CAPACITY)?;
    expect("result of the write", waiting.finish()?, Ok(1))?;
    expect_bytes(
        "what it wrote",
        &read_some(&reader, 64).context("read")?,
        b"x",
    )
}

fn a_signal_in_mid_write_returns_the_part_written(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_now()?;
    let handled = Notice::new()?;
    // Restarting or not: a part that was written is a success, and is not written again.
    let writer = sleeper(Call::Write, &handled, true, || {
        let fd = context.channel.open_writer()?;
        Ok(write(&fd, &[7; 2 * CAPACITY]).map_err(|errno| errno as i32))
    })?;
    interrupt(&writer, &handled)?;
    expect("result of the write", writer.finish()?, Ok(CAPACITY))?;
    expect(
        "bytes to read",
        read_all(&reader, CAPACITY)?.len(),
        CAPACITY,
    )?;
    expect("a read after them", read(&reader, &mut [0]), Ok(0))
}

fn a_signal_ends_a_waiting_poll_with_eintr(context: &Context) -> Result<()> {
    let handled = Notice::new()?;
    let poller = sleeper(Call::Poll, &handled, false, || {
        let fd = context.channel.open_both_ways()?;
        Ok(poll::wait(&fd, poll::IN, -1).map_err(|errno| errno as i32))
    })?;
    interrupt(&poller, &handled)?;
    expect(
        "result of the poll",
        poller.finish()?,
        Err(Errno::EINTR as i32),
    )
}

/// Asks for SIGIO, which stays pending until someone takes it.
fn ask_for_sigio(fd: &impl AsFd) -> Result<()> {
    SigSet::from(Signal::SIGIO)
        .thread_block()
        .context("blocking SIGIO")?;
    // SAFETY: sets the receiver of the signal, a number.
    let owner =
        unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), libc::F_SETOWN, Pid::this().as_raw()) };
    Errno::result(owner).context("asking to get the signals")?;
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_ASYNC | OFlag::O_NONBLOCK)).context("setting O_ASYNC")?;
    Ok(())
}

fn expect_sigio() -> Result<()> {
    if !take_sigio(event_timeout())? {
        bail!("expected a SIGIO, saw none within {:?}", event_timeout());
    }
    Ok(())
}

fn expect_no_sigio() -> Result<()> {
    if take_sigio(Duration::ZERO)? {
        bail!("expected no SIGIO, saw one");
    }
    Ok(())
}

fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: span.as_secs() as libc::time_t,
        tv_nsec: span.subsec_nanos().into(),
    }
}

fn take_sigio(wait: Duration) -> Result<bool> {
    let signals = SigSet::from(Signal::SIGIO);
    let limit = timespec(wait);
    // SAFETY: a valid set and time; no details are asked for.
    let taken = unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &limit) };
    match Errno::result(taken) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => Err(error).context("waiting for SIGIO"),
    }
}

fn sigio_tells_a_reader_of_data(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    expect_no_sigio()?;
    write_all(&writer, b"x")?;
    expect_sigio()?;
    write_all(&writer, b"y")?;
    expect_sigio()
}

fn sigio_tells_a_reader_of_the_last_writers_leaving(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    drop(writer);
    expect_sigio()
}

fn sigio_tells_a_writer_of_room(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_now()?;
    fill(&writer, b'.')?;
    ask_for_sigio(&writer)?;
    expect_no_sigio()?;
    read_all(&reader, CAPACITY)?;
    expect_sigio()
}

/// `F_SETSIG` of fcntl(2), which libc does not name.
const F_SETSIG: libc::c_int = 10;
/// The code of a signal that tells of something to read, as above.
const POLL_IN: libc::c_int = 1;

/// What siginfo_t holds when the signal is about a file.
#[repr(C)]
struct FileSignal {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    file: libc::c_int,
}

fn sigio_can_be_another_signal_that_names_its_file(context: &Context) -> Result<()> {
    const CHOSEN: Signal = Signal::SIGUSR2;
    let (reader, writer) = context.channel.open_ends()?;
    let chosen = SigSet::from(CHOSEN);
    chosen.thread_block().context("blocking the signal")?;
    // SAFETY: sets the number of the signal.
    let set = unsafe { libc::fcntl(reader.as_raw_fd(), F_SETSIG, CHOSEN as libc::c_int) };
    Errno::result(set).context("choosing the signal")?;
    ask_for_sigio(&reader)?;
    write_all(&writer, b"x")?;

    let mut details = MaybeUninit::<libc::siginfo_t>::zeroed();
    let limit = timespec(event_timeout());
    // SAFETY: a valid set, time and place for the details.
    let taken = unsafe { libc::sigtimedwait(chosen.as_ref(), details.as_mut_ptr(), &limit) };
    expect(
        "the signal",
        Errno::result(taken),
        Ok(CHOSEN as libc::c_int),
    )?;
    // SAFETY: the kernel filled the details, or they are zeroes; this is what they hold for files.
    let details = unsafe { &*details.as_ptr().cast::<FileSignal>() };
    expect("its code", details.code, POLL_IN)?;
    expect("its file", details.file, reader.as_raw_fd())?;
    expect_no_sigio()
}

fn sigio_ends_with_o_async(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    set_blocking(&reader)?;
    write_all(&writer, b"x")?;
    expect_no_sigio()
}

fn sigio_ends_with_the_endpoint(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let _other = context.channel.open_reader_now()?;
    ask_for_sigio(&reader)?;
    drop(reader);
    // What its closing itself may have raised is not in question.
    take_sigio(Duration::ZERO)?;
    write_all(&writer, b"x")?;
    expect_no_sigio()
}
