// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each round measures every subject once, in an order that is drawn anew for each round, so that neither a machine that slows
//! down nor what a subject leaves behind affects one of them more than the others.

use std::ops::Range;

use anyhow::Result;
use fastrand::Rng;
use sluice_testkit::interrupt;

use super::class::{self, Class, Probe};
use super::pinning::Placement;
use super::progress::Progress;
use super::rounds::{Case, Metric, Outcome, Round, Series, Skipped, Subject};

impl Case {
    fn start(mut self, rounds: usize, progress: &mut Progress) -> Result<Running> {
        let reference = self.reference_label();
        let series = self.checked(rounds, progress)?;
        Ok(Running {
            case: self,
            reference,
            series,
        })
    }

    /// A mechanism that fails its check is not measured.
    fn checked(&mut self, rounds: usize, progress: &mut Progress) -> Result<Vec<Option<Series>>> {
        let mut series = Vec::new();
        for subject in std::mem::take(&mut self.subjects) {
            interrupt::check()?;
            let what = format!("{} {}", self.title, subject.label);
            progress.set_message(&format!("checking {what}"));
            match subject.job.check() {
                Ok(()) => series.push(Some(Series {
                    subject,
                    rounds: Vec::new(),
                    dropped: 0,
                })),
                Err(error) => {
                    progress.advance(&what, rounds as u64);
                    self.drop_subject(subject, &error)?;
                }
            }
        }
        Ok(series)
    }

    /// Drops a subject; the others continue.
    fn drop_subject(&mut self, subject: Subject, error: &anyhow::Error) -> Result<()> {
        interrupt::check()?;
        self.skipped.push(Skipped {
            mechanism: subject.mechanism,
            label: subject.label,
            reason: format!("{error:#}"),
            failed: true,
        });
        Ok(())
    }
}

/// A case that is being measured.
struct Running {
    case: Case,
    reference: Option<String>,
    /// None: it has failed.
    series: Vec<Option<Series>>,
}

impl Running {
    fn series(&self) -> impl Iterator<Item = &Series> {
        self.series.iter().flatten()
    }

    /// The turn of one subject in the first one of these rounds. A failure drops it from all of them.
    fn take_turn(
        &mut self,
        subject: usize,
        rounds: Range<usize>,
        probe: Probe,
        now: &mut Option<Class>,
        progress: &mut Progress,
    ) -> Result<()> {
        let Some(mut one) = self.series[subject].take() else {
            return Ok(());
        };
        let what = format!("{} {}", self.case.title, one.subject.label);
        progress.set_message(&what);
        match one.measure_round(rounds.start, self.case.metric, probe, now) {
            Ok(()) => {
                progress.advance(&what, 1);
                self.series[subject] = Some(one);
                Ok(())
            }
            Err(error) => {
                progress.advance(&what, rounds.len() as u64);
                self.case.drop_subject(one.subject, &error)
            }
        }
    }

    /// Prefers rounds of this class.
    fn outcome(self, class: Option<Class>) -> Outcome {
        let case = self.case;
        let mut series: Vec<_> = self.series.into_iter().flatten().collect();
        series.iter_mut().for_each(|one| one.keep_class(class));
        Outcome {
            suite: case.suite,
            title: case.title,
            size: case.size,
            placement: case.placement,
            metric: case.metric,
            reference: self.reference,
            class,
            series,
            skipped: case.skipped,
        }
    }
}

/// Case and subject of each turn of a round, which are shuffled for each.
fn turns(running: &[Running]) -> Vec<(usize, usize)> {
    let of_case = |(case, one): (usize, &Running)| {
        let subjects = 0..one.series.len();
        subjects.map(move |subject| (case, subject))
    };
    running.iter().enumerate().flat_map(of_case).collect()
}

/// The orders of the turns: the same in each run, so that runs can be compared, but others in each suite and case, so that a
/// mechanism does not always follow the same one.
fn orders(first: &Case) -> Rng {
    let name = first.suite.bytes().chain(first.title.bytes());
    Rng::with_seed(name.fold(1, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    }))
}

/// Measures cases of one placement. Each round measures all of them, so that values of different cases can also be compared
/// within rounds.
pub fn run_together(
    cases: Vec<Case>,
    rounds: usize,
    probe: Probe,
    progress: &mut Progress,
) -> Result<Vec<Outcome>> {
    let Some(first) = cases.first() else {
        return Ok(Vec::new());
    };
    let probe: Probe = match (first.placement, first.metric) {
        // The number of instructions does not depend on the distance.
        (Placement::SameCpu, _) | (_, Metric::Instructions | Metric::Memory) => &|| Ok(None),
        (Placement::TwoCpus, _) => probe,
    };
    let mut random = orders(first);
    let running = cases.into_iter().map(|case| case.start(rounds, progress));
    let mut running = running.collect::<Result<Vec<_>>>()?;
    let mut now = probe()?;
    let mut turns = turns(&running);
    for round in 0..rounds {
        random.shuffle(&mut turns);
        for &(case, subject) in &turns {
            running[case].take_turn(subject, round..rounds, probe, &mut now, progress)?;
        }
    }
    let series = running.iter().flat_map(|one| one.series());
    let rounds = series.flat_map(|one| &one.rounds);
    let classes: Vec<_> = rounds.filter_map(|round| round.class).collect();
    let class = class::most_common(classes.into_iter());
    let outcomes = running.into_iter().map(|one| one.outcome(class));
    Ok(outcomes.collect())
}

