// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions of the cases that a run of each scale measures.

use sluice_testkit::units;

use self::Measured::{Asleep, Busy, Receiving, Streaming};
use crate::suites::plan::{Plan, Scale};

/// What the receivers do when a message is sent, and what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// They run, and receive after a burst. The processor time of the sender.
    Busy,
    /// The same. The processor time of a receiver, which reads a word of each cache line of the message.
    Receiving,
    /// They sleep before each message, which is a burst by itself. The processor time of the sender.
    Asleep,
    /// They receive as fast as they can, and the sender does not wait for them. The time of the whole exchange.
    Streaming,
}

impl Measured {
    /// The state of the receivers, and whose processor time is measured.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            Busy => ["busy", "sending"],
            Receiving => ["busy", "receiving"],
            Asleep => ["asleep", "sending"],
            Streaming => ["streaming", "sending"],
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub receivers: usize,
    pub size: usize,
    pub what: Measured,
}

impl Conditions {
    pub fn title(&self) -> String {
        let receivers = units::counted(self.receivers, "receiver");
        let (size, [state, cost]) = (units::size(self.size), self.what.names());
        match self.what {
            Streaming => format!("{receivers} {size} {state}"),
            _ => format!("{receivers} {size} {state}, cost of {cost}"),
        }
    }

    /// Receivers sleep until there is a message; otherwise they are told that there is none.
    pub fn blocks(&self) -> bool {
        matches!(self.what, Asleep | Streaming)
    }
}

/// What is measured, numbers of receivers, sizes, and the mechanisms to measure beside the reference, unless others are chosen.
type Comparison = (Measured, &'static [usize], &'static [usize], Mechanisms);
/// Empty for all.
pub type Mechanisms = &'static [&'static str];

const EVERY: Mechanisms = &[];
const MOST: &[usize] = &[16];
const ONE_AND_MOST: &[usize] = &[1, 16];
const ALL_SIZES: &[usize] = &[64, 256, 1024, 4096, 16384, 32768];
const FEW_SIZES: &[usize] = &[64, 4096, 32768];
const EXTREMES: &[usize] = &[64, 32768];

/// With many receivers what most people use, and what criteria need.
#[rustfmt::skip]
const QUICK: &[Comparison] = &[
    (Busy, &[1], &[64], EVERY),
    (Busy, MOST, &[64],
        &["unix-stream", "eventfd-shm", "eventfd-shm-shared", "zeromq", "dbus-daemon", "sluice-bus", "sluice-bus-multicast"]),
];

/// All mechanisms with the shortest message, and elsewhere what a criterion or a table needs: starting 17 emulated processes takes long.
#[rustfmt::skip]
const STANDARD: &[Comparison] = &[
    (Busy, ONE_AND_MOST, &[64], EVERY),
    (Busy, ONE_AND_MOST, &[32768],
        &["pipe-tee", "unix-stream", "eventfd-shm", "eventfd-shm-shared", "zeromq", "dbus-daemon", "sluice-bus", "sluice-bus-uring",
            "sluice-bus-multicast"]),
    (Busy, &[1], &[4096], &["sluice-bus-multicast"]),
    (Busy, MOST, &[256, 1024, 4096],
        &["eventfd-shm", "eventfd-shm-shared", "sluice-bus", "sluice-bus-batch", "sluice-bus-multicast"]),
    (Asleep, MOST, &[64], &["unix-stream", "eventfd-shm", "sluice-bus"]),
    (Streaming, &[1], EXTREMES, &["unix-stream", "zeromq", "sluice-bus", "sluice-bus-unicast"]),
    (Streaming, MOST, &[32768], &["unix-stream", "zeromq", "sluice-bus"]),
    (Receiving, &[1], EXTREMES, &["eventfd-shm-shared", "sluice-bus", "sluice-bus-map", "sluice-bus-uring"]),
];

/// Instead of [`STANDARD`] with sizes of the user's choice.
const STANDARD_OF_SIZES: &[Comparison] = &[
    (Busy, ONE_AND_MOST, &[], EVERY),
    (Streaming, &[1], &[], EVERY),
];

const FULL: &[Comparison] = &[
    (Busy, &[1, 2, 4, 8, 16], ALL_SIZES, EVERY),
    (Asleep, ONE_AND_MOST, ALL_SIZES, EVERY),
    (Streaming, &[1], ALL_SIZES, EVERY),
    (Streaming, MOST, FEW_SIZES, EVERY),
    (Receiving, &[1], FEW_SIZES, EVERY),
];

/// The conditions of all cases, and the mechanisms to measure in each.
pub fn of(plan: &Plan) -> Vec<(Conditions, Mechanisms)> {
    let comparisons = match plan.scale {
        Scale::Quick | Scale::ThirdParty => QUICK,
        Scale::Standard if plan.sizes.is_empty() => STANDARD,
        Scale::Standard => STANDARD_OF_SIZES,
        Scale::Full => FULL,
    };
    let mut all = Vec::new();
    for &(what, receivers, default, mechanisms) in comparisons {
        let mut sizes = plan.sizes_or(&[default; 4]);
        sizes.retain(|size| default != FEW_SIZES || FEW_SIZES.contains(size));
        for &receivers in receivers {
            let of_size = |&size| Conditions {
                receivers,
                size,
                what,
            };
            all.extend(sizes.iter().map(|size| (of_size(size), mechanisms)));
        }
    }
    all
}
