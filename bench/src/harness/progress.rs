// SPDX-License-Identifier: MIT OR Apache-2.0
//! A progress line: the current measurement and the estimated time left; and a line for each suite that has ended, with the time
//! that it took, for those who want to measure it again.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sluice_testkit::terminal;
use sluice_testkit::units::minutes;

pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    steps: u64,
    done: u64,
    reported_tenths: u64,
    /// The suite that is measured, and since when.
    suite: Option<(&'static str, Instant)>,
}

impl Progress {
    pub fn new(steps: u64) -> Self {
        let bar = terminal::draw_target().map(|target| {
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}");
            ProgressBar::with_draw_target(Some(steps), target)
                .with_style(style.expect("the template is a constant"))
        });
        Self {
            bar,
            started: Instant::now(),
            steps,
            done: 0,
            reported_tenths: 0,
            suite: None,
        }
    }

    /// What follows is of this suite.
    pub fn begin_suite(&mut self, name: &'static str) {
        if self.suite.is_none_or(|(last, _)| last != name) {
            self.end_suite();
            self.suite = Some((name, Instant::now()));
        }
    }

    fn end_suite(&mut self) {
        let Some((name, begin)) = self.suite.take() else {
            return;
        };
        let line = format!("{name}: {}", minutes(begin.elapsed()));
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    /// Shows the next step.
    pub fn set_message(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{what}{}", self.time_left()));
        }
    }

    /// Counts rounds that were measured or dropped.
    pub fn advance(&mut self, what: &str, rounds: u64) {
        self.done += rounds;
        match &self.bar {
            Some(bar) => bar.set_position(self.done),
            None => self.report_each_tenth(what),
        }
    }

    pub fn finish(&mut self) {
        self.end_suite();
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn report_each_tenth(&mut self, what: &str) {
        let tenths = self.done * 10 / self.steps.max(1);
        if tenths > self.reported_tenths {
            self.reported_tenths = tenths;
            eprintln!("{:3} % measured ({what}){}", tenths * 10, self.time_left());
        }
    }

    fn time_left(&self) -> String {
        match time_left(self.started.elapsed(), self.done, self.steps) {
            Some(left) => format!(", about {} left", minutes(left)),
            None => String::new(),
        }
    }
}

/// Assumes that the remaining steps take as long as those before, since rounds have nearly the same length.
fn time_left(elapsed: Duration, done: u64, steps: u64) -> Option<Duration> {
    (done > 0).then(|| elapsed.mul_f64(steps.saturating_sub(done) as f64 / done as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_unknown_at_first_and_none_at_the_end() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(time_left(elapsed, 0, 8), None);
        assert_eq!(time_left(elapsed, 2, 8), Some(Duration::from_secs(30)));
        assert_eq!(time_left(elapsed, 8, 8), Some(Duration::ZERO));
    }

    #[test]
    fn cases_of_one_suite_have_one_time() {
        let mut progress = Progress::new(1);
        progress.begin_suite("rtt");
        let begin = progress.suite;
        progress.begin_suite("rtt");
        assert_eq!(progress.suite, begin);
        progress.begin_suite("map");
        assert_eq!(progress.suite.map(|(name, _)| name), Some("map"));
        progress.finish();
        assert_eq!(progress.suite, None);
    }
}
