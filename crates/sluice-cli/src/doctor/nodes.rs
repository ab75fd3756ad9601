// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the device nodes are there, are those of the loaded module, and can be opened.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use nix::errno::Errno;
use nix::libc::{major, minor};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, Gid, Group, access};

use super::Finding;
use super::system::System;

/// The number of a device: major and minor.
type Number = (u32, u32);

/// What is at the path of a node.
struct Node {
    is_device: bool,
    number: Number,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Whether mode and device policy permit to open it.
    access: Result<(), Errno>,
    is_nodev: bool,
}

pub fn node(system: &System, check: &'static str, name: &str) -> Finding {
    let path = format!("/dev/sluice/{name}");
    let expected = number(system, name);
    match fs::metadata(system.path(&path)) {
        Ok(metadata) => judge(check, &path, &Node::of(&path, &metadata), expected),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            missing(system, check, &path, expected)
        }
        Err(error) => Finding::problem(
            check,
            format!("{path}: {error}"),
            "run 'sudo chmod 755 /dev/sluice'",
        ),
    }
}

/// The number that the loaded module has given to a node.
fn number(system: &System, name: &str) -> Option<Number> {
    let text = system.text(&format!("/sys/class/sluice/{name}/dev")).ok()?;
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

impl Node {
    /// access(2) also asks the device policy of the cgroup. An open could wake a process that waits for the other side of the pipe.
    fn of(path: &str, metadata: &Metadata) -> Self {
        let flags = statvfs(path).map(|about| about.flags());
        Self {
            is_device: metadata.file_type().is_char_device(),
            number: (major(metadata.rdev()), minor(metadata.rdev())),
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
            access: access(path, AccessFlags::R_OK | AccessFlags::W_OK),
            is_nodev: flags.is_ok_and(|flags| flags.contains(FsFlags::ST_NODEV)),
        }
    }
}

/// A host has its nodes in devtmpfs.
fn missing(system: &System, check: &'static str, path: &str, expected: Option<Number>) -> Finding {
    let mounts = system.text("/proc/self/mountinfo").unwrap_or_default();
    let is_host = mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some("/dev") && line.contains(" - devtmpfs "));
    let found = format!("no {path}");
    match is_host {
        true => Finding::problem(check, found, make(path, expected)),
        false => Finding::problem(
            check,
            found + " in this container",
            format!("start it with '--device {path}', see docs/containers.md"),
        ),
    }
}

/// The command that makes the node. Without a number, the module has to do it.
fn make(path: &str, number: Option<Number>) -> String {
    match number {
        Some((major, minor)) => {
            format!("run 'sudo mkdir -p /dev/sluice && sudo mknod -m 666 {path} c {major} {minor}'")
        }
        None => "run 'sudo sluice unload && sudo modprobe sluice'".to_owned(),
    }
}

fn judge(check: &'static str, path: &str, node: &Node, expected: Option<Number>) -> Finding {
    let remake = || format!("run 'sudo rm -r {path}', then {}", make(path, expected));
    let mode = node.mode;
    if !node.is_device {
        return Finding::problem(check, format!("{path} is not a device"), remake());
    }
    if let Some(expected) = expected.filter(|expected| *expected != node.number) {
        let (major, minor) = node.number;
        let found = format!(
            "{path} is the device {major}:{minor}, but the module's is {}:{}: it was made for an earlier load of the module",
            expected.0, expected.1
        );
        let fix = format!("{}, or start the container again", remake());
        return Finding::problem(check, found, fix);
    }
    let refused = |why: &str, fix: String| {
        let found = format!("cannot open {path}, mode {mode:03o}: {why}");
        Finding::problem(check, found, fix)
    };
    match node.access {
        Ok(()) if node.is_nodev => refused(
            "it is on a mount with the option nodev",
            "mount its directory with the option dev".to_owned(),
        ),
        Ok(()) => Finding::ok(check, format!("{path}, mode {mode:03o}")),
        // The mode is checked first, with another error.
        Err(Errno::EPERM) => refused(
            "the device policy of the cgroup does not permit it",
            format!(
                "start the container with '--device {path}', or the service with DeviceAllow=char-sluice"
            ),
        ),
        Err(Errno::EACCES) if mode & 0o006 == 0o006 => refused(
            "a security module such as SELinux or AppArmor does not permit it",
            "run 'sudo dmesg | tail', and permit what it shows as denied".to_owned(),
        ),
        Err(Errno::EACCES) if mode & 0o060 == 0o060 && node.gid != 0 => {
            let group = group(node.gid);
            let fix = format!("run 'sudo usermod -aG {group} $USER', and log in again");
            refused(&format!("only the group {group} may"), fix)
        }
        Err(Errno::EACCES) => refused(
            &format!("only the user {} may", node.uid),
            format!("run 'sudo chmod 666 {path}'"),
        ),
        Err(error) => refused(error.desc(), remake()),
    }
}

