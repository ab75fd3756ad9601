// SPDX-License-Identifier: MIT OR Apache-2.0
//! membarrier(2), for asymmetric barriers.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier};

/// Far longer than a store stays in a processor's store buffer.
const STORES_VISIBLE: Duration = Duration::from_millis(10);

/// Registers this process. Returns whether it supports asymmetric barriers.
pub(super) fn register() -> bool {
    let registered: Result<(), Errno> = membarrier(MembarrierCommand::RegisterGlobalExpedited)
        .and_then(|()| membarrier(MembarrierCommand::GlobalExpedited));
    registered.is_ok()
}

/// As Waker::heavy_barrier().
pub(super) fn heavy_barrier() -> bool {
    let issued = membarrier(MembarrierCommand::GlobalExpedited).is_ok();
    if !issued {
        // It succeeded at setup, so a system call filter was installed since.
        thread::sleep(STORES_VISIBLE);
    }
    issued
}
