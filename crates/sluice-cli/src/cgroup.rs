// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directories of cgroups (v2).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sluice::Scope;

/// The filesystem type follows ` - `, after a variable number of fields.
pub fn mount_point(table: &str) -> Option<&str> {
    table.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right.starts_with("cgroup2 ").then_some(point)
    })
}

/// The own cgroup in the text of /proc/self/cgroup.
pub fn unified_path(table: &str) -> Option<&str> {
    table.lines().find_map(|line| line.strip_prefix("0::"))
}

/// Where the hierarchy is mounted.
pub fn root() -> Result<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo");
    let table = table.context("cannot read the mount table; mount /proc")?;
    let root = mount_point(&table);
    let root = root.context("no cgroup v2 hierarchy is mounted; see 'sluice doctor'")?;
    Ok(PathBuf::from(root))
}

/// Calls a function for each cgroup below `root` and for `root`, each before those in it. Only one directory is open at a time. A cgroup
/// that is removed meanwhile is left out, also if the function fails because of that.
pub fn each_scope(root: &Path, mut visit: impl FnMut(&Path, &Scope) -> Result<()>) -> Result<()> {
    for directory in directories(root)? {
        let scope = Scope::at(&directory).map_err(anyhow::Error::new);
        match scope.and_then(|scope| visit(&directory, &scope)) {
            Err(_) if is_removed(&directory) => {}
            visited => visited?,
        }
    }
    Ok(())
}

fn is_removed(directory: &Path) -> bool {
    matches!(fs::exists(directory), Ok(false))
}

/// One that is removed meanwhile or that the caller may not read is left out.
fn directories(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(directory) = waiting.pop() {
        match inner(&directory) {
            Ok(mut inner) => {
                waiting.append(&mut inner);
                found.push(directory);
            }
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(_) if is_removed(&directory) => {}
            Err(error) => {
                let what = format!("cannot read {}; see 'sluice doctor'", directory.display());
                return Err(error).context(what);
            }
        }
    }
    Ok(found)
}

/// The directories in a directory, the last one first.
fn inner(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut inner = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            inner.push(entry.path());
        }
    }
    inner.sort_unstable_by(|a, b| b.cmp(a));
    Ok(inner)
}

#[cfg(test)]
mod tests {
    use std::{env, process};

    use super::*;

    /// A directory with directories, which is removed with them.
    struct Tree(PathBuf);

    impl Tree {
        fn new(test: &str, directories: &[&str]) -> Self {
            let root = env::temp_dir().join(format!("sluice-{test}-{}", process::id()));
            for directory in directories {
                fs::create_dir_all(root.join(directory)).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn each_scope_comes_before_those_in_it() {
        let tree = Tree::new("scopes", &["b", "a/inner"]);
        fs::write(tree.0.join("file"), "").unwrap();
        let mut visited = Vec::new();
        each_scope(&tree.0, |path, scope| {
            assert_eq!(scope.to_string(), format!("the scope {}", path.display()));
            visited.push(path.strip_prefix(&tree.0)?.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(visited, ["", "a", "a/inner", "b"].map(PathBuf::from));
    }

    #[test]
    fn only_a_removed_directory_is_left_out() {
        let tree = Tree::new("removed-scopes", &["a", "b", "c"]);
        let mut visited = Vec::new();
        let error = each_scope(&tree.0, |path, _| {
            visited.push(path.strip_prefix(&tree.0)?.to_owned());
            match path.file_name().and_then(|name| name.to_str()) {
                Some("a") => {
                    fs::remove_dir(path)?;
                    fs::remove_dir(tree.0.join("b"))?;
                    anyhow::bail!("the removed one")
                }
                Some("c") => anyhow::bail!("the other"),
                _ => Ok(()),
            }
        });
        assert_eq!(error.unwrap_err().to_string(), "the other");
        assert_eq!(visited, ["", "a", "c"].map(PathBuf::from));
    }

    #[test]
    fn only_a_unified_mount_counts() {
        let table = "\
25 1 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
26 1 0:23 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw
";
        assert_eq!(mount_point(table), Some("/sys/fs/cgroup/unified"));
        assert_eq!(
            mount_point("27 1 0:24 / /tmp rw - tmpfs cgroup2 rw\n"),
            None
        );
    }
}
