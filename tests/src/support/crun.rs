// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers started by crun. They run a script with this machine's programs, and have no Sluice nodes.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use serde_json::{Value, json};

use super::cgroup::Cgroup;
use super::mounts::enter_mount_namespace;
use super::shell::{self, bash};

/// The directory and cgroup of containers. The calling process unshares its mount namespace, so that crun's mounts end
/// with it.
pub struct Runtime {
    folder: PathBuf,
    /// Relative to the root of the hierarchy.
    cgroup: PathBuf,
}

impl Runtime {
    /// Containers get cgroups below `cgroup`, which must have no processes: crun enables controllers there.
    pub fn new(folder: &Path, cgroup: &Cgroup) -> Result<Self> {
        // Mounted before anything else, so that the hierarchy is visible in the containers' root directories too.
        let hierarchy = Cgroup::root()?;
        let below = cgroup.path().strip_prefix(hierarchy.path())?;
        enter_mount_namespace()?;
        Ok(Runtime {
            folder: folder.to_owned(),
            cgroup: Path::new("/").join(below),
        })
    }

    /// Prepares a container that runs this sh script; returns the command that starts it.
    pub fn prepare(&self, name: &str, preserved: usize, script: &str) -> Result<String> {
        let configuration = configuration(&self.cgroup.join(name), script);
        self.prepare_with(name, preserved, &configuration)
    }

    /// As `prepare`, of a container that sees the nodes in this directory, whose device policy permits none of them.
    pub fn prepare_without_devices(&self, name: &str, nodes: &str, script: &str) -> Result<String> {
        let configuration = self.with_nodes(name, nodes, script, false)?;
        self.prepare_with(name, 0, &configuration)
    }

    /// As `prepare`, of a container that may use the nodes in this directory, to which this seccomp profile applies.
    pub fn prepare_with_seccomp(
        &self,
        name: &str,
        nodes: &str,
        profile: Value,
        script: &str,
    ) -> Result<String> {
        let mut configuration = self.with_nodes(name, nodes, script, true)?;
        configuration["linux"]["seccomp"] = profile;
        self.prepare_with(name, 0, &configuration)
    }

    fn with_nodes(&self, name: &str, nodes: &str, script: &str, permits: bool) -> Result<Value> {
        let mut configuration = configuration(&self.cgroup.join(name), script);
        let mount =
            json!({ "destination": nodes, "type": "bind", "source": nodes, "options": ["rbind"] });
        configuration["mounts"]
            .as_array_mut()
            .context("no mounts")?
            .push(mount);
        configuration["linux"]["resources"] =
            json!({ "devices": [{ "allow": permits, "access": "rwm" }] });
        Ok(configuration)
    }

    fn prepare_with(&self, name: &str, preserved: usize, configuration: &Value) -> Result<String> {
        let bundle = self.folder.join(name);
        let root = bundle.join("rootfs");
        fs::create_dir_all(&root).context("creating a bundle")?;
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some("/"), &root, None::<&str>, bind, None::<&str>).context("binding the root")?;
        fs::write(bundle.join("config.json"), configuration.to_string())
            .context("writing a bundle")?;
        Ok(format!(
            "crun --cgroup-manager=cgroupfs --root {} run --preserve-fds {preserved} --bundle {} {name}-{}",
            self.folder.join("state").display(),
            bundle.display(),
            std::process::id()
        ))
    }
}

fn configuration(cgroup: &Path, script: &str) -> Value {
    let namespaces = ["cgroup", "ipc", "mount", "network", "pid", "uts"];
    let namespaces: Value = namespaces
        .iter()
        .map(|kind| json!({ "type": kind }))
        .collect();
    json!({
        "ociVersion": "1.0.0",
        "hostname": "sluice-tests",
        "root": { "path": "rootfs", "readonly": true },
        "process": {
            "terminal": false,
            "user": { "uid": 1000, "gid": 1000 },
            "args": ["sh", "-c", script],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "mounts": [
            { "destination": "/proc", "type": "proc", "source": "proc" },
            { "destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "noexec", "mode=755"] },
        ],
        "linux": { "cgroupsPath": cgroup, "namespaces": namespaces },
    })
}

/// Runs a script in bash with this standard input and output.
pub fn shell(script: &str, input: OwnedFd, output: OwnedFd) -> Result<Child> {
    bash(script)
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .context("running bash")
}

pub fn expect_success(child: Child) -> Result<()> {
    let output = child.wait_with_output().context("waiting for bash")?;
    shell::expect_success(&output)
}
