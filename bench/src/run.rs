// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the suites that the options select, and writes the table, the results and the report.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use sluice_testkit::cgroup::Tree;
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::module::{HFT, MYIPC, Module, SHARED_MAP, SLUICE};

use crate::harness::pinning::Placement;
use crate::harness::progress::Progress;
use crate::harness::report;
use crate::harness::rounds::{Case, Outcome, Skipped};
use crate::harness::rows::{Results, Row};
use crate::harness::turns::run_together;
use crate::html;
use crate::mechanisms::Registry;
use crate::mechanisms::temp_paths::Directory;
use crate::reports;
use crate::suites::{self, CachelineProbe, Plan, Scale, Suite, wakeup_cost};

#[derive(Args)]
pub struct Options {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// Also load this naive driver and measure it
    #[arg(long, value_name = "MYIPC.KO")]
    baseline: Option<PathBuf>,

    /// Also load this naive source of packets, for the suite feed
    #[arg(long, value_name = "HFT.KO")]
    hft: Option<PathBuf>,

    /// Also load this naive store of keys and values, for the suite map
    #[arg(long, value_name = "SHARED_MAP.KO")]
    shared_map: Option<PathBuf>,

    /// An empty disk, such as /dev/vdb, for the suite durable; it is overwritten
    #[arg(long, value_name = "DEVICE")]
    disk: Option<PathBuf>,

    /// The daemon that stores durable maps [default: sluiced beside this program]
    #[arg(long, value_name = "PROGRAM")]
    sluiced: Option<PathBuf>,

    /// Suites to measure [default: all but sizes, load, memory, pairs, feed and instructions; with --quick rtt, throughput, fanout, map
    /// and durable; with --peers calibration, rtt, throughput, sizes, load, connect, memory and pairs; with --full all but
    /// feed and instructions]
    #[arg(long, value_name = "SUITE", value_delimiter = ',')]
    suite: Vec<Suite>,

    /// Mechanisms to measure; the reference of the ratios, pipe(2), or with --peers a third-party library, is always
    /// included [default: all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    mechanism: Vec<String>,

    /// Message sizes in bytes [default: each suite has its own]
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = positive)]
    size: Vec<usize>,

    /// Placement of the two processes [default: same-cpu,two-cpus; with --quick and with --peers two-cpus]
    #[arg(long, value_delimiter = ',')]
    placement: Vec<Placement>,

    /// Number of rounds of each mechanism [default: 5, and 3 in the suite reports; 3 with --quick, 9 with --full and with --peers]
    #[arg(long, value_name = "N", value_parser = positive)]
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
    peers: bool,

    /// Also report the results in this file, of another run with other suites
    #[arg(long, value_name = "FILE")]
    include: Vec<PathBuf>,

    /// Also fail when a mechanism has no result in any suite
    #[arg(long)]
    all: bool,

    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a report with plots to this file: one page that needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write a plot of Sluice relative to the reference to this file, for pages that cannot contain the report
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The mechanisms of --peers: the libraries, the lower bound, and the shared-memory mechanisms without a library.
const RING_MECHANISMS: [&str; 8] = [
    "sluice-ring-memfd",
    "iceoryx2",
    "tachyon",
    "aeron",
    "shm-spin",
    "futex-shm",
    "shm-sem",
    "cacheline",
];

/// The reference of --peers: the first one that is available.
const REFERENCES_OF_RINGS: [&str; 4] = ["tachyon", "aeron", "iceoryx2", "shm-spin"];

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("expected an integer of at least 1".into()),
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
        .ok_or_else(|| "expected 0.01 to 3600 seconds".into())
}

impl Options {
    fn scale(&self) -> Scale {
        match (self.quick, self.full, self.peers) {
            (true, ..) => Scale::Quick,
            (_, true, _) => Scale::Full,
            (.., true) => Scale::ThirdParty,
            _ => Scale::Standard,
        }
    }

    fn suites(&self) -> Vec<Suite> {
        match self.suite.is_empty() {
            true => Suite::of(self.scale()),
            false => self.suite.clone(),
        }
    }

