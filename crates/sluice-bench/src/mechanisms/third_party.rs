// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party ring libraries. Each has dependencies that are not always available, so they are measured only on
//! request.

#[cfg(feature = "iceoryx2")]
use super::iceoryx2;
#[cfg(feature = "tachyon")]
use super::tachyon;
use super::{Mechanism, aeron};
use crate::harness::rounds::Skipped;

/// All libraries, or the reason why one is not available.
pub fn third_party() -> Vec<Result<Mechanism, Skipped>> {
    vec![
        #[cfg(feature = "iceoryx2")]
        Ok(iceoryx2::mechanism()),
        #[cfg(not(feature = "iceoryx2"))]
        not_built_in("iceoryx2"),
        #[cfg(feature = "tachyon")]
        Ok(tachyon::mechanism()),
        #[cfg(not(feature = "tachyon"))]
        not_built_in("tachyon"),
        aeron::mechanism(),
    ]
}

#[cfg(not(all(feature = "iceoryx2", feature = "tachyon")))]
fn not_built_in(name: &'static str) -> Result<Mechanism, Skipped> {
    let reason = "this program was built without it; run 'make bench-peers', which enables it";
    Err(Skipped::unavailable(name, reason))
}
