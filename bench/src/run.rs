// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the suites that the options select, and writes the table, the results and the report.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use sluice_testkit::cgroup::Tree;
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::module::{HFT, MYIPC, Module, SHARED_MAP, SLUICE};
use tempfile::TempDir;

use crate::harness::pinning::Placement;
use crate::harness::progress::Progress;
use crate::harness::rounds::Skipped;
use crate::harness::rows::{Results, Row};
use crate::harness::text;
use crate::harness::turns::run_together;
use crate::html;
use crate::mechanisms::registry::Registry;
use crate::mechanisms::temp_paths::private_directory;
use crate::options::{Options, REFERENCES_OF_RINGS};
use crate::reports;
use crate::suites::plan::Plan;
use crate::suites::{self, CachelineProbe, SUITES, wakeup_cost};

pub fn run(options: &Options) -> Result<()> {
    interrupt::install()?;
    let store = options.shared_map.as_deref();
    // Dropped after the module, which holds it.
    let directory = store.map(|_| private_directory(&std::env::temp_dir()));
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

fn load_store((file, directory): (&Path, &TempDir)) -> Result<Module> {
    let parameters = format!("directory=\"{}\"", directory.path().display());
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
        let text = |tables| reports::text(tables, suite.name, &results.rows);
        if let Some(text) = suite.tables.and_then(text) {
            print!("\n{text}");
        }
    }
    write(&results, options)?;
    let is_missing = |name: &&str| {
        let mut measured = results.rows.iter().filter(|row| row.is_measured());
        options.all && measured.all(|row| row.mechanism != *name)
    };
    let missing = plan
        .registry
        .names()
        .into_iter()
        .filter(is_missing)
        .collect();
    expect_none("mechanisms without results", missing)?;
    // A rival that fails has a row with the reason.
    let is_own = |row: &&Row| row.is_sluice() || row.mechanism == suites::CONTROL_LOOP;
    let failed = results.rows.iter().filter(|row| row.failed).filter(is_own);
    let labels = BTreeSet::from_iter(failed.map(|row| row.label.as_str()));
    expect_none("failed", labels.into_iter().collect())
}

/// The table is printed even after a failure; the exit status marks it as incomplete.
fn expect_none(what: &str, names: Vec<&str>) -> Result<()> {
    let all = names.join(", ");
    ensure!(all.is_empty(), "{what} (reasons below the table): {all}");
    Ok(())
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
        match html::picture(results) {
            Some(picture) => {
                write_file(path, &picture, "plot", "--svg")?;
                println!("Plot: {}", path.display());
            }
            None => println!("No plot: no result of Sluice is relative to another mechanism"),
        }
    }
    Ok(())
}

/// Creates the directory, too.
fn write_file(path: &Path, text: &str, what: &str, option: &str) -> Result<()> {
    let created = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = created.and_then(|()| fs::write(path, text));
    written.with_context(|| {
        let path = path.display();
        format!("cannot write the {what} to {path}; choose another path with {option}")
    })
}

/// The cgroups of the mechanisms that need the module. Without the module, an unprivileged user can measure the rest.
fn cgroups(options: &Options) -> Result<Rc<Tree>, Skipped> {
    if !Path::new(SLUICE.node).exists() {
        return Err(Skipped::unavailable("sluice-pipe", SLUICE.how_to_load()));
    }
    let tree = Tree::create("sluice-bench").map(Rc::new);
    tree.map_err(|error| Skipped {
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
    let registry = registry.choose(&options.mechanisms(), &suites::mechanisms())?;
    let cgroup = tree.as_ref().ok().map(|tree| tree.create_cgroup());
    Ok(Plan {
        scale: options.scale(),
        emulated: Host::probe().is_emulated(),
        sizes: options.size.clone(),
        placements: available(&options.placements())?,
        duration: options.duration(),
        rounds: options.rounds(""),
        chosen: options.mechanisms(),
        cgroup: cgroup.transpose()?,
        registry,
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
            None => {
                let name = placement.name();
                eprintln!("skipped: {name}: this process may use only one processor");
            }
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
    let mut suites = Vec::new();
    let mut steps = 0;
    for suite in options.suites() {
        let (groups, rounds) = (suites::cases(suite, plan), options.rounds(suite.name));
        let groups = groups.with_context(|| format!("cannot set up the suite {}", suite.name))?;
        let cases = groups.iter().flatten();
        steps += rounds * cases.map(|case| case.subjects.len()).sum::<usize>();
        suites.push((suite, rounds, groups));
    }
    let probe = CachelineProbe::new(plan)?;
    let mut progress = Progress::new(steps as u64);
    let mut rows = Vec::new();
    for (suite, rounds, groups) in suites {
        let begin = Instant::now();
        for cases in groups {
            let measured = run_together(cases, rounds, &|| probe.class(), &mut progress);
            rows.extend(measured?);
        }
        progress.end_suite(suite.name, begin.elapsed());
    }
    progress.finish();
    Ok(rows)
}
