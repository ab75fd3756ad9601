// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test is, and what it is given.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::support::cgroup::Cgroup;
use crate::support::channel::Channel;

/// What the tests run against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// The cgroup's own pipe, /dev/sluice/pipe.
    Pipe,
    /// The kernel's FIFO, which says what fifo(7) means.
    Fifo,
    /// A pipe with a name, opened through /dev/sluice/ctl.
    Named,
}

/// Where a test makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// It is about fifo(7): the very same test runs against a FIFO, and against a pipe with a name.
    Fifo,
    /// It is about what a FIFO does not have or does otherwise.
    PipeOnly,
}

/// What a test is given: a pipe that nobody used before, in a cgroup of its own.
pub struct Context {
    pub channel: Channel,
    /// An empty directory, removed afterwards.
    pub scratch: PathBuf,
    pub cgroup: Option<Cgroup>,
    /// The module that is tested, for a test that unloads and loads it.
    pub module: Option<PathBuf>,
    /// The naive driver's module, which those load who test it.
    pub baseline: Option<PathBuf>,
    pub lengths: Lengths,
}

/// How long those tests go on that only repeat themselves.
#[derive(Clone, Copy, Default)]
pub struct Lengths {
    pub stress: Duration,
    pub races: Duration,
}

impl Context {
    /// The cgroup that the test runs in.
    pub fn cgroup(&self) -> Result<&Cgroup> {
        self.cgroup
            .as_ref()
            .context("only tests on the pipe have a cgroup of their own")
    }
}

pub type TestFn = fn(&Context) -> Result<()>;

pub struct Test {
    pub name: &'static str,
    pub scope: Scope,
    pub run: TestFn,
}

/// The tests of one file.
pub struct Topic {
    pub name: &'static str,
    pub tests: &'static [Test],
}

/// Lists the functions of one file as tests: those that a FIFO must pass too, then those for the pipe only.
macro_rules! topic {
    ($name:literal, fifo: [$($fifo:ident),* $(,)?], pipe_only: [$($pipe:ident),* $(,)?] $(,)?) => {
        pub const TOPIC: $crate::registry::Topic = $crate::registry::Topic {
            name: $name,
            tests: &[
                $($crate::registry::Test {
                    name: stringify!($fifo),
                    scope: $crate::registry::Scope::Fifo,
                    run: $fifo,
                },)*
                $($crate::registry::Test {
                    name: stringify!($pipe),
                    scope: $crate::registry::Scope::PipeOnly,
                    run: $pipe,
                },)*
            ],
        };
    };
}
pub(crate) use topic;
