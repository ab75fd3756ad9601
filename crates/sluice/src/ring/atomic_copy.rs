// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes out of memory that another process may write to at the same time.
//!
//! A reference to such bytes, or a plain copy of them, would promise that nobody writes to them. Atomic loads promise nothing, and a
//! copy made of them has bytes that were there, some perhaps older than others. Rust has no atomic load of more than a
//! word, and short loads copy long records at half the rate, so on x86_64 these are copied by assembly, which does what atomic loads
//! of single bytes would do, 16 at once.

use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// What the assembly copies at once.
const BLOCK: usize = 64;

/// Copies `len` bytes.
///
/// # Safety
/// The bytes at `from` are mapped up to the multiples of eight around them. There is room for `len` bytes at `into`, which nobody else
/// accesses.
#[inline]
pub(super) unsafe fn copy_out(from: *const u8, into: *mut u8, len: usize) {
    let skew = from.addr() % WORD;
    // SAFETY: as the caller says.
    unsafe {
        if skew == 0 {
            copy_aligned(from, into, len);
        } else {
            let head = len.min(WORD - skew);
            copy_part(from.sub(skew), skew, into, head);
            copy_aligned(from.add(head), into.add(head), len - head);
        }
    }
}

/// # Safety
/// As for copy_out(), and `from` is a multiple of eight if `len` is not zero.
#[inline]
unsafe fn copy_aligned(mut from: *const u8, mut into: *mut u8, mut len: usize) {
    // SAFETY: as the caller says: never more than `len`, rounded up to a word for the source.
    unsafe {
        if len > BLOCK {
            let blocks = len / BLOCK * BLOCK;
            copy_blocks(from, into, blocks);
            (from, into, len) = (from.add(blocks), into.add(blocks), len - blocks);
        }
        let words = len / WORD * WORD;
        for at in (0..words).step_by(WORD) {
            let word = load(from.add(at));
            into.add(at).cast::<u64>().write_unaligned(word);
        }
        if len > words {
            copy_part(from.add(words), 0, into.add(words), len - words);
        }
    }
}

/// Copies the bytes of one word from `skew` on.
///
/// # Safety
/// As for copy_aligned(); `skew` and `len` together are at most a word.
#[inline]
unsafe fn copy_part(from: *const u8, skew: usize, into: *mut u8, len: usize) {
    // SAFETY: as the caller says.
    unsafe {
        let bytes = load(from).to_ne_bytes();
        for (at, byte) in bytes.iter().skip(skew).take(len).enumerate() {
            into.add(at).write(*byte);
        }
    }
}

/// # Safety
/// A word is mapped there, and aligned.
#[inline]
unsafe fn load(from: *const u8) -> u64 {
    // SAFETY: as the caller says. A relaxed load of a word is defined for memory that is mapped for reading only, too.
    unsafe { (*from.cast::<AtomicU64>()).load(Ordering::Relaxed) }
}

/// # Safety
/// As for copy_aligned(), and `len` is a multiple of a block.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn copy_blocks(from: *const u8, into: *mut u8, len: usize) {
    for at in (0..len).step_by(BLOCK) {
        // SAFETY: as the caller says, from `at` on there is a block on both sides.
        unsafe {
            std::arch::asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{into}], {a}",
                "movups [{into} + 16], {b}",
                "movups [{into} + 32], {c}",
                "movups [{into} + 48], {d}",
                from = in(reg) from.add(at),
                into = in(reg) into.add(at),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// # Safety
/// As for copy_aligned(), and `len` is a multiple of a block.
#[cfg(any(not(target_arch = "x86_64"), miri))]
#[inline(never)]
unsafe fn copy_blocks(from: *const u8, into: *mut u8, len: usize) {
    for at in (0..len).step_by(WORD) {
        // SAFETY: as the caller says, from `at` on there is a word on both sides.
        unsafe {
            into.add(at)
                .cast::<u64>()
                .write_unaligned(load(from.add(at)))
        };
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn every_length_is_copied_from_every_place_and_no_byte_more() {
        let words: Vec<AtomicU64> = (0..640_u64)
            .map(|n| AtomicU64::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101))
            .collect();
        let plain: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        // Miri has not the time for all.
        let short = (0..200).step_by(if cfg!(miri) { 7 } else { 1 });
        for len in short.chain([1023, 1024, 1025, 2047, 4999]) {
            for start in [0, 1, 3, 7, 8, 12] {
                let mut into = vec![0; len + 1];
                let from = ptr::from_ref(&words[..]).cast::<u8>();
                // SAFETY: both are at least as long.
                unsafe { copy_out(from.add(start), into.as_mut_ptr(), len) };
                assert_eq!(into[..len], plain[start..start + len]);
                assert_eq!(into[len], 0);
            }
        }
    }
}
