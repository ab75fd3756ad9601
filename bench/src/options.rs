// SPDX-License-Identifier: MIT OR Apache-2.0
//! The options of a run, and what each scale measures where they do not say.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use clap::builder::RangedU64ValueParser;

use crate::harness::pinning::Placement;
use crate::suites::plan::Scale;
use crate::suites::{self, SUITES, Suite};

#[derive(Args)]
pub struct Options {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    pub module: Option<PathBuf>,

    /// Also load this naive driver and measure it
    #[arg(long, value_name = "MYIPC.KO")]
    pub baseline: Option<PathBuf>,

    /// Also load this naive source of packets, for the suite feed
    #[arg(long, value_name = "HFT.KO")]
    pub hft: Option<PathBuf>,

    /// Also load this naive store of keys and values, for the suite map
    #[arg(long, value_name = "SHARED_MAP.KO")]
    pub shared_map: Option<PathBuf>,

    /// An empty disk, such as /dev/vdb, for the suite durable; it is overwritten
    #[arg(long, value_name = "DEVICE")]
    pub disk: Option<PathBuf>,

    /// The daemon that stores durable maps [default: sluiced beside this program]
    #[arg(long, value_name = "PROGRAM")]
    sluiced: Option<PathBuf>,

    /// Suites to measure [default: all but sizes, load, memory, feed and instructions; with --quick rtt, throughput,
    /// fanout, map and durable; with --peers rtt, throughput, sizes, load, calibration, connect and memory; with
    /// --full all but feed and instructions]
    #[arg(long, value_name = "SUITE", value_delimiter = ',', value_parser = suite)]
    suite: Vec<&'static Suite>,

    /// Mechanisms to measure; the reference of the ratios, pipe(2), or with --peers a third-party library, is always
    /// included [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,

    /// Message sizes in bytes [default: each suite has its own]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = at_least_1())]
    pub size: Vec<usize>,

    /// Placement of the two processes [default: same-cpu,two-cpus; with --quick and with --peers two-cpus]
    #[arg(long, value_delimiter = ',')]
    placement: Vec<Placement>,

    /// Number of rounds of each mechanism [default: 5, and 3 in the suite reports; 3 with --quick, 9 with --full, 9 and in the suites sizes and calibration 5 with --peers]
    #[arg(long, value_name = "N", value_parser = at_least_1())]
    rounds: Option<usize>,

    /// Duration of a round [default: 0.1; 0.06 with --quick and with --peers, 1 with --full]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// Measure few sizes in short rounds
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Measure all sizes, in rounds long enough for small differences
    #[arg(long)]
    full: bool,

    /// Measure Sluice's ring and third-party ring libraries, which are measured only with this option
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    pub peers: bool,

    /// Also report the results in this file, of another run with other suites
    #[arg(long, value_name = "FILE")]
    pub include: Vec<PathBuf>,

    /// Also fail when a mechanism has no result in any suite
    #[arg(long)]
    pub all: bool,

    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write a report with plots to this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write a plot of Sluice relative to the reference to this file, for pages that cannot contain the report
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// The mechanisms of --peers: the libraries, the lower bound, and the shared-memory mechanisms without a library.
#[rustfmt::skip]
const RING_MECHANISMS: [&str; 8] =
    ["sluice-ring-memfd", "iceoryx2", "tachyon", "aeron", "shm-spin", "futex-shm", "shm-sem", "cacheline"];

/// The reference of --peers: the first one that is available.
pub const REFERENCES_OF_RINGS: [&str; 4] = ["tachyon", "aeron", "iceoryx2", "shm-spin"];

fn suite(name: &str) -> Result<&'static Suite, String> {
    suites::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
        format!("choose from {}", names.join(", "))
    })
}

fn at_least_1() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn seconds(text: &str) -> Result<Duration, String> {
    number_in(text, 0.01..=3600.0, "0.01 to 3600 seconds").map(Duration::from_secs_f64)
}

