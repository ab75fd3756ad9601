// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::memory::Ctrl;
use crate::sync::{Ordering, fence};

/// The state of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    Active,
    /// It has closed the ring.
    Closed,
    /// Its socket hung up, and it has not closed the ring.
    Dead,
}

/// Checks first whether the socket hung up, and then whether the peer closed the ring: the peer acts in the opposite order,
/// so that a close never looks like a death. If the state is not active, everything that the peer published is visible to a
/// later load.
pub fn peer_state(peer: &Ctrl, is_hung_up: impl FnOnce() -> bool) -> PeerState {
    let hung_up = is_hung_up();
    // Stores of the peer before the hang-up are visible from here on.
    fence(Ordering::Acquire);
    match (peer.is_closed(), hung_up) {
        (true, _) => PeerState::Closed,
        (false, true) => PeerState::Dead,
        (false, false) => PeerState::Active,
    }
}