    fn placements(&self) -> Vec<Placement> {
        match (self.placement.is_empty(), self.scale()) {
            (false, _) => self.placement.clone(),
            (true, Scale::Quick | Scale::ThirdParty) => vec![Placement::TwoCpus],
            (true, Scale::Standard | Scale::Full) => vec![Placement::SameCpu, Placement::TwoCpus],
        }
    }

    /// Empty for all.
    fn mechanisms(&self) -> Vec<String> {
        match self.mechanism.is_empty() && self.peers {
            true => RING_MECHANISMS.map(String::from).to_vec(),
            false => self.mechanism.clone(),
        }
    }

    fn sluiced(&self) -> Result<PathBuf> {
        match &self.sluiced {
            Some(path) => Ok(path.clone()),
            None => Ok(std::env::current_exe()?.with_file_name("sluiced")),
        }
    }

    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(match self.scale() {
            Scale::Quick => 3,
            Scale::Standard => 5,
            // With third-party libraries, many short ones: spinning depends on the distance of the processors, which seldom
            // changes within one.
            Scale::Full | Scale::ThirdParty => 9,
        })
    }

    /// In this suite. A standard run repeats less often what takes seconds each time.
    fn rounds_in(&self, suite: &str) -> usize {
        match (self.rounds, self.scale(), suite) {
            (None, Scale::Standard, reports::SUITE) => 3,
            _ => self.rounds(),
        }
    }

    fn duration(&self) -> Duration {
        self.duration
            .unwrap_or(Duration::from_millis(match self.scale() {
                Scale::Quick => 60,
                Scale::Standard => 100,
                Scale::ThirdParty => 60,
                Scale::Full => 1000,
            }))
    }
}

pub fn run(options: &Options) -> Result<()> {
    interrupt::install()?;
    let store = options.shared_map.as_deref();
    // Dropped after the module, which holds it.
    let directory = store.map(|_| Directory::new(&std::env::temp_dir()));
    let directory = directory.transpose()?;
    let files = [
        (&SLUICE, &options.module),
        (&MYIPC, &options.baseline),
        (&HFT, &options.hft),
    ];
    let modules = files
        .into_iter()
        .filter_map(|(kind, file)| Some(Module::load(kind, file.as_deref()?)))
        .chain(store.zip(directory.as_ref()).map(load_store))
        .collect::<Result<Vec<_>>>()?;
    measure(options)?;
    modules.into_iter().try_for_each(Module::unload)
}

/// Loads the naive store, which keeps its files in this directory.
fn load_store((file, directory): (&Path, &Directory)) -> Result<Module> {
    let parameters = format!("directory=\"{}\"", directory.0.display());
    Module::load_with(&SHARED_MAP, file, &CString::new(parameters)?)
}

fn measure(options: &Options) -> Result<()> {
    let plan = plan(options)?;
    let included = included(&options.include)?;
    let outcomes = run_cases(&plan, options)?;
    let mut host = Host::probe();
    host.waking_ns = wakeup_cost(&plan)?;
    let mut results = Results::new(host, &outcomes);
    suites::calibration::annotate(&mut results.rows);
    results.rows.extend(included);
    results.versions = suites::versions(&results.rows);
    print!("{}", report::text(&results));
    for suite in [
        reports::rings::ROUND_TRIPS,
        reports::rings::STREAMS,
        reports::load::SUITE,
        reports::fanout::SUITE,
        reports::map::SUITE,
        reports::durable::SUITE,
        reports::SUITE,
        reports::feed::SUITE,
        reports::instructions::SUITE,
    ] {
        if let Some(text) = reports::text(suite, &results.rows) {
            print!("\n{text}");
        }
    }
    write(&results, options)?;
    if options.all {
        expect_results_of_all(&plan.names(), &results.rows)?;
    }
    expect_no_failure(&results.rows)
}

/// The rows of other runs.
fn included(paths: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for path in paths {
        rows.extend(Results::read(path)?.rows);
    }
    Ok(rows)
}

fn write(results: &Results, options: &Options) -> Result<()> {
    if let Some(path) = &options.json {
        results.write(path)?;
        println!("\nResults: {}", path.display());
    }
    if let Some(path) = &options.html {
        html::write(results, path)?;
        println!("Report with plots: {}", path.display());
    }
    if let Some(path) = &options.svg {
        match html::write_picture(results, path)? {
            true => println!("Plot: {}", path.display()),
            false => println!("No plot: no result of Sluice is relative to another mechanism"),
        }
    }
    Ok(())
}

