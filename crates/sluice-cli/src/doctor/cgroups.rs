// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hierarchy of cgroups (v2), and the own cgroup, which is the default scope.

use std::path::{Path, PathBuf};

use super::Finding;
use super::system::System;
use crate::cgroup;

const MOUNTS: &str = "/proc/self/mountinfo";
const OWN: &str = "/proc/self/cgroup";
const UNIFIED: &str = "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1";
const MOUNT_PROC: &str = "run 'sudo mount -t proc proc /proc'";

pub fn hierarchy(system: &System) -> Finding {
    const CHECK: &str = "cgroup v2";
    let table = match system.text(MOUNTS) {
        Ok(table) => table,
        Err(error) => {
            let found = format!("cannot read the mount table: {error}");
            return Finding::problem(CHECK, found, MOUNT_PROC);
        }
    };
    let point = cgroup::mount_point(&table);
    match (point, has_version_1(&table)) {
        (Some(point), false) => Finding::ok(CHECK, format!("mounted at {point}")),
        (Some(point), true) => Finding::problem(
            CHECK,
            format!(
                "mounted at {point} beside cgroup v1 (hybrid): containers may be in cgroups of v1 only, and share their channels"
            ),
            UNIFIED,
        ),
        (None, true) => Finding::problem(CHECK, "only cgroup v1 is mounted", UNIFIED),
        (None, false) => Finding::problem(
            CHECK,
            "no mount is visible here",
            "run 'sudo mount -t cgroup2 none /sys/fs/cgroup'",
        ),
    }
}

fn has_version_1(table: &str) -> bool {
    let mut types = table
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .map(|(_, right)| right.split(' ').next());
    types.any(|name| name == Some("cgroup"))
}

pub fn own(system: &System) -> Finding {
    const CHECK: &str = "own cgroup";
    let table = match system.text(OWN) {
        Ok(table) => table,
        Err(error) => {
            let found = format!("cannot read it: {error}");
            return Finding::problem(CHECK, found, MOUNT_PROC);
        }
    };
    match cgroup::unified_path(&table) {
        Some(path) if path.ends_with(" (deleted)") => Finding::problem(
            CHECK,
            format!("{path} was removed, so that no process can join it"),
            "run 'exec systemd-run --user --scope $SHELL', or log in again",
        ),
        Some(path) => Finding::ok(CHECK, describe(path, directory(system).as_deref())),
        None => Finding::problem(
            CHECK,
            "this process is in no cgroup v2",
            "boot a kernel with CONFIG_CGROUPS",
        ),
    }
}

fn describe(path: &str, directory: Option<&Path>) -> String {
    let others = "another terminal or service usually has another one, with channels of its own";
    match directory {
        Some(directory) => format!(
            "{path}; {others}; root reaches these from there with --scope {}",
            directory.display()
        ),
        None => format!("{path}; {others}"),
    }
}

/// The directory of the own cgroup, if it is visible here.
pub fn directory(system: &System) -> Option<PathBuf> {
    let (mounts, own) = (system.text(MOUNTS).ok()?, system.text(OWN).ok()?);
    let point = Path::new(cgroup::mount_point(&mounts)?);
    let path = point.join(cgroup::unified_path(&own)?.trim_start_matches('/'));
    // Without the slash behind the root.
    Some(path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    const V2: &str = "26 1 0:23 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
    const V1: &str = "25 1 0:22 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n";
    const HYBRID: &str = "26 1 0:23 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn of_mounts(table: &str) -> Finding {
        hierarchy(&tree(&[(MOUNTS, table)]).system)
    }

    #[test]
    fn a_unified_hierarchy_is_ok() {
        let finding = of_mounts(V2);
        assert!(finding.ok);
        assert_eq!(finding.found, "mounted at /sys/fs/cgroup");
    }

    #[test]
    fn version_1_alone_and_beside_version_2_are_problems() {
        for (table, says) in [
            (V1.to_owned(), "only cgroup v1"),
            (V1.to_owned() + HYBRID, "hybrid"),
        ] {
            let finding = of_mounts(&table);
            assert!(finding.found.contains(says), "{}", finding.found);
            assert!(finding.fix.unwrap().contains("unified_cgroup_hierarchy=1"));
        }
    }

    #[test]
    fn without_any_cgroup_mount_the_fix_is_a_mount() {
        let finding = of_mounts("27 1 0:24 / /tmp rw - tmpfs cgroup2 rw\n");
        assert!(finding.fix.unwrap().contains("mount -t cgroup2"));
    }

    #[test]
    fn the_own_cgroup_is_shown_with_the_way_to_share_it() {
        let finding = own(&tree(&[(MOUNTS, V2), (OWN, "1:cpu:/\n0::/user.slice/a\n")]).system);
        assert!(finding.ok);
        for word in [
            "/user.slice/a; another terminal",
            "--scope /sys/fs/cgroup/user.slice/a",
        ] {
            assert!(finding.found.contains(word), "{}", finding.found);
        }
    }

    #[test]
    fn a_removed_or_missing_cgroup_is_a_problem() {
        for table in ["0::/gone (deleted)\n", "1:cpu:/\n"] {
            let finding = own(&tree(&[(OWN, table)]).system);
            assert!(!finding.ok && finding.fix.is_some(), "{table}");
        }
    }
}
