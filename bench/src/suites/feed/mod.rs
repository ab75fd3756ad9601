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
mod sluice_feed;
mod source;

use std::path::Path;

use anyhow::Result;
use sluice_testkit::clock::HAS_CYCLES;
use sluice_testkit::hft::Layout;
use sluice_testkit::module::{FEED_NODE, HFT, SLUICE};

use self::latency::Latency;
use self::source::Open;
use super::plan::{Plan, Scale};
use super::setup::Confinement;
use crate::harness::pinning::{Placement, isolated, online};
use crate::harness::rounds::{Case, Metric, Skipped, Subject};
use crate::harness::waiting::Waiting;

const SUITE: &str = "feed";
/// Samples of a round, as many as the report has in total.
const SAMPLES: usize = 1000;
/// Samples of all rounds with --full.
const FULL_SAMPLES: usize = 100_000;

/// A way from the kernel to a process.
struct Way {
    mechanism: &'static str,
    waiting: Waiting,
    /// None: the null operation, which is no way for packets.
    open: Option<Open>,
}

/// The first one is the reference, the last one the null operation.
#[rustfmt::skip]
const WAYS: [Way; 8] = [
    Way { mechanism: "hft-read", waiting: Waiting::Sleep, open: Some(hft::reader) },
    Way { mechanism: "hft-slot", waiting: Waiting::Spin, open: Some(|cpu| hft::mapped(Layout::Slot, cpu)) },
    Way { mechanism: "hft-slot-unaligned", waiting: Waiting::Spin, open: Some(|cpu| hft::mapped(Layout::UnalignedSlot, cpu)) },
    Way { mechanism: "hft-ring", waiting: Waiting::Spin, open: Some(|cpu| hft::mapped(Layout::Ring, cpu)) },
    Way { mechanism: "hft-ring-pages", waiting: Waiting::Spin, open: Some(|cpu| hft::mapped(Layout::RingPages, cpu)) },
    Way { mechanism: "sluice-feed-read", waiting: Waiting::Sleep, open: Some(sluice_feed::reader) },
    Way { mechanism: "sluice-feed", waiting: Waiting::Spin, open: Some(sluice_feed::mapped) },
    Way { mechanism: "hft-null", waiting: Waiting::Spin, open: None },
];

pub fn mechanisms() -> Vec<&'static str> {
    WAYS.iter().map(|way| way.mechanism).collect()
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let cpus = match online()?[..] {
        [first, .., last] if HAS_CYCLES => [first, last],
        _ => {
            let reason = "it needs two processors with the time stamp counter of x86-64";
            let skip = Skipped::unavailable(SUITE, reason);
            return Ok(vec![case("packets".into(), [Err(skip)])]);
        }
    };
    let samples = match plan.scale {
        Scale::Full => FULL_SAMPLES.div_ceil(plan.rounds),
        Scale::Quick | Scale::Standard | Scale::ThirdParty => SAMPLES,
    };
    let subject = |way: &Way| {
        way.subject(Latency {
            open: way.open,
            confinement: Confinement {
                cgroup: plan.cgroup.clone(),
                cpus,
            },
            samples,
        })
    };
    let state = match isolated()?.contains(&cpus[1]) {
        true => "isolated",
        false => "not isolated",
    };
    let title = format!("packets every 1 ms, processor {state}");
    let [packets @ .., null] = &WAYS;
    let packets = packets.iter().enumerate();
    let packets = packets.filter(|(index, way)| *index == 0 || plan.wants(way.mechanism));
    let mut cases = vec![case(title, packets.map(|(_, way)| subject(way)))];
    if plan.wants(null.mechanism) {
        cases.push(case("null operation".into(), [subject(null)]));
    }
    Ok(cases)
}

impl Way {
    /// The reason, if its module is not there.
    fn subject(&self, job: Latency) -> Result<Subject, Skipped> {
        let (node, module) = match self.mechanism.starts_with("hft") {
            true => (HFT.node, &HFT),
            false => (FEED_NODE, &SLUICE),
        };
        if !Path::new(node).exists() {
            return Err(Skipped::unavailable(self.mechanism, module.how_to_load()));
        }
        let label = match self.waiting {
            Waiting::Sleep => self.mechanism.into(),
            Waiting::Spin => format!("{} (spins)", self.mechanism),
        };
        let subject = Subject::new(self.mechanism, label, self.waiting, job);
        Ok(Subject {
            processes: 1,
            ..subject
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    /// Where the modules are not loaded, all that is selected is skipped.
    #[test]
    fn the_reference_and_the_chosen_mechanisms_are_selected_and_name_their_modules() {
        if !HAS_CYCLES || online().unwrap().len() < 2 || Path::new(HFT.node).exists() {
            return;
        }
        let cases = |chosen: &[&str]| {
            let chosen = chosen.iter().map(|name| name.to_string()).collect();
            let cases = cases(&Plan { chosen, ..plan() }).unwrap();
            let skipped = cases.into_iter().flat_map(|case| case.skipped);
            skipped
                .map(|skip| (skip.mechanism, skip.reason))
                .collect::<Vec<_>>()
        };
        assert_eq!(cases(&[]).len(), WAYS.len());
        for (name, option) in [
            ("hft-ring", "--hft"),
            ("hft-null", "--hft"),
            ("sluice-feed", "--module"),
        ] {
            let chosen = cases(&[name]);
            let names: Vec<_> = chosen.iter().map(|skip| skip.0).collect();
            assert_eq!(names, ["hft-read", name]);
            assert!(chosen[1].1.contains(option), "{}", chosen[1].1);
        }
    }
}
