// SPDX-License-Identifier: MIT OR Apache-2.0

/// A value of the peer that violates the protocol. The ring cannot be used any more; other rings are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolViolation {
    #[error("position {pos} was released, not a multiple of 8 from {min} to {max}")]
    Released { pos: u64, min: u64, max: u64 },
    #[error("the record at position {at} has the unknown state {state:#x}")]
    State { at: u64, state: u32 },
    #[error("the record at position {at} has {len} bytes, more than {max}")]
    Length { at: u64, len: u32, max: u32 },
    #[error(
        "unreleased records from position {released} to {end} exceed the capacity of {capacity} bytes"
    )]
    TooMany {
        end: u64,
        released: u64,
        capacity: u64,
    },
    #[error("the module reported a wake-up or its end, and its control page contains neither")]
    EndHidden,
}
