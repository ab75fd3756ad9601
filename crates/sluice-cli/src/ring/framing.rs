// SPDX-License-Identifier: MIT OR Apache-2.0
use clap::ValueEnum;

/// How records lie in a stream of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Framing {
    /// A newline ends each
    Lines,
    /// Its length comes before each, as 4 bytes, the lowest first
    Length,
}

/// Bytes of a length.
pub const LENGTH: usize = size_of::<u32>();
