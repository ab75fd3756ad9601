// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rest::How;
use crate::sync::AtomicU32;

/// How a side sleeps, and wakes the other.
pub trait Bed {
    /// A full barrier on every processor that runs one of the two sides.
    fn barrier_everywhere(&self);

    /// Wakes the other side, which sleeps so; `bell` is this side's, and has just been changed.
    fn wake(&self, how: How, bell: &AtomicU32);
}
