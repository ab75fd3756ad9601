// SPDX-License-Identifier: MIT OR Apache-2.0
//! The definition of a test, and the context that it gets.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::support::cgroup::Cgroup;
use crate::support::channel::Channel;
use crate::support::check::skip;

/// What the tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// The cgroup's default pipe, /dev/sluice/pipe.
    Pipe,
    /// The kernel's FIFO, the reference for fifo(7).
    Fifo,
    /// A named pipe, opened through /dev/sluice/ctl.
    Named,
}

/// On which targets a test runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicability {
    /// A test of fifo(7): it runs unchanged on a FIFO and on a named pipe.
    Fifo,
    /// A test of something that a FIFO does not have or does differently.
    PipeOnly,
}

/// What a test gets: an unused pipe, in its own cgroup.
pub struct Context {
    pub channel: Channel,
    /// An empty directory, removed afterwards.
    pub scratch: PathBuf,
    pub cgroup: Option<Cgroup>,
    pub modules: Modules,
    pub durations: Durations,
    pub random: Random,
}

/// Files of modules, and of a program, if given.
#[derive(Clone, Default)]
pub struct Modules {
    /// The tested module, for tests that unload and load it.
    pub own: Option<PathBuf>,
    /// The naive drivers, which their tests load.
    pub baselines: Vec<PathBuf>,
    /// The publisher for the tests of feeds.
    pub publisher: Option<PathBuf>,
    /// The sample publisher.
    pub sample: Option<PathBuf>,
    /// The C program that uses buses through io_uring.
    pub bus_uring: Option<PathBuf>,
    /// The directory of the netlink library of the kernel's source.
    pub ynl: Option<PathBuf>,
}

/// Durations of the tests that run for a given time.
#[derive(Clone, Copy, Default)]
pub struct Durations {
    pub stress: Duration,
    pub races: Duration,
}

/// The seed of the tests with random choices, and the number of processes that a kill storm kills.
#[derive(Clone, Copy, Default)]
pub struct Random {
    pub kills: u32,
    pub seed: u64,
}

impl Context {
    /// The cgroup that the test runs in.
    pub fn cgroup(&self) -> Result<&Cgroup> {
        self.cgroup
            .as_ref()
            .context("only tests on the pipe have a cgroup of their own")
    }

    /// The file of the naive driver with this name.
    pub fn baseline(&self, name: &str) -> Result<&Path> {
        let is_named = |file: &&PathBuf| file.file_stem().is_some_and(|stem| stem == name);
        self.modules
            .baselines
            .iter()
            .find(is_named)
            .map(PathBuf::as_path)
            .ok_or_else(|| {
                skip(format!(
                    "no module {name} was given; build it with 'vm/build-module KERNEL {name}' and name it with --baseline"
                ))
            })
    }
}

pub type TestFn = fn(&Context) -> Result<()>;

pub struct Test {
    pub name: &'static str,
    pub applies_to: Applicability,
    pub run: TestFn,
}

/// The tests of one file.
pub struct Topic {
    pub name: &'static str,
    pub tests: &'static [Test],
}

/// Lists the functions of one file as tests: those of fifo(7), then those for the pipe only.
#[macro_export]
macro_rules! topic {
    ($name:literal, fifo: [$($fifo:ident),* $(,)?], pipe_only: [$($pipe:ident),* $(,)?] $(,)?) => {
        pub const TOPIC: $crate::registry::Topic = $crate::registry::Topic {
            name: $name,
            tests: &[
                $($crate::registry::Test {
                    name: stringify!($fifo),
                    applies_to: $crate::registry::Applicability::Fifo,
                    run: $fifo,
                },)*
                $($crate::registry::Test {
                    name: stringify!($pipe),
                    applies_to: $crate::registry::Applicability::PipeOnly,
                    run: $pipe,
                },)*
            ],
        };
    };
}
pub use topic;
