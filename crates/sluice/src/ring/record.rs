// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes that another process may change while they are read. No reference to them is ever made, as that would promise that
//! nobody does; what is copied out is what was there at one time or another, byte by byte.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, compiler_fence};

use super::copy::copy;

/// The bytes of a record, where they lie in the ring.
#[derive(Clone, Copy)]
pub struct Bytes<'a> {
    start: NonNull<u8>,
    length: usize,
    ring: PhantomData<&'a ()>,
}

impl<'a> Bytes<'a> {
    /// # Safety
    /// So many bytes are mapped there for as long as 'a. The start is a multiple of eight.
    #[inline]
    pub(super) unsafe fn new(start: NonNull<u8>, length: u32) -> Self {
        Self {
            start,
            length: length as usize,
            ring: PhantomData,
        }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies the bytes from `offset` on, as many as there are and fit, and says how many that were.
    #[inline]
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) -> usize {
        let length = self.length.saturating_sub(offset).min(into.len());
        if length > 0 {
            // SAFETY: from the offset on there are at least so many bytes, and `into` has room for them. Which of two values a
            // byte has that is being written is as good as chance.
            unsafe { copy(self.start.as_ptr().add(offset), into.as_mut_ptr(), length) };
            // From here on the compiler cannot take the bytes from where they came, where they may be others by now.
            compiler_fence(Ordering::SeqCst);
        }
        length
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.copy_to(0, &mut bytes);
        bytes
    }
}

impl fmt::Debug for Bytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_a_record_is_copied_as_it_is() {
        let record: Vec<u64> = (0..128_u64)
            .map(|word| word.wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let plain: Vec<u8> = record.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Miri takes a second for each.
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
        }
    }
}
