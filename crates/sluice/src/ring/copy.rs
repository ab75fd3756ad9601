// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes into a ring. Until they are published, nobody else has any use for that memory.

use std::ptr;

/// Unless the processor says that it is quick for short copies, libraries use `rep movsb` from 4 KiB on, which some processors carry
/// out many times slower where source and destination lie unluckily within their pages. Pieces stay below that.
pub(super) const PIECE: usize = 4096 - 64;

/// # Safety
/// There are so many bytes at `from`, and room for as many at `into`, which nobody else writes to.
#[inline]
pub(super) unsafe fn copy_in(from: *const u8, into: *mut u8, length: usize) {
    // SAFETY: as the caller says.
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

/// The beginning and the end, which may overlap: short records are spared a call.
///
/// # Safety
/// As for copy_in(); the length is that of one T to that of two, which may have any bytes.
#[inline]
unsafe fn copy_ends<T>(from: *const u8, into: *mut u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: as the caller says: both lie within.
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
        // SAFETY: as the caller says, up to the length.
        unsafe { ptr::copy_nonoverlapping(from.add(at), into.add(at), piece) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_as_it_is_and_no_byte_more() {
        let from: Vec<u8> = (0..5000_u32).map(|n| (n * 7) as u8 | 1).collect();
        // Miri has not the time for all.
        let short = (0..200).step_by(if cfg!(miri) { 3 } else { 1 });
        for length in short.chain([1023, 1024, 1025, 2049, PIECE, PIECE + 1, 4999]) {
            let mut into = vec![0; length + 1];
            // SAFETY: both are at least as long.
            unsafe { copy_in(from.as_ptr(), into.as_mut_ptr(), length) };
            assert_eq!(into[..length], from[..length]);
            assert_eq!(into[length], 0);
        }
    }
}
