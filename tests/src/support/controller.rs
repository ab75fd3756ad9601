// SPDX-License-Identifier: MIT OR Apache-2.0
//! Controllers of cgroups.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::cgroup::Cgroup;
use super::check::skip;

const ENABLED: &str = "cgroup.subtree_control";

/// A controller, enabled down to the children of a test's cgroup until this is dropped.
pub struct Controller {
    name: &'static str,
    parents: Vec<PathBuf>,
}

impl Controller {
    /// Moves the test to a child of its cgroup: a cgroup with processes cannot enable controllers for its children.
    pub fn enable_for_children(home: &Cgroup, name: &'static str) -> Result<Self> {
        let root = Cgroup::root()?;
        if !has(root.path(), "cgroup.controllers", name)? {
            let reason = format!("there is no controller '{name}' in this hierarchy");
            return Err(skip(reason));
        }
        home.create_child("the-test-itself")?.enter()?;
        let above = home.path().ancestors();
        let mut above: Vec<_> = above.take_while(|at| at.starts_with(root.path())).collect();
        above.reverse();
        let mut enabled = Controller {
            name,
            parents: vec![],
        };
        for parent in above {
            if !has(parent, ENABLED, name)? {
                fs::write(parent.join(ENABLED), format!("+{name}"))
                    .with_context(|| format!("enabling {name} in {}", parent.display()))?;
                enabled.parents.push(parent.to_owned());
            }
        }
        Ok(enabled)
    }
}

fn has(cgroup: &Path, file: &str, name: &str) -> Result<bool> {
    let path = cgroup.join(file);
    let names = fs::read_to_string(&path);
    let names = names.with_context(|| format!("reading {}", path.display()))?;
    Ok(names.split_whitespace().any(|other| other == name))
}

impl Drop for Controller {
    fn drop(&mut self) {
        for parent in self.parents.iter().rev() {
            // A controller that stays enabled does no harm.
            let _ = fs::write(parent.join(ENABLED), format!("-{}", self.name));
        }
    }
}
