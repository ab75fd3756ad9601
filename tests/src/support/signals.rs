// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signal handlers that only tell that they ran.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use anyhow::{Context, Result};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::notice::Notice;

static TOLD: AtomicI32 = AtomicI32::new(-1);

extern "C" fn tell(_: libc::c_int) {
    let fd: RawFd = TOLD.load(Ordering::Relaxed);
    if fd >= 0 {
        // SAFETY: write(2) may be called from a signal handler; the byte lives long enough.
        unsafe { libc::write(fd, b"!".as_ptr().cast(), 1) };
    }
}

/// From now on SIGUSR1 gives `handled`; `restart` says whether system calls go on afterwards.
pub fn handle_usr1(handled: &Notice, restart: bool) -> Result<()> {
    TOLD.store(handled.giver().as_raw_fd(), Ordering::Relaxed);
    install(Signal::SIGUSR1, SigHandler::Handler(tell), restart)
}

/// From now on SIGUSR1 does nothing but interrupt.
pub fn let_usr1_interrupt() -> Result<()> {
    TOLD.store(-1, Ordering::Relaxed);
    install(Signal::SIGUSR1, SigHandler::Handler(tell), false)
}

pub fn restore_default(signal: Signal) -> Result<()> {
    install(signal, SigHandler::SigDfl, false)
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
