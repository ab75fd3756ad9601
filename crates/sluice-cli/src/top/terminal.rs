// SPDX-License-Identifier: MIT OR Apache-2.0
//! The terminal while `sluice top` draws on it. It is restored at the end, before a signal stops or ends the process, and on a panic.

use std::io::{self, Write as _};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Print, SetAttribute};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{execute, queue};
use nix::sys::signal::{SigSet, Signal, raise};

use super::view::{Line, Style};
use crate::signals;

pub struct Terminal {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Held while the terminal is drawn on, or is not ours.
    drawing: Mutex<()>,
    /// Whether the process was stopped since the last drawing.
    was_stopped: AtomicBool,
}

impl Terminal {
    /// Must be called before other threads start, because threads inherit the signal mask.
    pub fn enter() -> Result<Self> {
        let mut handled = signals::termination();
        for signal in [Signal::SIGTSTP, Signal::SIGCONT] {
            if !signals::is_ignored(signal) {
                handled.add(signal);
            }
        }
        handled.thread_block().context("cannot block signals")?;
        enter().context("cannot set up the terminal; use --once or --json")?;
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            report(panic);
        }));
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || of_thread.handle(handled));
        Ok(Self { shared })
    }

    pub fn draw(&self, lines: &[Line]) -> io::Result<()> {
        let _drawing = self.shared.lock();
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
        let _drawing = self.shared.lock();
        leave();
    }
}

impl Shared {
    fn lock(&self) -> impl Drop + '_ {
        self.drawing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, signals: SigSet) {
        while let Ok(signal) = signals.wait() {
            let drawing = self.lock();
            leave();
            if signal != Signal::SIGCONT {
                let only: SigSet = [signal].into_iter().collect();
                // The process stops here, or ends.
                let _ = only.thread_unblock();
                let _ = raise(signal);
                let _ = only.thread_block();
            }
            let _ = enter();
            self.was_stopped.store(true, Ordering::Relaxed);
            drop(drawing);
        }
    }
}

/// Whether the terminal is set up for drawing.
static IS_SET_UP: AtomicBool = AtomicBool::new(false);

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    IS_SET_UP.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen, Hide)
}

/// Only once, since it moves the cursor. What fails is of a terminal that is gone.
fn leave() {
    if IS_SET_UP.swap(false, Ordering::Relaxed) {
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}
