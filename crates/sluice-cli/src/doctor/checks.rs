// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::Finding;
use super::rings::rings;

const OLDEST_KERNEL: (u32, u32) = (6, 1);
const MODULE: &str = "/sys/module/sluice";
const LOAD_IT: &str = "run 'sudo modprobe sluice', or 'sudo insmod kernel/sluice.ko' after a build";

/// In this order: what comes later needs what comes before.
pub fn all() -> Vec<Finding> {
    let mut findings = vec![kernel(), rings(), cgroup_mount(), own_cgroup(), module()];
    if Path::new(MODULE).exists() {
        findings.extend([
            node("pipe node", "/dev/sluice/pipe"),
            node("ctl node", "/dev/sluice/ctl"),
            features(),
            limits(),
        ]);
    }
    findings
}

fn kernel() -> Finding {
    const CHECK: &str = "kernel";
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => judge_kernel(release.trim_end()),
        Err(error) => Finding::bad(
            CHECK,
            format!("its release cannot be read: {error}"),
            "mount /proc",
        ),
    }
}

fn judge_kernel(release: &str) -> Finding {
    const CHECK: &str = "kernel";
    let found = format!("Linux {release}");
    let (major, minor) = OLDEST_KERNEL;
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => Finding::good(CHECK, found),
        _ => Finding::bad(CHECK, found, format!("boot Linux {major}.{minor} or newer")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn cgroup_mount() -> Finding {
    const CHECK: &str = "cgroup v2";
    const MOUNT: &str = "boot with systemd.unified_cgroup_hierarchy=1, or run 'sudo mount -t cgroup2 none /sys/fs/cgroup'";
    match fs::read_to_string("/proc/self/mountinfo") {
        Ok(table) => match mount_point(&table) {
            Some(point) => Finding::good(CHECK, format!("mounted at {point}")),
            None => Finding::bad(CHECK, "not mounted as far as can be seen here", MOUNT),
        },
        Err(error) => Finding::bad(
            CHECK,
            format!("the mount table cannot be read: {error}"),
            "mount /proc",
        ),
    }
}

/// The fields up to ` - ` vary in number; the type follows.
fn mount_point(table: &str) -> Option<&str> {
    table.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        right.starts_with("cgroup2 ").then_some(point)
    })
}

fn own_cgroup() -> Finding {
    match fs::read_to_string("/proc/self/cgroup") {
        Ok(table) => judge_cgroup(&table),
        Err(error) => Finding::bad(
            "own cgroup",
            format!("it cannot be read: {error}"),
            "mount /proc",
        ),
    }
}

fn judge_cgroup(table: &str) -> Finding {
    const CHECK: &str = "own cgroup";
    match table.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(name) if name.ends_with(" (deleted)") => Finding::bad(
            CHECK,
            format!("{name} was removed, nothing new can join it"),
            "start anew from another cgroup",
        ),
        Some(name) => Finding::good(CHECK, format!("{name}; who shares it can meet here")),
        None => Finding::bad(
            CHECK,
            "this process is in none of version 2",
            "boot a kernel that has cgroups (CONFIG_CGROUPS)",
        ),
    }
}

fn module() -> Finding {
    const CHECK: &str = "module";
    if Path::new(MODULE).exists() {
        return Finding::good(CHECK, "loaded");
    }
    Finding::bad(
        CHECK,
        "not loaded; the checks that need it are left out",
        LOAD_IT,
    )
}

fn node(check: &'static str, path: &str) -> Finding {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::bad(
                check,
                format!("there is no {path}"),
                "pass /dev/sluice to this container; on a host, load the module that came with this program",
            );
        }
        Err(error) => {
            return Finding::bad(check, format!("{path}: {error}"), "look at its directory");
        }
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.file_type().is_char_device() {
        return Finding::bad(
            check,
            format!("{path} is no device"),
            "remove it and load the module anew",
        );
    }
    match access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => Finding::good(check, format!("{path}, mode {mode:o}")),
        Err(error) => Finding::bad(
            check,
            format!("{path}, mode {mode:o}, cannot be opened by this process: {error}"),
            format!("run 'sudo chmod 666 {path}', or allow the device in this container"),
        ),
    }
}

fn features() -> Finding {
    const CHECK: &str = "features";
    match sluice::features() {
        Ok(features) if features.has_all() => {
            Finding::good(CHECK, format!("all, by interface version {}", features.abi))
        }
        Ok(features) => Finding::bad(
            CHECK,
            format!(
                "the module lacks some, at interface version {}",
                features.abi
            ),
            "unload it with 'sudo rmmod sluice' and load the one that came with this program",
        ),
        // It says itself what to do.
        Err(error) => Finding::bad(CHECK, "the module does not answer", error.to_string()),
    }
}

fn limits() -> Finding {
    const CHECK: &str = "limits";
    const PARAMETERS: [&str; 6] = [
        "pipe_max_size",
        "spin_limit_us",
        "scope_max_channels",
        "scope_max_bytes",
        "user_max_channels",
        "user_max_bytes",
    ];
    let read = |name| parameter(name).map(|value| format!("{name} {value}"));
    match PARAMETERS
        .into_iter()
        .map(read)
        .collect::<io::Result<Vec<_>>>()
    {
        Ok(limits) => Finding::good(CHECK, limits.join(", ")),
        Err(error) => Finding::bad(
            CHECK,
            format!("a parameter in {MODULE}/parameters cannot be read: {error}"),
            "mount /sys, and load the module that came with this program",
        ),
    }
}

fn parameter(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(format!("{MODULE}/parameters/{name}"))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_from_6_1_on_are_good() {
        for good in ["6.1.0-18-amd64", "6.12.3", "7.2.0-rc1"] {
            assert!(judge_kernel(good).ok, "{good}");
        }
        for bad in ["5.15.0-generic", "6.0.19", "odd"] {
            let finding = judge_kernel(bad);
            assert!(!finding.ok && finding.mend.is_some(), "{bad}");
        }
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

    #[test]
    fn a_removed_cgroup_and_none_at_all_are_problems() {
        assert!(judge_cgroup("1:cpu:/\n0::/user.slice\n").ok);
        assert!(!judge_cgroup("0::/gone (deleted)\n").ok);
        assert!(!judge_cgroup("1:cpu:/\n").ok);
    }

    #[test]
    fn a_file_is_no_node() {
        let finding = node("pipe node", "/proc/version");
        assert!(!finding.ok);
        assert_eq!(finding.found, "/proc/version is no device");
    }
}
