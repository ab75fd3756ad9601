// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal while `sluice top` draws on it. It is restored at the end, before a signal stops or ends the process, and on a panic.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, Signal, raise};

use super::view::{Line, Style};
use crate::signals;

pub struct Terminal {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Whether the terminal is given back for good. Locked while the terminal is drawn on, or is not ours.
    has_ended: Mutex<bool>,
    /// Whether the process was stopped since the last drawing.
    was_stopped: AtomicBool,
}

impl Terminal {
    /// Must be called before other threads start, because threads inherit the signal mask.
    pub fn enter() -> Result<Self> {
        let mut handled = signals::termination();
        for signal in [Signal::SIGQUIT, Signal::SIGTSTP, Signal::SIGCONT] {
            if !signals::is_ignored(signal) {
                handled.add(signal);
            }
        }
        handled.thread_block().context("cannot block signals")?;
        let input = input().and_then(|input| enter().map(|()| input));
        let input = input.context("cannot set up the terminal; use --once or --json")?;
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            report(panic);
        }));
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || of_thread.handle(handled));
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || of_thread.end_at_hangup(&input));
        Ok(Self { shared })
    }

    pub fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let _locked = self.shared.lock();
        let mut text = Vec::new();
        queue!(text, BeginSynchronizedUpdate)?;
        for (row, (style, line)) in (0..).zip(lines) {
            let attribute = match style {
                Style::Plain => Attribute::Reset,
                Style::Bold => Attribute::Bold,
                Style::Reverse => Attribute::Reverse,
            };
            queue!(text, MoveTo(0, row), SetAttribute(attribute), Print(line))?;
            queue!(
                text,
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        queue!(
            text,
            Clear(ClearType::FromCursorDown),
            EndSynchronizedUpdate
        )?;
        let mut out = io::stdout().lock();
        out.write_all(&text)?;
        out.flush()
    }

    /// Whether the process was stopped since the last call.
    pub fn was_stopped(&self) -> bool {
        self.shared.was_stopped.swap(false, Ordering::Relaxed)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut has_ended = self.shared.lock();
        *has_ended = true;
        leave();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, signals: SigSet) {
        while let Ok(signal) = signals.wait() {
            let has_ended = self.lock();
            leave();
            match signal {
                Signal::SIGCONT => {}
                Signal::SIGTSTP => stop(),
                _ => signals::end_by(signal),
            }
            if !*has_ended {
                let _ = enter();
                self.was_stopped.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Ends the process as SIGHUP does, which not every process of a terminal gets: crossterm would read for ever.
    fn end_at_hangup(&self, input: &OwnedFd) {
        wait_for_hangup(input);
        let _locked = self.lock();
        leave();
        signals::end_by(Signal::SIGHUP)
    }
}

fn stop() {
    let only = SigSet::from(Signal::SIGTSTP);
    let _ = only.thread_unblock();
    // Returns when the process continues.
    let _ = raise(Signal::SIGTSTP);
    let _ = only.thread_block();
}

/// The terminal from which crossterm reads the keys.
fn input() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    match stdin.is_terminal() {
        true => stdin.as_fd().try_clone_to_owned(),
        false => Ok(File::open("/dev/tty")?.into()),
    }
}

fn wait_for_hangup(input: &OwnedFd) {
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::empty())];
    // poll() always reports a hang-up, but the kernel need not wake a call that waits for nothing else: hence the timeout, a second.
    while matches!(poll(&mut fds, 1000u16), Ok(0) | Err(Errno::EINTR)) {}
}

/// Whether the terminal is set up for drawing.
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_SET_UP.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen, Hide).inspect_err(|_| leave())
}

/// Only once, since it moves the cursor. What fails is of a terminal that is gone.
fn leave() {
    if IS_SET_UP.swap(false, Ordering::Relaxed) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::pty::openpty;

    use super::*;

    #[test]
    fn only_a_hangup_ends_the_wait_for_it() {
        let pty = openpty(None, None).unwrap();
        let waiting = thread::spawn(move || wait_for_hangup(&pty.slave));
        nix::unistd::write(&pty.master, b"key\n").unwrap();
        thread::sleep(Duration::from_millis(100));
        assert!(!waiting.is_finished());
        drop(pty.master);
        waiting.join().unwrap();
    }
}