impl Series {
    fn measure_round(
        &mut self,
        round: usize,
        metric: Metric,
        probe: Probe,
        now: &mut Option<Class>,
    ) -> Result<()> {
        let bracketed = class::bracket(probe, now, || self.subject.job.measure())?;
        self.rounds.push(Round::new(round, metric, bracketed)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::Context;

    use super::*;
    use crate::harness::rounds::tests::measurement;
    use crate::harness::rounds::{Job, Measurement};
    use crate::harness::waiting::Waiting;

    type Notes = Rc<RefCell<Vec<&'static str>>>;

    /// Returns recorded values, one per round; None is a failure.
    struct Script {
        name: &'static str,
        notes: Notes,
        values: RefCell<Vec<Option<f64>>>,
    }

    impl Job for Script {
        fn check(&self) -> Result<()> {
            self.notes.borrow_mut().push("check");
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            self.notes.borrow_mut().push(self.name);
            let next = self.values.borrow_mut().pop().flatten();
            Ok(measurement(next.context("it broke")?))
        }
    }

    /// A case of subjects with these values.
    fn case(notes: &Notes, subjects: &[(&'static str, &[Option<f64>])]) -> Case {
        let mut case = Case::new("rtt", "test".into(), Placement::SameCpu, Metric::Rate);
        case.subjects.extend(subjects.iter().map(|&(name, values)| {
            let job = Script {
                name,
                notes: Rc::clone(notes),
                values: RefCell::new(values.iter().rev().copied().collect()),
            };
            Subject::new(name, name.into(), Waiting::Sleep, job)
        }));
        case
    }

    /// The outcomes, and the calls after the checks.
    fn run(notes: Notes, cases: Vec<Case>, rounds: usize) -> (Vec<Outcome>, Vec<&'static str>) {
        let checks: usize = cases.iter().map(|case| case.subjects.len()).sum();
        let progress = &mut Progress::new(4);
        let outcomes = run_together(cases, rounds, &|| Ok(None), progress).unwrap();
        let mut calls = notes.take();
        assert!(calls.drain(..checks).all(|call| call == "check"));
        (outcomes, calls)
    }

    /// Two subjects with these values.
    fn run_two(rounds: [&[Option<f64>]; 2]) -> (Outcome, Vec<&'static str>) {
        let notes = Notes::default();
        let case = case(&notes, &[("a", rounds[0]), ("b", rounds[1])]);
        let (mut outcomes, calls) = run(notes, vec![case], rounds[0].len());
        (outcomes.remove(0), calls)
    }

    #[test]
    fn a_round_measures_all_cases_that_run_together_each_time_in_another_order() {
        let notes = Notes::default();
        let values = [Some(1.0); 8];
        let cases = vec![
            case(&notes, &["a", "b", "c"].map(|name| (name, &values[..]))),
            case(&notes, &["d", "e"].map(|name| (name, &values[..]))),
        ];
        let (outcomes, calls) = run(notes, cases, 8);
        let orders: Vec<_> = calls.chunks(5).collect();
        for order in &orders {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, ["a", "b", "c", "d", "e"]);
        }
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
        assert!(orders.iter().any(|order| order[0] != "a"), "{orders:?}");
        assert_eq!(outcomes[1].series[0].rounds[1].number, 1);
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let (outcome, _) = run_two([&[Some(2.0), Some(3.0)], &[Some(4.0), Some(9.0)]]);
        let ratios = outcome.series[1].ratios_to(&outcome.series[0]).unwrap();
        assert_eq!(ratios.values, [(0, 2.0), (1, 3.0)]);
    }

    #[test]
    fn a_subject_that_fails_is_dropped_and_the_others_continue() {
        let (outcome, calls) = run_two([&[Some(1.0); 3], &[Some(1.0), None, Some(1.0)]]);
        assert_eq!(calls[4..], ["a"]);
        assert_eq!(outcome.series.len(), 1);
        let skip = &outcome.skipped[0];
        assert!(skip.failed && skip.label == "b" && skip.reason.contains("it broke"));
    }

    #[test]
    fn rounds_of_the_rarer_class_are_dropped() {
        let (outcome, _) = run_two([&[Some(1.0); 3], &[Some(2.0); 3]]);
        let mut series = outcome.series;
        let classes = [Class::SharedCache, Class::Remote, Class::Remote];
        for (round, class) in series[0].rounds.iter_mut().zip(classes) {
            round.class = Some(class);
        }
        series[0].keep_class(Some(Class::SharedCache));
        assert_eq!((series[0].rounds.len(), series[0].dropped), (1, 2));
        // Without a round of it, those of another one are kept.
        series[0].keep_class(Some(Class::SameCore));
        assert_eq!(series[0].class(), Some(Class::SharedCache));
    }

    #[test]
    fn the_reference_is_the_first_or_a_named_one_and_none_if_it_fails() {
        let (outcome, _) = run_two([&[None; 2], &[Some(1.0); 2]]);
        assert_eq!(outcome.reference.as_deref(), Some("a"));
        assert!(outcome.reference_of(&outcome.series[0]).is_none());

        let notes = Notes::default();
        let values = [Some(1.0); 2];
        let mut case = case(&notes, &[("a", &values), ("b", &values)]);
        case.reference = Some("b");
        let outcome = run(notes, vec![case], 2).0.remove(0);
        let reference = outcome.reference_of(&outcome.series[0]).unwrap();
        assert_eq!(reference.subject.mechanism, "b");
        assert!(outcome.reference_of(reference).is_none());
    }
}
