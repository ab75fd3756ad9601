// SPDX-License-Identifier: MIT OR Apache-2.0
//! An OCI bundle: a locked-down container with namespaces of its own and an unprivileged user, and of all devices our two
//! nodes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::stat::{major, minor};
use serde_json::{Value, json};
use sluice_testkit::module::PIPE_NODE;

use crate::worker::{CGROUPS, CTL_NODE, INPUT, PROGRAM, SHARED, SOCKET};
use crate::workspace::bind;

/// As whom everything in a container runs.
pub const USER: u32 = 1000;

pub struct Bundle {
    pub path: PathBuf,
}

pub struct Spec<'a> {
    pub name: &'a str,
    /// The path of its cgroup below the hierarchy's root.
    pub cgroup: &'a str,
    /// The file that it can read, and nothing else of the host's.
    pub input: &'a Path,
    /// Whether it is started with an endpoint.
    pub handed: bool,
    /// Where the host hands out open files.
    pub socket: &'a Path,
    /// A directory that the other one has, too.
    pub shared: &'a Path,
}

impl Bundle {
    pub fn create(spec: &Spec, rootfs: &Path, path: PathBuf) -> Result<Self> {
        let root = path.join("rootfs");
        fs::create_dir_all(&root)?;
        // crun wants the root to be a mount of its own.
        bind(rootfs, &root)?;
        let configuration = configuration(spec, [device(PIPE_NODE)?, device(CTL_NODE)?]);
        fs::write(
            path.join("config.json"),
            serde_json::to_string_pretty(&configuration)?,
        )?;
        Ok(Self { path })
    }
}

fn device(node: &str) -> Result<u64> {
    let metadata = fs::metadata(node).with_context(|| {
        format!("there is no {node}; load the module with --module \"$(vm/build-module 6.12)\"")
    })?;
    Ok(metadata.rdev())
}

fn configuration(spec: &Spec, nodes: [u64; 2]) -> Value {
    json!({
        "ociVersion": "1.0.0",
        "hostname": format!("sluice-{}", spec.name),
        "root": { "path": "rootfs", "readonly": true },
        "process": process(spec.handed),
        "mounts": mounts(spec),
        "linux": {
            "cgroupsPath": spec.cgroup,
            "namespaces": namespaces(),
            "resources": { "devices": devices(nodes) },
        },
    })
}

fn process(handed: bool) -> Value {
    let flag = handed.then_some("--handed");
    let arguments: Vec<_> = [PROGRAM, "worker", "serve"]
        .into_iter()
        .chain(flag)
        .collect();
    let none: [&str; 0] = [];
    json!({
        "terminal": false,
        "user": { "uid": USER, "gid": USER },
        "args": arguments,
        "env": ["PATH=/"],
        "cwd": "/",
        "noNewPrivileges": true,
        "capabilities": {
            "bounding": none, "effective": none, "permitted": none, "inheritable": none, "ambient": none,
        },
    })
}

fn namespaces() -> Value {
    let kinds = ["cgroup", "ipc", "mount", "network", "pid", "uts"];
    kinds
        .map(|kind| json!({ "type": kind }))
        .into_iter()
        .collect()
}

fn mounts(spec: &Spec) -> Value {
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
        {
            "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "noexec", "mode=755", "size=64k"],
        },
        { "destination": PIPE_NODE, "type": "bind", "source": PIPE_NODE, "options": ["bind", "nosuid", "noexec"] },
        { "destination": CTL_NODE, "type": "bind", "source": CTL_NODE, "options": ["bind", "nosuid", "noexec"] },
        {
            "destination": CGROUPS, "type": "cgroup", "source": "cgroup",
            "options": ["ro", "nosuid", "noexec", "nodev"],
        },
        { "destination": INPUT, "type": "bind", "source": spec.input, "options": ["bind", "ro", "nosuid", "noexec", "nodev"] },
        { "destination": SOCKET, "type": "bind", "source": spec.socket, "options": ["bind", "nosuid", "noexec", "nodev"] },
        { "destination": SHARED, "type": "bind", "source": spec.shared, "options": ["bind", "nosuid", "noexec", "nodev"] },
    ])
}

/// No device but our nodes; crun adds the harmless ones that every container has.
fn devices(nodes: [u64; 2]) -> Value {
    let ours = nodes.map(|node| {
        json!({ "allow": true, "type": "c", "major": major(node), "minor": minor(node), "access": "rw" })
    });
    let others = json!({ "allow": false, "access": "rwm" });
    [others].into_iter().chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::makedev;

    fn example() -> Value {
        let spec = Spec {
            name: "a",
            cgroup: "/demo/a",
            input: Path::new("/stage/a"),
            handed: true,
            socket: Path::new("/stage/socket"),
            shared: Path::new("/stage/shared"),
        };
        configuration(&spec, [makedev(240, 3), makedev(10, 120)])
    }

    #[test]
    fn only_our_nodes_are_bound_in_and_allowed() {
        let configuration = example();
        let mounts = configuration["mounts"].as_array().unwrap();
        let nodes: Vec<_> = mounts
            .iter()
            .filter_map(|mount| mount["destination"].as_str())
            .filter(|destination| destination.starts_with("/dev/"))
            .collect();
        assert_eq!(nodes, [PIPE_NODE, CTL_NODE]);
        let devices = &configuration["linux"]["resources"]["devices"];
        assert_eq!(devices[0]["allow"], false);
        assert_eq!(
            (&devices[1]["major"], &devices[1]["minor"]),
            (&json!(240), &json!(3))
        );
        assert_eq!(devices[2]["minor"], 120);
        assert_eq!(devices.as_array().unwrap().len(), 3);
    }

    #[test]
    fn nothing_is_shared_with_the_host_and_nothing_is_privileged() {
        let configuration = example();
        assert_eq!(
            configuration["linux"]["namespaces"]
                .as_array()
                .unwrap()
                .len(),
            6
        );
        assert_eq!(configuration["root"]["readonly"], true);
        assert_eq!(configuration["process"]["args"][3], "--handed");
        assert_eq!(configuration["process"]["user"]["uid"], 1000);
        assert_eq!(
            configuration["process"]["capabilities"]["effective"],
            json!([])
        );
    }
}
