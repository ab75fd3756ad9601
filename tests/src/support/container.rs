// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes in containers: with a cgroup and with namespaces of their own, as a container runtime would start them.

use std::fs;
use std::os::fd::BorrowedFd;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use serde::{Serialize, de::DeserializeOwned};

use super::cgroup::Cgroup;
use super::child::{Child, spawn_keeping};
use super::identity::{NOBODY, become_root_of_a_namespace, become_user};
use super::notice::Notice;

/// Where a container finds the cgroup file system, of which it sees its own part only.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Whom the process of a container is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Nobody,
    /// User 0 of the host, without any capability.
    BareRoot,
    /// Root in a user namespace, where it has all capabilities, and nobody outside of it.
    NamespaceRoot,
}

impl User {
    pub const ALL: [Self; 3] = [Self::Nobody, Self::BareRoot, Self::NamespaceRoot];
}

/// Runs `body` as process 1 of a container in this cgroup, which keeps only the files in `keep`.
pub fn spawn_contained<T, F>(
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
            become_root_of_a_namespace(NOBODY)?;
        }
        leave_namespaces()?;
        let first = spawn_keeping("its process 1", keep, || {
            mount_own("proc", "/proc")?;
            // The same file system cannot be mounted on itself, and that of the host cannot always be unmounted.
            mount_own("tmpfs", CGROUPS)?;
            mount_own("cgroup2", CGROUPS)?;
            give_up_rights(user)?;
            body()
        })?;
        first.finish()
    })
}

/// How many users a container of `spawn_with_users` has.
const USERS: u32 = 1000;

/// Runs `body` as root of a new user namespace, whose users and groups are those from `first` on outside, and of a new
/// cgroup namespace, whose root is `cgroup`.
pub fn spawn_with_users<T, F>(
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
    let (unshared, mapped) = (Notice::new()?, Notice::new()?);
    let keep = [keep, &unshared.fds(), &mapped.fds()].concat();
    let child = spawn_keeping(what, &keep, || {
        cgroup.enter()?;
        unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWCGROUP)
            .context("unshare(CLONE_NEWUSER | CLONE_NEWCGROUP)")?;
        unshared.give()?;
        mapped.wait("its users are mapped")?;
        become_user(0)?;
        body()
    })?;
    unshared.wait("it has its namespaces")?;
    for file in ["uid_map", "gid_map"] {
        let path = format!("/proc/{}/{file}", child.pid());
        fs::write(&path, format!("0 {first} {USERS}"))
            .with_context(|| format!("writing to {path}"))?;
    }
    mapped.give()?;
    Ok(child)
}

fn leave_namespaces() -> Result<()> {
    let all = CloneFlags::CLONE_NEWCGROUP
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS;
    unshare(all).context("making namespaces")?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context("making mounts private")
}

fn mount_own(kind: &str, place: &str) -> Result<()> {
    mount(
        Some("none"),
        place,
        Some(kind),
        MsFlags::empty(),
        None::<&str>,
    )
    .with_context(|| format!("mounting {kind}"))
}

fn give_up_rights(user: User) -> Result<()> {
    match user {
        User::Nobody => become_user(NOBODY),
        User::BareRoot => drop_capabilities(),
        User::NamespaceRoot => Ok(()),
    }
}

/// For good as long as the process starts no other program.
fn drop_capabilities() -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header = [VERSION_3, 0];
    let sets = [0u32; 6];
    // SAFETY: the kernel reads a header of two words and, for this version, two times three words.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    Errno::result(result)
        .map(drop)
        .context("giving up all capabilities")
}
