// SPDX-License-Identifier: MIT OR Apache-2.0
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::{getpgrp, tcgetpgrp};

const WITH_TOTAL: &str = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
const WITHOUT_TOTAL: &str = "{spinner} {bytes} {bytes_per_sec}, {elapsed}";
const ENTRIES: &str = "{bar:24} {pos}/{len} entries, {eta} left";
const TEXT: &str = "{msg}";

/// The longest time in which a change of the foreground is not noticed; less than between two frames of a bar.
const CHECK_INTERVAL: Duration = Duration::from_millis(40);

/// The progress of a transfer on standard error. Hidden if that is not a terminal.
pub struct Progress(Option<Display>);

impl Progress {
    /// Starts with the total in bytes, if it is known.
    pub fn new(total: Option<u64>) -> Self {
        match total {
            Some(total) => Self::with_template(ProgressBar::new(total), WITH_TOTAL),
            None => Self::with_template(ProgressBar::new_spinner(), WITHOUT_TOTAL),
        }
    }

    /// Starts with the number of entries, an estimate: they may change during the transfer.
    pub fn of_entries(total: u64) -> Self {
        Self::with_template(ProgressBar::new(total), ENTRIES)
    }

    fn with_template(bar: ProgressBar, template: &str) -> Self {
        Self(Display::new(bar, template))
    }

    /// Hidden, for a terminal that shows the transferred data.
    pub fn hidden() -> Self {
        Self(None)
    }

    /// The length of a regular file, as an estimate of the total: the file may change during the transfer.
    pub fn file_length(input: &File) -> Option<u64> {
        let metadata = input.metadata().ok()?;
        (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
    }

    /// By bytes, or by entries.
    pub fn advance(&self, amount: usize) {
        if let Some(display) = &self.0 {
            display.check();
            display.bar.inc(amount as u64);
        }
    }
}

/// Text on standard error that is drawn again for every change, and removed at the end. Hidden if that is not a terminal.
pub struct Screen(Option<Display>);

impl Screen {
    pub fn new() -> Self {
        Self(Display::new(ProgressBar::new_spinner(), TEXT))
    }

    /// Replaces the text, which is made only for a terminal.
    pub fn show(&self, text: impl FnOnce() -> String) {
        if let Some(display) = &self.0 {
            display.check();
            display.bar.set_message(text());
            display.bar.tick();
        }
    }
}

/// A bar on the terminal, drawn only while no other process draws there: see [`may_draw`].
struct Display {
    bar: ProgressBar,
    checked: Cell<Option<Instant>>,
}

impl Display {
    fn new(bar: ProgressBar, template: &str) -> Option<Self> {
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        io::stderr().is_terminal().then(|| {
            bar.set_draw_target(ProgressDrawTarget::hidden());
            Self {
                bar: bar.with_style(style),
                checked: Cell::new(None),
            }
        })
    }

    /// Shows or hides the bar for the next drawing.
    fn check(&self) {
        let is_recent = |checked: Instant| checked.elapsed() < CHECK_INTERVAL;
        if self.checked.get().is_some_and(is_recent) {
            return;
        }
        self.checked.set(Some(Instant::now()));
        match (may_draw(), self.bar.is_hidden()) {
            (true, true) => self.bar.set_draw_target(ProgressDrawTarget::stderr()),
            (false, false) => self.bar.set_draw_target(ProgressDrawTarget::hidden()),
            _ => {}
        }
    }
}

/// Clears the line for the next output on the terminal, also after an error.
impl Drop for Display {
    fn drop(&mut self) {
        self.checked.set(None);
        self.check();
        self.bar.finish_and_clear();
    }
}

/// Whether this process may draw on the terminal: it is in the foreground, and no other process of its group draws. A process that draws
/// holds a record lock on the terminal, at the number of its group, until it ends. If a lock is not possible, each process draws.
fn may_draw() -> bool {
    let (terminal, group) = (io::stderr(), getpgrp());
    // A terminal that does not control this session has no foreground.
    if tcgetpgrp(&terminal).is_ok_and(|foreground| foreground != group) {
        return false;
    }
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: group.as_raw().into(),
        l_len: 1,
        l_pid: 0,
    };
    !matches!(
        fcntl(&terminal, FcntlArg::F_SETLK(&lock)),
        Err(Errno::EAGAIN | Errno::EACCES)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        for template in [WITH_TOTAL, WITHOUT_TOTAL, ENTRIES, TEXT] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
