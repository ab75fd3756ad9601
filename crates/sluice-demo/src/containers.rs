// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two containers, and the cgroups that they are in.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use anyhow::{Context, Result};
use sluice_testkit::cgroup::Cgroup;

use crate::bundle::{Bundle, Mounts, USER};
use crate::container::Container;
use crate::staging::Staged;

pub const NAMES: [&str; 2] = ["a", "b"];

pub struct Containers {
    // Dropped in this order: a cgroup can be removed only after its processes have ended.
    pub both: [Container; 2],
    cgroups: Cgroups,
}

impl Containers {
    pub fn start(files: &[Staged; 2], rootfs: &Path, workspace: &Path) -> Result<Self> {
        let cgroups = Cgroups::create()?;
        let shared = workspace.join("shared");
        create_for_user(&shared)?;
        let start = |index: usize| {
            let name = NAMES[index];
            let output = workspace.join(format!("output-{name}"));
            create_for_user(&output)?;
            let mounts = Mounts {
                input: &files[index].path,
                output: &output,
                shared: &shared,
            };
            let path = workspace.join(format!("bundle-{name}"));
            let bundle = Bundle::create(path, rootfs, &cgroups.path_of(name), &mounts)?;
            Container::start(name, &bundle, &workspace.join("crun"))
        };
        Ok(Self {
            both: [start(0)?, start(1)?],
            cgroups,
        })
    }

    /// The cgroup above both containers.
    pub fn parent_cgroup(&self) -> &Path {
        self.cgroups.parent.path()
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
            eprintln!("{error:#}");
        }
    }
}
