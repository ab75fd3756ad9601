// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device rings: one endpoint, whose regions are mapped, and on which a side waits and wakes. The module stores the end
//! of a side in its control page.

mod info;
mod options;
mod setup;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;

use sluice_abi as abi;

use super::role::Role;
use crate::sys::query;

pub use info::{RingInfo, RoleState};
pub use options::{Attach, Ring};

/// Whether a process has opened the side of the peer in this session.
pub(super) fn has_peer(endpoint: BorrowedFd<'_>, role: Role) -> io::Result<bool> {
    let session: abi::RingInfo = query(endpoint)?;
    let peer = match role {
        Role::Producer => session.consumer,
        Role::Consumer => session.producer,
    };
    Ok(RoleState::from(peer) != RoleState::Vacant)
}