pub fn number_in(text: &str, range: RangeInclusive<f64>, expected: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected {expected}"))
}

impl Options {
    pub fn scale(&self) -> Scale {
        match (self.quick, self.full, self.peers) {
            (true, ..) => Scale::Quick,
            (_, true, _) => Scale::Full,
            (.., true) => Scale::ThirdParty,
            _ => Scale::Standard,
        }
    }

    pub fn suites(&self) -> Vec<&'static Suite> {
        match self.suite.is_empty() {
            true => suites::of(self.scale()).collect(),
            false => self.suite.clone(),
        }
    }

    pub fn placements(&self) -> Vec<Placement> {
        match (self.placement.is_empty(), self.scale()) {
            (false, _) => self.placement.clone(),
            (true, Scale::Quick | Scale::ThirdParty) => vec![Placement::TwoCpus],
            (true, Scale::Standard | Scale::Full) => vec![Placement::SameCpu, Placement::TwoCpus],
        }
    }

    /// Empty for all.
    pub fn mechanisms(&self) -> Vec<String> {
        match self.mechanism.is_empty() && self.peers {
            true => RING_MECHANISMS.map(String::from).to_vec(),
            false => self.mechanism.clone(),
        }
    }

    pub fn sluiced(&self) -> Result<PathBuf> {
        match &self.sluiced {
            Some(path) => Ok(path.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("sluiced")),
        }
    }

    /// In this suite. A standard run repeats less often what takes seconds each time.
    pub fn rounds(&self, suite: &str) -> usize {
        self.rounds.unwrap_or(match (self.scale(), suite) {
            (Scale::Quick, _) | (Scale::Standard, "reports") => 3,
            // A sweep, and the programs of the libraries themselves: half of the time of --peers.
            (Scale::Standard, _) | (Scale::ThirdParty, "sizes" | "calibration") => 5,
            // With third-party libraries, many short ones: spinning depends on the distance of the processors, which seldom
            // changes within one.
            (Scale::Full | Scale::ThirdParty, _) => 9,
        })
    }

    pub fn duration(&self) -> Duration {
        let of_scale = match self.scale() {
            Scale::Quick | Scale::ThirdParty => 60,
            Scale::Standard => 100,
            Scale::Full => 1000,
        };
        self.duration.unwrap_or(Duration::from_millis(of_scale))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(line: &str) -> Result<Options, clap::Error> {
        let words = ["run"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options)
    }

    #[test]
    fn each_scale_has_its_defaults_which_options_override() {
        let chosen = "--quick --rounds 7 --placement same-cpu,two-cpus --suite sizes";
        for (line, rounds, milliseconds, placements, has_sizes, mechanisms) in [
            ("", 5, 100, 2, false, 0),
            ("--quick", 3, 60, 1, false, 0),
            ("--full", 9, 1000, 2, true, 0),
            ("--peers", 9, 60, 1, true, RING_MECHANISMS.len()),
            ("--peers --mechanism aeron", 9, 60, 1, true, 1),
            (chosen, 7, 60, 2, true, 0),
        ] {
            let options = parse(line).unwrap();
            let suites = options.suites();
            assert_eq!(options.rounds("rtt"), rounds, "{line}");
            assert_eq!(options.duration().as_millis(), milliseconds, "{line}");
            assert_eq!(options.placements().len(), placements, "{line}");
            assert_eq!(suites.iter().any(|one| one.name == "sizes"), has_sizes);
            assert_eq!(options.mechanisms().len(), mechanisms, "{line}");
        }
        assert_eq!(parse("").unwrap().rounds("reports"), 3);
        assert_eq!(parse("--peers").unwrap().rounds("sizes"), 5);
        assert_eq!(parse("--peers").unwrap().rounds("calibration"), 5);
    }

    #[test]
    fn invalid_values_are_rejected() {
        let lines = "--size 0|--rounds 0|--duration 0|--duration inf|--suite all|--quick --full|--quick --peers";
        for line in lines.split('|') {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
