// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals that interrupt a blocked read, write or poll, and the signal that reports data (SIGIO).

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::uio::writev;
use nix::unistd::{Pid, read, write};

use crate::registry::{Context, topic};
use crate::support::channel::{CAPACITY, fill, read_all, read_some, set_blocking, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::event::Event;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals::{interrupt, interrupt_on_usr1, spawn_blocked_with_handler};
use crate::support::time::event_timeout;

topic!(
    "signals",
    fifo: [
        a_signal_ends_a_blocked_read_with_eintr,
        a_read_restarts_with_sa_restart,
        a_signal_ends_a_blocked_write_with_eintr,
        a_write_restarts_with_sa_restart,
        a_signal_during_a_write_returns_the_bytes_written,
        a_signal_ends_a_long_write_beside_a_quick_reader,
        a_signal_ends_a_blocked_poll_with_eintr,
        sigio_reports_data_to_a_reader,
        sigio_reports_the_closed_last_writer_to_a_reader,
        sigio_reports_room_to_a_writer,
        f_setsig_selects_another_signal_that_names_its_file,
        sigio_stops_when_o_async_is_cleared,
        sigio_stops_when_the_endpoint_is_closed,
    ],
    pipe_only: [],
);

fn a_signal_ends_a_blocked_read_with_eintr(context: &Context) -> Result<()> {
    let handled = Event::new()?;
    let reader = spawn_blocked_with_handler(Call::Read, &handled, false, || {
        let fd = context.channel.open_read_write()?;
        Ok(read(&fd, &mut [0]).map_err(|errno| errno as i32))
    })?;
    interrupt(&reader, &handled)?;
    expect(
        "result of the read",
        reader.finish()?,
        Err(Errno::EINTR as i32),
    )
}

fn a_read_restarts_with_sa_restart(context: &Context) -> Result<()> {
    let handled = Event::new()?;
    let reader = spawn_blocked_with_handler(Call::Read, &handled, true, || {
        let fd = context.channel.open_read_write()?;
        read_some(&fd, 64).context("read")
    })?;
    interrupt(&reader, &handled)?;
    reader.wait_asleep_in(Call::Read)?;
    write_all(&context.channel.open_writer()?, b"later")?;
    expect_bytes("bytes read by the reader", &reader.finish()?, b"later")
}

/// A child that blocks until it can write one byte, `x`, to the full pipe.
fn waiting_writer(
    context: &Context,
    handled: &Event,
    restart: bool,
) -> Result<Child<Result<usize, i32>>> {
    spawn_blocked_with_handler(Call::Write, handled, restart, || {
        let fd = context.channel.open_writer()?;
        Ok(write(&fd, b"x").map_err(|errno| errno as i32))
    })
}

fn a_signal_ends_a_blocked_write_with_eintr(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let handled = Event::new()?;
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

fn a_write_restarts_with_sa_restart(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    let handled = Event::new()?;
    let waiting = waiting_writer(context, &handled, true)?;
    interrupt(&waiting, &handled)?;
    waiting.wait_asleep_in(Call::Write)?;
    read_all(&reader, CAPACITY)?;
    expect("result of the write", waiting.finish()?, Ok(1))?;
    expect_bytes(
        "bytes written",
        &read_some(&reader, 64).context("read")?,
        b"x",
    )
}

fn a_signal_during_a_write_returns_the_bytes_written(context: &Context) -> Result<()> {
    let reader = context.channel.open_reader_nonblocking()?;
    let handled = Event::new()?;
    // With or without SA_RESTART: a partial write succeeds and is not repeated.
    let writer = spawn_blocked_with_handler(Call::Write, &handled, true, || {
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

/// The writer may never find the pipe full.
fn a_signal_ends_a_long_write_beside_a_quick_reader(context: &Context) -> Result<()> {
    const PIECE: usize = 16 << 20;
    const PIECES: usize = 64;
    let reader = spawn("a reader", || {
        let fd = context.channel.open_reader()?;
        while !read_some(&fd, CAPACITY)?.is_empty() {}
        Ok(())
    })?;
    let ready = Event::new()?;
    let writer = spawn_keeping("a writer", &ready.fds(), || {
        interrupt_on_usr1()?;
        let fd = context.channel.open_writer()?;
        ready.notify()?;
        let piece = vec![b'.'; PIECE];
        let pieces = [IoSlice::new(&piece); PIECES];
        writev(&fd, &pieces).context("writing")
    })?;
    ready.wait("the writer begins")?;
    while !writer.has_ended()? {
        std::thread::sleep(Duration::from_millis(20));
        writer.signal(Signal::SIGUSR1)?;
    }
    let written = writer.finish()?;
    ensure!(written < PIECES * PIECE, "{written} bytes were written");
    reader.finish()
}

fn a_signal_ends_a_blocked_poll_with_eintr(context: &Context) -> Result<()> {
    let handled = Event::new()?;
    let poller = spawn_blocked_with_handler(Call::Poll, &handled, false, || {
        let fd = context.channel.open_read_write()?;
        Ok(poll::wait(&fd, poll::IN, -1).map_err(|errno| errno as i32))
    })?;
    interrupt(&poller, &handled)?;
    expect(
        "result of the poll",
        poller.finish()?,
        Err(Errno::EINTR as i32),
    )
}

/// Requests SIGIO and blocks it, so that it stays pending until `take_sigio`.
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
    // SAFETY: a valid set and time, and no siginfo_t.
    let taken = unsafe { libc::sigtimedwait(signals.as_ref(), std::ptr::null_mut(), &limit) };
    match Errno::result(taken) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(error) => Err(error).context("waiting for SIGIO"),
    }
}

fn sigio_reports_data_to_a_reader(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    expect_no_sigio()?;
    write_all(&writer, b"x")?;
    expect_sigio()?;
    write_all(&writer, b"y")?;
    expect_sigio()
}

fn sigio_reports_the_closed_last_writer_to_a_reader(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    drop(writer);
    expect_sigio()
}

fn sigio_reports_room_to_a_writer(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends_nonblocking()?;
    fill(&writer, b'.')?;
    ask_for_sigio(&writer)?;
    expect_no_sigio()?;
    read_all(&reader, CAPACITY)?;
    expect_sigio()
}

/// `F_SETSIG` of fcntl(2), which libc does not define.
const F_SETSIG: libc::c_int = 10;
/// `POLL_IN`, the si_code of a signal for readable data, which libc does not define.
const POLL_IN: libc::c_int = 1;

/// The fields of siginfo_t for a signal about a file.
#[repr(C)]
struct FileSignal {
    signal: libc::c_int,
    error: libc::c_int,
    code: libc::c_int,
    band: libc::c_long,
    file: libc::c_int,
}

fn f_setsig_selects_another_signal_that_names_its_file(context: &Context) -> Result<()> {
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
    // SAFETY: a valid set, time and siginfo_t.
    let taken = unsafe { libc::sigtimedwait(chosen.as_ref(), details.as_mut_ptr(), &limit) };
    expect(
        "the signal",
        Errno::result(taken),
        Ok(CHOSEN as libc::c_int),
    )?;
    // SAFETY: the kernel filled siginfo_t, or it is zero; these are its fields for a signal about a file.
    let details = unsafe { &*details.as_ptr().cast::<FileSignal>() };
    expect("its code", details.code, POLL_IN)?;
    expect("its file", details.file, reader.as_raw_fd())?;
    expect_no_sigio()
}

fn sigio_stops_when_o_async_is_cleared(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    ask_for_sigio(&reader)?;
    set_blocking(&reader)?;
    write_all(&writer, b"x")?;
    expect_no_sigio()
}

fn sigio_stops_when_the_endpoint_is_closed(context: &Context) -> Result<()> {
    let (reader, writer) = context.channel.open_ends()?;
    let _other = context.channel.open_reader_nonblocking()?;
    ask_for_sigio(&reader)?;
    drop(reader);
    // A signal raised by the close itself is allowed.
    take_sigio(Duration::ZERO)?;
    write_all(&writer, b"x")?;
    expect_no_sigio()
}
