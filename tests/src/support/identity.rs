// SPDX-License-Identifier: MIT OR Apache-2.0
//! Becoming somebody with fewer privileges, for the rest of the process.

use std::fs;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

pub const NOBODY: u32 = 65534;

/// A user and group of this number, in no other group, without capabilities.
pub fn become_user(id: u32) -> Result<()> {
    become_member(id, id, &[])
}

pub fn become_member(uid: u32, gid: u32, groups: &[u32]) -> Result<()> {
    let groups: Vec<Gid> = groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups).context("setgroups")?;
    let gid = Gid::from_raw(gid);
    setresgid(gid, gid, gid).context("setresgid")?;
    let uid = Uid::from_raw(uid);
    setresuid(uid, uid, uid).context("setresuid")
}

/// Stays who it is, but may do no more than any other user.
pub fn give_up_capabilities() -> Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION_3, 0];
    let no_sets: [u32; 6] = [0; 6];
    // SAFETY: a header and the two triples of sets that this version takes; the kernel reads both, and writes to the
    // header only if it does not know the version.
    let ret = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), no_sets.as_ptr()) };
    Errno::result(ret).context("capset")?;
    Ok(())
}

/// As `become_root_of_a_namespace`, and makes the own cgroup the root of a new cgroup namespace that belongs to it.
pub fn become_root_of_namespaces(id: u32) -> Result<()> {
    become_root_of_a_namespace(id)?;
    unshare(CloneFlags::CLONE_NEWCGROUP).context("unshare(CLONE_NEWCGROUP)")
}

/// Becomes root of a new user namespace, in which only the user and group of this number are known, as 0.
pub fn become_root_of_a_namespace(id: u32) -> Result<()> {
    become_user(id)?;
    // A process that changed its user may not write its own files in /proc otherwise.
    prctl::set_dumpable(true).context("becoming dumpable")?;
    unshare(CloneFlags::CLONE_NEWUSER).context("unshare(CLONE_NEWUSER)")?;
    let map = format!("0 {id} 1");
    for (file, content) in [("setgroups", "deny"), ("uid_map", &map), ("gid_map", &map)] {
        let path = format!("/proc/self/{file}");
        fs::write(&path, content).with_context(|| format!("writing {content} to {path}"))?;
    }
    Ok(())
}
