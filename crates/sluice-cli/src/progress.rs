// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

const WITH_TOTAL: &str = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
const WITHOUT_TOTAL: &str = "{spinner} {bytes} {bytes_per_sec}, {elapsed}";
const ENTRIES: &str = "{bar:24} {pos}/{len} entries, {eta} left";
const TEXT: &str = "{msg}";

/// The progress of a transfer on standard error. Hidden if that is not a terminal.
pub struct Progress {
    bar: ProgressBar,
}

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
        if !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        Self {
            bar: bar.with_style(style),
        }
    }

    /// Hidden, for a terminal that shows the transferred data.
    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    /// The length of a regular file, as an estimate of the total: the file may change during the transfer.
    pub fn file_length(input: &File) -> Option<u64> {
        let metadata = input.metadata().ok()?;
        (metadata.is_file() && metadata.len() > 0).then_some(metadata.len())
    }

    /// By bytes, or by entries.
    pub fn advance(&self, amount: usize) {
        self.bar.inc(amount as u64);
    }
}

/// Clears the line for the next output on the terminal, also after an error.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Text on standard error that is drawn again for every change, and removed at the end. Hidden if that is not a terminal.
pub struct Screen {
    bar: Option<ProgressBar>,
}

impl Screen {
    pub fn new() -> Self {
        let style = ProgressStyle::with_template(TEXT).expect("the template is a constant");
        let is_shown = io::stderr().is_terminal();
        Self {
            bar: is_shown.then(|| ProgressBar::new_spinner().with_style(style)),
        }
    }

    /// Replaces the text, which is made only for a terminal.
    pub fn show(&self, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text());
            bar.tick();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
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
