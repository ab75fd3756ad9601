// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of io_uring with the system calls alone, so that a program can submit any request.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::execute::system;

const ENTRIES: u32 = 16;
const SQES: i64 = 0x1000_0000;

/// struct io_uring_params.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    sizes: [u32; 10],
    submission: [u32; 10],
    completion: [u32; 10],
}

/// Operations with other arguments than a descriptor, an address and a length.
mod operation {
    pub const POLL_ADD: u64 = 6;
    pub const POLL_REMOVE: u64 = 7;
    pub const CANCEL: u64 = 14;
    pub const SPLICE: u64 = 30;
    pub const TEE: u64 = 33;
}

pub struct Ring {
    file: u64,
    memory: *mut u8,
    entries: *mut [u64; 8],
    submission: [u32; 10],
    completion: [u32; 10],
}

impl Ring {
    /// None if the kernel permits none.
    pub fn new() -> Option<Self> {
        let mut parameters = Parameters::default();
        let address = &raw mut parameters as u64;
        let file = system(
            libc::SYS_io_uring_setup,
            [ENTRIES.into(), address, 0, 0, 0, 0],
        );
        let file = u64::try_from(file).ok()?;
        // Both rings are one mapping; the rest after the arrays is not accessed.
        let memory = map(file, 4096, 0)?;
        let entries = map(file, 4096, SQES)?;
        Some(Ring {
            file,
            memory,
            entries: entries.cast(),
            submission: parameters.submission,
            completion: parameters.completion,
        })
    }

    /// The arguments are those of the form "submit".
    pub fn submit(&self, arguments: &[u64]) -> i64 {
        let mut entry = entry(arguments);
        let tail = self.word(self.submission[1]);
        let index = tail.load(Ordering::Acquire) % ENTRIES;
        // SAFETY: the entries are ENTRIES of 64 bytes.
        unsafe { std::ptr::swap(self.entries.add(index as usize), &mut entry) };
        self.word(self.submission[6] + index * 4)
            .store(index, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        self.enter(1, 0)
    }

    /// Waits for so many completions, and removes all that there are.
    pub fn complete(&self, count: u64) -> i64 {
        let result = self.enter(0, count);
        let tail = self.word(self.completion[1]).load(Ordering::Acquire);
        self.word(self.completion[0]).store(tail, Ordering::Release);
        result
    }

    fn enter(&self, submitted: u64, completed: u64) -> i64 {
        system(
            libc::SYS_io_uring_enter,
            [self.file, submitted, completed, 1, 0, 0],
        )
    }

    fn word(&self, offset: u32) -> &AtomicU32 {
        // SAFETY: the kernel gives offsets within the mapping.
        unsafe { &*self.memory.add(offset as usize).cast::<AtomicU32>() }
    }
}

fn map(file: u64, length: usize, offset: i64) -> Option<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping touches no memory that exists.
    let memory = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        libc::mmap(null_mut(), length, access, flags, file as i32, offset)
    };
    (memory != libc::MAP_FAILED).then_some(memory.cast())
}

/// struct io_uring_sqe.
fn entry(arguments: &[u64]) -> [u64; 8] {
    let mut all = [0; 8];
    all.copy_from_slice(arguments);
    let [
        operation,
        file,
        address,
        length,
        offset,
        flags,
        name,
        events,
    ] = all;
    let file = file & u64::from(u32::MAX);
    let head = |file: u64| operation | flags << 8 | file << 32;
    match operation {
        // Of one request in three all events, one after the other.
        operation::POLL_ADD => [
            head(file),
            0,
            0,
            u64::from(name == 3) | events << 32,
            name,
            0,
            0,
            0,
        ],
        operation::POLL_REMOVE | operation::CANCEL => [
            head(u64::from(u32::MAX)),
            0,
            1 + length % 3,
            0,
            name + 3,
            0,
            0,
            0,
        ],
        operation::SPLICE | operation::TEE => {
            let from = 100 + length % 16;
            [head(file), u64::MAX, u64::MAX, 4096, name, from << 32, 0, 0]
        }
        _ => [
            head(file),
            offset,
            address,
            length & u64::from(u32::MAX),
            name,
            0,
            0,
            0,
        ],
    }
}
