// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two containers, others that are started beside them, and the cgroups that they are in.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sluice_testkit::cgroup::Cgroup;

use crate::at_once::at_once;
use crate::bundle::{Bind, Bundle, USER};
use crate::container::Container;
use crate::rootfs::{INPUT, INPUT_PART, SCOPE, SHARED};
use crate::staging::Files;

pub const NAMES: [&str; 2] = ["a", "b"];

pub struct Containers {
    // Dropped in this order: a cgroup can be removed only after its processes have ended.
    pub both: [Container; 2],
    starter: Starter,
}

impl Containers {
    pub fn start(files: &Files, rootfs: &Path, workspace: &Path) -> Result<Self> {
        let starter = Starter {
            rootfs: rootfs.to_path_buf(),
            workspace: workspace.to_path_buf(),
            cgroups: Cgroups::create()?,
        };
        let shared = workspace.join("shared");
        create_for_user(&shared)?;
        let start = |index: usize| {
            let binds = [
                Bind::read_only(&files.whole[index].path, INPUT),
                Bind::read_only(&files.part.path, INPUT_PART),
                Bind::writable(&shared, SHARED),
            ];
            starter.start(NAMES[index], &binds)
        };
        let both = at_once([0, 1], start)?;
        Ok(Self {
            both: both
                .try_into()
                .ok()
                .context("two containers were started")?,
            starter,
        })
    }

    /// Starts one more container. It has the directory of the cgroup above all of them as SCOPE, and nothing to send.
    pub fn start_in_scope(&self, name: &'static str) -> Result<Container> {
        let scope = Bind::read_only(self.parent_cgroup(), SCOPE);
        self.starter.start(name, &[scope])
    }

    /// The cgroup above all containers.
    pub fn parent_cgroup(&self) -> &Path {
        self.starter.cgroups.parent.path()
    }
}

/// What all containers are started with.
struct Starter {
    rootfs: PathBuf,
    workspace: PathBuf,
    cgroups: Cgroups,
}

impl Starter {
    fn start(&self, name: &'static str, binds: &[Bind]) -> Result<Container> {
        let output = self.workspace.join(format!("output-{name}"));
        create_for_user(&output)?;
        let path = self.workspace.join(format!("bundle-{name}"));
        let cgroup = self.cgroups.path_of(name);
        let bundle = Bundle::create(path, &self.rootfs, &cgroup, &output, binds)?;
        Container::start(name, &bundle, &self.workspace.join("crun"))
    }
}

fn create_for_user(directory: &Path) -> Result<()> {
    fs::create_dir(directory)
        .and_then(|()| chown(directory, Some(USER), Some(USER)))
        .with_context(|| {
            format!(
                "cannot create {} for user {USER}; run as root",
                directory.display()
            )
        })
}

/// A cgroup; crun creates one below it for each container.
struct Cgroups {
    parent: Cgroup,
    name: String,
}

impl Cgroups {
    fn create() -> Result<Self> {
        let name = format!("sluice-demo-{}", std::process::id());
        let parent = Cgroup::root()?.create_child(&name)?;
        Ok(Self { parent, name })
    }

    /// Relative to the mount point, as the OCI configuration has it.
    fn path_of(&self, container: &str) -> String {
        format!("/{}/{container}", self.name)
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        if let Err(error) = self.parent.remove_tree() {
            eprintln!("{}", sluice::explain(error.as_ref()));
        }
    }
}
