// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies into a ring. No other thread reads that memory before the bytes are published.

use std::ptr;

/// The length of a cache line.
pub(super) const LINE: usize = sluice_ring::LINE as usize;

/// Libraries use `rep movsb` from 4 KiB on, or earlier if the processor reports it as fast for short copies. On some
/// processors it is many times slower for certain offsets of source and destination within their pages. Pieces stay below
/// that length.
const PIECE: usize = 4096 - LINE;

/// # Safety
/// `length` bytes are readable at `from` and writable at `into`, and no other thread writes to those at `into`.
#[inline]
pub(super) unsafe fn copy_in(from: *const u8, into: *mut u8, length: usize) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match length {
            8..=16 => copy_ends::<u64>(from, into, length),
            17..=32 => copy_ends::<u128>(from, into, length),
            33..=64 => copy_ends::<[u128; 2]>(from, into, length),
            ..=PIECE => ptr::copy_nonoverlapping(from, into, length),
            _ => copy_pieces(from, into, length),
        }
    }
}

/// Copies the first and the last T, which may overlap, so that short records need no call.
///
/// # Safety
/// As for copy_in(). `length` is from the size of one T to that of two. Any bytes are a valid T.
#[inline]
unsafe fn copy_ends<T>(from: *const u8, into: *mut u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: as the caller guarantees, both are within the length.
    unsafe {
        let beginning = from.cast::<T>().read_unaligned();
        let end = from.add(last).cast::<T>().read_unaligned();
        into.cast::<T>().write_unaligned(beginning);
        into.add(last).cast::<T>().write_unaligned(end);
    }
}

/// # Safety
/// As for copy_in().
#[inline(never)]
unsafe fn copy_pieces(from: *const u8, into: *mut u8, length: usize) {
    for at in (0..length).step_by(PIECE) {
        let piece = PIECE.min(length - at);
        // SAFETY: as the caller guarantees, up to the length.
        unsafe { ptr::copy_nonoverlapping(from.add(at), into.add(at), piece) };
    }
}

/// Whether copy_past_caches() differs from copy_in().
pub(super) const CAN_BYPASS: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// As copy_in(), but whole lines are written to memory and not to the caches.
///
/// # Safety
/// As for copy_in(), and `length` is at least that of a line.
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(super) unsafe fn copy_past_caches(from: *const u8, into: *mut u8, length: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    debug_assert!(length >= LINE);
    let first = into.align_offset(LINE);
    let end = first + (length - first) / LINE * LINE;
    // SAFETY: as the caller guarantees, all is within the length; the lines are aligned.
    unsafe {
        copy_in(from, into, first);
        for at in (first..end).step_by(size_of::<__m128i>()) {
            let word = _mm_loadu_si128(from.add(at).cast());
            _mm_stream_si128(into.add(at).cast(), word);
        }
        copy_in(from.add(end), into.add(end), length - end);
        // The release of the publication does not order such stores.
        _mm_sfence();
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(super) use copy_in as copy_past_caches;

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths from this one on, copied to several places within a line.
    fn assert_copies(copy: unsafe fn(*const u8, *mut u8, usize), shortest: usize) {
        let from: Vec<u8> = (0..5000_u32).map(|n| (n * 7) as u8 | 1).collect();
        // All lengths would take too long in Miri.
        let short = (shortest..200).step_by(if cfg!(miri) { 7 } else { 1 });
        for length in short.chain([1023, 1024, 1025, PIECE, PIECE + 1, 4999]) {
            for start in [0, 8, 56, 63] {
                let mut into = vec![0; start + length + 1];
                // SAFETY: both are at least that long.
                unsafe { copy(from.as_ptr(), into.as_mut_ptr().add(start), length) };
                assert!(into[..start].iter().all(|&byte| byte == 0));
                assert_eq!(into[start..start + length], from[..length]);
                assert_eq!(into[start + length], 0);
            }
        }
    }

    #[test]
    fn every_length_is_copied_as_it_is_and_no_byte_more() {
        assert_copies(copy_in, 0);
        assert_copies(copy_past_caches, LINE);
    }
}
