// SPDX-License-Identifier: MIT OR Apache-2.0
use std::time::Duration;

use sluice_abi as abi;

/// The state of a pipe, and the spin limit of the queried endpoint. The counts of pages are totals since the pipe was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PipeInfo {
    /// Endpoints open for reading, waiting opens included.
    pub readers: u32,
    /// Endpoints open for writing, waiting opens included.
    pub writers: u32,
    /// Bytes.
    pub capacity: u64,
    /// Bytes written and not yet read.
    pub bytes: u64,
    /// The spin limit of this endpoint.
    pub spin_limit: Duration,
    /// Pages allocated for bytes, including one for each page that splice(2) moved in.
    pub pages_allocated: u64,
    /// Pages moved in by splice(2) without a copy.
    pub pages_spliced_in: u64,
    /// Pages moved out by splice(2) without a copy.
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
