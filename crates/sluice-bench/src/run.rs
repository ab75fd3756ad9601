// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring, from the options to the table, the figures and the report.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;

use crate::harness::cgroup::Tree;
use crate::harness::host::Host;
use crate::harness::interrupt;
use crate::harness::module::{MYIPC, Module, SLUICE};
use crate::harness::pinning::Placement;
use crate::harness::progress::Progress;
use crate::harness::report;
use crate::harness::rounds::{Outcome, Skip};
use crate::harness::rows::Results;
use crate::html;
use crate::mechanisms::{Roster, SluicePipe};
use crate::reports;
use crate::suites::{CachelineProbe, Plan, Scale, Suite, waking_cost};

#[derive(Args)]
pub struct Options {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// Load this naive driver, too, and measure it beside ours
    #[arg(long, value_name = "MYIPC.KO")]
    baseline: Option<PathBuf>,

    /// What to measure [default: everything but load; with --quick without names and reports; with --peers rtt, throughput and load]
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    suite: Vec<Suite>,

    /// What to measure it with, beside pipe(2), which the others are compared with [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,

    /// Sizes of messages, in bytes [default: from 1 up for rtt, from 64 up for throughput]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = positive)]
    size: Vec<usize>,

    /// Where the two processes run [default: same-cpu,two-cpus; with --peers two-cpus]
    #[arg(long, value_delimiter = ',')]
    placement: Vec<Placement>,

    /// How often each contender takes its turn [default: 5; 3 with --quick, 9 with --full]
    #[arg(long, value_name = "N", value_parser = positive)]
    rounds: Option<usize>,

    /// How long each turn lasts [default: 0.15; 0.06 with --quick, 0.2 with --peers, 1 with --full]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// A first look: few sizes, short rounds
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Everything, and long enough for small differences
    #[arg(long)]
    full: bool,

    /// Sluice's ring and the libraries that do the same, which only then take part
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    peers: bool,

    /// Fail, too, when a mechanism could take part in nothing at all
    #[arg(long)]
    all: bool,

    /// Write the results here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a report with plots here, one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// What is compared with --peers: the libraries, the floor, and what one can have without any of them.
const RING_AND_PEERS: [&str; 8] = [
    "sluice-ring-memfd",
    "iceoryx2",
    "tachyon",
    "aeron",
    "shm-spin",
    "futex-shm",
    "shm-sem",
    "cacheline",
];

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("give a whole number from 1 up".into()),
        Ok(number) => Ok(number),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.01..=3600.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give seconds from 0.01 to 3600".into())
}

impl Options {
    fn scale(&self) -> Scale {
        match (self.quick, self.full, self.peers) {
            (true, ..) => Scale::Quick,
            (_, true, _) => Scale::Full,
            (.., true) => Scale::Peers,
            _ => Scale::Standard,
        }
    }

    fn suites(&self) -> Vec<Suite> {
        match self.suite.is_empty() {
            true => self.scale().suites(),
            false => self.suite.clone(),
        }
    }

    fn placements(&self) -> Vec<Placement> {
        match (self.placement.is_empty(), self.peers) {
            (false, _) => self.placement.clone(),
            (true, true) => vec![Placement::TwoCpus],
            (true, false) => vec![Placement::SameCpu, Placement::TwoCpus],
        }
    }

    /// None for all.
    fn mechanisms(&self) -> Vec<String> {
        match self.mechanism.is_empty() && self.peers {
            true => RING_AND_PEERS.map(String::from).to_vec(),
            false => self.mechanism.clone(),
        }
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(match self.scale() {
            Scale::Quick => 3,
            Scale::Standard | Scale::Peers => 5,
            Scale::Full => 9,
        })
    }

    fn duration(&self) -> Duration {
        self.duration
            .unwrap_or(Duration::from_millis(match self.scale() {
                Scale::Quick => 60,
                Scale::Standard => 150,
                Scale::Peers => 200,
                Scale::Full => 1000,
            }))
    }
}

pub fn run(options: &Options) -> Result<()> {
    interrupt::install()?;
    let files = [(&SLUICE, &options.module), (&MYIPC, &options.baseline)];
    let modules = files
        .into_iter()
        .filter_map(|(kind, file)| Some(Module::load(kind, file.as_deref()?)))
        .collect::<Result<Vec<_>>>()?;
    measure(options)?;
    modules.into_iter().try_for_each(Module::unload)
}

fn measure(options: &Options) -> Result<()> {
    let plan = plan(options)?;
    let outcomes = run_cells(&plan, options.rounds())?;
    let mut host = Host::probe();
    host.waking_ns = waking_cost(&plan)?;
    print!("{}", report::text(&host, &outcomes));
    let results = Results::new(host, &outcomes);
    if let Some(text) = reports::text(&results.rows) {
        print!("\n{text}");
    }
    write(&results, options)?;
    if options.all {
        expect_everyone(&plan.names(), &outcomes)?;
    }
    expect_no_failure(&outcomes)
}

fn write(results: &Results, options: &Options) -> Result<()> {
    if let Some(path) = &options.json {
        results.write(path)?;
        println!("\nAll figures are in {}.", path.display());
    }
    if let Some(path) = &options.html {
        html::write(results, path)?;
        println!("The report with plots is {}.", path.display());
    }
    Ok(())
}

/// The table is worth having without them, but nobody shall take it for complete.
fn expect_no_failure(outcomes: &[Outcome]) -> Result<()> {
    let skips = outcomes.iter().flat_map(|outcome| &outcome.skips);
    let mut failed: Vec<&str> = skips
        .filter(|skip| skip.failed)
        .map(|skip| skip.label.as_str())
        .collect();
    failed.sort_unstable();
    failed.dedup();
    ensure!(
        failed.is_empty(),
        "what failed, as told below the table: {}",
        failed.join(", ")
    );
    Ok(())
}

