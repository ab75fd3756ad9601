// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::memory::{Ctrl, End};
use crate::sync::{Ordering, fence};

/// The state of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerState {
    Active,
    /// It has closed the ring.
    Closed,
    /// It ended without closing the ring.
    Dead,
    /// The ring was destroyed.
    Destroyed,
    /// It hides its end, which the module has reported: a protocol violation.
    Hidden,
    /// Unknown: this side was ended, through another descriptor of its endpoint.
    Detached,
}

/// The state of a peer whose death is seen as a hang-up of its socket. Checks first whether the socket hung up, and then
/// whether the peer closed the ring: the peer acts in the opposite order, so that a close never looks like a death. If the
/// state is not active, everything that the peer published is visible to a later load.
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

/// The state of a peer whose death the module stores in its control page. If the state is not active, everything that the
/// peer published is visible to a later load.
pub fn stored_peer_state(peer: &Ctrl) -> PeerState {
    match peer.end() {
        None => PeerState::Active,
        Some(End::Closed) => PeerState::Closed,
        Some(End::Died) => PeerState::Dead,
        Some(End::Destroyed) => PeerState::Destroyed,
    }
}
