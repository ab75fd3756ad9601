// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use sluice_abi as abi;

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

impl Kind {
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pipe => "pipes",
            Self::Ring => "rings",
            Self::Feed => "feeds",
            Self::Bus => "buses",
            Self::Map => "maps",
            Self::Other(_) => "channels of this kind",
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