fn expect_everyone(names: &[&str], outcomes: &[Outcome]) -> Result<()> {
    let took_part = |name: &str| {
        let mut series = outcomes.iter().flat_map(|outcome| &outcome.series);
        series.any(|one| one.contender.mechanism == name)
    };
    let missed: Vec<_> = names.iter().filter(|name| !took_part(name)).collect();
    ensure!(
        missed.is_empty(),
        "who could take part in nothing, as told below the table: {}",
        missed
            .iter()
            .map(|name| **name)
            .collect::<Vec<_>>()
            .join(", ")
    );
    Ok(())
}

/// Our own cgroups. Without the device they are not needed, so a plain user may measure the rest.
fn cgroups(options: &Options) -> Result<Rc<Tree>, Skip> {
    if !SluicePipe::is_there() {
        return Err(Skip::circumstance("sluice-pipe", SLUICE.how_to_load()));
    }
    Tree::create("sluice-bench")
        .map(Rc::new)
        .map_err(|error| Skip {
            // Whoever brings the module wants it measured.
            failed: options.module.is_some(),
            ..Skip::circumstance("sluice-pipe", format!("{error:#}"))
        })
}

fn plan(options: &Options) -> Result<Plan> {
    let tree = cgroups(options);
    let mut roster = Roster::call(&tree);
    if options.peers {
        roster = roster.with_peers();
    }
    let names = roster.names().join(", ");
    let roster = roster.choose(&options.mechanisms()).map_err(|unknown| {
        anyhow!("there is no mechanism '{unknown}'; these are known: {names}")
    })?;
    Ok(Plan {
        scale: options.scale(),
        suites: options.suites(),
        sizes: options.size.clone(),
        placements: possible(&options.placements())?,
        duration: options.duration(),
        home: tree.as_ref().ok().map(|tree| tree.fresh()).transpose()?,
        mechanisms: roster.present,
        absent: roster.absent,
        tree,
    })
}

fn possible(placements: &[Placement]) -> Result<Vec<Placement>> {
    let mut possible = Vec::new();
    for &placement in placements {
        match placement.cpus()? {
            Some(_) => possible.push(placement),
            None => eprintln!(
                "skipped: {}: this machine has only one processor for us",
                placement.name()
            ),
        }
    }
    Ok(possible)
}

fn run_cells(plan: &Plan, rounds: usize) -> Result<Vec<Outcome>> {
    let cells = plan
        .cells()
        .context("cannot set up what is to be measured")?;
    let probe = CachelineProbe::new(plan)?;
    let mut progress = Progress::new(cells.iter().map(|cell| cell.steps(rounds)).sum());
    let outcomes = cells
        .into_iter()
        .map(|cell| cell.run(rounds, &probe, &mut progress))
        .collect();
    progress.finish();
    outcomes
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::harness::rounds::Headline;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        let line = [&["run"], arguments].concat();
        Line::try_parse_from(line).map(|line| line.options)
    }

    #[test]
    fn each_scale_has_its_selection() {
        let standard = parse(&[]).unwrap();
        assert!(standard.size.is_empty() && standard.mechanism.is_empty());
        assert!(standard.suites().contains(&Suite::Reports));
        let quick = parse(&["--quick"]).unwrap();
        assert!(!quick.suites().contains(&Suite::Reports));
        let full = parse(&["--full"]).unwrap();
        assert!(quick.duration() < standard.duration() && standard.duration() < full.duration());
        assert!(quick.rounds() < standard.rounds() && standard.rounds() < full.rounds());
        assert!(parse(&["--quick", "--full"]).is_err());
        assert_eq!(full.placements().len(), 2);
        assert!(full.mechanisms().is_empty());
    }

    #[test]
    fn peers_have_a_selection_of_their_own() {
        let peers = parse(&["--peers"]).unwrap();
        assert_eq!(peers.suites(), [Suite::Rtt, Suite::Throughput, Suite::Load]);
        assert_eq!(peers.placements(), [Placement::TwoCpus]);
        assert!(peers.mechanisms().contains(&"tachyon".to_string()));
        let chosen = parse(&["--peers", "--mechanism", "aeron", "--placement", "same-cpu"]);
        let chosen = chosen.unwrap();
        assert_eq!(chosen.mechanisms(), ["aeron"]);
        assert_eq!(chosen.placements(), [Placement::SameCpu]);
        assert!(parse(&["--peers", "--quick"]).is_err());
    }

    #[test]
    fn what_is_said_goes_before_the_scale() {
        let options = parse(&[
            "--quick", "--rounds", "7", "--size", "1,2", "--suite", "names",
        ]);
        let options = options.unwrap();
        assert_eq!(options.rounds(), 7);
        assert_eq!(options.size, [1, 2]);
        assert_eq!(options.suites(), [Suite::Names]);
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        for arguments in [
            ["--size", "0"],
            ["--rounds", "0"],
            ["--duration", "0"],
            ["--duration", "inf"],
            ["--suite", "all"],
        ] {
            assert!(parse(&arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn who_has_no_figure_anywhere_is_missed() {
        let outcomes = [crate::harness::rounds::tests::outcome(
            Headline::Latency,
            &[1.0],
            &[1.0],
        )];
        assert!(expect_everyone(&["pipe", "sluice-pipe"], &outcomes).is_ok());
        let error = expect_everyone(&["pipe", "cacheline"], &outcomes).unwrap_err();
        assert!(error.to_string().contains("cacheline"), "{error}");
    }
}
