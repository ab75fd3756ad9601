// SPDX-License-Identifier: MIT OR Apache-2.0
//! Packets from the kernel to a process, as in report 3: the latency of a packet is the time from the producer's reading
//! of the time stamp counter to that of the consumer, which then has all bytes of the packet. The timer that publishes
//! runs on the first processor, the consumer on the last one.
//!
//! A lost packet has no latency. A delay of the consumer is therefore one sample where later packets overwrite earlier
//! ones, and as many as packets waited where none is lost: the number of lost packets is a part of each result.

mod hft;
mod latency;
mod memory;
mod null;
mod recorder;
mod sluice_feed;
mod source;

use std::path::Path;

use anyhow::Result;
use sluice_testkit::clock::HAS_CYCLES;
use sluice_testkit::hft::Layout;
use sluice_testkit::module::{FEED_NODE, HFT, SLUICE};

use self::latency::Latency;
use self::null::NullOperation;
use self::source::Open;
use super::setup::Confinement;
use super::{Plan, Scale};
use crate::harness::pinning::{Placement, isolated, online};
use crate::harness::rounds::{Case, Job, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;
use crate::reports::feed::SUITE;

/// Samples of a round, as many as the report has in total.
const SAMPLES: usize = 1000;
/// Samples of all rounds with --full.
const FULL_SAMPLES: usize = 100_000;

/// A way from the kernel to a process.
struct Way {
    mechanism: &'static str,
    waiting: Waiting,
    open: Open,
}

/// The first one is the reference.
#[rustfmt::skip]
const WAYS: [Way; 7] = [
    Way { mechanism: "hft-read", waiting: Waiting::Sleep, open: hft::reader },
    Way { mechanism: "hft-slot", waiting: Waiting::Spin, open: || hft::mapped(Layout::Slot) },
    Way { mechanism: "hft-slot-unaligned", waiting: Waiting::Spin, open: || hft::mapped(Layout::UnalignedSlot) },
    Way { mechanism: "hft-ring", waiting: Waiting::Spin, open: || hft::mapped(Layout::Ring) },
    Way { mechanism: "hft-ring-pages", waiting: Waiting::Spin, open: || hft::mapped(Layout::RingPages) },
    Way { mechanism: "sluice-feed-read", waiting: Waiting::Sleep, open: sluice_feed::reader },
    Way { mechanism: "sluice-feed", waiting: Waiting::Spin, open: sluice_feed::mapped },
];

/// The null operation, which is no way for packets.
const NULL: &str = "hft-null";

pub fn mechanisms() -> Vec<&'static str> {
    let ways = WAYS.iter().map(|way| way.mechanism);
    ways.chain([NULL]).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let cpus = match online()?[..] {
        [first, .., last] if HAS_CYCLES => [first, last],
        _ => return Ok(vec![unsupported()]),
    };
    let confinement = Confinement {
        cgroup: plan.cgroup.clone(),
        cpus,
    };
    let samples = match plan.scale {
        Scale::Full => FULL_SAMPLES.div_ceil(plan.rounds),
        Scale::Quick | Scale::Standard | Scale::ThirdParty => SAMPLES,
    };
    let reference = WAYS[0].mechanism;
    let wanted = |way: &Way| way.mechanism == reference || plan.wants(way.mechanism);
    let packets = WAYS.into_iter().filter(wanted).map(|way| {
        let job = Latency::new(way.open, confinement.clone(), samples);
        subject(way.mechanism, way.waiting, job)
    });
    let mut cases = vec![case(title(cpus[1])?, packets)];
    if plan.wants(NULL) {
        let null = NullOperation::new(confinement.clone(), samples);
        let null = subject(NULL, Waiting::Spin, null);
        cases.push(case("null operation".into(), [null]));
    }
    Ok(cases)
}

fn title(cpu: usize) -> Result<String> {
    let state = match isolated()?.contains(&cpu) {
        true => "isolated",
        false => "not isolated",
    };
    Ok(format!("packets every 1 ms, processor {state}"))
}

/// A subject, or the reason why its module is not there.
fn subject(
    mechanism: &'static str,
    waiting: Waiting,
    job: impl Job + 'static,
) -> Result<Subject, Skipped> {
    let (node, module) = match mechanism.starts_with("hft") {
        true => (HFT.node, &HFT),
        false => (FEED_NODE, &SLUICE),
    };
    if !Path::new(node).exists() {
        return Err(Skipped::unavailable(mechanism, module.how_to_load()));
    }
    let label = match waiting {
        Waiting::Sleep => mechanism.into(),
        Waiting::Spin => format!("{mechanism} (spins)"),
    };
    Ok(Subject {
        processes: 1,
        ..Subject::new(mechanism, label, waiting, job)
    })
}

fn case(title: String, subjects: impl IntoIterator<Item = Result<Subject, Skipped>>) -> Case {
    let mut case = Case::new(SUITE, title, Placement::TwoCpus, Metric::Latency);
    for subject in subjects {
        match subject {
            Ok(subject) => case.subjects.push(subject),
            Err(skip) => case.skipped.push(skip),
        }
    }
    case
}

fn unsupported() -> Case {
    let reason = "it needs two processors with the time stamp counter of x86-64";
    case("packets".into(), [Err(Skipped::unavailable(SUITE, reason))])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn without_the_modules_each_way_is_skipped_with_its_module() {
        let cases = cases(&plan()).unwrap();
        let skipped: Vec<_> = cases.iter().flat_map(|case| &case.skipped).collect();
        if !HAS_CYCLES || online().unwrap().len() < 2 || Path::new(HFT.node).exists() {
            return;
        }
        let missing = |name: &str| skipped.iter().find(|skip| skip.mechanism == name).unwrap();
        assert!(missing("hft-ring").reason.contains("--hft"));
        assert!(missing("sluice-feed").reason.contains("--module"));
        assert_eq!(skipped.len(), WAYS.len() + 1);
    }

    #[test]
    fn only_the_reference_and_the_chosen_mechanisms_are_measured() {
        if !HAS_CYCLES || online().unwrap().len() < 2 {
            return;
        }
        let measured = |chosen: &str| {
            let plan = Plan {
                chosen: vec![chosen.into()],
                ..plan()
            };
            let cases = cases(&plan).unwrap();
            let names = cases.iter().flat_map(|case| {
                let subjects = case.subjects.iter().map(|subject| subject.mechanism);
                subjects.chain(case.skipped.iter().map(|skip| skip.mechanism))
            });
            names.collect::<BTreeSet<_>>()
        };
        let expected = |chosen| BTreeSet::from(["hft-read", chosen]);
        assert_eq!(measured("sluice-feed"), expected("sluice-feed"));
        assert_eq!(measured(NULL), expected(NULL));
    }
}
