// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end-to-end tests of the module. Tests of fifo(7) also run on a FIFO, which is the reference for what they
//! expect.

mod suite;

use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use sluice_tests::{registry, runner, support};

use registry::{Durations, Modules, Random, Target};
use runner::NamedTest;
use runner::fixture::RunFixture;
use runner::report::{Json, Lines, Reporter, Totals};
use support::time;

/// What a kill adds to the time limit of a kill storm.
const PER_KILL: Duration = Duration::from_millis(100);

/// Runs the end-to-end tests of the Sluice module.
#[derive(Parser)]
#[command(name = "sluice-tests", version)]
struct Arguments {
    /// List the tests instead of running them
    #[arg(long)]
    list: bool,

    /// What to test; on a FIFO and a named pipe only the tests of fifo(7) run
    #[arg(long, value_enum, default_value = "pipe")]
    on: Target,

    /// Time limit of one test in seconds, in addition to --stress or --races
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive)]
    timeout: f64,

    /// Duration of the byte stress test in seconds; that of records takes at most 10
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    stress: f64,

    /// Duration of the race test in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    races: f64,

    /// The number of processes that each kill storm kills; at least 4, of each cgroup one in each half
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(4..))]
    kills: u32,

    /// The seed of the tests with random choices; by default another one each time
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,

    /// Multiplies every time limit, in addition to how slow this machine is, which is measured [env: SLUICE_TEST_SLOWNESS]
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    slowness: Option<f64>,

    /// The file of the loaded module; without it tests that unload it are skipped
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// The file of a naive driver's module, such as myipc.ko; without it its tests are skipped; may be repeated
    #[arg(long = "baseline", value_name = "FILE")]
    baselines: Vec<PathBuf>,

    /// The file of the module that publishes for the tests of feeds; without it these are skipped
    #[arg(long, value_name = "SLUICE_PUBLISHER.KO")]
    publisher: Option<PathBuf>,

    /// The file of the sample publisher's module; without it its tests are skipped
    #[arg(long, value_name = "SLUICE_FRAMES.KO")]
    sample: Option<PathBuf>,

    /// The C program that uses buses through io_uring; without it its tests are skipped
    #[arg(long, value_name = "PROGRAM")]
    bus_uring: Option<PathBuf>,

    /// The directory of the netlink library of the kernel's source, for the tests of maps over netlink
    #[arg(long, value_name = "DIRECTORY")]
    ynl: Option<PathBuf>,

    /// Print one JSON document instead of text
    #[arg(long)]
    json: bool,

    /// Skip tests whose name contains this; may be repeated
    #[arg(long, value_name = "FILTER")]
    except: Vec<String>,

    /// Run only tests whose name, such as open::readwrite_never_blocks, contains one of these
    filters: Vec<String>,
}

fn positive(text: &str) -> Result<f64> {
    let number: f64 = text.parse()?;
    if !(number > 0.0 && number < 1e6) {
        bail!("it must be a number above 0, such as 2.5");
    }
    Ok(number)
}

impl Arguments {
    fn slowness(&self) -> Result<f64> {
        if let Some(factor) = self.slowness {
            return Ok(factor);
        }
        match std::env::var("SLUICE_TEST_SLOWNESS") {
            Ok(text) => {
                positive(&text).with_context(|| format!("SLUICE_TEST_SLOWNESS is '{text}'"))
            }
            Err(_) => Ok(1.0),
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("sluice-tests: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether no test failed.
fn run(arguments: &Arguments) -> Result<bool> {
    for filter in arguments.filters.iter().chain(&arguments.except) {
        if !runner::matches_any(suite::TOPICS, filter) {
            bail!("no test matches '{filter}'; --list shows all names");
        }
    }
    let mut tests = runner::select(suite::TOPICS, arguments.on, &arguments.filters);
    let excluded = |name: &str| arguments.except.iter().any(|filter| name.contains(filter));
    tests.retain(|named| !excluded(&named.name));
    if tests.is_empty() {
        bail!(
            "no test on {:?} matches {:?}; --list shows all names",
            arguments.on,
            arguments.filters
        );
    }
    if arguments.list {
        list(&tests).context("printing the list")?;
        return Ok(true);
    }
    let measured = time::measure_slowness();
    time::set_slowness(arguments.slowness()? * measured);
    let width = tests
        .iter()
        .map(|named| named.name.len())
        .max()
        .unwrap_or(0);
    let mut reporter: Box<dyn Reporter> = if arguments.json {
        Box::new(Json::new(io::stdout()))
    } else {
        // Not on standard error, which a console may show in the middle of a line of standard output.
        println!(
            "this machine is {measured:.1} times slower than a quiet one; limits are that much longer"
        );
        Box::new(Lines::new(io::stdout(), width))
    };
    run_all(arguments, &tests, reporter.as_mut())
}

fn run_all(
    arguments: &Arguments,
    tests: &[NamedTest],
    reporter: &mut dyn Reporter,
) -> Result<bool> {
    let durations = Durations {
        stress: Duration::from_secs_f64(arguments.stress),
        races: Duration::from_secs_f64(arguments.races),
    };
    let random = Random {
        kills: arguments.kills,
        seed: arguments
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0)),
    };
    let limit = |named: &NamedTest| {
        let kills = match named.name.starts_with("kill_storm::") {
            true => random.kills,
            false => 0,
        };
        time::scaled(Duration::from_secs_f64(arguments.timeout) + PER_KILL * kills)
            + durations.stress.max(durations.races)
    };
    runner::process::adopt_orphans()?;
    let modules = Modules {
        own: arguments.module.clone(),
        baselines: arguments.baselines.clone(),
        publisher: arguments.publisher.clone(),
        sample: arguments.sample.clone(),
        bus_uring: arguments.bus_uring.clone(),
        ynl: arguments.ynl.clone(),
    };
    let fixture = RunFixture::setup(arguments.on, modules, durations, random)?;
    let mut outcomes = Vec::new();
    for named in tests {
        reporter.begin(&named.name).context("printing")?;
        let outcome = runner::run_one(named, &fixture, limit(named));
        reporter.end(&outcome).context("printing")?;
        outcomes.push(outcome);
    }
    let torn_down = fixture.teardown();
    reporter.close(&outcomes).context("printing")?;
    torn_down.context("cleaning up after all tests")?;
    Ok(Totals::of(&outcomes).failed == 0)
}

fn list(tests: &[NamedTest]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    tests
        .iter()
        .try_for_each(|named| writeln!(out, "{}", named.name))
}
