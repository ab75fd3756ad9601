// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run of each scale measures.

use self::Cost::{Receiving, Sending};
use self::ReceiverState::{Asleep, Busy, Polling, Streaming};
use super::conditions::{Conditions, Cost, ReceiverState};
use crate::suites::plan::{Plan, Scale};

/// Receiver state, cost, numbers of receivers, sizes, and the mechanisms to measure beside the reference, unless others are chosen.
type Comparison = (
    ReceiverState,
    Cost,
    &'static [usize],
    &'static [usize],
    Mechanisms,
);
/// Empty for all.
pub type Mechanisms = &'static [&'static str];

const EVERY: Mechanisms = &[];
const MOST: &[usize] = &[16];
const ONE_AND_MOST: &[usize] = &[1, 16];
const ALL_SIZES: &[usize] = &[64, 256, 1024, 4096, 16384, 32768];
/// The sizes of conditions that are measured beside the others.
const FEW_SIZES: &[usize] = &[64, 4096, 32768];
const EXTREMES: &[usize] = &[64, 32768];

/// With many receivers what most people use, and what criteria need.
#[rustfmt::skip]
const QUICK: &[Comparison] = &[
    (Busy, Sending, &[1], &[64], EVERY),
    (Busy, Sending, MOST, &[64],
        &["unix-stream", "eventfd-shm", "eventfd-shm-shared", "zeromq", "dbus-daemon", "sluice-bus", "sluice-bus-multicast"]),
];

/// All mechanisms with the shortest message to one receiver and to the most, and elsewhere those that a criterion of the report or a
/// table needs. Starting 17 emulated processes takes longer than a round.
#[rustfmt::skip]
const STANDARD: &[Comparison] = &[
    (Busy, Sending, ONE_AND_MOST, &[64], EVERY),
    (Busy, Sending, ONE_AND_MOST, &[32768],
        &["pipe-tee", "unix-stream", "eventfd-shm", "eventfd-shm-shared", "zeromq", "dbus-daemon", "sluice-bus", "sluice-bus-uring",
            "sluice-bus-multicast"]),
    (Busy, Sending, &[1], &[4096], &["sluice-bus-multicast"]),
    (Busy, Sending, MOST, &[256, 1024, 4096], &["eventfd-shm", "eventfd-shm-shared", "sluice-bus", "sluice-bus-multicast"]),
    (Asleep, Sending, MOST, &[64], &["unix-stream", "eventfd-shm", "sluice-bus"]),
    (Streaming, Sending, &[1], EXTREMES, &["unix-stream", "zeromq", "sluice-bus", "sluice-bus-unicast"]),
    (Streaming, Sending, MOST, &[32768], &["unix-stream", "zeromq", "sluice-bus"]),
    (Busy, Receiving, &[1], EXTREMES, &["eventfd-shm-shared", "sluice-bus", "sluice-bus-map", "sluice-bus-uring"]),
];

/// Instead of [`STANDARD`] with sizes of the user's choice.
const STANDARD_OF_SIZES: &[Comparison] = &[
    (Busy, Sending, ONE_AND_MOST, &[], EVERY),
    (Streaming, Sending, &[1], &[], EVERY),
];

const FULL: &[Comparison] = &[
    (Busy, Sending, &[1, 2, 4, 8, 16], ALL_SIZES, EVERY),
    (Asleep, Sending, ONE_AND_MOST, ALL_SIZES, EVERY),
    (Polling, Sending, ONE_AND_MOST, FEW_SIZES, EVERY),
    (Streaming, Sending, &[1], ALL_SIZES, EVERY),
    (Streaming, Sending, MOST, FEW_SIZES, EVERY),
    (Busy, Receiving, &[1], FEW_SIZES, EVERY),
];

/// The conditions of all cases, and the mechanisms to measure in each.
pub fn conditions(plan: &Plan) -> Vec<(Conditions, Mechanisms)> {
    let comparisons = match plan.scale {
        Scale::Quick | Scale::ThirdParty => QUICK,
        Scale::Standard if plan.sizes.is_empty() => STANDARD,
        Scale::Standard => STANDARD_OF_SIZES,
        Scale::Full => FULL,
    };
    let mut all = Vec::new();
    for &(state, cost, receivers, default, mechanisms) in comparisons {
        let is_measured = |size: &usize| default != FEW_SIZES || FEW_SIZES.contains(size);
        let mut sizes = plan.sizes.clone();
        sizes.retain(is_measured);
        if plan.sizes.is_empty() {
            sizes = default.to_vec();
        }
        for &receivers in receivers {
            let conditions = sizes.iter().map(|&size| Conditions {
                receivers,
                size,
                state,
                cost,
            });
            all.extend(conditions.map(|one| (one, mechanisms)));
        }
    }
    all
}
