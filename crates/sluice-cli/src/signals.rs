// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGHUP, SIGINT and SIGTERM, before which a command still has something to do.

use std::sync::{Arc, Once};
use std::{mem, process, ptr, thread};

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::signal::{SigSet, Signal, raise};

/// Those that would terminate this process.
pub fn termination() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM]
        .into_iter()
        .filter(|&signal| !is_ignored(signal))
        .collect()
}

/// Whether the signal is ignored, as under nohup(1). An ignored signal that is blocked becomes pending, and would end the wait.
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: zeros are a valid value of this C structure.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: no action is set, and the current one is written to a valid structure.
    let status = unsafe { libc::sigaction(signal as i32, ptr::null(), &mut action) };
    status == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Ends the process by a signal that is blocked, so that a shell learns of it: it ends a loop that runs the command. The first process of a
/// container ignores the signal nevertheless, and exits with the status that a shell has for it.
pub fn end_by(signal: Signal) -> ! {
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
    process::exit(128 + signal as i32)
}

/// A report that is printed once: at the end of a command, or before a signal terminates it.
pub struct FinalReport {
    print: Box<dyn Fn() -> Result<()> + Send + Sync>,
    printed: Once,
}

impl FinalReport {
    /// Must be called before other threads start, because threads inherit the signal mask.
    pub fn new(print: impl Fn() -> Result<()> + Send + Sync + 'static) -> Result<Arc<Self>> {
        let signals = termination();
        signals.thread_block().context("cannot block signals")?;
        let report = Arc::new(Self {
            print: Box::new(print),
            printed: Once::new(),
        });
        let at_signal = Arc::clone(&report);
        thread::spawn(move || at_signal.print_before(signals));
        Ok(report)
    }

    pub fn print(&self) -> Result<()> {
        let mut outcome = Ok(());
        self.printed.call_once(|| outcome = (self.print)());
        outcome
    }

    fn print_before(&self, signals: SigSet) {
        let Ok(signal) = signals.wait() else { return };
        let _ = self.print();
        end_by(signal)
    }
}
