// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that set up a ring, a feed or a listener. A forked child has a copy of it, and must not change what both processes share.
//!
//! A system call for each record would take longer than the record. So the number of the process is in a page that the kernel clears in a
//! forked child (MADV_WIPEONFORK).

use std::process;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetupProcess {
    process: u32,
    /// None where the kernel clears no page.
    mark: Option<&'static AtomicU32>,
}

impl SetupProcess {
    /// The calling process.
    pub fn current() -> Self {
        static MARK: OnceLock<Option<&AtomicU32>> = OnceLock::new();
        let process = process::id();
        let mark = *MARK.get_or_init(cleared_on_fork);
        if let Some(mark) = mark {
            // A child that sets up something of its own marks its own copy.
            mark.store(process, Ordering::Relaxed);
        }
        Self { process, mark }
    }

    /// Whether it is the calling process.
    #[inline]
    pub fn is_current(self) -> bool {
        let current = match self.mark {
            Some(mark) => mark.load(Ordering::Relaxed),
            None => process::id(),
        };
        current == self.process
    }
}

/// A word of a page of its own, which stays mapped.
fn cleared_on_fork() -> Option<&'static AtomicU32> {
    // The kernel rounds the length up to a page.
    let bytes = size_of::<AtomicU32>();
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
        assert!(first.mark.is_some() || cfg!(miri));
        let other = SetupProcess {
            process: process::id() + 1,
            ..first
        };
        assert!(!other.is_current());
        let by_system_call = SetupProcess {
            mark: None,
            ..first
        };
        assert!(by_system_call.is_current());
    }
}
