// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies into a ring. No other thread reads that memory before the bytes are published.

use std::ptr;

/// Libraries use `rep movsb` from 4 KiB on, or earlier if the processor reports it as fast for short copies. On some
/// processors it is many times slower for certain offsets of source and destination within their pages. Pieces stay below
/// that length.
pub(super) const PIECE: usize = 4096 - 64;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_as_it_is_and_no_byte_more() {
        let from: Vec<u8> = (0..5000_u32).map(|n| (n * 7) as u8 | 1).collect();
        // All lengths would take too long in Miri.
        let short = (0..200).step_by(if cfg!(miri) { 3 } else { 1 });
        for length in short.chain([1023, 1024, 1025, 2049, PIECE, PIECE + 1, 4999]) {
            let mut into = vec![0; length + 1];
            // SAFETY: both are at least that long.
            unsafe { copy_in(from.as_ptr(), into.as_mut_ptr(), length) };
            assert_eq!(into[..length], from[..length]);
            assert_eq!(into[length], 0);
        }
    }
}
