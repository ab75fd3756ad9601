// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory of a ring, mapped by one side.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use sluice_ring::sync::AtomicU32;
use sluice_ring::{Capacity, Ctrl, Memory};

use super::region::Region;

/// The mapped memory of both sides. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    data: NonNull<u8>,
    mask: u64,
    capacity: Capacity,
    producer: NonNull<Ctrl>,
    consumer: NonNull<Ctrl>,
    /// Keeps all of it mapped.
    _regions: Arc<[Region; 3]>,
}

// SAFETY: the memory is accessed with atomics, or by one side only, which Producer and Consumer ensure.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The memory that the producer writes, mapped.
#[derive(Debug)]
pub(crate) struct ProducerMemory {
    pub ctrl: Region,
    /// The data twice in a row.
    pub data: Region,
    pub capacity: Capacity,
}

impl ProducerMemory {
    pub fn regions(&self) -> [&Region; 2] {
        [&self.ctrl, &self.data]
    }
}

impl Mapping {
    /// Both control regions have at least the size of a Ctrl, and keep it.
    pub fn new(producer: ProducerMemory, consumer: Region) -> Self {
        let ProducerMemory {
            ctrl,
            data,
            capacity,
        } = producer;
        Self {
            data: data.at(0).cast(),
            mask: capacity.bytes() - 1,
            capacity,
            producer: ctrl.at(0).cast(),
            consumer: consumer.at(0).cast(),
            _regions: Arc::new([ctrl, data, consumer]),
        }
    }

    #[inline]
    fn offset(&self, position: u64) -> usize {
        // The capacity fits into a usize, because it is mapped.
        (position & self.mask) as usize
    }

    /// The address of a position. The bytes up to a capacity from there are contiguous.
    #[inline]
    pub fn bytes(&self, position: u64) -> NonNull<u8> {
        // SAFETY: the offset is below the capacity, and the mapping is twice as long.
        unsafe { self.data.add(self.offset(position)) }
    }
}

impl Memory for Mapping {
    #[inline]
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    #[inline]
    fn producer(&self) -> &Ctrl {
        // SAFETY: the mapping lives as long as self, and its beginning is only accessed as a Ctrl of atomics.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &Ctrl {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn word(&self, position: u64) -> &AtomicU32 {
        // SAFETY: it is within the mapping and aligned, and a header is only accessed as two atomics.
        unsafe { self.bytes(position & !3).cast().as_ref() }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn prefetch(&self, position: u64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.bytes(position).as_ptr().cast()) }
    }

    /// Not an access of Rust, where it would race with the producer's.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[inline]
    fn touch(&self, position: u64) {
        let line = self.bytes(position).as_ptr();
        // SAFETY: it is within the mapping, which has a second copy of the data after the last byte.
        unsafe {
            std::arch::asm!("mov {value:e}, dword ptr [{line}]", line = in(reg) line, value = out(reg) _,
                options(nostack, preserves_flags, readonly));
        }
    }

    #[inline]
    fn zero(&self, from: u64, to: u64) {
        // SAFETY: less than a capacity is contiguous, and only the producer accesses it, because it was released and not
        // published since.
        unsafe { ptr::write_bytes(self.bytes(from).as_ptr(), 0, (to - from) as usize) }
    }
}
