// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shows that the containers are isolated: by namespaces and cgroups, and in what they read from the same device node.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::at_once::at_once;
use crate::container::Container;
use crate::story::detail;

/// Files of /proc/PID/ns.
const NAMESPACES: [&str; 6] = ["cgroup", "ipc", "mnt", "net", "pid", "uts"];
/// Keeps $1 in the pipe until it is resumed, and then reads it back.
const HOLD_SCRIPT: &str = "
    exec 3<>/dev/sluice/pipe; printf %s \"$1\" >&3
    echo ready >&2; read line
    dd bs=4096 count=1 status=none <&3";

/// What a container sees, and what the host sees of it.
struct View {
    inside: String,
    outside: String,
    nodes: Vec<String>,
    namespaces: BTreeMap<&'static str, String>,
}

pub fn show_views(containers: &[Container; 2]) -> Result<()> {
    let views = at_once(containers, view)?;
    for (container, view) in containers.iter().zip(&views) {
        detail!(
            "  container {}: cgroup {} inside, {} on the host; nodes /dev/sluice/{}",
            container.name,
            view.inside,
            view.outside,
            view.nodes.join(", /dev/sluice/")
        );
    }
    check_views(&views, &namespaces("self")?)
        .context("the containers are not isolated; check the version of crun")
}

fn view(container: &Container) -> Result<View> {
    let inside = container.run_success(&["cat", "/proc/self/cgroup"])?;
    let path = format!("/proc/{}/cgroup", container.pid);
    let outside = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {path}; container {} has ended", container.name))?;
    let nodes = container.run_success(&["ls", "/dev/sluice"])?;
    Ok(View {
        inside: own_cgroup(&inside).to_string(),
        outside: own_cgroup(&outside).to_string(),
        nodes: nodes.lines().map(str::to_string).collect(),
        namespaces: namespaces(&container.pid)?,
    })
}

/// The path in the unified hierarchy, from the content of /proc/PID/cgroup.
fn own_cgroup(text: &str) -> &str {
    text.lines()
        .find_map(|line| line.strip_prefix("0::"))
        .unwrap_or("none")
}

/// The identities of the namespaces of a process.
fn namespaces(pid: &str) -> Result<BTreeMap<&'static str, String>> {
    let identity = |kind| {
        let path = format!("/proc/{pid}/ns/{kind}");
        let link =
            fs::read_link(&path).with_context(|| format!("cannot read {path}; run as root"))?;
        Ok((kind, link.to_string_lossy().into_owned()))
    };
    NAMESPACES.into_iter().map(identity).collect()
}

fn check_views(views: &[View], host: &BTreeMap<&'static str, String>) -> Result<()> {
    let [a, b] = views else {
        bail!("two containers have {} views", views.len());
    };
    for view in [a, b] {
        ensure!(
            view.inside == "/",
            "the cgroup namespace is not private: {} sees itself in {}",
            view.outside,
            view.inside
        );
        ensure!(
            view.nodes == ["ctl", "pipe"],
            "{} sees other nodes than ctl and pipe in /dev/sluice: {:?}",
            view.outside,
            view.nodes
        );
    }
    ensure!(
        a.outside != b.outside,
        "both containers are in the cgroup {}",
        a.outside
    );
    for (kind, host) in host {
        let (a, b) = (&a.namespaces[kind], &b.namespaces[kind]);
        ensure!(
            host != a && host != b && a != b,
            "the {kind} namespace is shared"
        );
    }
    Ok(())
}

/// Each container in turn keeps bytes in its pipe while the other one reads from the same node.
pub fn show_pipes(containers: &[Container; 2]) -> Result<()> {
    for (index, holder) in containers.iter().enumerate() {
        let other = &containers[1 - index];
        let secret = secret()?;
        let mut process = holder.exec(&["sh", "-c", HOLD_SCRIPT, "sh", &secret])?;
        process.wait_ready()?;
        let read = other.run_success(&[
            "dd",
            "if=/dev/sluice/pipe",
            "iflag=nonblock",
            "bs=4096",
            "count=1",
            "status=none",
        ])?;
        process.resume()?;
        let read_back = process.wait_success()?.stdout;
        check_pipes(&secret, &read, &read_back).with_context(|| {
            format!(
                "the pipe of container {} is not isolated from container {}",
                holder.name, other.name
            )
        })?;
        detail!(
            "  container {} has written {} bytes to its pipe: container {} reads 0 bytes; then {} reads all of them back",
            holder.name,
            secret.len(),
            other.name,
            holder.name
        );
    }
    Ok(())
}

fn check_pipes(secret: &str, read: &str, read_back: &str) -> Result<()> {
    ensure!(
        read.is_empty(),
        "the other container read '{read}'; report this as a bug"
    );
    ensure!(
        read_back == secret,
        "'{secret}' was written, but '{read_back}' was read back; report this as a bug"
    );
    Ok(())
}

/// Random, so that it has no other source.
pub fn secret() -> Result<String> {
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")
        .context("cannot read a random UUID; mount /proc")?;
    Ok(uuid.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view_of(outside: &str, pid: &str) -> View {
        View {
            inside: "/".into(),
            outside: outside.into(),
            nodes: vec!["ctl".into(), "pipe".into()],
            namespaces: [("pid", pid.to_string())].into(),
        }
    }

    fn host() -> BTreeMap<&'static str, String> {
        [("pid", "0".to_string())].into()
    }

    #[test]
    fn isolated_containers_pass() {
        check_views(&[view_of("/a", "1"), view_of("/b", "2")], &host()).unwrap();
    }

    #[test]
    fn anything_shared_is_found() {
        let error = |views: [View; 2]| check_views(&views, &host()).unwrap_err().to_string();
        assert!(error([view_of("/a", "1"), view_of("/b", "1")]).contains("pid namespace"));
        assert!(error([view_of("/a", "0"), view_of("/b", "2")]).contains("pid namespace"));
        assert!(error([view_of("/a", "1"), view_of("/a", "2")]).contains("both containers"));
        let inside = View {
            inside: "/x".into(),
            ..view_of("/a", "1")
        };
        assert!(error([inside, view_of("/b", "2")]).contains("cgroup namespace"));
        let nodes = vec!["another".into(), "ctl".into(), "pipe".into()];
        let nodes = View {
            nodes,
            ..view_of("/a", "1")
        };
        assert!(error([nodes, view_of("/b", "2")]).contains("other nodes"));
    }

    #[test]
    fn bytes_that_were_read_elsewhere_or_not_at_all_are_found() {
        check_pipes("one", "", "one").unwrap();
        assert!(check_pipes("one", "one", "").is_err());
        assert!(check_pipes("one", "", "on").is_err());
        assert!(check_pipes("one", "", "two").is_err());
    }

    #[test]
    fn the_unified_cgroup_is_found_among_v1_hierarchies() {
        assert_eq!(
            own_cgroup("9:name=systemd:/\n4:memory:/a\n0::/demo/a\n"),
            "/demo/a"
        );
        assert_eq!(own_cgroup("4:memory:/a\n"), "none");
    }

    #[test]
    fn a_process_has_all_the_namespaces_that_are_compared() {
        let own = namespaces("self").unwrap();
        assert_eq!(own.len(), NAMESPACES.len());
        assert!(own["mnt"].starts_with("mnt:["), "{own:?}");
    }
}
