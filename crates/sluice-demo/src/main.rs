// SPDX-License-Identifier: MIT OR Apache-2.0
//! The main job, visibly: two containers send two real files at the same time through one device node, and the bytes of
//! each stay its own. pipe(2) moves the same files in the same containers, for comparison. Then the same with names: neither
//! container finds a channel of the other's, until the host hands both an end of one. At last they talk through a ring.

mod bundle;
mod by_name;
mod by_ring;
mod container;
mod crew;
mod files;
mod handed;
mod handing;
mod isolation;
mod named;
mod progress;
mod protocol;
mod report;
mod ring;
mod rootfs;
mod rounds;
mod secret;
mod staging;
mod talk;
mod transfer;
mod worker;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use sluice_testkit::host::Host;
use sluice_testkit::interrupt;
use sluice_testkit::kernel_log::KernelLog;
use sluice_testkit::module::{Module, SLUICE};
use sluice_testkit::units::{megabytes, minutes};

use crate::crew::Crew;
use crate::protocol::{Event, Way, tell};
use crate::rounds::Results;
use crate::staging::Staged;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(
    about = "Two containers send two files through one device node, each its own",
    version,
    args_conflicts_with_subcommands = true
)]
struct Options {
    #[command(subcommand)]
    inside: Option<Inside>,

    #[command(flatten)]
    demo: Demo,
}

#[derive(Args)]
struct Demo {
    /// Load this module first and unload it afterwards
    #[arg(long, value_name = "SLUICE.KO")]
    module: Option<PathBuf>,

    /// The files to send; given twice. Otherwise two compiler libraries or kernels of this machine
    #[arg(long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,

    /// How often each file goes over pipe(2) and over the device
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..))]
    rounds: u8,

    /// Bytes per write and read
    #[arg(long, value_name = "BYTES", default_value_t = 65536, value_parser = clap::value_parser!(u32).range(1..))]
    write_size: u32,
}

#[derive(Subcommand)]
enum Inside {
    /// What runs inside a container
    #[command(subcommand, hide = true)]
    Worker(Role),
}

#[derive(Subcommand)]
enum Role {
    Serve(Post),
    Send(Job),
    Receive(Job),
}

#[derive(Args)]
struct Post {
    /// Whether an endpoint came with the start
    #[arg(long)]
    handed: bool,
}

#[derive(Args)]
struct Job {
    #[arg(long)]
    way: Way,
    #[arg(long)]
    write_size: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (outcome, inside) = match options.inside {
        Some(Inside::Worker(role)) => (work(&role), true),
        None => (demo(&options.demo), false),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error, inside);
            ExitCode::FAILURE
        }
    }
}

fn complain(error: &anyhow::Error, inside: bool) {
    let message = format!("{error:#}");
    // If even that cannot be told, the exit status still says it.
    match inside {
        true => drop(tell(&Event::Failed { message })),
        false => eprintln!("\nsluice-demo: FAILED: {message}"),
    }
}

fn work(role: &Role) -> Result<()> {
    match role {
        Role::Serve(post) => worker::serve(post.handed),
        Role::Send(job) => transfer::send(job.way, job.write_size),
        Role::Receive(job) => transfer::receive(job.way, job.write_size),
    }
}

fn demo(options: &Demo) -> Result<()> {
    let begin = Instant::now();
    interrupt::install()?;
    let log = KernelLog::from_now()?;
    let module = options
        .module
        .as_deref()
        .map(|file| Module::load(&SLUICE, file))
        .transpose()?;
    let (staged, results) = show(options)?;
    let unloaded = module.is_some();
    module.map_or(Ok(()), Module::unload)?;
    log.check()?;
    print!("{}", summary(options, &staged, &results, unloaded));
    println!("\nDone in {}.", minutes(begin.elapsed()));
    Ok(())
}

/// Everything between loading and unloading; nothing of it is left when this returns.
fn show(options: &Demo) -> Result<([Staged; 2], Results)> {
    let sources = files::choose(&options.files)?;
    eprintln!(
        "Two real files of this machine, brought into memory first so that only the pipes are timed:"
    );
    for source in &sources {
        eprintln!("  {} ({})", source.path.display(), megabytes(source.bytes));
    }
    let workspace = Workspace::create(&sources)?;
    let staged = staging::stage(&sources, workspace.path())?;

    eprintln!("Two containers, each with namespaces of its own, both with the same device nodes:");
    let rootfs = workspace.path().join("rootfs");
    rootfs::build(&rootfs)?;
    let mut crew = Crew::start(&staged, &rootfs, workspace.path())?;
    isolation::show_views(&mut crew)?;
    isolation::show_secrecy(&mut crew)?;

    eprintln!("Both send their file at the same time, over pipe(2) and over the device in turns:");
    let results = rounds::run(
        &mut crew,
        &staged,
        options.rounds.into(),
        options.write_size as usize,
    )?;
    by_name::show_secrecy(&mut crew)?;
    by_name::show_handing(&mut crew, &staged, options.write_size as usize)?;
    by_ring::show(&mut crew, &staged, options.write_size as usize)?;
    Ok((staged, results))
}

fn summary(options: &Demo, staged: &[Staged; 2], results: &Results, unloaded: bool) -> String {
    let mut text = format!(
        "\n{}\n",
        report::text(&Host::probe(), staged, results, options.write_size as usize)
    );
    text += &format!(
        "What came over /dev/sluice/pipe:\n\n{}\n",
        report::digests(staged, results)
    );
    text += "Every hash is right, no byte crossed over, and neither container could see the other's bytes or channels.\n";
    if unloaded {
        text += "The module is unloaded, and the kernel has nothing to complain about.\n";
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
    }

    #[test]
    fn a_worker_understands_what_it_is_started_with() {
        for way in Way::ALL {
            let arguments = [
                "sluice-demo",
                "worker",
                "send",
                "--way",
                way.argument(),
                "--write-size",
                "64",
            ];
            let options = Options::try_parse_from(arguments).unwrap();
            assert!(
                matches!(options.inside, Some(Inside::Worker(Role::Send(job))) if job.way == way)
            );
        }
    }
}
