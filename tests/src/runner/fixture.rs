// SPDX-License-Identifier: MIT OR Apache-2.0
//! The environment of a test: a scratch directory, and either a new cgroup or a new FIFO.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::{mkdtemp, mkfifo};

use crate::registry::{Context, Durations, Modules, Random, Target};
use crate::support::cgroup::Cgroup;
use crate::support::channel::Channel;

const NODE: &str = "/dev/sluice/pipe";
/// The name of the tested pipe on `Target::Named`.
const CHANNEL: &str = "tested";

/// The environment of all tests of a run.
pub struct RunFixture {
    target: Target,
    scratch: PathBuf,
    cgroup: Option<Cgroup>,
    modules: Modules,
    durations: Durations,
    random: Random,
    tests: Cell<u32>,
}

/// The environment of one test.
pub struct TestFixture {
    pub context: Context,
}

impl RunFixture {
    pub fn setup(
        target: Target,
        modules: Modules,
        durations: Durations,
        random: Random,
    ) -> Result<Self> {
        let cgroup = match target {
            Target::Fifo => None,
            Target::Pipe | Target::Named => Some(make_cgroup()?),
        };
        let template = std::env::temp_dir().join("sluice-tests-XXXXXX");
        let scratch = mkdtemp(&template)
            .with_context(|| format!("creating the directory {}", template.display()))?;
        Ok(RunFixture {
            target,
            scratch,
            cgroup,
            modules,
            durations,
            random,
            tests: Cell::new(0),
        })
    }

    pub fn target(&self) -> Target {
        self.target
    }

    pub fn set_up_test(&self) -> Result<TestFixture> {
        self.tests.set(self.tests.get() + 1);
        let name = format!("test-{}", self.tests.get());
        let scratch = self.scratch.join(&name);
        fs::create_dir(&scratch).with_context(|| format!("creating {}", scratch.display()))?;
        let cgroup = match &self.cgroup {
            Some(cgroup) => Some(cgroup.create_child(&name)?),
            None => None,
        };
        let channel = match self.target {
            Target::Pipe => Channel::new(NODE),
            Target::Named => Channel::Name(CHANNEL),
            Target::Fifo => make_fifo(&self.scratch.join(format!("{name}.fifo")))?,
        };
        Ok(TestFixture {
            context: Context {
                channel,
                scratch,
                cgroup,
                modules: self.modules.clone(),
                durations: self.durations,
                random: self.random,
            },
        })
    }

    /// Removes the environment of the run.
    pub fn teardown(self) -> Result<()> {
        if let Some(cgroup) = &self.cgroup {
            cgroup.remove_tree()?;
        }
        fs::remove_dir_all(&self.scratch)
            .with_context(|| format!("removing {}", self.scratch.display()))
    }
}

fn make_cgroup() -> Result<Cgroup> {
    if !Path::new(NODE).exists() {
        bail!(
            "{NODE} does not exist: load the module first, in the VM (make check does it, make shell gives a prompt)"
        );
    }
    Cgroup::own()?.create_child(&format!("sluice-tests-{}", std::process::id()))
}

fn make_fifo(path: &Path) -> Result<Channel> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)
        .with_context(|| format!("creating the FIFO {}", path.display()))?;
    Ok(Channel::new(path))
}

impl TestFixture {
    /// Removes the files and the cgroup, which fails if anything of the test is left in it.
    pub fn teardown(self) -> Result<()> {
        if let Some(cgroup) = &self.context.cgroup {
            cgroup.remove_tree()?;
        }
        let scratch = &self.context.scratch;
        fs::remove_dir_all(scratch).with_context(|| format!("removing {}", scratch.display()))
    }
}
