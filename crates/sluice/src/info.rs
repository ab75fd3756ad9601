// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use sluice_abi as abi;

use crate::name::Name;

/// The kind of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    Pipe,
    Ring,
    Feed,
    Bus,
    Map,
    /// The number of a kind that this library does not know.
    Other(u32),
}

impl From<u32> for Kind {
    fn from(number: u32) -> Self {
        match number {
            abi::KIND_PIPE => Self::Pipe,
            abi::KIND_RING => Self::Ring,
            abi::KIND_FEED => Self::Feed,
            abi::KIND_BUS => Self::Bus,
            abi::KIND_MAP => Self::Map,
            other => Self::Other(other),
        }
    }
}

impl Kind {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Pipe => abi::KIND_PIPE,
            Self::Ring => abi::KIND_RING,
            Self::Feed => abi::KIND_FEED,
            Self::Bus => abi::KIND_BUS,
            Self::Map => abi::KIND_MAP,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipe => f.write_str("pipe"),
            Self::Ring => f.write_str("ring"),
            Self::Feed => f.write_str("feed"),
            Self::Bus => f.write_str("bus"),
            Self::Map => f.write_str("map"),
            Self::Other(number) => write!(f, "kind {number}"),
        }
    }
}

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
        }
    }
}
