// SPDX-License-Identifier: MIT OR Apache-2.0
//! Containers that crun starts. They run a script with the programs of this machine, and have none of our nodes.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};

use super::cgroup::Cgroup;

/// Where containers are made. The calling process leaves its mount namespace, and with it go all that crun mounted.
pub struct Runtime {
    folder: PathBuf,
    /// Below the root of the hierarchy.
    cgroup: PathBuf,
}

impl Runtime {
    /// Containers get cgroups below `cgroup`. No process may be in it: crun turns on controllers there.
    pub fn new(folder: &Path, cgroup: &Cgroup) -> Result<Self> {
        // Before anything is mounted: the hierarchy will then be in the containers' roots, too.
        let hierarchy = Cgroup::root()?;
        let below = cgroup.path().strip_prefix(hierarchy.path())?;
        unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace")?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>)
            .context("making mounts private")?;
        Ok(Runtime {
            folder: folder.to_owned(),
            cgroup: Path::new("/").join(below),
        })
    }

    /// Makes a container that runs this script of sh; what follows `sh -c` to run it.
    pub fn prepare(&self, name: &str, preserved: usize, script: &str) -> Result<String> {
        let bundle = self.folder.join(name);
        let root = bundle.join("rootfs");
        fs::create_dir_all(&root).context("making a bundle")?;
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some("/"), &root, None::<&str>, bind, None::<&str>).context("binding the root")?;
        let text = configuration(&self.cgroup.join(name), script).to_string();
        fs::write(bundle.join("config.json"), text).context("writing a bundle")?;
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

/// A shell, with these two as its standard input and output.
pub fn shell(script: &str, input: OwnedFd, output: OwnedFd) -> Result<Child> {
    Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .context("running bash")
}

pub fn expect_success(child: Child) -> Result<()> {
    let output = child.wait_with_output().context("waiting for bash")?;
    ensure!(
        output.status.success(),
        "the script ended with {}; it said: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}
