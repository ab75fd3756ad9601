// SPDX-License-Identifier: MIT OR Apache-2.0
use sluice_abi as abi;

use crate::kind::Kind;
use crate::name::Name;

/// The state of a channel, as [`list`](crate::list) and [`Channel::info`](crate::Channel::info) return it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    pub kind: Kind,
    pub name: Name,
    /// Whether it exists without endpoints until it is unlinked.
    pub persistent: bool,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Endpoints open for reading; of a ring or a feed, its consumer; of a bus, its subscribers.
    pub readers: u32,
    /// Endpoints open for writing; of a ring, its producer; of a feed, its publisher; of a bus, its senders.
    pub writers: u32,
    /// Bytes.
    pub capacity: u64,
    /// Bytes written and not yet read; of a ring or a mapped feed, as its sides report them; of a bus, from the
    /// oldest message that a subscriber has not received; of a map, of its entries.
    pub bytes: u64,
    /// Since creation: messages of a bus, packets of a feed, changes of a map; otherwise 0.
    pub messages: u64,
    /// Bytes that have passed: of a pipe since creation; of a ring in its present session, as its producer reports it; otherwise 0.
    pub total_bytes: u64,
    /// Since creation: messages lost by receivers of a bus, packets of a feed, changes that watchers of a map missed; otherwise 0.
    pub lost: u64,
    /// Messages that the receiver of a bus furthest behind has not received; changes of a durable map that are not stored; otherwise 0.
    pub lag: u64,
    /// Calls that sleep on it. Of a ring or a feed: sides that sleep or poll.
    pub waiting: u32,
}

impl From<abi::ChannelInfo> for ChannelInfo {
    fn from(info: abi::ChannelInfo) -> Self {
        Self {
            kind: info.kind.into(),
            name: Name::from_padded(info.name),
            persistent: info.flags & abi::CHANNEL_PERSISTENT != 0,
            mode: info.mode,
            uid: info.uid,
            gid: info.gid,
            readers: info.readers,
            writers: info.writers,
            capacity: info.capacity,
            bytes: info.bytes,
            messages: info.messages,
            total_bytes: info.total_bytes,
            lost: info.lost,
            lag: info.lag,
            waiting: info.waiting,
        }
    }
}
