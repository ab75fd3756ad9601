// SPDX-License-Identifier: MIT OR Apache-2.0
//! Libraries that do what Sluice's ring does. Each needs something that is not everywhere, so they only take part when they
//! are asked for.

use std::rc::Rc;

use super::Mechanism;
use super::aeron::Aeron;
#[cfg(feature = "iceoryx2")]
use super::iceoryx2::Iceoryx2;
#[cfg(feature = "tachyon")]
use super::tachyon::Tachyon;
use crate::harness::rounds::Skip;

type Peer = Result<Rc<dyn Mechanism>, Skip>;

/// All of them, or why one cannot take part.
pub fn peers() -> [Peer; 3] {
    [iceoryx2(), tachyon(), aeron()]
}

fn aeron() -> Peer {
    match Aeron::find() {
        Ok(aeron) => Ok(Rc::new(aeron)),
        Err(reason) => Err(Skip::circumstance("aeron", reason)),
    }
}

#[cfg(feature = "iceoryx2")]
fn iceoryx2() -> Peer {
    Ok(Rc::new(Iceoryx2::new()))
}

#[cfg(not(feature = "iceoryx2"))]
fn iceoryx2() -> Peer {
    Err(left_out("iceoryx2"))
}

#[cfg(feature = "tachyon")]
fn tachyon() -> Peer {
    Ok(Rc::new(Tachyon::new()))
}

#[cfg(not(feature = "tachyon"))]
fn tachyon() -> Peer {
    Err(left_out("tachyon"))
}

#[cfg(not(all(feature = "iceoryx2", feature = "tachyon")))]
fn left_out(name: &'static str) -> Skip {
    Skip::circumstance(
        name,
        "this program was built without it; 'make bench-peers' builds it in, or says what is missing for that",
    )
}
