// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end-to-end tests of the cgroup pipe. Those about fifo(7) run against a FIFO just as well, and that is where
//! their expectations come from.

mod registry;
mod runner;
mod suite;
mod support;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;

use registry::{Lengths, Target};
use runner::Named;
use runner::place::{Ground, Modules};
use runner::report::{Json, Lines, Reporter, Sum};
use support::time;

/// Runs the tests of the cgroup pipe.
#[derive(Parser)]
#[command(name = "sluice-tests", version)]
struct Arguments {
    /// List the tests instead of running them
    #[arg(long)]
    list: bool,

    /// What to test; a fifo and a pipe with a name get only the tests about fifo(7)
    #[arg(long, value_enum, default_value = "pipe")]
    on: Target,

    /// Seconds that one test may take, beside those of --stress or --races
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = positive)]
    timeout: f64,

    /// Seconds that the stress test of bytes lasts; that of records lasts at most 10
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    stress: f64,

    /// Seconds that the race for names lasts
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    races: f64,

    /// How many times slower than usual this machine is: stretches every limit [env: SLUICE_TEST_SLOWNESS]
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    slowness: Option<f64>,

    /// The module that is loaded; without it the test that unloads it is skipped
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// The naive driver's module; without it its tests are skipped
    #[arg(long, value_name = "MYIPC.KO")]
    baseline: Option<PathBuf>,

    /// Print one JSON document instead of lines
    #[arg(long)]
    json: bool,

    /// Leave out tests whose name contains this; may be given several times
    #[arg(long, value_name = "FILTER")]
    except: Vec<String>,

    /// Run only tests whose name, such as open::readwrite_never_waits, contains one of these
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

/// Whether nothing failed.
fn run(arguments: &Arguments) -> Result<bool> {
    let mut tests = runner::select(suite::TOPICS, arguments.on, &arguments.filters);
    let left_out = |name: &str| arguments.except.iter().any(|filter| name.contains(filter));
    tests.retain(|named| !left_out(&named.name));
    if tests.is_empty() {
        bail!(
            "no test matches {:?}; --list shows them all",
            arguments.filters
        );
    }
    if arguments.list {
        list(&tests).context("printing the list")?;
        return Ok(true);
    }
    time::set_slowness(arguments.slowness()?);
    let width = tests
        .iter()
        .map(|named| named.name.len())
        .max()
        .unwrap_or(0);
    let mut reporter: Box<dyn Reporter> = if arguments.json {
        Box::new(Json::new(io::stdout()))
    } else {
        Box::new(Lines::new(io::stdout(), width))
    };
    run_all(arguments, &tests, reporter.as_mut())
}

fn run_all(arguments: &Arguments, tests: &[Named], reporter: &mut dyn Reporter) -> Result<bool> {
    let lengths = Lengths {
        stress: Duration::from_secs_f64(arguments.stress),
        races: Duration::from_secs_f64(arguments.races),
    };
    let limit = time::scaled(Duration::from_secs_f64(arguments.timeout))
        + lengths.stress.max(lengths.races);
    runner::process::adopt_orphans()?;
    let modules = Modules {
        own: arguments.module.clone(),
        baseline: arguments.baseline.clone(),
    };
    let ground = Ground::lay(arguments.on, modules, lengths)?;
    let mut outcomes = Vec::new();
    for named in tests {
        reporter.begin(&named.name).context("printing")?;
        let outcome = runner::run_one(named, &ground, limit);
        reporter.end(&outcome).context("printing")?;
        outcomes.push(outcome);
    }
    let cleared = ground.clear();
    reporter.close(&outcomes).context("printing")?;
    cleared.context("clearing up after all tests")?;
    Ok(Sum::of(&outcomes).failed == 0)
}

fn list(tests: &[Named]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    tests
        .iter()
        .try_for_each(|named| writeln!(out, "{}", named.name))
}
