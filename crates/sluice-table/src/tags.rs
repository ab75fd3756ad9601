// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of the tags of a bucket, without a branch for each: the result of such a branch is known only when the line of the bucket has
//! arrived, and a processor that has predicted it wrongly has begun nothing else meanwhile.

use crate::memory::Memory;

/// Bit *i* is set if the tag of cell *i* is this one. All 15 are compared.
#[inline]
pub fn equal<M: Memory>(memory: &M, bucket: u64, tag: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(sluice_loom), not(miri)))]
    return equal_sse2(memory, bucket, tag);
    #[cfg(any(not(target_arch = "x86_64"), sluice_loom, miri))]
    equal_each(memory, bucket, tag)
}

/// Begins to load a bucket, which may be needed.
#[inline]
pub fn prefetch<M: Memory>(memory: &M, bucket: u64) {
    #[cfg(all(target_arch = "x86_64", not(sluice_loom), not(miri)))]
    // SAFETY: no memory is accessed, and every x86-64 has the instruction.
    unsafe {
        let line = std::ptr::from_ref(memory.half(bucket));
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(any(not(target_arch = "x86_64"), sluice_loom, miri))]
    let _ = (memory, bucket);
}

#[cfg(any(test, not(target_arch = "x86_64"), sluice_loom, miri))]
fn equal_each<M: Memory>(memory: &M, bucket: u64, tag: u32) -> u32 {
    use crate::sync::Ordering;
    (0..sluice_abi::map::BUCKET_CELLS as u64)
        .map(|index| {
            let at = bucket + index * size_of::<u32>() as u64;
            u32::from(memory.half(at).load(Ordering::Relaxed) == tag) << index
        })
        .sum()
}

/// A load of 16 bytes loads each of the four tags as a whole. Rust has no such atomic load, hence the assembly.
#[cfg(all(target_arch = "x86_64", not(sluice_loom), not(miri)))]
#[inline]
fn equal_sse2<M: Memory>(memory: &M, bucket: u64, tag: u32) -> u32 {
    let line = std::ptr::from_ref(memory.half(bucket));
    let equal: u32;
    // SAFETY: reads the 64 bytes of a bucket, which are mapped, and at an address that is a multiple of 64; every x86-64 has these instructions.
    unsafe {
        std::arch::asm!(
            "movd {tags}, {tag:e}",
            "pshufd {tags}, {tags}, 0",
            "movdqa {a}, {tags}",
            "pcmpeqd {a}, [{line}]",
            "movdqa {b}, {tags}",
            "pcmpeqd {b}, [{line} + 16]",
            "packssdw {a}, {b}",
            "movdqa {b}, {tags}",
            "pcmpeqd {b}, [{line} + 32]",
            "pcmpeqd {tags}, [{line} + 48]",
            "packssdw {b}, {tags}",
            "packsswb {a}, {b}",
            "pmovmskb {equal:e}, {a}",
            line = in(reg) line,
            tag = in(reg) tag,
            tags = out(xmm_reg) _,
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            equal = lateout(reg) equal,
            options(nostack, readonly, preserves_flags)
        );
    }
    // Without `elsewhere`.
    equal & ((1 << sluice_abi::map::BUCKET_CELLS) - 1)
}

#[cfg(all(test, not(sluice_loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU32, AtomicU64};

    #[repr(align(64))]
    struct Bucket([AtomicU32; 16]);

    impl Memory for Bucket {
        fn half(&self, at: u64) -> &AtomicU32 {
            &self.0[at as usize / 4]
        }

        fn word(&self, _: u64) -> &AtomicU64 {
            unreachable!()
        }
    }

    #[test]
    fn every_tag_has_its_bit() {
        for elsewhere in [0, 7] {
            for bits in (0..1 << 15).step_by(37) {
                let bucket = Bucket(std::array::from_fn(|index| match index {
                    15 => AtomicU32::new(elsewhere),
                    _ => AtomicU32::new(if bits >> index & 1 == 1 {
                        7
                    } else {
                        0x8000_0007
                    }),
                }));
                assert_eq!(equal(&bucket, 0, 7), bits);
                assert_eq!(equal_each(&bucket, 0, 7), bits);
            }
        }
    }
}
