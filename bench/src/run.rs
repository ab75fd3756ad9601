// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the suites that the options select, and writes the table, the results and the report.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::module::{HFT, MYIPC, Module, SHARED_MAP, SLUICE};

use crate::harness::pinning::Placement;
use crate::harness::progress::Progress;
use crate::harness::rounds::{Case, Skipped};
use crate::harness::rows::{Results, Row};
use crate::harness::text;
use crate::harness::turns::run_together;
use crate::html;
use crate::mechanisms::registry::Registry;
use crate::mechanisms::temp_paths::Directory;
use crate::options::{Options, REFERENCES_OF_RINGS};
use crate::reports;
use crate::suites::plan::Plan;
use crate::suites::{self, CachelineProbe, SUITES, Suite, wakeup_cost};

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
    let included = options.include.iter().map(|path| Results::read(path));
    let included = included.collect::<Result<Vec<_>>>()?;
    let mut rows = run_suites(&plan, options)?;
    let mut host = Host::probe();
    host.waking_ns = wakeup_cost(&plan)?;
    suites::calibration::annotate(&mut rows);
    rows.extend(included.into_iter().flat_map(|run| run.rows));
    let mut results = Results::new(host, rows);
    results.versions = suites::versions(&results.rows);
    // First, so that nothing that follows can lose them.
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&results)? + "\n";
        write_file(path, &text, "results", "--json")?;
    }
    print!("{}", text::text(&results));
    for suite in &SUITES {
        let tables = suite
            .tables
            .and_then(|tables| reports::text(tables, suite.name, &results.rows));
        if let Some(text) = tables {
            print!("\n{text}");
        }
    }
    write(&results, options)?;
    let missing = plan.names().into_iter().filter(|name| {
        let mut measured = results.rows.iter().filter(|row| row.is_measured());
        options.all && measured.all(|row| row.mechanism != *name)
    });
    let missing: Vec<&str> = missing.collect();
    ensure!(
        missing.is_empty(),
        "mechanisms without results (reasons below the table): {}",
        missing.join(", ")
    );
    expect_no_failure(&results.rows)
}

fn write(results: &Results, options: &Options) -> Result<()> {
    if let Some(path) = &options.json {
        println!("\nResults: {}", path.display());
    }
    if let Some(path) = &options.html {
        write_file(path, &html::page(results), "report", "--html")?;
        println!("Report with plots: {}", path.display());
    }
    if let Some(path) = &options.svg {
        let Some(picture) = html::picture(results) else {
            println!("No plot: no result of Sluice is relative to another mechanism");
            return Ok(());
        };
        write_file(path, &picture, "plot", "--svg")?;
        println!("Plot: {}", path.display());
    }
    Ok(())
}

/// Creates the directory, too. `what` and `option` are for the error text.
fn write_file(path: &Path, text: &str, what: &str, option: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    }
    fs::write(path, text).with_context(|| {
        let path = path.display();
        format!("cannot write the {what} to {path}; choose another path with {option}")
    })
}

/// The table is printed even after a failure of Sluice or of the counter of instructions; the exit status marks it as incomplete.
/// A rival that fails has a row with the reason.
fn expect_no_failure(rows: &[Row]) -> Result<()> {
    let is_own = |row: &&Row| row.is_sluice() || row.mechanism == suites::CONTROL_LOOP;
    let failed = rows.iter().filter(|row| row.failed).filter(is_own);
    let labels: BTreeSet<&str> = failed.map(|row| row.label.as_str()).collect();
    let labels: Vec<&str> = labels.into_iter().collect();
    ensure!(
        labels.is_empty(),
        "failed (reasons below the table): {}",
        labels.join(", ")
    );
    Ok(())
}

/// The cgroups of the mechanisms that need the module. Without the module they are not needed, so an unprivileged user can measure
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
    // Some mechanisms of single suites have the name of one of the registry.
    let names: BTreeSet<&str> = registry
        .names()
        .into_iter()
        .chain(suites::mechanisms())
        .collect();
    let names = Vec::from_iter(names).join(", ");
    let registry = registry
        .choose(&options.mechanisms(), &suites::mechanisms())
        .map_err(|unknown| anyhow!("there is no mechanism '{unknown}'; choose from {names}"))?;
    Ok(Plan {
        scale: options.scale(),
        emulated: Host::probe().is_emulated(),
        sizes: options.size.clone(),
        placements: available(&options.placements())?,
        duration: options.duration(),
        rounds: options.rounds(""),
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

/// All cases exist before the first one is measured, so that what is missing is said at once.
fn run_suites(plan: &Plan, options: &Options) -> Result<Vec<Row>> {
    let with_cases = |suite| Ok((suite, suites::cases(&[suite], plan)?));
    let suites = options.suites().into_iter().map(with_cases);
    let suites: Vec<(&Suite, Vec<Vec<Case>>)> = suites
        .collect::<Result<_>>()
        .context("cannot set up the suites")?;
    let probe = CachelineProbe::new(plan)?;
    let steps = suites.iter().flat_map(|(suite, groups)| {
        let rounds = options.rounds(suite.name);
        let cases = groups.iter().flatten();
        cases.map(move |case| case.subjects.len() * rounds)
    });
    let mut progress = Progress::new(steps.sum::<usize>() as u64);
    let mut rows = Vec::new();
    for (suite, groups) in suites {
        let begin = Instant::now();
        for cases in groups {
            let rounds = options.rounds(suite.name);
            rows.extend(run_together(
                cases,
                rounds,
                &|| probe.class(),
                &mut progress,
            )?);
        }
        progress.end_suite(suite.name, begin.elapsed());
    }
    progress.finish();
    Ok(rows)
}
