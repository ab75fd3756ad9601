// SPDX-License-Identifier: MIT OR Apache-2.0
//! The subcommand compare.

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use super::findings::{Comparison, compare};
use super::text::{name, text};
use crate::harness::rows::Results;

/// Compare two results: what became faster or slower, beyond the spread of both
#[derive(Args, Debug)]
#[command(after_help = "\
Rows are compared if suite, conditions, mechanism, way of waiting, host and distance of the processors are the same. A row is
faster or slower only if the rounds of the two runs do not overlap. The change is that of the median, in percent.

Exit status:
  0  no result of Sluice became slower by more than the threshold, or there is no threshold
  1  a result of Sluice became slower by more than the threshold
  2  wrong usage, an unreadable file, or a threshold without comparable results of Sluice")]
pub struct Options {
    /// Results of the earlier run, written by --json
    #[arg(value_name = "BEFORE.JSON")]
    before: PathBuf,

    /// Results of the later run
    #[arg(value_name = "AFTER.JSON")]
    after: PathBuf,

    /// Fail if a result of Sluice became slower, beyond the spread, by more than this
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    threshold: Option<f64>,

    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent = text
        .parse()
        .ok()
        .filter(|percent| (0.0..=1e6).contains(percent));
    percent.ok_or_else(|| "expected a percentage of at least 0".into())
}

/// Whether the results of Sluice are within the threshold.
pub fn run(options: &Options) -> Result<bool> {
    let (before, after) = (
        Results::read(&options.before)?,
        Results::read(&options.after)?,
    );
    let comparison = compare(&before, &after);
    let output = match options.json {
        true => serde_json::to_string_pretty(&comparison)? + "\n",
        false => text(&comparison),
    };
    io::stdout().write_all(output.as_bytes())?;
    match options.threshold {
        None => Ok(true),
        Some(threshold) => holds(&comparison, threshold),
    }
}

fn holds(comparison: &Comparison, threshold: f64) -> Result<bool> {
    ensure!(
        comparison.compares_ours(),
        "no comparable results of Sluice for --threshold; compare two runs of one host with the module loaded"
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
    fn a_threshold_holds_until_it_is_exceeded() {
        let ours = |median: f64| results(vec![row("sluice-pipe", "ns", median, [median, median])]);
        let comparison = compare(&ours(100.0), &ours(110.0));
        assert!(holds(&comparison, 11.0).unwrap());
        assert!(!holds(&comparison, 9.0).unwrap());
    }

    #[test]
    fn a_threshold_without_comparable_rows_is_an_error() {
        let theirs = results(vec![row("pipe", "ns", 1.0, [1.0, 1.0])]);
        assert!(holds(&compare(&theirs, &theirs), 5.0).is_err());
    }
}
