// SPDX-License-Identifier: MIT OR Apache-2.0
//! The addresses in the module that the threads of a program execute, from KCOV or from tests/tracer, which has the same calls:
//! memory that the threads, which enable it, and the fuzzer share. Work of the kernel in other contexts, as timers and workers, is not traced.

use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};

/// Of addresses of a thread; the rest of a longer trace is lost.
const ENTRIES: usize = 1 << 17;
pub const THREADS: usize = 3;
/// Where the files of KCOV are, beyond those of programs.
const DESCRIPTORS: RawFd = 900;

const INIT_TRACE: u64 = 0x8008_6301;
const ENABLE: u64 = 0x6364;
const DISABLE: u64 = 0x6365;

#[derive(Clone, Copy)]
struct Trace {
    file: RawFd,
    memory: *const AtomicU64,
}

// SAFETY: the memory is shared and accessed atomically.
unsafe impl Send for Trace {}
// SAFETY: as above.
unsafe impl Sync for Trace {}

/// One trace per thread of a program.
#[derive(Clone)]
pub struct Coverage(Vec<Trace>);

impl Coverage {
    pub fn new() -> Result<Self> {
        let traces: Result<_> = (0..THREADS).map(Trace::new).collect();
        let traces = traces.context("/sys/kernel/debug/kcov cannot be used; load tests/tracer")?;
        Ok(Coverage(traces))
    }

    /// Begins to trace the calling thread. A failure leaves it without trace.
    pub fn enable(&self, thread: usize) {
        if let Some(trace) = self.0.get(thread) {
            // SAFETY: the file is that of KCOV.
            unsafe { libc::syscall(libc::SYS_ioctl, trace.file, ENABLE, 0) };
        }
    }

    pub fn disable(&self, thread: usize) {
        if let Some(trace) = self.0.get(thread) {
            // SAFETY: as in enable().
            unsafe { libc::syscall(libc::SYS_ioctl, trace.file, DISABLE, 0) };
        }
    }

    pub fn clear(&self) {
        for trace in &self.0 {
            trace.entry(0).store(0, Ordering::Relaxed);
        }
    }

    /// Calls with each trace.
    pub fn traces(&self, mut with: impl FnMut(&mut dyn Iterator<Item = u64>)) {
        for trace in &self.0 {
            let count = (trace.entry(0).load(Ordering::Relaxed) as usize).min(ENTRIES - 1);
            with(&mut (1..=count).map(|at| trace.entry(at).load(Ordering::Relaxed)));
        }
    }
}

impl Trace {
    fn new(number: usize) -> Result<Self> {
        // SAFETY: the path ends with a NUL; a new mapping touches no memory that exists.
        let (file, memory) = unsafe {
            let opened = libc::open(c"/sys/kernel/debug/kcov".as_ptr(), libc::O_RDWR);
            let file = libc::fcntl(opened, libc::F_DUPFD, DESCRIPTORS + number as RawFd);
            libc::close(opened);
            libc::ioctl(file, INIT_TRACE, ENTRIES);
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let memory = libc::mmap(null_mut(), ENTRIES * 8, access, libc::MAP_SHARED, file, 0);
            (file, memory)
        };
        if memory == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error()).context("mapping its memory");
        }
        Ok(Trace {
            file,
            memory: memory.cast(),
        })
    }

    fn entry(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is less than the entries of the mapping, which is never unmapped.
        unsafe { &*self.memory.add(at) }
    }
}
