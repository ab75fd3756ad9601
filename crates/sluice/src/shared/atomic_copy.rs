// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies from memory that another process may write to concurrently.
//!
//! A reference to such bytes, or a plain copy of them, asserts that no other thread writes to them. Atomic loads do not: a
//! copy made of them contains bytes that were there, possibly of different times. Rust has no atomic loads that are
//! unaligned or longer than a word, and without them a copy takes twice as long. On x86_64 the loads are therefore assembly,
//! each equivalent to atomic loads of its single bytes.

pub(crate) use imp::copy_out;

#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = sluice_ring::LINE as usize;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, __m128i};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::LINE;

    type Line = [__m128i; LINE / size_of::<__m128i>()];

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// `len` bytes are readable at `from` and writable at `into`, and no other thread accesses those at `into`.
    #[inline]
    pub unsafe fn copy_out(from: *const u8, into: *mut u8, len: usize) {
        // SAFETY: as the caller guarantees.
        unsafe {
            match len {
                8..=16 => copy_ends::<u64>(from, into, len),
                17..=32 => copy_ends::<__m128i>(from, into, len),
                33..=LINE => copy_ends::<[__m128i; 2]>(from, into, len),
                ..8 => copy_bytes(from, into, len),
                _ if loads_whole_lines() => copy_whole_lines(from, into, len),
                _ => copy_lines(from, into, len),
            }
        }
    }

    /// A load without alignment requirement.
    trait Load: Copy {
        /// # Safety
        /// The size of the type is readable at `from`.
        unsafe fn load(from: *const u8) -> Self;
    }

    impl Load for u64 {
        #[inline]
        unsafe fn load(from: *const u8) -> Self {
            let loaded;
            // SAFETY: as the caller guarantees; it accesses nothing else.
            unsafe {
                asm!("mov {}, [{}]", out(reg) loaded, in(reg) from, options(nostack, preserves_flags, readonly));
            }
            loaded
        }
    }

    impl Load for __m128i {
        #[inline]
        unsafe fn load(from: *const u8) -> Self {
            let loaded;
            // SAFETY: as the caller guarantees; it accesses nothing else.
            unsafe {
                asm!("movups {}, [{}]", out(xmm_reg) loaded, in(reg) from, options(nostack, preserves_flags, readonly));
            }
            loaded
        }
    }

    impl<T: Load, const N: usize> Load for [T; N] {
        #[inline]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: as the caller guarantees.
            std::array::from_fn(|index| unsafe { T::load(from.add(index * size_of::<T>())) })
        }
    }

    /// Copies the first and the last T, which may overlap.
    ///
    /// # Safety
    /// As for copy_out(), and `len` is from the size of one T to that of two.
    #[inline]
    unsafe fn copy_ends<T: Load>(from: *const u8, into: *mut u8, len: usize) {
        let last = len - size_of::<T>();
        // SAFETY: as the caller guarantees, both are within the length.
        unsafe {
            let (beginning, end) = (T::load(from), T::load(from.add(last)));
            into.cast::<T>().write_unaligned(beginning);
            into.add(last).cast::<T>().write_unaligned(end);
        }
    }

    /// # Safety
    /// As for copy_out().
    unsafe fn copy_bytes(from: *const u8, into: *mut u8, len: usize) {
        for at in 0..len {
            // SAFETY: as the caller guarantees.
            unsafe {
                let byte = (*from.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed);
                into.add(at).write(byte);
            }
        }
    }

    /// Whether the processor has registers of the length of a line, and is of a family for which loads of that length were measured to
    /// be faster: those with 16-bit floating point numbers in such registers, which AMD's of that time lack.
    #[inline]
    fn loads_whole_lines() -> bool {
        static ANSWER: LazyLock<bool> = LazyLock::new(|| {
            const EXTENDED_FEATURES: u32 = 7;
            const AVX512_FP16: u32 = 1 << 23;
            // The first says that the kernel saves these registers, too. It needs leaf 7, so that this leaf exists.
            // SAFETY: a processor on which this is compiled has the instruction. Later versions of Rust call it safe.
            #[allow(unused_unsafe)]
            let edx = || unsafe { __cpuid_count(EXTENDED_FEATURES, 0) }.edx;
            is_x86_feature_detected!("avx512f") && edx() & AVX512_FP16 != 0
        });
        *ANSWER
    }

    /// Measured on an Intel Xeon: in a ring, a quarter to a half faster than copy_lines() for records of 4 KiB and more; no
    /// difference was measured for shorter ones.
    ///
    /// # Safety
    /// As for copy_out(), `len` is at least that of a line, and the processor has AVX512F.
    #[inline(never)]
    pub(super) unsafe fn copy_whole_lines(from: *const u8, into: *mut u8, len: usize) {
        let last = len - LINE;
        // The last line may overlap the one before. Registers from 16 on need no vzeroupper afterwards. The compiler may not know
        // them, in which case it does not use them; else they are among those that a call changes.
        // SAFETY: as the caller guarantees, all lines are within the length.
        unsafe {
            asm!(
                "2:",
                "vmovdqu64 zmm16, [rsi + rax]",
                "vmovdqu64 [rdi + rax], zmm16",
                "add rax, {line}",
                "cmp rax, rdx",
                "jb 2b",
                "vmovdqu64 zmm16, [rsi + rdx]",
                "vmovdqu64 [rdi + rdx], zmm16",
                line = const LINE,
                in("rsi") from,
                in("rdi") into,
                in("rdx") last,
                inout("rax") 0_usize => _,
                clobber_abi("C"),
                options(nostack),
            );
        }
    }

    /// Measured on an AMD EPYC: in a ring, a third faster than memcpy(3) between processors without a common cache, and a tenth
    /// between others.
    ///
    /// # Safety
    /// As for copy_out(), and `len` is at least that of a line.
    #[inline(never)]
    pub(super) unsafe fn copy_lines(from: *const u8, into: *mut u8, len: usize) {
        let last = len - LINE;
        for at in (0..last).step_by(LINE) {
            // SAFETY: as the caller guarantees, the line is within the length.
            unsafe { copy_line(from.add(at), into.add(at)) };
        }
        // SAFETY: as above. It may overlap the one before.
        unsafe { copy_line(from.add(last), into.add(last)) };
    }

    /// # Safety
    /// As for copy_out() of the length of a line.
    #[inline]
    unsafe fn copy_line(from: *const u8, into: *mut u8) {
        // SAFETY: as the caller guarantees.
        unsafe { into.cast::<Line>().write_unaligned(Line::load(from)) };
    }
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
mod imp {
    use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

