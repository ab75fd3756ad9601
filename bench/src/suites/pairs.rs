// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs that stream at the same time, each over a channel and on two processors of its own: what they share is the kernel, the
//! memory and its caches.

use std::rc::Rc;

use anyhow::{Context, Result};
use sluice_testkit::units;
use sluice_testkit::workers::Pair;

use super::Plan;
use super::plan::{Sizes, subject};
use super::setup::{Confinement, Setup};
use super::stream::{Length, Stream, Streamed};
use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::{Task, Workload};

const SIZES: Sizes = Sizes {
    quick: &[64],
    standard: &[64],
    full: &[64, 4096],
    third_party: &[64],
};
/// Fewer would be the suite throughput.
const LEAST: usize = 2;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let processors = pinning::pairs()?;
    let mut cases = Vec::new();
    for size in plan.sizes_or(&SIZES) {
        match processors.len() < LEAST {
            true => cases.push(too_few(plan, size)),
            false => cases.extend(of_size(plan, size, &processors)?),
        }
    }
    Ok(cases)
}

fn too_few(plan: &Plan, size: usize) -> Case {
    let reason = "two pairs need four processors";
    let conditions = (size, Placement::TwoCpus);
    plan.skipped_case("pairs", units::size(size), Metric::Rate, conditions, reason)
}

/// A case for each mechanism, which compares 1, 2, 4, and at last all pairs.
fn of_size(plan: &Plan, size: usize, processors: &[[usize; 2]]) -> Result<Vec<Case>> {
    let task = Task {
        size,
        placement: Placement::TwoCpus,
        workload: Workload::Pairs,
    };
    let (setups, mut skipped) = plan.setups(&task)?;
    let case = |setup: Setup| Case {
        size: Some(size),
        subjects: counts(processors.len())
            .into_iter()
            .map(|count| several(plan, &setup, &processors[..count]))
            .collect(),
        ..Case::new(
            "pairs",
            format!("{} {}", setup.mechanism.label, units::size(size)),
            Placement::TwoCpus,
            Metric::Rate,
        )
    };
    let mut cases: Vec<Case> = setups.into_iter().map(case).collect();
    if let Some(case) = cases.first_mut() {
        case.skipped.append(&mut skipped);
    }
    Ok(cases)
}

/// Powers of two, and the most.
fn counts(most: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = (0..usize::BITS)
        .map(|bit| 1 << bit)
        .take_while(|&count| count < most)
        .collect();
    counts.push(most);
    counts
}

fn several(plan: &Plan, setup: &Setup, processors: &[[usize; 2]]) -> Subject {
    let stream = |&cpus: &[usize; 2]| {
        let confinement = Confinement {
            cpus,
            ..setup.confinement.clone()
        };
        let setup = Setup {
            confinement,
            ..setup.clone()
        };
        Stream::new(setup, Length::For(plan.duration))
    };
    let streams = processors.iter().map(stream).collect();
    Subject {
        label: units::counted(processors.len(), "pair"),
        processes: 2 * processors.len(),
        ..subject(&Rc::clone(&setup.mechanism), Pairs(streams))
    }
}

struct Pairs(Vec<Stream>);

impl Job for Pairs {
    fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(Stream::check)
    }

    /// From the first message of the first pair to the last one of the last pair.
    fn measure(&self) -> Result<Measurement> {
        let started = self.0.iter().map(Stream::start);
        let mut pairs = started.collect::<Result<Vec<_>>>()?;
        pairs.iter_mut().try_for_each(Pair::go)?;
        let finished = self.0.iter().zip(pairs);
        let finished = finished.map(|(stream, pair)| stream.finish(pair));
        let all = finished.collect::<Result<Vec<Streamed>>>()?;
        let begin = all.iter().map(|one| one.begin).min();
        let end = all.iter().map(|one| one.end).max();
        let messages = all.iter().map(|one| one.messages).sum();
        let size = self.0.first().context("there are no pairs")?.setup.size;
        Ok(Measurement {
            messages,
            bytes: messages * size as u64,
            elapsed_ns: end.unwrap_or(0).saturating_sub(begin.unwrap_or(0)),
            cpu_ns: all.iter().map(|one| one.cpu_ns).sum(),
            ..Measurement::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    #[test]
    fn the_sum_of_all_pairs_is_measured() {
        let _serial = serial();
        let stream = || {
            let length = Length::For(Duration::from_millis(20));
            Stream::new(setup(pipe::mechanism(), 64), length)
        };
        let job = Pairs(vec![stream(), stream(), stream()]);
        job.check().unwrap();
        let measured = job.measure().unwrap();
        assert_eq!(measured.bytes, measured.messages * 64);
        assert!(measured.elapsed_ns > 0 && measured.messages > 0);
    }

    #[test]
    fn all_processors_are_used_in_the_end() {
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn each_mechanism_has_a_case() {
        if Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let cases = of_size(&plan(), 64, &[[0, 1], [2, 3]]).unwrap();
        let labels = cases[0].subjects.iter().map(|one| one.label.as_str());
        assert_eq!(labels.collect::<Vec<_>>(), ["1 pair", "2 pairs"]);
        assert_eq!(cases[0].title, "pipe 64 B");
    }

    #[test]
    fn too_few_processors_are_the_reason_that_is_shown() {
        let case = too_few(&plan(), 64);
        assert!(case.skipped[0].reason.contains("four processors"));
    }
}
