// SPDX-License-Identifier: MIT OR Apache-2.0
//! Changes the credentials of the process, permanently.

use std::fs;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

pub const NOBODY: u32 = 65534;

/// Sets this user and group, without supplementary groups and capabilities.
pub fn become_user(id: u32) -> Result<()> {
    become_user_with_groups(id, id, &[])
}

pub fn become_user_with_groups(uid: u32, gid: u32, groups: &[u32]) -> Result<()> {
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("setgroups")?;
    let gid = Gid::from_raw(gid);
    setresgid(gid, gid, gid).context("setresgid")?;
    let uid = Uid::from_raw(uid);
    setresuid(uid, uid, uid).context("setresuid")
}

// From linux/capability.h.
pub const CAP_DAC_OVERRIDE: u32 = 1;

/// As `become_user`, with this capability, which is one of the first 32.
pub fn become_user_with_capability(id: u32, capability: u32) -> Result<()> {
    prctl::set_keepcaps(true).context("keeping capabilities")?;
    become_user(id)?;
    set_capabilities(1 << capability)
}

/// Keeps the user, but drops all capabilities, until the process executes another program.
pub fn drop_capabilities() -> Result<()> {
    set_capabilities(0)
}

/// Keeps only the capabilities of this set, of the first 32.
fn set_capabilities(set: u32) -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    // Effective, permitted, inheritable; then those of the other capabilities.
    let sets: [u32; 6] = [set, set, 0, 0, 0, 0];
    // SAFETY: the header and the two times three words of this version; the kernel reads both, and writes to the header
    // only if it does not support the version.
    let ret = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) };
    Errno::result(ret).context("capset")?;
    Ok(())
}

/// As `become_user_namespace_root`, in a new cgroup namespace with the own cgroup as its root.
pub fn become_namespaces_root(id: u32) -> Result<()> {
    become_user_namespace_root(id)?;
    enter_cgroup_namespace()
}

/// Enters a new cgroup namespace with the own cgroup as its root.
pub fn enter_cgroup_namespace() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWCGROUP).context("unshare(CLONE_NEWCGROUP)")
}

/// Becomes root of a new user namespace that maps only this user and group, to 0.
pub fn become_user_namespace_root(id: u32) -> Result<()> {
    become_user(id)?;
    // Otherwise a process that has changed its user may not write to its own files in /proc.
    prctl::set_dumpable(true).context("becoming dumpable")?;
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare(CLONE_NEWUSER)")?;
    let map = format!("0 {id} 1");
    for (file, content) in [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, content).with_context(|| format!("writing {content} to {path}"))?;
    }
    Ok(())
}
