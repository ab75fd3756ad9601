// SPDX-License-Identifier: MIT OR Apache-2.0
//! The atomics of the standard library, or those of loom, which tries every order that they allow.

#[cfg(not(sluice_loom))]
pub use std::hint::spin_loop;
#[cfg(not(sluice_loom))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence, fence};

#[cfg(sluice_loom)]
pub use loom::hint::spin_loop;
#[cfg(sluice_loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// loom knows no barrier that one side issues for both, so there each issues its own.
#[cfg(sluice_loom)]
pub fn compiler_fence(order: Ordering) {
    fence(order);
}
