// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::memory::Ctrl;
use crate::sync::{Ordering, fence};

/// What is known of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    Active,
    /// It said that it is done.
    Closed,
    /// Its socket hung up, and it did not say that it is done.
    Dead,
}

/// Asks first whether the socket hung up, and then whether the peer closed: it does these in the opposite order, so that an orderly end
/// never looks like a death. If the state is not active, everything that the peer published is visible to a load that follows.
pub fn peer_state(peer: &Ctrl, is_hung_up: impl FnOnce() -> bool) -> PeerState {
    let hung_up = is_hung_up();
    // What the peer stored before its socket hung up is visible from here on.
    fence(Ordering::Acquire);
    match (peer.is_closed(), hung_up) {
        (true, _) => PeerState::Closed,
        (false, true) => PeerState::Dead,
        (false, false) => PeerState::Active,
    }
}
