// SPDX-License-Identifier: MIT OR Apache-2.0

/// What the other side wrote and cannot be. The ring is of no more use then; nobody else's is affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lie {
    #[error(
        "it says that it has released everything up to position {said}, where at least {least} and at most {most}, a multiple of 8, was possible"
    )]
    Released { said: u64, least: u64, most: u64 },
    #[error("the record at position {at} has the state {state:#x}, which means nothing")]
    State { at: u64, state: u32 },
    #[error(
        "the record at position {at} is said to have {length} bytes, more than the {most} that fit"
    )]
    Length { at: u64, length: u32, most: u32 },
    #[error(
        "up to position {end} there are records without anything having been released since {released}, more than the {capacity} bytes of the ring hold"
    )]
    TooMany {
        end: u64,
        released: u64,
        capacity: u64,
    },
}
