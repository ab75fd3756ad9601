// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party ring libraries. Each has dependencies that are not always available, so they are measured only on
//! request.

use std::rc::Rc;

use super::Mechanism;
use super::aeron::Aeron;
#[cfg(feature = "iceoryx2")]
use super::iceoryx2::Iceoryx2;
#[cfg(feature = "tachyon")]
use super::tachyon::Tachyon;
use crate::harness::rounds::Skipped;

type Library = Result<Rc<dyn Mechanism>, Skipped>;

/// All libraries, or the reason why one is not available.
pub fn third_party() -> [Library; 3] {
    [iceoryx2(), tachyon(), aeron()]
}

fn aeron() -> Library {
    match Aeron::find() {
        Ok(aeron) => Ok(Rc::new(aeron)),
        Err(reason) => Err(Skipped::unavailable("aeron", reason)),
    }
}

#[cfg(feature = "iceoryx2")]
fn iceoryx2() -> Library {
    Ok(Rc::new(Iceoryx2::new()))
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx2() -> Library {
    Err(not_built_in("iceoryx2"))
}

#[cfg(feature = "tachyon")]
fn tachyon() -> Library {
    Ok(Rc::new(Tachyon::new()))
}

#[cfg(not(feature = "tachyon"))]
fn tachyon() -> Library {
    Err(not_built_in("tachyon"))
}

#[cfg(not(all(feature = "iceoryx2", feature = "tachyon")))]
fn not_built_in(name: &'static str) -> Skipped {
    Skipped::unavailable(
        name,
        "this program was built without it; run 'make bench-peers', which enables it",
    )
}
