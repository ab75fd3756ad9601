// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures Sluice beside pipe(2) and a naive driver: rounds interleaved, medians and their spread, every byte checked first.

use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Args, Parser, Subcommand};
use sluice_bench::compare;
use sluice_bench::harness::cgroup::Tree;
use sluice_bench::harness::host::Host;
use sluice_bench::harness::interrupt;
use sluice_bench::harness::module::{MYIPC, Module, SLUICE};
use sluice_bench::harness::pinning::Placement;
use sluice_bench::harness::progress::Progress;
use sluice_bench::harness::report;
use sluice_bench::harness::rounds::{Outcome, Skip};
use sluice_bench::harness::rows::Results;
use sluice_bench::html;
use sluice_bench::mechanisms::{Roster, SluicePipe};
use sluice_bench::reports;
use sluice_bench::suites::{CachelineProbe, Plan, Suite, waking_cost};

#[derive(Parser)]
#[command(
    about = "Measure Sluice beside pipe(2), in the same run",
    version,
    args_conflicts_with_subcommands = true
)]
struct CommandLine {
    #[command(subcommand)]
    command: Option<Command>,

    /// Without a command those of run.
    #[command(flatten)]
    run: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Measure; this is done without a command, too
    Run(Options),
    Compare(compare::Options),
}

#[derive(Args)]
struct Options {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// Load this naive driver, too, and measure it beside ours
    #[arg(long, value_name = "MYIPC.KO")]
    baseline: Option<PathBuf>,

    /// What to measure
    #[arg(long, value_delimiter = ',', default_values = ["rtt", "throughput", "wakeup", "tar", "isolation", "names", "reports"])]
    suite: Vec<Suite>,

    /// What to measure it with, beside pipe(2), which the others are compared with [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,

    /// Sizes of messages, in bytes [default: from 1 to 4096 for rtt, from 64 to 65536 for throughput]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = positive)]
    size: Vec<usize>,

    /// Where the two processes run
    #[arg(long, value_delimiter = ',', default_values = ["same-cpu", "two-cpus"])]
    placement: Vec<Placement>,

    /// How often each contender takes its turn
    #[arg(long, value_name = "N", value_parser = positive)]
    rounds: Option<usize>,

    /// How long each turn lasts
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,

    /// A first look: 3 short rounds
    #[arg(long)]
    quick: bool,

    /// Write the results here, too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a report with plots here, one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

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
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.quick { 3 } else { 5 })
    }

    fn duration(&self) -> Duration {
        self.duration.unwrap_or(if self.quick {
            Duration::from_millis(200)
        } else {
            Duration::from_secs(1)
        })
    }
}

fn main() -> ExitCode {
    let CommandLine { command, run } = CommandLine::parse();
    let (status, fault) = match command {
        Some(Command::Compare(options)) => (compare::run(&options), ExitCode::from(2)),
        Some(Command::Run(options)) => (bench(&options).map(|()| true), ExitCode::FAILURE),
        None => (bench(&run).map(|()| true), ExitCode::FAILURE),
    };
    match status {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluice-bench: {error:#}");
            fault
        }
    }
}

fn bench(options: &Options) -> Result<()> {
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
    let outcomes = run(&plan, options.rounds())?;
    let mut host = Host::probe();
    host.waking_ns = waking_cost(&plan)?;
    print!("{}", report::text(&host, &outcomes));
    let results = Results::new(host, &outcomes);
    if let Some(text) = reports::text(&results.rows) {
        print!("\n{text}");
    }
    write(&results, options)?;
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
    let roster = Roster::call(&tree);
    let names = roster.names().join(", ");
    let roster = roster.choose(&options.mechanism).map_err(|unknown| {
        anyhow!("there is no mechanism '{unknown}'; these are known: {names}")
    })?;
    Ok(Plan {
        suites: options.suite.clone(),
        sizes: options.size.clone(),
        placements: possible(&options.placement)?,
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

fn run(plan: &Plan, rounds: usize) -> Result<Vec<Outcome>> {
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
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_consistent_and_have_working_defaults() {
        CommandLine::command().debug_assert();
        let options = CommandLine::parse_from(["sluice-bench"]).run;
        assert!(options.size.is_empty() && options.mechanism.is_empty());
        assert_eq!(
            options.suite,
            [
                Suite::Rtt,
                Suite::Throughput,
                Suite::Wakeup,
                Suite::Tar,
                Suite::Isolation,
                Suite::Names,
                Suite::Reports,
            ]
        );
        assert_eq!(
            (options.rounds(), options.duration()),
            (5, Duration::from_secs(1))
        );
    }

    #[test]
    fn what_is_said_goes_before_quick() {
        let arguments = ["--quick", "--rounds", "7", "--size", "1,2"];
        let options = CommandLine::parse_from([&["sluice-bench"], &arguments[..]].concat()).run;
        assert_eq!(
            (options.rounds(), options.duration()),
            (7, Duration::from_millis(200))
        );
        assert_eq!(options.size, [1, 2]);
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
            assert!(
                CommandLine::try_parse_from([&["sluice-bench"], &arguments[..]].concat()).is_err(),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn run_is_what_is_done_without_a_command() {
        let line = CommandLine::parse_from(["sluice-bench", "run", "--rounds", "7"]);
        assert!(matches!(line.command, Some(Command::Run(options)) if options.rounds() == 7));
        assert!(
            CommandLine::parse_from(["sluice-bench", "--quick"])
                .command
                .is_none()
        );
    }

    #[test]
    fn two_files_are_needed_to_compare() {
        let parse = |files: &[&str]| {
            CommandLine::try_parse_from([&["sluice-bench", "compare"], files].concat()).is_ok()
        };
        assert!(parse(&["a.json", "b.json", "--threshold", "5"]));
        assert!(!parse(&["a.json"]));
        assert!(!parse(&["a.json", "b.json", "--threshold", "-5"]));
    }
}
