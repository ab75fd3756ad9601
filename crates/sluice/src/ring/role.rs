// SPDX-License-Identifier: MIT OR Apache-2.0

use sluice_abi::ring;
use sluice_ring::{Ctrl, Memory};

use crate::shared::mapping::Mapping;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Producer,
    Consumer,
}

impl Role {
    pub fn number(self) -> u32 {
        match self {
            Self::Producer => ring::PRODUCER,
            Self::Consumer => ring::CONSUMER,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Consumer => "consumer",
        }
    }

    /// The control structures of this side and of the peer.
    #[inline]
    pub fn ctrls(self, mapping: &Mapping) -> (&Ctrl, &Ctrl) {
        match self {
            Self::Producer => (mapping.producer(), mapping.consumer()),
            Self::Consumer => (mapping.consumer(), mapping.producer()),
        }
    }
}