fn group(gid: u32) -> String {
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
    group.map_or_else(|| gid.to_string(), |group| group.name)
}

#[cfg(test)]
mod tests {
    use super::super::system::tests::tree;
    use super::*;

    const PATH: &str = "/dev/sluice/ctl";
    const NUMBER: (&str, &str) = ("/sys/class/sluice/ctl/dev", "511:0\n");

    fn good() -> Node {
        Node {
            is_device: true,
            number: (511, 0),
            mode: 0o666,
            uid: 0,
            gid: 0,
            access: Ok(()),
            is_nodev: false,
        }
    }

    fn of(node: &Node) -> Finding {
        judge("ctl node", PATH, node, Some((511, 0)))
    }

    fn expect(node: Node, found: &str, fix: &str) {
        let finding = of(&node);
        assert!(finding.found.contains(found), "{}", finding.found);
        let advice = finding.fix.unwrap();
        assert!(advice.contains(fix), "{advice}");
    }

    #[test]
    fn a_node_that_can_be_opened_is_ok() {
        assert_eq!(of(&good()).found, "/dev/sluice/ctl, mode 666");
        assert!(judge("ctl node", PATH, &good(), None).ok);
    }

    #[test]
    fn a_node_of_an_earlier_load_is_to_be_made_anew() {
        let number = (240, 0);
        let node = Node { number, ..good() };
        expect(
            node,
            "device 240:0, but the module's is 511:0",
            "mknod -m 666 /dev/sluice/ctl c 511 0",
        );
    }

    #[test]
    fn the_mode_and_the_device_policy_are_told_apart() {
        let refused = |mode, gid, error| Node {
            mode,
            gid,
            access: Err(error),
            ..good()
        };
        let node = refused(0o600, 0, Errno::EACCES);
        expect(
            node,
            "mode 600: only the user 0",
            "chmod 666 /dev/sluice/ctl",
        );
        let node = refused(0o660, u32::MAX, Errno::EACCES);
        expect(node, "only the group 4294967295", "usermod -aG 4294967295");
        let node = refused(0o666, 0, Errno::EACCES);
        expect(node, "a security module", "dmesg");
        let node = refused(0o666, 0, Errno::EPERM);
        expect(node, "device policy", "DeviceAllow=char-sluice");
        let node = Node {
            is_nodev: true,
            ..good()
        };
        expect(node, "nodev", "option dev");
    }

    #[test]
    fn a_file_is_not_a_node() {
        let tree = tree(&[(PATH, ""), NUMBER]);
        let finding = node(&tree.system, "ctl node", "ctl");
        assert_eq!(finding.found, "/dev/sluice/ctl is not a device");
        assert!(finding.fix.unwrap().contains("c 511 0"));
    }

    #[test]
    fn a_missing_node_is_passed_to_a_container_and_made_on_a_host() {
        let host = "25 1 0:5 / /dev rw - devtmpfs udev rw\n";
        for (mounts, fix) in [
            (
                "25 1 0:5 / /dev rw - tmpfs tmpfs rw\n",
                "'--device /dev/sluice/ctl'",
            ),
            (
                host,
                "sudo mkdir -p /dev/sluice && sudo mknod -m 666 /dev/sluice/ctl c 511 0",
            ),
        ] {
            let tree = tree(&[("/proc/self/mountinfo", mounts), NUMBER]);
            let finding = node(&tree.system, "ctl node", "ctl");
            assert!(finding.found.starts_with("no /dev/sluice/ctl"));
            let advice = finding.fix.unwrap();
            assert!(advice.contains(fix), "{advice}");
        }
    }
}