/// The table is printed even after a failure of Sluice or of the counter of instructions; the exit status marks it as incomplete.
/// A rival that fails has a row with the reason.
fn expect_no_failure(rows: &[Row]) -> Result<()> {
    let is_own = |row: &&Row| row.is_sluice() || row.mechanism == reports::instructions::CONTROL;
    let failed = rows.iter().filter(|row| row.failed == Some(true));
    let failed = failed.filter(is_own);
    let labels: BTreeSet<&str> = failed.map(|row| row.label.as_str()).collect();
    let labels: Vec<&str> = labels.into_iter().collect();
    ensure!(
        labels.is_empty(),
        "failed (reasons below the table): {}",
        labels.join(", ")
    );
    Ok(())
}

fn expect_results_of_all(names: &[&'static str], rows: &[Row]) -> Result<()> {
    let has_result = |name: &str| {
        let mut measured = rows.iter().filter(|row| row.median.is_some());
        measured.any(|row| row.mechanism == name)
    };
    let missing = names.iter().copied().filter(|name| !has_result(name));
    let missing: Vec<&str> = missing.collect();
    ensure!(
        missing.is_empty(),
        "mechanisms without results (reasons below the table): {}",
        missing.join(", ")
    );
    Ok(())
}

/// The cgroups of sluice-pipe and sluice-ring. Without the module they are not needed, so an unprivileged user can measure
/// the rest.
fn cgroups(options: &Options) -> Result<Rc<Tree>, Skipped> {
    if !Path::new(SLUICE.node).exists() {
        return Err(Skipped::unavailable("sluice-pipe", SLUICE.how_to_load()));
    }
    Tree::create("sluice-bench")
        .map(Rc::new)
        .map_err(|error| Skipped {
            // With --module, both were asked for.
            failed: options.module.is_some(),
            ..Skipped::unavailable("sluice-pipe", format!("{error:#}"))
        })
}

fn plan(options: &Options) -> Result<Plan> {
    let tree = cgroups(options);
    let mut registry = Registry::new(&tree);
    if options.peers {
        registry = registry.with_third_party().refer_to(&REFERENCES_OF_RINGS);
    }
    let names = mechanism_names(&registry).join(", ");
    let registry = registry
        .choose(&options.mechanisms(), &suites::mechanisms())
        .map_err(|unknown| anyhow!("there is no mechanism '{unknown}'; choose from {names}"))?;
    Ok(Plan {
        scale: options.scale(),
        emulated: Host::probe().is_emulated(),
        sizes: options.size.clone(),
        placements: available(&options.placements())?,
        duration: options.duration(),
        rounds: options.rounds(),
        chosen: options.mechanisms(),
        cgroup: tree
            .as_ref()
            .ok()
            .map(|tree| tree.create_cgroup())
            .transpose()?,
        mechanisms: registry.available,
        unavailable: registry.unavailable,
        tree,
        disk: options.disk.clone(),
        sluiced: options.sluiced()?,
    })
}

/// What --mechanism can select. Some mechanisms of single suites have the name of one of the registry.
fn mechanism_names(registry: &Registry) -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in registry.names().into_iter().chain(suites::mechanisms()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn available(placements: &[Placement]) -> Result<Vec<Placement>> {
    let mut available = Vec::new();
    for &placement in placements {
        match placement.cpus()? {
            Some(_) => available.push(placement),
            None => eprintln!(
                "skipped: {}: this process may use only one processor",
                placement.name()
            ),
        }
    }
    ensure!(
        !available.is_empty(),
        "nothing to measure on one processor; choose --placement same-cpu"
    );
    Ok(available)
}

fn run_cases(plan: &Plan, options: &Options) -> Result<Vec<Outcome>> {
    let rounds = |case: &Case| options.rounds_in(case.suite);
    let groups = suites::cases(&options.suites(), plan).context("cannot set up the suites")?;
    let probe = CachelineProbe::new(plan)?;
    let cases = groups.iter().flatten();
    let mut progress = Progress::new(cases.map(|case| case.steps(rounds(case))).sum());
    let mut outcomes = Vec::new();
    for cases in groups {
        let Some(first) = cases.first() else {
            continue;
        };
        progress.begin_suite(first.suite);
        let rounds = rounds(first);
        outcomes.extend(run_together(cases, rounds, &probe, &mut progress)?);
    }
    progress.finish();
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::rounds::tests::outcome;
    use crate::harness::rows::rows;

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
    fn each_scale_has_its_defaults() {
        let standard = parse(&[]).unwrap();
        assert!(standard.size.is_empty() && standard.mechanism.is_empty());
        assert!(standard.suites().contains(&Suite::Reports));
        let quick = parse(&["--quick"]).unwrap();
        assert!(!quick.suites().contains(&Suite::Reports));
        assert_eq!(quick.placements(), [Placement::TwoCpus]);
        assert!(standard.rounds_in(reports::SUITE) < standard.rounds_in("rtt"));
        let full = parse(&["--full"]).unwrap();
        assert!(quick.duration() < standard.duration() && standard.duration() < full.duration());
        assert!(quick.rounds() < standard.rounds() && standard.rounds() < full.rounds());
        assert!(parse(&["--quick", "--full"]).is_err());
        assert_eq!(full.placements().len(), 2);
        assert!(full.mechanisms().is_empty());
    }

    #[test]
    fn third_party_libraries_have_their_own_defaults() {
        let peers = parse(&["--peers"]).unwrap();
        assert!(peers.suites().contains(&Suite::Sizes));
        assert_eq!(peers.placements(), [Placement::TwoCpus]);
        assert!(peers.mechanisms().contains(&"tachyon".to_string()));
        let chosen = parse(&["--peers", "--mechanism", "aeron", "--placement", "same-cpu"]);
        let chosen = chosen.unwrap();
        assert_eq!(chosen.mechanisms(), ["aeron"]);
        assert_eq!(chosen.placements(), [Placement::SameCpu]);
        assert!(parse(&["--peers", "--quick"]).is_err());
    }

    #[test]
    fn explicit_options_override_the_scale() {
        let options = parse(&[
            "--quick", "--rounds", "7", "--size", "1,2", "--suite", "names",
        ]);
        let options = options.unwrap();
        assert_eq!(options.rounds_in("rtt"), 7);
        assert_eq!(options.size, [1, 2]);
        assert_eq!(options.suites(), [Suite::Names]);
        let reports_only = parse(&["--rounds", "7", "--suite", "reports"]).unwrap();
        assert_eq!(reports_only.rounds_in(reports::SUITE), 7);
    }

    #[test]
    fn results_of_other_runs_are_included() {
        let rows = rows(&outcome(Metric::Latency, &[1.0], &[1.0]));
        let other = Results {
            host: Host::probe(),
            clock_ns: 40,
            versions: BTreeMap::new(),
            rows,
            date: String::new(),
        };
        let path = std::env::temp_dir().join(format!("sluice-include-{}", std::process::id()));
        other.write(&path).unwrap();
        let options = parse(&["--include", path.to_str().unwrap()]).unwrap();
        let read = included(&options.include);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), other.rows);
        assert!(included(&options.include).is_err());
    }

    #[test]
    fn invalid_values_are_rejected() {
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
    fn each_mechanism_that_can_be_selected_is_named_once() {
        let registry = || Registry::new(&Err(Skipped::unavailable("sluice-pipe", "a unit test")));
        let names = mechanism_names(&registry());
        for name in [
            "pipe",
            "myipc",
            "pipe-tee",
            "redis",
            "sluice-feed",
            "hft-null",
        ] {
            let count = names.iter().filter(|one| **one == name).count();
            assert_eq!(count, 1, "{name}");
            let chosen = registry().choose(&[name.into()], &suites::mechanisms());
            assert!(chosen.is_ok(), "{name}");
        }
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }

    #[test]
    fn a_mechanism_without_any_result_is_an_error() {
        let outcomes = rows(&outcome(Metric::Latency, &[1.0], &[1.0]));
        assert!(expect_results_of_all(&["pipe", "sluice-pipe"], &outcomes).is_ok());
        let error = expect_results_of_all(&["pipe", "cacheline"], &outcomes).unwrap_err();
        assert!(error.to_string().contains("cacheline"), "{error}");
    }
}
