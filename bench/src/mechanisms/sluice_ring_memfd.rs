// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring over memfd, without the module.

use anyhow::Context;
use sluice::ring::Socket;

use super::sluice_ring::Variant;
use super::{Link, Mechanism};

/// The name of all variants in the results.
pub const NAME: &str = "sluice-ring-memfd";

pub fn mechanism(variant: Variant) -> Mechanism {
    variant.mechanism(NAME, move |size| {
        let unsealed = variant == Variant::Unsealed;
        let options = variant.options(size).allow_unsealed(unsealed);
        // SAFETY: both ends use this library, in which only the producer writes.
        let options = unsafe { options.unsealed(unsealed) };
        let (sending, receiving) = Socket::pair()?;
        Ok(Link::new(
            (options, sending, receiving),
            |(options, sending, receiving)| {
                drop(receiving);
                options
                    .producer(sending)
                    .context("cannot set up the producer")
            },
            |(options, sending, receiving)| {
                drop(sending);
                options
                    .consumer(receiving)
                    .context("cannot set up the consumer")
            },
        ))
    })
}
