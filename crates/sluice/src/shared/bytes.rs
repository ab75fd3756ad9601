// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to bytes that another process may change concurrently.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

use bytemuck::AnyBitPattern;

use super::atomic_copy::copy_out;

/// The bytes of a record, a message or a packet in place. The producer of a ring may change them at any time: copy an untrusted record once
/// and validate the copy. So there is no `&[u8]` of them without `unsafe`: [`read_at`](Self::read_at) returns an integer or another plain
/// value, [`to_vec`](Self::to_vec) and [`copy_to`](Self::copy_to) copy.
///
/// The bytes cannot outlive the release of the record:
///
/// ```compile_fail,E0505
/// # fn test(mut consumer: sluice::ring::Consumer) -> Result<(), Box<dyn std::error::Error>> {
/// let record = consumer.recv()?.expect("the end");
/// let bytes: &sluice::Bytes = &record;
/// drop(record);
/// println!("{}", bytes.len());
/// # Ok(())
/// # }
/// ```
///
/// ```compile_fail,E0507
/// # fn test(mut consumer: sluice::ring::Consumer) -> Result<(), Box<dyn std::error::Error>> {
/// let record = consumer.recv()?.expect("the end");
/// let bytes = *record;
/// # Ok(())
/// # }
/// ```
pub struct Bytes<'a> {
    start: NonNull<u8>,
    len: usize,
    ring: PhantomData<&'a ()>,
}

// SAFETY: it only reads, by atomic copies, memory that is mapped during 'a.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl<'a> Bytes<'a> {
    /// # Safety
    /// `len` bytes are mapped at `start` during 'a. The start is a multiple of eight.
    #[inline]
    pub(crate) unsafe fn new(start: NonNull<u8>, len: u32) -> Self {
        Self {
            start,
            len: len as usize,
            ring: PhantomData,
        }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes from `offset` on, up to the length of the destination, and returns their number.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let len = self.len.saturating_sub(offset).min(into.len());
        if len > 0 {
            // SAFETY: at least this many bytes follow the offset, and `into` has room for them.
            unsafe { copy_out(self.start.as_ptr().add(offset), into.as_mut_ptr(), len) };
        }
        len
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len);
        // SAFETY: there is room for all of them, and all are initialised then.
        unsafe {
            copy_out(self.start.as_ptr(), bytes.as_mut_ptr(), self.len);
            bytes.set_len(self.len);
        }
        bytes
    }

    /// Copies the value at `offset`, aligned or not; returns none if it extends beyond the bytes.
    #[inline]
    pub fn read_at<T: AnyBitPattern>(&self, offset: usize) -> Option<T> {
        if self.len.checked_sub(offset)? < size_of::<T>() {
            return None;
        }
        let mut value = MaybeUninit::<T>::uninit();
        // SAFETY: all of its bytes are within the record, and any bytes are a valid value.
        unsafe {
            let from = self.start.as_ptr().add(offset);
            copy_out(from, value.as_mut_ptr().cast(), size_of::<T>());
            Some(value.assume_init())
        }
    }

    /// The start of the bytes, a multiple of eight. They may change at any time.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// All bytes, without a copy.
    ///
    /// # Safety
    /// No process writes to the bytes during the lifetime of the slice: the producer's process must be trusted.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: they are mapped; the caller guarantees the rest.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The memory of a record, only accessed as atomics.
    fn atomics(words: impl Iterator<Item = u64>) -> Vec<AtomicU64> {
        words.map(AtomicU64::new).collect()
    }

    #[test]
    fn every_piece_of_a_record_is_copied_as_it_is() {
        let record = atomics((0..128_u64).map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let plain: Vec<u8> = record
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        // Each takes a second in Miri.
        let short = (0..80).step_by(if cfg!(miri) { 13 } else { 1 });
        for length in short.chain([255, 256, 257, 1000, 1024]) {
            // SAFETY: it has 1024 bytes.
            let bytes = unsafe { Bytes::new(NonNull::from(&record[..]).cast(), length as u32) };
            for offset in [0, 1, 7, 8, 9, 63, length, length + 1] {
                for room in [0, 1, 8, 13, 300, 1024] {
                    let mut into = vec![0xaa; room];
                    let copied = bytes.copy_to(offset, &mut into);
                    assert_eq!(copied, length.saturating_sub(offset).min(room));
                    let from = offset.min(length);
                    assert_eq!(into[..copied], plain[from..from + copied]);
                    assert!(into[copied..].iter().all(|&byte| byte == 0xaa));
                }
            }
            assert_eq!(bytes.to_vec(), plain[..length]);
            // SAFETY: nothing writes to them.
            assert_eq!(unsafe { bytes.as_slice() }, &plain[..length]);
        }
    }

    #[test]
    fn what_is_in_place_may_go_to_another_thread() {
        fn is_send<T: Send>() {}
        is_send::<crate::ring::Record<'_>>();
        is_send::<crate::ring::Reservation<'_>>();
        is_send::<crate::bus::MappedMessage<'_>>();
        is_send::<crate::feed::Packet<'_>>();
    }

    #[test]
    fn values_are_read_wherever_they_lie_and_only_if_whole() {
        let record =
            atomics((0..4_u8).map(|word| {
                u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| word * 8 + byte))
            }));
        // SAFETY: it has 32 bytes.
        let bytes = unsafe { Bytes::new(NonNull::from(&record[..]).cast(), 29) };
        for offset in 0..=40 {
            let at = |offset: usize| offset as u8;
            let whole = |size| offset + size <= 29;
            assert_eq!(bytes.read_at(offset), whole(1).then(|| at(offset)));
            let two = u16::from_ne_bytes([at(offset), at(offset + 1)]);
            assert_eq!(bytes.read_at(offset), whole(2).then_some(two));
            let eight = [0, 1, 2, 3, 4, 5, 6, 7].map(|more| at(offset + more));
            assert_eq!(bytes.read_at(offset), whole(8).then_some(eight));
            let word = u64::from_ne_bytes(eight);
            assert_eq!(bytes.read_at(offset), whole(8).then_some(word));
        }
        assert_eq!(bytes.read_at::<u64>(usize::MAX), None);
        assert_eq!(bytes.read_at(29), Some(()));
        assert!(bytes.as_ptr().cast::<u64>().is_aligned());
    }
}
