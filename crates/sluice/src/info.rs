// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use sluice_abi as abi;

use crate::name::Name;

/// The state of a pipe, as one of its endpoints sees it. The counts of pages only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeInfo {
    /// Endpoints open for reading, waiting opens included.
    pub readers: u32,
    /// Endpoints open for writing, waiting opens included.
    pub writers: u32,
    /// In bytes.
    pub capacity: u64,
    /// Written and not yet read.
    pub bytes: u64,
    /// Of this endpoint.
    pub spin_limit: Duration,
    /// New pages for bytes, one behind each page taken by splice(2) included.
    pub pages_allocated: u64,
    /// Taken by splice(2) without a copy.
    pub pages_spliced_in: u64,
    /// Given by splice(2) without a copy.
    pub pages_spliced_out: u64,
}

impl From<abi::PipeInfo> for PipeInfo {
    fn from(info: abi::PipeInfo) -> Self {
        Self {
            readers: info.readers,
            writers: info.writers,
            capacity: info.capacity,
            bytes: info.bytes,
            spin_limit: Duration::from_nanos(info.spin_limit_ns),
            pages_allocated: info.pages_allocated,
            pages_spliced_in: info.pages_spliced_in,
            pages_spliced_out: info.pages_spliced_out,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    Pipe,
    /// One that this library does not know, by its number.
    Other(u32),
}

impl From<u32> for Kind {
    fn from(number: u32) -> Self {
        match number {
            abi::KIND_PIPE => Self::Pipe,
            other => Self::Other(other),
        }
    }
}

/// The state of a channel, as a list shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelInfo {
    pub kind: Kind,
    pub name: Name,
    /// Whether it needs no endpoint to exist.
    pub persistent: bool,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub readers: u32,
    pub writers: u32,
    /// In bytes.
    pub capacity: u64,
    /// Written and not yet read.
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
