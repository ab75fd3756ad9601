// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal handlers that only report that they ran.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use serde::{Serialize, de::DeserializeOwned};

use super::child::{Child, spawn_keeping};
use super::event::Event;
use super::proc::Call;

static NOTIFY_FD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn notify(_: libc::c_int) {
    let fd: RawFd = NOTIFY_FD.load(Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: write(2) may be called from a signal handler; the byte is static.
        unsafe { libc::write(fd, b"!".as_ptr().cast(), 1) };
    }
}

/// Installs a handler for SIGUSR1 that notifies `handled`, with SA_RESTART if `restart`.
pub fn handle_usr1(handled: &Event, restart: bool) -> Result<()> {
    NOTIFY_FD.store(handled.write_end().as_raw_fd(), Ordering::Relaxed);
    install(Signal::SIGUSR1, SigHandler::Handler(notify), restart)
}

/// Installs a handler for SIGUSR1 that only interrupts system calls.
pub fn interrupt_on_usr1() -> Result<()> {
    NOTIFY_FD.store(-1, Ordering::Relaxed);
    install(Signal::SIGUSR1, SigHandler::Handler(notify), false)
}

pub fn restore_default(signal: Signal) -> Result<()> {
    install(signal, SigHandler::SigDfl, false)
}

/// From now on a write without a reader only fails with EPIPE.
pub fn ignore_sigpipe() -> Result<()> {
    install(Signal::SIGPIPE, SigHandler::SigIgn, false)
}

/// Spawns a child with a handler for SIGUSR1 that notifies `handled`, and returns once it is blocked in `call`.
pub fn spawn_blocked_with_handler<T: Serialize + DeserializeOwned>(
    call: Call,
    handled: &Event,
    restart: bool,
    body: impl FnOnce() -> Result<T>,
) -> Result<Child<T>> {
    spawn_blocked_keeping(call, &[], handled, restart, body)
}

/// As `spawn_blocked_with_handler`, with the files in `keep` open in the child.
pub fn spawn_blocked_keeping<T: Serialize + DeserializeOwned>(
    call: Call,
    keep: &[BorrowedFd],
    handled: &Event,
    restart: bool,
    body: impl FnOnce() -> Result<T>,
) -> Result<Child<T>> {
    let keep = [keep, &handled.fds()].concat();
    let child = spawn_keeping(&format!("a child in {call:?}"), &keep, || {
        handle_usr1(handled, restart)?;
        body()
    })?;
    child.wait_asleep_in(call)?;
    Ok(child)
}

/// Sends SIGUSR1 and waits until the handler has run.
pub fn interrupt<T: DeserializeOwned>(child: &Child<T>, handled: &Event) -> Result<()> {
    child.signal(Signal::SIGUSR1)?;
    handled.wait("the signal handler runs")
}

fn install(signal: Signal, handler: SigHandler, restart: bool) -> Result<()> {
    let flags = if restart {
        SaFlags::SA_RESTART
    } else {
        SaFlags::empty()
    };
    // SAFETY: the handler only calls write(2).
    unsafe { sigaction(signal, &SigAction::new(handler, flags, SigSet::empty())) }
        .with_context(|| format!("installing a handler for {signal}"))?;
    Ok(())
}
