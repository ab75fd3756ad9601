// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that set up a ring, a feed or a listener. A forked child has a copy of it, and must not change what both processes share.
//!
//! A system call for each record would take longer than the record. So a process marks a page that the kernel clears in a forked child
//! (MADV_WIPEONFORK). The mark is a time: process numbers are the same in several PID namespaces.

use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetupProcess {
    mark: u64,
    /// None where the kernel clears no page: the mark is the number of the process.
    page: Option<&'static AtomicU64>,
}

impl SetupProcess {
    /// The calling process.
    pub fn current() -> Self {
        static PAGE: OnceLock<Option<&AtomicU64>> = OnceLock::new();
        let page = *PAGE.get_or_init(cleared_on_fork);
        let mark = match page {
            Some(page) => mark_of(page),
            None => process::id().into(),
        };
        Self { mark, page }
    }

    /// Whether it is the calling process.
    #[inline]
    pub fn is_current(self) -> bool {
        let current = match self.page {
            Some(page) => page.load(Ordering::Relaxed),
            None => process::id().into(),
        };
        current == self.mark
    }
}

/// The mark of the calling process, which is new if there is none yet.
fn mark_of(page: &AtomicU64) -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // A child is later than its parent.
    let new = (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64 + 1;
    match page.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(mark) => mark,
    }
}

/// A word of a page of its own, which stays mapped.
fn cleared_on_fork() -> Option<&'static AtomicU64> {
    // Miri has no such page.
    if cfg!(miri) {
        return None;
    }
    // The kernel rounds the length up to a page.
    let bytes = size_of::<AtomicU64>();
    let (access, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses unused addresses, and the new page is accessed as an atomic only.
    unsafe {
        let page = mmap_anonymous(ptr::null_mut(), bytes, access, private).ok()?;
        madvise(page, bytes, Advice::LinuxWipeOnFork).ok()?;
        Some(&*page.cast())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_what_it_has_set_up() {
        let (first, second) = (SetupProcess::current(), SetupProcess::current());
        assert!(first.is_current() && second.is_current());
        assert_eq!(first.mark, second.mark);
        assert!(first.page.is_some() || cfg!(miri));
        let other = SetupProcess {
            mark: first.mark + 1,
            ..first
        };
        assert!(!other.is_current());
    }
}
