// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a wait by its timeout. It tells a peer that is slow from one that has never come, perhaps because it opened the same name in
//! another cgroup.

use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::time::Duration;

use sluice_abi as abi;

use crate::kind::Kind;
use crate::name::Name;
use crate::scope::Scope;
use crate::sys;

const NO_PEER: &str = "start it in the same cgroup; 'sudo sluice ls --all' shows whether it has opened the name in another one";

/// A call has waited for its timeout.
#[derive(Clone, Debug)]
pub struct Timeout {
    limit: Duration,
    /// Says that the channel has no peer.
    no_peer: Option<Box<str>>,
}

/// The side of a channel that a call waits for.
#[derive(Clone, Copy)]
enum Peer {
    Sender,
    Receiver,
}

impl Timeout {
    /// For a call that waited to receive from an endpoint.
    pub fn receiving(limit: Duration, endpoint: impl AsFd) -> Self {
        let no_peer = without(Peer::Sender, endpoint.as_fd());
        Self { limit, no_peer }
    }

    /// For a call that waited for the receiver of an endpoint.
    pub fn sending(limit: Duration, endpoint: impl AsFd) -> Self {
        let no_peer = without(Peer::Receiver, endpoint.as_fd());
        Self { limit, no_peer }
    }

    /// The timeout of the call.
    pub fn limit(&self) -> Duration {
        self.limit
    }

    /// Whether no peer had the channel open at the end of the call.
    pub fn has_no_peer(&self) -> bool {
        self.no_peer.is_some()
    }

    /// The same for a longer call, of which this one was a part.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The message of an error, with what a peer has not done.
    pub(crate) fn message(&self, undone: &str) -> String {
        match &self.no_peer {
            Some(no_peer) => format!("timeout after {:?}: {no_peer}", self.limit),
            None => format!("timeout: {undone} for {:?}", self.limit),
        }
    }

    /// The hint of an error, which has another one if there is a peer.
    pub(crate) fn hint(&self, of_peer: &'static str) -> &'static str {
        match self.no_peer {
            Some(_) => NO_PEER,
            None => of_peer,
        }
    }
}

/// Without knowledge of the peer.
impl From<Duration> for Timeout {
    fn from(limit: Duration) -> Self {
        Self {
            limit,
            no_peer: None,
        }
    }
}

/// Says so if the channel of an endpoint has no such peer. None of a socket, and of an endpoint of a module that does not know.
#[cold]
fn without(peer: Peer, endpoint: BorrowedFd<'_>) -> Option<Box<str>> {
    let mut info = abi::ChannelInfo::EMPTY;
    sys::ioctl(endpoint, abi::ENDPOINT_INFO, &mut info).ok()?;
    let (kind, count) = match peer {
        Peer::Sender => (info.kind, info.writers),
        Peer::Receiver => (info.kind, info.readers),
    };
    (count == 0).then(|| {
        let (kind, name) = (Kind::from(kind), Name::from_padded(info.name));
        let absent = peer.noun(kind);
        let scope = scope(endpoint).map_or_else(String::new, |scope| format!(" in {scope}"));
        format!("no {absent} has the {kind} '{name}' open{scope}").into()
    })
}

impl Peer {
    fn noun(self, kind: Kind) -> &'static str {
        match (self, kind) {
            (Self::Sender, Kind::Ring) => "producer",
            (Self::Receiver, Kind::Ring) => "consumer",
            (Self::Sender, _) => "sender",
            (Self::Receiver, _) => "receiver",
        }
    }
}

/// The scope in which the channel of an endpoint was opened: this process may have left it, or have inherited the endpoint.
fn scope(endpoint: BorrowedFd<'_>) -> Option<String> {
    let path = format!("/proc/self/fdinfo/{}", endpoint.as_raw_fd());
    let text = fs::read_to_string(path).ok()?;
    let number = |line: &str| line.strip_prefix("sluice-cgroup:\t")?.parse().ok();
    let cgroup: u64 = text.lines().find_map(number)?;
    Some(match Scope::own_cgroup_number() {
        Some(own) if own == cgroup => Scope::own().to_string(),
        _ => format!("the scope of the cgroup with the inode {cgroup}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(3);

    #[test]
    fn a_channel_without_a_peer_has_another_message_and_hint() {
        let slow = Timeout::from(LIMIT);
        assert_eq!(slow.message("nothing"), "timeout: nothing for 3s");
        assert_eq!(slow.hint("wait"), "wait");
        let absent = Timeout {
            limit: Duration::ZERO,
            no_peer: Some("no producer".into()),
        };
        let absent = absent.with_limit(LIMIT);
        assert!(absent.has_no_peer() && absent.limit() == LIMIT);
        assert_eq!(absent.message("nothing"), "timeout after 3s: no producer");
        assert!(absent.hint("wait").contains("same cgroup"));
    }

    #[test]
    fn the_peer_of_a_socket_is_not_asked_for() {
        let (socket, _peer) = UnixStream::pair().unwrap();
        assert!(!Timeout::receiving(LIMIT, &socket).has_no_peer());
        assert!(!Timeout::sending(LIMIT, &socket).has_no_peer());
    }
}
