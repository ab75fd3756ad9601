// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directories of cgroups (v2).

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// The filesystem type follows ` - `, after a variable number of fields.
pub fn mount_point(table: &str) -> Option<&str> {
    table.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right.starts_with("cgroup2 ").then_some(point)
    })
}

/// Those of all cgroups, the root first, each before those in it. One that is removed meanwhile is left out.
pub fn directories() -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo");
    let table = table.context("cannot read the mount table; mount /proc")?;
    let root =
        mount_point(&table).context("no cgroup v2 hierarchy is mounted; see 'sluice doctor'")?;
    let (mut found, mut waiting) = (Vec::new(), vec![PathBuf::from(root)]);
    while let Some(directory) = waiting.pop() {
        if let Ok(entries) = fs::read_dir(&directory) {
            let is_directory =
                |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
            let inner = entries.flatten().filter(is_directory);
            let mut inner: Vec<_> = inner.map(|entry| entry.path()).collect();
            inner.sort_unstable_by(|a, b| b.cmp(a));
            waiting.append(&mut inner);
            found.push(directory);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

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
