// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets from the kernel to a process, as in report 3: the latency is the time from the producer's reading of the time stamp counter to
//! the reading by the consumer, which then has all bytes of the packet. The timer that publishes runs on the first processor, the
//! consumer on the last one. A lost packet has no latency: a delay of the consumer is one sample where later packets overwrite earlier
//! ones, and many where none is lost. So the number of lost packets is a part of each result.

mod hft;
mod latency;
mod sluice_feed;

use std::path::Path;

use anyhow::Result;
use sluice_testkit::clock::HAS_CYCLES;
use sluice_testkit::hft::Layout;
use sluice_testkit::module::{FEED_NODE, HFT, SLUICE};

use self::latency::{Latency, Open};
use super::plan::{Plan, Scale};
use super::setup::Confinement;
use crate::harness::pinning::{Placement, listed};
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;

const SUITE: &str = "feed";
/// Samples of a round, as many as the report has in total.
const SAMPLES: usize = 1000;
const FULL_SAMPLES: usize = 100_000;

/// The null operation, which passes no packets.
const NULL: &str = "hft-null";

struct FeedMechanism {
    name: &'static str,
    waiting: Waiting,
    open: Open,
}

/// The first one is the reference, the last one the null operation.
#[rustfmt::skip]
const MECHANISMS: [FeedMechanism; 8] = [
    FeedMechanism { name: "hft-read", waiting: Waiting::Sleep, open: hft::reader },
    FeedMechanism { name: "hft-slot", waiting: Waiting::Spin, open: |cpu| hft::mapped(Layout::Slot, cpu) },
    FeedMechanism { name: "hft-slot-unaligned", waiting: Waiting::Spin, open: |cpu| hft::mapped(Layout::UnalignedSlot, cpu) },
    FeedMechanism { name: "hft-ring", waiting: Waiting::Spin, open: |cpu| hft::mapped(Layout::Ring, cpu) },
    FeedMechanism { name: "hft-ring-pages", waiting: Waiting::Spin, open: |cpu| hft::mapped(Layout::RingPages, cpu) },
    FeedMechanism { name: "sluice-feed-read", waiting: Waiting::Sleep, open: sluice_feed::reader },
    FeedMechanism { name: "sluice-feed", waiting: Waiting::Spin, open: sluice_feed::mapped },
    FeedMechanism { name: NULL, waiting: Waiting::Spin, open: hft::null_operation },
];

pub fn mechanisms() -> Vec<&'static str> {
    MECHANISMS.iter().map(|one| one.name).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let case = |title| Case {
        processes: 1,
        ..Case::new(SUITE, title, Placement::TwoCpus, Metric::Latency)
    };
    let online = listed("online")?;
    let (true, &[first, .., last]) = (HAS_CYCLES, &online[..]) else {
        let reason = "it needs two processors with the time stamp counter of x86-64";
        let mut case = case("packets".into());
        case.skipped.push(Skipped::unavailable(SUITE, reason));
        return Ok(vec![case]);
    };
    let is_isolated = listed("isolated")?.contains(&last);
    let state = if is_isolated {
        "isolated"
    } else {
        "not isolated"
    };
    let mut packets = case(format!("packets every 1 ms, processor {state}"));
    let mut null = case("null operation".into());
    for (index, one) in MECHANISMS.iter().enumerate() {
        if index > 0 && !plan.wants(one.name) {
            continue;
        }
        let has_packets = one.name != NULL;
        let case = if has_packets { &mut packets } else { &mut null };
        let (node, module) = match one.name.starts_with("hft") {
            true => (HFT.node, &HFT),
            false => (FEED_NODE, &SLUICE),
        };
        if !Path::new(node).exists() {
            let skip = Skipped::unavailable(one.name, module.how_to_load());
            case.skipped.push(skip);
            continue;
        }
        let job = Latency {
            open: one.open,
            has_packets,
            confinement: Confinement {
                cgroup: plan.cgroup.clone(),
                cpus: [first, last],
            },
            samples: match plan.scale {
                Scale::Full => FULL_SAMPLES.div_ceil(plan.rounds),
                Scale::Quick | Scale::Standard | Scale::ThirdParty => SAMPLES,
            },
        };
        let subject = Subject::new(one.name, one.waiting.label(one.name), one.waiting, job);
        case.subjects.push(subject);
    }
    let mut cases = vec![packets];
    cases.extend(plan.wants(NULL).then_some(null));
    Ok(cases)
}
