// SPDX-License-Identifier: MIT OR Apache-2.0
//! The OCI bundle of a container: private namespaces, an unprivileged user, and of all devices the nodes of Sluice.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::stat::{major, minor};
use serde_json::{Value, json};
use sluice_testkit::module::{PIPE_NODE, SLUICE};

use crate::rootfs::{CGROUPS, OUTPUT, RECEIVED};
use crate::workspace::bind;

const CTL_NODE: &str = "/dev/sluice/ctl";
/// The user and the group of all processes in a container.
pub const USER: u32 = 1000;

pub struct Bundle {
    pub path: PathBuf,
    /// The file RECEIVED, as the host sees it.
    pub received: PathBuf,
}

/// A file or directory of the host that a container has.
pub struct Bind<'a> {
    source: &'a Path,
    destination: &'a str,
    read_only: bool,
}

impl<'a> Bind<'a> {
    pub fn writable(source: &'a Path, destination: &'a str) -> Self {
        Self {
            source,
            destination,
            read_only: false,
        }
    }

    pub fn read_only(source: &'a Path, destination: &'a str) -> Self {
        Self {
            read_only: true,
            ..Self::writable(source, destination)
        }
    }

    fn json(&self) -> Value {
        let access = if self.read_only { "ro" } else { "rw" };
        bind_mount(self.source, self.destination, &[access, "nodev"])
    }
}

impl Bundle {
    /// `cgroup` is relative to the mount point of the hierarchy. What the container receives is in the directory `output`.
    pub fn create(
        path: PathBuf,
        rootfs: &Path,
        cgroup: &str,
        output: &Path,
        others: &[Bind],
    ) -> Result<Self> {
        let root = path.join("rootfs");
        fs::create_dir_all(&root)
            .with_context(|| format!("cannot create {}; run as root", root.display()))?;
        // crun requires the root to be a mount point.
        bind(rootfs, &root)?;
        let mut binds = vec![Bind::writable(output, OUTPUT).json()];
        binds.extend(others.iter().map(Bind::json));
        let nodes = [device_number(PIPE_NODE)?, device_number(CTL_NODE)?];
        let config = config(cgroup, binds, nodes);
        fs::write(path.join("config.json"), config.to_string())?;
        let received = output.join(Path::new(RECEIVED).strip_prefix(OUTPUT)?);
        Ok(Self { path, received })
    }
}

fn device_number(node: &str) -> Result<u64> {
    let metadata = fs::metadata(node).with_context(|| SLUICE.how_to_load())?;
    Ok(metadata.rdev())
}

fn bind_mount(source: &Path, destination: &str, options: &[&str]) -> Value {
    let options = [&["bind", "nosuid", "noexec"], options].concat();
    json!({ "destination": destination, "type": "bind", "source": source, "options": options })
}

fn config(cgroup: &str, binds: Vec<Value>, nodes: [u64; 2]) -> Value {
    let namespaces =
        ["cgroup", "ipc", "mount", "network", "pid", "uts"].map(|kind| json!({ "type": kind }));
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] }),
        json!({
            "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "noexec", "mode=755", "size=64k"],
        }),
        json!({
            "destination": CGROUPS, "type": "cgroup", "source": "cgroup",
            "options": ["ro", "nosuid", "noexec", "nodev"],
        }),
        bind_mount(Path::new(PIPE_NODE), PIPE_NODE, &[]),
        bind_mount(Path::new(CTL_NODE), CTL_NODE, &[]),
    ];
    mounts.extend(binds);
    let [pipe, ctl] = nodes.map(|number| {
        json!({ "allow": true, "type": "c", "major": major(number), "minor": minor(number), "access": "rw" })
    });
    json!({
        "ociVersion": "1.0.0",
        "hostname": "sluice-demo",
        "root": { "path": "rootfs", "readonly": true },
        "process": {
            // Runs until the demo closes its standard input.
            "args": ["cat"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "user": { "uid": USER, "gid": USER },
            "noNewPrivileges": true,
            "capabilities": {
                "bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": [],
            },
        },
        "mounts": mounts,
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": namespaces,
            // crun adds the devices that every container has, such as /dev/null.
            "resources": { "devices": [{ "allow": false, "access": "rwm" }, pipe, ctl] },
        },
    })
}

#[cfg(test)]
mod tests {
    use nix::sys::stat::makedev;

    use super::*;

    fn example() -> Value {
        let input = Bind::read_only(Path::new("/w/a"), "/input");
        let output = Bind::writable(Path::new("/w/output-a"), OUTPUT);
        let binds = vec![input.json(), output.json()];
        config("/demo/a", binds, [makedev(240, 3), makedev(10, 120)])
    }

    #[test]
    fn only_the_nodes_of_sluice_are_mounted_and_allowed() {
        let config = example();
        let mounts = config["mounts"].as_array().unwrap();
        let nodes: Vec<_> = mounts
            .iter()
            .filter_map(|mount| mount["destination"].as_str())
            .filter(|destination| destination.starts_with("/dev/"))
            .collect();
        assert_eq!(nodes, [PIPE_NODE, CTL_NODE]);
        let devices = &config["linux"]["resources"]["devices"];
        assert_eq!(devices[0]["allow"], false);
        assert_eq!(
            (&devices[1]["major"], &devices[1]["minor"]),
            (&json!(240), &json!(3))
        );
        assert_eq!(devices[2]["minor"], 120);
        assert_eq!(devices.as_array().unwrap().len(), 3);
    }

    #[test]
    fn only_the_output_is_writable() {
        let config = example();
        let mounts = config["mounts"].as_array().unwrap();
        let options = |destination| {
            let mount = mounts
                .iter()
                .find(|mount| mount["destination"] == destination);
            mount.unwrap()["options"].as_array().unwrap()
        };
        assert!(options("/input").contains(&json!("ro")));
        assert!(!options(OUTPUT).contains(&json!("ro")));
        for destination in ["/input", OUTPUT] {
            assert!(options(destination).contains(&json!("nodev")));
        }
    }

    #[test]
    fn nothing_is_shared_with_the_host_and_nothing_is_privileged() {
        let config = example();
        assert_eq!(config["linux"]["namespaces"].as_array().unwrap().len(), 6);
        assert_eq!(config["root"]["readonly"], true);
        assert_eq!(config["process"]["user"]["uid"], 1000);
        assert_eq!(config["process"]["capabilities"]["effective"], json!([]));
    }
}
