// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the kernel is new enough.

use super::Finding;
use super::system::System;

pub const RELEASE: &str = "/proc/sys/kernel/osrelease";
const CHECK: &str = "kernel";
const OLDEST: (u32, u32) = (6, 1);

pub fn kernel(system: &System) -> Finding {
    match system.text(RELEASE) {
        Ok(release) => of_release(&release),
        Err(error) => Finding::problem(
            CHECK,
            format!("cannot read its release: {error}"),
            "run 'sudo mount -t proc proc /proc'",
        ),
    }
}

fn of_release(release: &str) -> Finding {
    let found = format!("Linux {release}");
    let (major, minor) = OLDEST;
    match version(release) {
        Some(version) if version >= OLDEST => Finding::ok(CHECK, found),
        _ => Finding::problem(CHECK, found, format!("boot Linux {major}.{minor} or newer")),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    #[test]
    fn kernels_from_6_1_on_are_ok() {
        for good in ["6.1.0-18-amd64", "6.12.3", "7.2.0-rc1"] {
            assert!(of_release(good).ok, "{good}");
        }
        for bad in ["5.15.0-generic", "6.0.19", "odd"] {
            let finding = of_release(bad);
            assert!(!finding.ok && finding.fix.is_some(), "{bad}");
        }
    }

    #[test]
    fn without_proc_the_fix_mounts_it() {
        let finding = kernel(&tree(&[]).system);
        assert!(finding.fix.unwrap().contains("mount -t proc"));
    }
}
