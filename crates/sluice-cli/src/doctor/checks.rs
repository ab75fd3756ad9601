// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use nix::unistd::{AccessFlags, access};

use super::Finding;
use super::durable::durable_maps;
use super::rings::rings;
use crate::cgroup;

const OLDEST_KERNEL: (u32, u32) = (6, 1);
const MODULE: &str = "/sys/module/sluice";
const LOAD_MODULE: &str = "run 'sudo modprobe sluice' or 'sudo insmod kernel/sluice.ko'";

/// Runs the checks, in an order where each depends on earlier ones only.
pub fn all() -> Vec<Finding> {
    let mut findings = vec![kernel(), rings(), cgroup_mount(), own_cgroup(), module()];
    if Path::new(MODULE).exists() {
        findings.extend([
            node("pipe node", "/dev/sluice/pipe"),
            node("ctl node", "/dev/sluice/ctl"),
            features(),
            limits(),
            durable_maps(),
        ]);
    }
    findings
}

fn kernel() -> Finding {
    const CHECK: &str = "kernel";
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => check_release(release.trim_end()),
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot read its release: {error}"),
            "mount /proc",
        ),
    }
}

fn check_release(release: &str) -> Finding {
    const CHECK: &str = "kernel";
    let found = format!("Linux {release}");
    let (major, minor) = OLDEST_KERNEL;
    match version(release) {
        Some(version) if version >= OLDEST_KERNEL => Finding::ok(CHECK, found),
        _ => Finding::problem(CHECK, found, format!("boot Linux {major}.{minor} or newer")),
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
        Ok(table) => match cgroup::mount_point(&table) {
            Some(point) => Finding::ok(CHECK, format!("mounted at {point}")),
            None => Finding::problem(CHECK, "no mount is visible here", MOUNT),
        },
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot read the mount table: {error}"),
            "mount /proc",
        ),
    }
}

fn own_cgroup() -> Finding {
    match fs::read_to_string("/proc/self/cgroup") {
        Ok(table) => check_cgroup(&table),
        Err(error) => Finding::problem(
            "own cgroup",
            format!("cannot read it: {error}"),
            "mount /proc",
        ),
    }
}

fn check_cgroup(table: &str) -> Finding {
    const CHECK: &str = "own cgroup";
    match table.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(name) if name.ends_with(" (deleted)") => Finding::problem(
            CHECK,
            format!("{name} was removed, so that no process can join it"),
            "restart from another cgroup",
        ),
        Some(name) => Finding::ok(CHECK, name),
        None => Finding::problem(
            CHECK,
            "this process is in no cgroup v2",
            "boot a kernel with CONFIG_CGROUPS",
        ),
    }
}

fn module() -> Finding {
    const CHECK: &str = "module";
    if Path::new(MODULE).exists() {
        return Finding::ok(CHECK, "loaded");
    }
    Finding::problem(CHECK, "not loaded, some checks are skipped", LOAD_MODULE)
}

fn node(check: &'static str, path: &str) -> Finding {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Finding::problem(
                check,
                format!("no {path}"),
                "pass /dev/sluice to this container, or load the current module on the host",
            );
        }
        Err(error) => {
            return Finding::problem(check, format!("{path}: {error}"), "check the directory");
        }
    };
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.file_type().is_char_device() {
        return Finding::problem(
            check,
            format!("{path} is not a device"),
            "remove it and reload the module",
        );
    }
    match access(path, AccessFlags::R_OK | AccessFlags::W_OK) {
        Ok(()) => Finding::ok(check, format!("{path}, mode {mode:o}")),
        Err(error) => Finding::problem(
            check,
            format!("cannot open {path}, mode {mode:o}: {error}"),
            format!("run 'sudo chmod 666 {path}' or allow the device in this container"),
        ),
    }
}

fn features() -> Finding {
    const CHECK: &str = "features";
    match sluice::features() {
        Ok(features) if features.has_all() => {
            Finding::ok(CHECK, format!("all, interface version {}", features.abi))
        }
        Ok(features) => Finding::problem(
            CHECK,
            format!("some are missing, interface version {}", features.abi),
            "run 'sudo rmmod sluice' and load the current module",
        ),
        Err(error) => Finding::problem(CHECK, error.to_string(), error.hint()),
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
        Ok(limits) => Finding::ok(CHECK, limits.join(", ")),
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot read a parameter in {MODULE}/parameters: {error}"),
            "mount /sys, or load the current module",
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
    fn kernels_from_6_1_on_are_ok() {
        for good in ["6.1.0-18-amd64", "6.12.3", "7.2.0-rc1"] {
            assert!(check_release(good).ok, "{good}");
        }
        for bad in ["5.15.0-generic", "6.0.19", "odd"] {
            let finding = check_release(bad);
            assert!(!finding.ok && finding.fix.is_some(), "{bad}");
        }
    }

    #[test]
    fn a_removed_or_missing_cgroup_is_a_problem() {
        assert!(check_cgroup("1:cpu:/\n0::/user.slice\n").ok);
        assert!(!check_cgroup("0::/gone (deleted)\n").ok);
        assert!(!check_cgroup("1:cpu:/\n").ok);
    }

    #[test]
    fn a_file_is_not_a_node() {
        let finding = node("pipe node", "/proc/version");
        assert!(!finding.ok);
        assert_eq!(finding.found, "/proc/version is not a device");
    }
}
