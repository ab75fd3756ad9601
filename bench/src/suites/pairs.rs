// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pairs that stream at the same time, each over a channel and on two processors of its own: what they share is the kernel, the
//! memory and its caches.

use std::mem;
use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::units;

use super::plan::{Plan, Sizes, subject};
use super::setup::Setup;
use super::stream::{Length, Stream, measure_together};
use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::{Task, Workload};

const SIZES: Sizes = [&[64], &[64], &[64, 4096], &[64]];
/// Fewer would be the suite throughput.
const LEAST: usize = 2;

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    cases_with(plan, &pinning::pairs()?)
}

/// A case for each mechanism, which compares 1, 2, 4, and at last all pairs.
fn cases_with(plan: &Plan, processors: &[[usize; 2]]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for size in plan.sizes_or(&SIZES) {
        let task = Task {
            size,
            placement: Placement::TwoCpus,
            workload: Workload::Pairs,
        };
        let bytes = units::size(size);
        if processors.len() < LEAST {
            let reason = "two pairs need four processors";
            cases.push(plan.skipped_case("pairs", bytes, Metric::Rate, task, reason));
            continue;
        }
        let (setups, mut skipped) = plan.setups(&task)?;
        for setup in setups {
            let title = format!("{} {bytes}", setup.mechanism.label);
            let several = |count| several(plan, &setup, &processors[..count]);
            cases.push(Case {
                size: Some(size),
                subjects: counts(processors.len()).into_iter().map(several).collect(),
                skipped: mem::take(&mut skipped),
                ..Case::new("pairs", title, task.placement, Metric::Rate)
            });
        }
    }
    Ok(cases)
}

/// Powers of two, and the most.
fn counts(most: usize) -> Vec<usize> {
    let powers = (0..usize::BITS).map(|bit| 1 << bit);
    powers
        .take_while(|&count| count < most)
        .chain([most])
        .collect()
}

fn several(plan: &Plan, setup: &Setup, processors: &[[usize; 2]]) -> Subject {
    let stream = |&cpus: &[usize; 2]| {
        let mut setup = setup.clone();
        setup.confinement.cpus = cpus;
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

    fn measure(&self) -> Result<Measurement> {
        measure_together(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::plan::tests::plan;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    #[test]
    fn the_sum_of_all_pairs_is_measured() {
        let _serial = serial();
        let stream = || Stream::new(setup(pipe::mechanism(), 64), Length::Messages(1000));
        let job = Pairs(vec![stream(), stream(), stream()]);
        job.check().unwrap();
        let measured = job.measure().unwrap();
        assert_eq!((measured.messages, measured.bytes), (3000, 3000 * 64));
        assert!(measured.elapsed_ns > 0);
    }

    #[test]
    fn all_processors_are_used_in_the_end() {
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn each_mechanism_has_a_case_where_there_are_enough_processors() {
        let too_few = cases_with(&plan(), &[[0, 1]]).unwrap();
        assert!(too_few[0].skipped[0].reason.contains("four processors"));
        if Placement::TwoCpus.cpus().unwrap().is_some() {
            let cases = cases_with(&plan(), &[[0, 1], [2, 3]]).unwrap();
            let labels = cases[0].subjects.iter().map(|one| one.label.as_str());
            assert_eq!(labels.collect::<Vec<_>>(), ["1 pair", "2 pairs"]);
            assert_eq!(cases[0].title, "pipe 64 B");
        }
    }
}
