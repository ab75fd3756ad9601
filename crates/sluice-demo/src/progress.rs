// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bar for each of two things that go on at the same time; plain lines where nothing can be drawn.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use sluice_testkit::terminal;

const STEP: u64 = 25;

pub struct Progress {
    what: String,
    labels: [String; 2],
    totals: [u64; 2],
    done: [u64; 2],
    said: u64,
    bars: Option<[ProgressBar; 2]>,
}

impl Progress {
    pub fn new(what: &str, labels: [String; 2], totals: [u64; 2]) -> Self {
        let labels = aligned(labels);
        let bars = terminal::draw_target().map(|target| {
            let screen = MultiProgress::with_draw_target(target);
            [0, 1].map(|index| {
                let bar = screen.add(ProgressBar::new(totals[index]));
                bar.with_style(style())
                    .with_prefix(format!("{what}, {}", labels[index]))
            })
        });
        Self {
            what: what.to_string(),
            labels,
            totals,
            done: [0; 2],
            said: 0,
            bars,
        }
    }

    pub fn set(&mut self, index: usize, bytes: u64) {
        self.done[index] = bytes;
        match &self.bars {
            Some(bars) => bars[index].set_position(bytes),
            None => self.say_steps(),
        }
    }

    pub fn finish(self) {
        for bar in self.bars.iter().flatten() {
            bar.finish_and_clear();
        }
    }

    fn percent(&self, index: usize) -> u64 {
        (self.done[index] * 100)
            .checked_div(self.totals[index])
            .unwrap_or(100)
    }

    /// A line each time that the slower of the two has come so far.
    fn say_steps(&mut self) {
        let both = self.percent(0).min(self.percent(1));
        if both >= self.said + STEP {
            self.said = both - both % STEP;
            eprintln!("{}", self.line());
        }
    }

    fn line(&self) -> String {
        let parts =
            [0, 1].map(|index| format!("{} {:3} %", self.labels[index], self.percent(index)));
        format!("  {}: {}", self.what, parts.join(", "))
    }
}

fn aligned(labels: [String; 2]) -> [String; 2] {
    let width = labels
        .iter()
        .map(|label| label.chars().count())
        .max()
        .unwrap_or_default();
    labels.map(|label| format!("{label:<width$}"))
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("  {prefix} {bar:30} {percent:>3} % of {decimal_total_bytes}")
        .expect("the template is a constant")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(totals: [u64; 2]) -> Progress {
        let labels = ["a".to_string(), "b".to_string()];
        Progress {
            what: "copying".into(),
            labels,
            totals,
            done: [0; 2],
            said: 0,
            bars: None,
        }
    }

    #[test]
    fn steps_follow_the_slower_of_the_two() {
        let mut progress = plain([100, 200]);
        progress.set(0, 100);
        assert_eq!(progress.said, 0);
        progress.set(1, 110);
        assert_eq!(progress.said, 50);
        assert_eq!(progress.line(), "  copying: a 100 %, b  55 %");
    }

    #[test]
    fn bars_begin_in_one_column() {
        assert_eq!(aligned(["a".into(), "bcd".into()]), ["a  ", "bcd"]);
    }

    #[test]
    fn nothing_to_do_is_done() {
        assert_eq!(plain([0, 0]).percent(1), 100);
    }
}
