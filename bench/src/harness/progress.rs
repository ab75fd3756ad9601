// SPDX-License-Identifier: MIT OR Apache-2.0
//! A progress line: the current measurement and the estimated time left; and a line for each suite that has ended, with the time
//! that it took, for those who want to measure it again.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sluice_testkit::terminal;
use sluice_testkit::units::minutes;

pub struct Progress {
    bar: ProgressBar,
    has_terminal: bool,
    reported_tenths: u64,
}

impl Progress {
    pub fn new(steps: u64) -> Self {
        let target = terminal::draw_target();
        let has_terminal = target.is_some();
        let target = target.unwrap_or_else(ProgressDrawTarget::hidden);
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}, about {eta} left");
        let style = style.expect("the template is a constant");
        Self {
            bar: ProgressBar::with_draw_target(Some(steps), target).with_style(style),
            has_terminal,
            reported_tenths: 0,
        }
    }

    pub fn end_suite(&self, name: &str, time: Duration) {
        let line = format!("{name}: {}", minutes(time));
        match self.has_terminal {
            true => self.bar.println(line),
            false => eprintln!("{line}"),
        }
    }

    pub fn set_message(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Counts rounds that were measured or dropped.
    pub fn advance(&mut self, what: &str, rounds: u64) {
        self.bar.inc(rounds);
        let tenths = self.bar.position() * 10 / self.bar.length().unwrap_or(0).max(1);
        if !self.has_terminal && tenths > self.reported_tenths {
            self.reported_tenths = tenths;
            let left = minutes(self.bar.eta());
            eprintln!("{:3} % measured ({what}), about {left} left", tenths * 10);
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
