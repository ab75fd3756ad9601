// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the suites that the options select, and writes the table, the results and the report.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::module::{HFT, MYIPC, Module, SHARED_MAP, SLUICE};

use crate::harness::pinning::Placement;
use crate::harness::progress::Progress;
use crate::harness::rounds::{Case, Outcome, Skipped};
use crate::harness::rows::{Results, Row};
use crate::harness::text;
use crate::harness::turns::run_together;
use crate::html;
use crate::mechanisms::registry::Registry;
use crate::mechanisms::temp_paths::Directory;
use crate::options::{Options, REFERENCES_OF_RINGS};
use crate::reports;
use crate::suites::plan::Plan;
use crate::suites::{self, CachelineProbe, SUITES, wakeup_cost};

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
    // First, so that nothing that follows can lose them.
    if let Some(path) = &options.json {
        results.write(path)?;
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
    let is_own = |row: &&Row| row.is_sluice() || row.mechanism == suites::CONTROL_LOOP;
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
        let mut measured = rows.iter().filter(|row| row.is_measured());
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
    let rounds = |case: &Case| options.rounds(case.suite);
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
        outcomes.extend(run_together(
            cases,
            rounds,
            &|| probe.class(),
            &mut progress,
        )?);
    }
    progress.finish();
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::rounds::tests::outcome;
    use crate::harness::rows::rows;

    #[test]
    fn results_of_other_runs_are_included() {
        let results = Results::new(Host::probe(), &[outcome(Metric::Latency, &[1.0], &[1.0])]);
        let path = std::env::temp_dir().join(format!("sluice-include-{}", std::process::id()));
        results.write(&path).unwrap();
        let read = included(std::slice::from_ref(&path));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), results.rows);
        assert!(included(&[path]).is_err());
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
            assert!(names.contains(&name), "{name}");
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
