// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mounts that no other process sees.

use anyhow::{Context, Result};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Gives this process a mount namespace of its own, which belongs to its user namespace.
pub fn enter_mount_namespace() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("creating a mount namespace")?;
    make_mounts_private()
}

/// Of a new mount namespace: its mounts do not appear in the one before.
pub fn make_mounts_private() -> Result<()> {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).context("making mounts private")
}
