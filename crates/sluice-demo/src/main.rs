// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two containers send two files at the same time through one device node, and each receives its own. Then every other kind
//! of channel has a step, which ends with a line that says what it has proved: named pipes, of which a container finds only its
//! own; ends of a pipe and of a ring that the host passes to containers; a ring that needs no module; a bus with 8 subscribers
//! in two more containers; requests to a service; maps; packets of the kernel; a durable map, which is there again after the
//! module was loaded anew. vm/demo also shows that it survives a crash.
//!
//! All of this but the sending on the bus is done by crun, the command `sluice` and programs such as dd; the demo starts them
//! and checks the results.

mod at_once;
mod bundle;
mod bus;
mod bus_counts;
mod container;
mod containers;
mod device_ring;
mod durable;
mod fd_pass;
mod feed;
mod files;
mod isolation;
mod map;
mod named;
mod process;
mod progress;
mod report;
mod requests;
mod ring;
mod rootfs;
mod rounds;
mod staging;
mod step;
mod story;
mod verify;
mod workspace;

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use nix::unistd::Uid;
use sluice_testkit::kernel_log::KernelLog;
use sluice_testkit::module::{Module, SLUICE};
use sluice_testkit::units::megabytes;
use sluice_testkit::{interrupt, time};

use crate::containers::Containers;
use crate::files::Source;
use crate::staging::Files;
use crate::step::Step;
use crate::story::{detail, tell};
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    about = "Two containers send two files through one device node, isolated from each other",
    version
)]
struct Options {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// Run this step only; may be repeated
    #[arg(long = "step", value_enum)]
    steps: Vec<Step>,

    /// Print the details of each step, and compare the device with pipe(2) in 3 rounds
    #[arg(long)]
    long: bool,

    /// Keep the details in this file
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// The files to send, given twice [default: two compilers, libraries of compilers, or kernels of this machine]
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Bytes per write and read, at most 16 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    write_size: u32,
}

impl Options {
    fn wants(&self, step: Step) -> bool {
        self.steps.is_empty() || self.steps.contains(&step)
    }
}

fn main() -> ExitCode {
    match demo(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!(
                "\nsluice-demo: {}",
                sluice::explain(error.as_ref())
            ));
            ExitCode::FAILURE
        }
    }
}

fn demo(options: &Options) -> Result<()> {
    ensure!(
        Uid::effective().is_root(),
        "containers and modules need root; run 'make demo', which runs all of this in a virtual machine"
    );
    ensure!(
        options.module.is_some() || !options.steps.contains(&Step::Durable),
        "the step 'durable' loads the module again; name it with --module"
    );
    story::begin(options.long, options.log.as_deref())?;
    interrupt::install()?;
    time::set_slowness(time::measure_slowness());
    let log = KernelLog::from_now()?;
    let module = options.module.as_deref();
    let mut module = module.map(|file| Module::load(&SLUICE, file)).transpose()?;
    show_with_containers(options)?;
    if options.wants(Step::Durable)
        && let (Some(loaded), Some(file)) = (module.take(), options.module.as_deref())
    {
        module = Some(step::run(Step::Durable, || durable::show(loaded, file))?);
    }
    if let Some(module) = module {
        module.unload()?;
        detail!("The module is unloaded, and the kernel has reported no error.");
    }
    log.check()
}

/// All steps except durable, which unloads the module. Undoes its setup.
fn show_with_containers(options: &Options) -> Result<()> {
    if !Step::WITH_CONTAINERS
        .iter()
        .any(|step| options.wants(*step))
    {
        return Ok(());
    }
    let begin = Instant::now();
    let sources = files::choose(&options.files)?;
    if options.wants(Step::Files) {
        let [a, b] = sources.each_ref().map(Source::name);
        tell(&format!(
            "Two containers send {a} and {b} at the same time, through the same device node:\n"
        ));
    }
    let workspace = Workspace::create(&sources)?;
    let rootfs = workspace.path().join("rootfs");
    let files = thread::scope(|scope| {
        let rootfs = scope.spawn(|| rootfs::build(&rootfs));
        let files = staging::stage(&sources, workspace.path());
        rootfs.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        files
    })?;
    detail!("Two files of this machine, copied into memory so that only the pipes are measured:");
    for source in &sources {
        detail!("  {} ({})", source.path.display(), megabytes(source.bytes));
    }

    let containers = Containers::start(&files, &rootfs, workspace.path())?;
    detail!("Two containers of crun, with private namespaces and the same device nodes:");
    isolation::show_views(&containers.both)?;
    detail!("  prepared in {:.1} s\n", begin.elapsed().as_secs_f64());
    for step in Step::WITH_CONTAINERS {
        if options.wants(step) {
            step::run(step, || Ok((show(step, options, &containers, &files)?, ())))?;
        }
    }
    Ok(())
}

/// Returns what the step has proved.
fn show(step: Step, options: &Options, containers: &Containers, files: &Files) -> Result<String> {
    let size = options.write_size as usize;
    match step {
        Step::Files => show_files(options, containers, files),
        Step::Named => named::show(&containers.both),
        Step::Passed => fd_pass::show(containers, &files.part, size),
        Step::DeviceRing => device_ring::show(containers, &files.part),
        Step::Ring => ring::show(&containers.both, &files.part),
        Step::Bus => bus::show(containers, &files.part),
        Step::Requests => requests::show(&containers.both),
        Step::Map => map::show(containers),
        Step::Feed => feed::show(&rootfs::sluice_command()?),
        Step::Durable => unreachable!("it has no containers"),
    }
}

/// What Sluice is for: the same node is another pipe in each container.
fn show_files(options: &Options, containers: &Containers, files: &Files) -> Result<String> {
    const ROUNDS: usize = 3;
    let size = options.write_size as usize;
    let whole = &files.whole;
    isolation::show_pipes(&containers.both)?;
    detail!("Both send their file at the same time with dd:");
    let rounds = if options.long { ROUNDS } else { 1 };
    let results = rounds::run(&containers.both, whole, rounds, options.long, size)?;
    if options.long {
        detail!("\n{}", report::text(whole, &results, size));
    }
    for line in report::files(whole).to_string().lines() {
        tell(&format!("  {line}"));
    }
    tell("");
    Ok(
        "both opened /dev/sluice/pipe; each received its own file, and 0 bytes of the other's"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_consistent_and_refuse_what_makes_no_sense() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["sluice-demo", "--write-size", "0"]).is_err());
        assert!(Options::try_parse_from(["sluice-demo", "--write-size", "16777217"]).is_err());
        assert!(Options::try_parse_from(["sluice-demo", "--step", "none"]).is_err());
    }

    #[test]
    fn a_named_step_is_the_only_one() {
        let options = Options::try_parse_from(["sluice-demo", "--step", "device-ring"]).unwrap();
        assert!(options.wants(Step::DeviceRing) && !options.wants(Step::Ring));
        let options = Options::try_parse_from(["sluice-demo"]).unwrap();
        assert!(options.wants(Step::Ring) && options.wants(Step::Durable));
    }
}
