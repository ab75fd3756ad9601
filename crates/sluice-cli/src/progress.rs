// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

const KNOWN: &str = "{bar:24} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left";
const UNKNOWN: &str = "{spinner} {bytes} {bytes_per_sec}, {elapsed}";

/// How far a transfer is, on a terminal that is not needed for something else.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Of so many bytes, if that is known.
    pub fn of(total: Option<u64>) -> Self {
        if !io::stderr().is_terminal() {
            return Self::hidden();
        }
        let (bar, template) = match total {
            Some(total) => (ProgressBar::new(total), KNOWN),
            None => (ProgressBar::new_spinner(), UNKNOWN),
        };
        let style = ProgressStyle::with_template(template).expect("the template is a constant");
        Self {
            bar: bar.with_style(style),
        }
    }

    pub fn hidden() -> Self {
        Self {
            bar: ProgressBar::hidden(),
        }
    }

    pub fn advance(&self, bytes: usize) {
        self.bar.inc(bytes as u64);
    }
}

/// Whatever ended the transfer, what comes next on the terminal starts on an empty line.
impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_understood() {
        for template in [KNOWN, UNKNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
