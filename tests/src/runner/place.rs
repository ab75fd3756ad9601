// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a test runs: a scratch directory, and for the pipe a fresh cgroup, for a FIFO a fresh FIFO.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::{mkdtemp, mkfifo};

use crate::registry::{Context, Lengths, Target};
use crate::support::cgroup::Cgroup;
use crate::support::channel::Channel;

const NODE: &str = "/dev/sluice/pipe";
/// The name of the tested pipe where it has one.
const CHANNEL: &str = "tested";

/// Files of modules, as far as they were named.
pub struct Modules {
    /// The one that is tested.
    pub own: Option<PathBuf>,
    /// The naive driver.
    pub baseline: Option<PathBuf>,
}

/// What all places of one run stand on.
pub struct Ground {
    target: Target,
    scratch: PathBuf,
    cgroup: Option<Cgroup>,
    modules: Modules,
    lengths: Lengths,
    places: Cell<u32>,
}

/// The place of one test.
pub struct Place {
    pub context: Context,
}

impl Ground {
    pub fn lay(target: Target, modules: Modules, lengths: Lengths) -> Result<Self> {
        let cgroup = match target {
            Target::Fifo => None,
            Target::Pipe | Target::Named => Some(make_cgroup()?),
        };
        let template = std::env::temp_dir().join("sluice-tests-XXXXXX");
        let scratch = mkdtemp(&template)
            .with_context(|| format!("making the directory {}", template.display()))?;
        Ok(Ground {
            target,
            scratch,
            cgroup,
            modules,
            lengths,
            places: Cell::new(0),
        })
    }

    pub fn target(&self) -> Target {
        self.target
    }

    pub fn prepare(&self) -> Result<Place> {
        self.places.set(self.places.get() + 1);
        let name = format!("test-{}", self.places.get());
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
        Ok(Place {
            context: Context {
                channel,
                scratch,
                cgroup,
                module: self.modules.own.clone(),
                baseline: self.modules.baseline.clone(),
                lengths: self.lengths,
            },
        })
    }

    /// Takes away what all places stood on.
    pub fn clear(self) -> Result<()> {
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
        .with_context(|| format!("making the FIFO {}", path.display()))?;
    Ok(Channel::new(path))
}

impl Place {
    /// Removes the cgroup, which works only if nothing of the test is left in it, and the files.
    pub fn clear(self) -> Result<()> {
        if let Some(cgroup) = &self.context.cgroup {
            cgroup.remove_tree()?;
        }
        let scratch = &self.context.scratch;
        fs::remove_dir_all(scratch).with_context(|| format!("removing {}", scratch.display()))
    }
}
