// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party ring libraries, each spinning and in its ways of sleeping. Each has dependencies that are not always available, so they are measured only on
//! request.

use super::Mechanism;
#[cfg(feature = "aeron")]
use super::aeron;
#[cfg(feature = "iceoryx2")]
use super::iceoryx2;
#[cfg(feature = "tachyon")]
use super::tachyon;
use crate::harness::rounds::Skipped;

/// All libraries, or the reason why one is not available.
pub fn third_party() -> Vec<Result<Mechanism, Skipped>> {
    vec![
        #[cfg(feature = "iceoryx2")]
        Ok(iceoryx2::mechanism(iceoryx2::Mode::Polling)),
        #[cfg(feature = "iceoryx2")]
        Ok(iceoryx2::mechanism(iceoryx2::Mode::Events)),
        #[cfg(not(feature = "iceoryx2"))]
        not_built_in("iceoryx2"),
        #[cfg(feature = "tachyon")]
        Ok(tachyon::mechanism(
            tachyon::Mode::Polling,
            tachyon::CAPACITY,
        )),
        #[cfg(feature = "tachyon")]
        Ok(tachyon::mechanism(
            tachyon::Mode::Polling,
            tachyon::LARGE_CAPACITY,
        )),
        #[cfg(feature = "tachyon")]
        Ok(tachyon::mechanism(tachyon::Mode::Hybrid, tachyon::CAPACITY)),
        #[cfg(feature = "tachyon")]
        Ok(tachyon::mechanism(tachyon::Mode::Futex, tachyon::CAPACITY)),
        #[cfg(not(feature = "tachyon"))]
        not_built_in("tachyon"),
        #[cfg(feature = "aeron")]
        Ok(aeron::mechanism(aeron::Idle::Spin)),
        #[cfg(feature = "aeron")]
        Ok(aeron::mechanism(aeron::Idle::Backoff)),
        #[cfg(not(feature = "aeron"))]
        not_built_in("aeron"),
    ]
}

#[cfg(not(all(feature = "iceoryx2", feature = "tachyon", feature = "aeron")))]
fn not_built_in(name: &'static str) -> Result<Mechanism, Skipped> {
    let reason = "this program was built without it; run 'make bench-peers', which enables it";
    Err(Skipped::unavailable(name, reason))
}
