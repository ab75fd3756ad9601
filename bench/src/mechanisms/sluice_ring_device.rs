// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring in a channel of the module. All rings have the same name: each link uses its own cgroup, which both
//! processes enter to open the ring, and may then leave, because an endpoint stays with the ring on which it was opened.

use std::rc::Rc;

use anyhow::{Context, Result};
use sluice::ring::{Options, SetupError};
use sluice::{Channel, OpenOptions};
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::sluice_ring::Variant;
use super::{Link, Mechanism};

/// The name of all variants in the results.
pub const NAME: &str = "sluice-ring";
const CHANNEL: &str = "bench";

pub fn mechanism(tree: &Rc<Tree>, variant: Variant) -> Mechanism {
    let [one, named] = [tree; 2].map(Rc::clone);
    Mechanism {
        own_cgroups: true,
        links_by_name: Some(Box::new(move |pairs| {
            let pair = |_| Ok(link(named.create_cgroup()?, variant, 0));
            (0..pairs).map(pair).collect()
        })),
        ..variant.mechanism(NAME, move |size| {
            Ok(link(one.create_cgroup()?, variant, size))
        })
    }
}

/// A link over the ring of this cgroup.
fn link(cgroup: Cgroup, variant: Variant, size: usize) -> Link {
    let ring = InCgroup {
        cgroup,
        options: variant.options(size),
    };
    Link::new(
        ring,
        |ring| ring.open(Options::open_producer),
        |ring| ring.open(Options::open_consumer),
    )
}

struct InCgroup {
    cgroup: Cgroup,
    options: Options,
}

impl InCgroup {
    /// Opens one side; the first of the two creates the ring.
    fn open<T>(&self, side: impl Fn(&Options, &OpenOptions) -> Result<T, SetupError>) -> Result<T> {
        self.cgroup.enter()?;
        let channel = Channel::ring(CHANNEL)?;
        // A producer may close its side before the consumer opens the ring, which must not end with it then.
        let options = channel.options().create(true).persistent(true);
        side(&self.options, &options).context(
            "cannot open a ring; check that the module is loaded and cgroup v2 is mounted; see 'dmesg | tail'",
        )
    }
}