    const WORD: usize = size_of::<u64>();

    /// Copies `len` bytes.
    ///
    /// # Safety
    /// `len` bytes are readable at `from` and writable at `into`, and no other thread accesses those at `into`.
    #[inline]
    pub unsafe fn copy_out(from: *const u8, into: *mut u8, len: usize) {
        let mut at = 0;
        while at < len {
            // SAFETY: as the caller guarantees, the bytes from `at` on are accessible.
            unsafe {
                let (source, target) = (from.add(at), into.add(at));
                if len - at >= WORD && source.cast::<AtomicU64>().is_aligned() {
                    let word = (*source.cast::<AtomicU64>()).load(Ordering::Relaxed);
                    target.cast::<u64>().write_unaligned(word);
                    at += WORD;
                } else {
                    target.write((*source.cast::<AtomicU8>()).load(Ordering::Relaxed));
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn every_length_is_copied_from_every_place_and_no_byte_more() {
        assert_copies(copy_out, 0);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn lines_are_copied_without_long_registers() {
        assert_copies(imp::copy_lines, LINE);
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    #[test]
    fn lines_are_copied_with_registers_of_their_length() {
        if is_x86_feature_detected!("avx512f") {
            assert_copies(imp::copy_whole_lines, LINE);
        }
    }

    /// Of `shortest` bytes and more.
    fn assert_copies(copy: unsafe fn(*const u8, *mut u8, usize), shortest: usize) {
        let words: Vec<AtomicU64> = (0..640_u64)
            .map(|n| AtomicU64::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 0x0101_0101_0101_0101))
            .collect();
        let plain: Vec<u8> = words
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes())
            .collect();
        // All lengths would take too long in Miri.
        let short = (shortest..200).step_by(if cfg!(miri) { 7 } else { 1 });
        for len in short.chain([255, 256, 257, 319, 320, 321, 1024, 4999]) {
            for start in [0, 1, 3, 7, 8, 12] {
                let mut into = vec![0; len + 1];
                let from = ptr::from_ref(&words[..]).cast::<u8>();
                // SAFETY: both are at least that long.
                unsafe { copy(from.add(start), into.as_mut_ptr(), len) };
                assert_eq!(into[..len], plain[start..start + len]);
                assert_eq!(into[len], 0);
            }
        }
    }
}
