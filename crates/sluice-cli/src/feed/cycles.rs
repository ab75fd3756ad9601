// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counter of the processor that stamps packets.

/// Its value after all earlier loads; none where programs cannot read it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn now() -> Option<u64> {
    use std::arch::x86_64::{_mm_lfence, _rdtsc};
    // SAFETY: every processor of this architecture has both instructions.
    Some(unsafe {
        _mm_lfence();
        _rdtsc()
    })
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn now() -> Option<u64> {
    None
}
