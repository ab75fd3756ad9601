// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes in containers: with their own cgroup and namespaces, as a container runtime starts them.

use std::fs;
use std::os::fd::BorrowedFd;

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde::{Serialize, de::DeserializeOwned};

use super::cgroup::Cgroup;
use super::child::{Child, spawn_keeping};
use super::credentials::{NOBODY, become_user, become_user_namespace_root, drop_capabilities};
use super::event::Event;
use super::mounts::make_mounts_private;

/// The mount point of the cgroup file system in a container, which shows its own part only.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// The user of a container's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Nobody,
    /// User 0 of the host, without any capability.
    BareRoot,
    /// Root in a user namespace, where it has all capabilities; outside, `NOBODY`.
    NamespaceRoot,
}

impl User {
    pub const ALL: [Self; 3] = [Self::Nobody, Self::BareRoot, Self::NamespaceRoot];
}

/// Runs `body` as process 1 of a container in this cgroup; it inherits only the files in `keep`.
pub fn spawn_in_container<T, F>(
    cgroup: &Cgroup,
    user: User,
    what: &str,
    keep: &[BorrowedFd],
    body: F,
) -> Result<Child<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T>,
{
    let what = format!("{what} ({user:?})");
    spawn_keeping(&what, keep, || {
        cgroup.enter()?;
        if user == User::NamespaceRoot {
            become_user_namespace_root(NOBODY)?;
        }
        unshare_namespaces()?;
        let first = spawn_keeping("its process 1", keep, || {
            mount_new("proc", "/proc")?;
            // A file system cannot be mounted over itself, and the host's mount cannot always be unmounted.
            mount_new("tmpfs", CGROUPS)?;
            mount_new("cgroup2", CGROUPS)?;
            drop_privileges(user)?;
            body()
        })?;
        first.finish()
    })
}

/// The number of users of a container of `spawn_in_user_namespace`.
const USERS: u32 = 1000;

/// Runs `body` as root of a new user namespace, whose users and groups are `first` and following on the host, and of a
/// new cgroup namespace with the root `cgroup`.
pub fn spawn_in_user_namespace<T, F>(
    cgroup: &Cgroup,
    first: u32,
    what: &str,
    keep: &[BorrowedFd],
    body: F,
) -> Result<Child<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce() -> Result<T>,
{
    let (unshared, mapped) = (Event::new()?, Event::new()?);
    let keep = [keep, &unshared.fds(), &mapped.fds()].concat();
    let child = spawn_keeping(what, &keep, || {
        cgroup.enter()?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWCGROUP)
            .context("unshare(CLONE_NEWUSER | CLONE_NEWCGROUP)")?;
        unshared.notify()?;
        mapped.wait("the users are mapped")?;
        become_user(0)?;
        body()
    })?;
    unshared.wait("the child has its namespaces")?;
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{file}", child.pid());
        fs::write(&path, format!("0 {first} {USERS}"))
            .with_context(|| format!("writing to {path}"))?;
    }
    mapped.notify()?;
    Ok(child)
}

fn unshare_namespaces() -> Result<()> {
    let all = CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS;
    unshare(all).context("creating namespaces")?;
    make_mounts_private()
}

fn mount_new(kind: &str, place: &str) -> Result<()> {
    mount(
        Some("none"),
        place,
        Some(kind),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| format!("mounting {kind}"))
}

fn drop_privileges(user: User) -> Result<()> {
    match user {
        User::Nobody => become_user(NOBODY),
        User::BareRoot => drop_capabilities(),
        User::NamespaceRoot => Ok(()),
    }
}
