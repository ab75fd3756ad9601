// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparing as a subcommand.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::findings::{Comparison, compare};
use super::text::{name, text};
use crate::harness::rows::Results;

/// Say what became faster or slower between two runs, beyond the spread of both
#[derive(Args, Debug)]
#[command(after_help = "\
Rows are compared where suite, conditions, mechanism and way of waiting are the same, on one host and at one distance of
processors. Faster or slower is what no round of the one run has in common with the other. The change is that of the quoted
figure, in percent of what it was.

Exit status:
  0  nothing of ours became slower by more than the threshold, or none was given
  1  something of ours did
  2  wrong usage, a file that cannot be read, or a threshold and nothing of ours that could be compared")]
pub struct Options {
    /// Results that --json wrote, of the earlier run
    #[arg(value_name = "BEFORE.JSON")]
    before: PathBuf,

    /// Those of the later run
    #[arg(value_name = "AFTER.JSON")]
    after: PathBuf,

    /// Fail when something of ours became slower beyond the spread by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    threshold: Option<f64>,

    /// Print the comparison for programs
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=1e6).contains(percent));
    percent.ok_or_else(|| "give a number of percent from 0 up".into())
}

/// Whether ours held the threshold.
pub fn run(options: &Options) -> Result<bool> {
    let (before, after) = (
        Results::read(&options.before)?,
        Results::read(&options.after)?,
    );
    let comparison = compare(&before, &after);
    let told = match options.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => text(&comparison),
    };
    io::stdout().write_all(told.as_bytes())?;
    match options.threshold {
        None => Ok(true),
        Some(threshold) => holds(&comparison, threshold),
    }
}

fn holds(comparison: &Comparison, threshold: f64) -> Result<bool> {
    ensure!(
        comparison.compares_ours(),
        "nothing of ours could be compared, so the threshold was not tested; compare two runs of one host with the module loaded"
    );
    let slower = comparison.ours_slower_by_more_than(threshold);
    for one in &slower {
        eprintln!(
            "slower by more than {threshold} %: {} ({:+.1} %)",
            name(&one.key),
            one.percent
        );
    }
    Ok(slower.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::text::tests::{results, row};

    #[test]
    fn a_threshold_is_a_number_of_percent() {
        assert_eq!(percent("5"), Ok(5.0));
        for wrong in ["-1", "inf", "NaN", "5 %", ""] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_threshold_holds_until_it_is_passed() {
        let ours = |median: f64| results(vec![row("sluice-pipe", "ns", median, [median, median])]);
        let comparison = compare(&ours(100.0), &ours(110.0));
        assert!(holds(&comparison, 11.0).unwrap());
        assert!(!holds(&comparison, 9.0).unwrap());
    }

    #[test]
    fn a_threshold_that_nothing_was_held_against_is_an_error() {
        let theirs = results(vec![row("pipe", "ns", 1.0, [1.0, 1.0])]);
        assert!(holds(&compare(&theirs, &theirs), 5.0).is_err());
    }
}
