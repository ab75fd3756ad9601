// SPDX-License-Identifier: MIT OR Apache-2.0
//! The channel of a rule: its name, and the directory of the scope.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

/// What is wrong with a scope that can be written in several ways.
pub fn scope_error(scope: Option<&Path>) -> Option<&'static str> {
    let scope = scope?;
    let climbs = scope.components().any(|part| part == Component::ParentDir);
    (!scope.is_absolute() || climbs)
        .then_some("the scope is the directory of a cgroup; write its path from / on, without '..'")
}

/// The same, however often '/' is written.
pub fn text(name: &str, scope: Option<&Path>) -> String {
    match scope {
        Some(scope) => {
            let scope: PathBuf = scope.components().collect();
            format!("{name} in {}", scope.display())
        }
        None => name.to_owned(),
    }
}

/// What two rules for one channel have in common, however they write its scope. A cgroup that exists is its directory, so that symbolic links,
/// several mounts and the cgroup of this process are the same as its usual path.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    name: String,
    cgroup: Cgroup,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Cgroup {
    /// The device and the inode.
    Directory(u64, u64),
    Missing(Option<PathBuf>),
}

impl Identity {
    pub fn new(name: &str, scope: Option<&Path>) -> Self {
        let path = scope.map_or_else(own_cgroup, |scope| Some(scope.components().collect()));
        let directory = path.as_ref().and_then(|path| fs::metadata(path).ok());
        Self {
            name: name.to_owned(),
            cgroup: match directory {
                Some(directory) => Cgroup::Directory(directory.dev(), directory.ino()),
                None => Cgroup::Missing(path),
            },
        }
    }
}

fn own_cgroup() -> Option<PathBuf> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(Path::new("/sys/fs/cgroup").join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_identity() {
        let identity = |scope: &str| Identity::new("a", Some(Path::new(scope)));
        // As a link to the directory of a cgroup.
        assert!(identity("/proc/self/cwd/..") == identity(".."));
        assert!(identity("/proc/self/root") == identity("/"));
        assert!(identity("/proc") != identity("/"));
        assert!(identity("/missing/a") == identity("/missing//a/"));
        assert!(identity("/missing/a") != identity("/missing/b"));
        assert!(Identity::new("a", None) == Identity::new("a", own_cgroup().as_deref()));
        assert!(Identity::new("a", None) != Identity::new("b", None));
    }
}
