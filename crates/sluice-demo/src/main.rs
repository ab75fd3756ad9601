// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two containers send two files at the same time through one device node, and each receives its own; pipe(2) moves the same
//! files in the same containers, for comparison. Neither container finds a named pipe of the other. The host then connects
//! them by passing each an end of a pipe, and then of a ring; another ring connects them without the module. The host sends
//! a file over a bus to 16 subscribers in four more containers, changes a map that another one watches, and receives packets
//! of the kernel. A durable map is there again after the module was loaded anew; vm/demo also shows that it survives a crash.
//!
//! All of this but the sending on the bus is done by crun, the command `sluice` and programs such as dd; the demo starts them
//! and checks the results.

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
mod ring;
mod rootfs;
mod rounds;
mod staging;
mod verify;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use nix::unistd::Uid;
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::kernel_log::KernelLog;
use sluice_testkit::module::{Module, SLUICE};
use sluice_testkit::units::{megabytes, minutes};

use crate::containers::Containers;
use crate::rounds::Results;
use crate::staging::Staged;
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

    /// The files to send, given twice [default: two compiler libraries or kernels of this machine]
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The number of transfers of each file over pipe(2) and over the device
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,

    /// Bytes per write and read, at most 16 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    write_size: u32,
}

fn main() -> ExitCode {
    match demo(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nsluice-demo: FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn demo(options: &Options) -> Result<()> {
    let begin = Instant::now();
    ensure!(
        Uid::effective().is_root(),
        "containers and modules need root; run 'make demo', which runs all of this in a virtual machine"
    );
    interrupt::install()?;
    let log = KernelLog::from_now()?;
    let module = options.module.as_deref();
    let module = module.map(|file| Module::load(&SLUICE, file)).transpose()?;
    let (files, results) = show(options)?;
    let unloaded = module.is_some();
    let module = module.zip(options.module.as_deref());
    let module = module
        .map(|(module, file)| durable::show(module, file))
        .transpose()?;
    module.map_or(Ok(()), Module::unload)?;
    log.check()?;
    print!("{}", summary(options, &files, &results, unloaded));
    println!("\nDone in {}.", minutes(begin.elapsed()));
    Ok(())
}

/// All that needs the module. Undoes its setup.
fn show(options: &Options) -> Result<([Staged; 2], Results)> {
    let sources = files::choose(&options.files)?;
    eprintln!("Two files of this machine, copied into memory so that only the pipes are measured:");
    for source in &sources {
        eprintln!("  {} ({})", source.path.display(), megabytes(source.bytes));
    }
    let workspace = Workspace::create(&sources)?;
    let files = staging::stage(&sources, workspace.path())?;

    eprintln!("Two containers of crun, with private namespaces and the same device nodes:");
    let rootfs = workspace.path().join("rootfs");
    rootfs::build(&rootfs)?;
    let containers = Containers::start(&files, &rootfs, workspace.path())?;
    isolation::show_views(&containers.both)?;
    isolation::show_pipes(&containers.both)?;

    eprintln!(
        "Both send their file at the same time with dd, in turns over pipe(2) and the device:"
    );
    let size = options.write_size as usize;
    let results = rounds::run(&containers.both, &files, options.rounds.into(), size)?;
    named::show(&containers.both)?;
    fd_pass::show(&containers, &files[0], size)?;
    device_ring::show(&containers, &files[0])?;
    ring::show(&containers.both, &files[0])?;
    bus::show(&containers, &files[0])?;
    map::show(&containers)?;
    feed::show(&rootfs::sluice_command()?)?;
    Ok((files, results))
}

fn summary(options: &Options, files: &[Staged; 2], results: &Results, unloaded: bool) -> String {
    let rates = report::text(&Host::probe(), files, results, options.write_size as usize);
    let digests = report::digests(files, results);
    let mut text = format!("\n{rates}\nReceived over /dev/sluice/pipe:\n\n{digests}\n");
    text += "Every SHA-256 is right, and neither container could reach the bytes or channels of the other.\n";
    if unloaded {
        text += "The module is unloaded, and the kernel has reported no error.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_options_are_consistent_and_refuse_what_makes_no_sense() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["sluice-demo", "--rounds", "0"]).is_err());
        assert!(Options::try_parse_from(["sluice-demo", "--write-size", "0"]).is_err());
        assert!(Options::try_parse_from(["sluice-demo", "--write-size", "16777217"]).is_err());
    }
}
