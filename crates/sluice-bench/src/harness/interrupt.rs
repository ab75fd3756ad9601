// SPDX-License-Identifier: MIT OR Apache-2.0
//! ^C and a request to end become an ordinary error, so that whatever was set up is also undone.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT, SIGTERM and SIGHUP only set a flag that `check` reads.
pub fn install() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Forked processes are ended by the one that forked them: in them the signals have their usual effect again.
pub fn restore() -> Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the default action runs no code of this program.
        unsafe { sigaction(signal, &default) }?;
    }
    Ok(())
}

pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted; everything that was set up is undone, start it again when you like");
    }
    Ok(())
}
