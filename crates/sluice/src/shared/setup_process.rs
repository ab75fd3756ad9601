// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that set up a ring, a feed or a listener. A forked child has a copy of it, and must not change what both processes share.
//!
//! A system call for each record would take longer than the record. So a process marks a page that the kernel clears in a forked child
//! (MADV_WIPEONFORK), or a word that fork(3) clears where the kernel clears no pages, as gVisor. The mark is a time: process numbers are the
//! same in several PID namespaces.

use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::time::{ClockId, clock_gettime};

#[derive(Clone, Copy, Debug)]
pub(crate) struct SetupProcess {
    mark: u64,
    word: &'static AtomicU64,
}

impl SetupProcess {
    /// The calling process.
    pub fn current() -> Self {
        static WORD: OnceLock<&AtomicU64> = OnceLock::new();
        let word = *WORD.get_or_init(|| wiped_page().unwrap_or_else(cleared_word));
        Self {
            mark: mark_of(word),
            word,
        }
    }

    /// Whether it is the calling process.
    #[inline]
    pub fn is_current(self) -> bool {
        self.word.load(Ordering::Relaxed) == self.mark
    }

    /// The word, which has the mark in the process only.
    pub fn word_and_mark(self) -> (&'static AtomicU64, u64) {
        (self.word, self.mark)
    }
}

/// The mark of the calling process, which is new if there is none yet.
fn mark_of(word: &AtomicU64) -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    // A child is later than its parent.
    let new = (now.tv_sec as u64).wrapping_mul(1_000_000_000) + now.tv_nsec as u64 + 1;
    match word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => new,
        Err(mark) => mark,
    }
}

/// A word of a page of its own, which stays mapped. None if the kernel clears no pages.
fn wiped_page() -> Option<&'static AtomicU64> {
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

/// A word that fork(3) of the C library clears in the child.
fn cleared_word() -> &'static AtomicU64 {
    static WORD: AtomicU64 = AtomicU64::new(0);
    extern "C" fn clear() {
        WORD.store(0, Ordering::Relaxed);
    }
    // Miri has no processes.
    if !cfg!(miri) {
        // SAFETY: the function only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(clear)) };
    }
    &WORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_what_it_has_set_up() {
        let (first, second) = (SetupProcess::current(), SetupProcess::current());
        assert!(first.is_current() && second.is_current());
        assert_eq!(first.mark, second.mark);
        let other = SetupProcess {
            mark: first.mark + 1,
            ..first
        };
        assert!(!other.is_current());
    }
}
