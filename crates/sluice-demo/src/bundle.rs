// SPDX-License-Identifier: MIT OR Apache-2.0
//! An OCI bundle: a locked-down container with namespaces of its own, an unprivileged user, and of all our device nodes
//! only the pipe's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::sys::stat::{major, minor};
use serde_json::{Value, json};
use sluice_bench::harness::module::PIPE_NODE;

use crate::worker::{INPUT, PROGRAM};
use crate::workspace::bind;

pub struct Bundle {
    pub path: PathBuf,
}

pub struct Spec<'a> {
    pub name: &'a str,
    /// The path of its cgroup below the hierarchy's root.
    pub cgroup: &'a str,
    /// The file that it can read, and nothing else of the host's.
    pub input: &'a Path,
}

impl Bundle {
    pub fn create(spec: &Spec, rootfs: &Path, path: PathBuf) -> Result<Self> {
        let root = path.join("rootfs");
        fs::create_dir_all(&root)?;
        // crun wants the root to be a mount of its own.
        bind(rootfs, &root)?;
        let node = fs::metadata(PIPE_NODE).with_context(|| {
            format!("there is no {PIPE_NODE}; load the module with --module \"$(vm/module 6.12)\"")
        })?;
        let configuration = configuration(spec, node.rdev());
        fs::write(
            path.join("config.json"),
            serde_json::to_string_pretty(&configuration)?,
        )?;
        Ok(Self { path })
    }
}

fn configuration(spec: &Spec, device: u64) -> Value {
    json!({
        "ociVersion": "1.0.0",
        "hostname": format!("sluice-{}", spec.name),
        "root": { "path": "rootfs", "readonly": true },
        "process": process(),
        "mounts": mounts(spec.input),
        "linux": {
            "cgroupsPath": spec.cgroup,
            "namespaces": namespaces(),
            "resources": { "devices": devices(device) },
        },
    })
}

fn process() -> Value {
    let none: [&str; 0] = [];
    json!({
        "terminal": false,
        "user": { "uid": 1000, "gid": 1000 },
        "args": [PROGRAM, "worker", "serve"],
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

fn mounts(input: &Path) -> Value {
    json!([
        { "destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"] },
        {
            "destination": "/dev", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "noexec", "mode=755", "size=64k"],
        },
        { "destination": PIPE_NODE, "type": "bind", "source": PIPE_NODE, "options": ["bind", "nosuid", "noexec"] },
        { "destination": INPUT, "type": "bind", "source": input, "options": ["bind", "ro", "nosuid", "noexec", "nodev"] },
    ])
}

/// No device but the pipe; crun adds the harmless ones that every container has.
fn devices(pipe: u64) -> Value {
    json!([
        { "allow": false, "access": "rwm" },
        { "allow": true, "type": "c", "major": major(pipe), "minor": minor(pipe), "access": "rw" },
    ])
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
        };
        configuration(&spec, makedev(240, 3))
    }

    #[test]
    fn only_the_pipe_is_bound_in_and_allowed() {
        let configuration = example();
        let mounts = configuration["mounts"].as_array().unwrap();
        let nodes: Vec<_> = mounts
            .iter()
            .filter_map(|mount| mount["destination"].as_str())
            .filter(|destination| destination.starts_with("/dev/"))
            .collect();
        assert_eq!(nodes, [PIPE_NODE]);
        let devices = &configuration["linux"]["resources"]["devices"];
        assert_eq!(devices[0]["allow"], false);
        assert_eq!(
            (&devices[1]["major"], &devices[1]["minor"]),
            (&json!(240), &json!(3))
        );
        assert_eq!(devices.as_array().unwrap().len(), 2);
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
        assert_eq!(configuration["process"]["user"]["uid"], 1000);
        assert_eq!(
            configuration["process"]["capabilities"]["effective"],
            json!([])
        );
    }
}
