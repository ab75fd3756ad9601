// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of the standard library, or those of loom, which tries every permitted order.

#[cfg(not(sluice_loom))]
pub use std::hint::spin_loop;
#[cfg(not(sluice_loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(sluice_loom)]
pub use loom::hint::spin_loop;
#[cfg(sluice_loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
