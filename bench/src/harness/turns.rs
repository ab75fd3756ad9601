// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each round measures every subject once, in an order that is drawn anew for each round, so that neither a machine that slows
//! down nor what a subject leaves behind affects one of them more than the others.

use std::ops::Range;

use anyhow::Result;
use fastrand::Rng;
use sluice_testkit::interrupt;

use super::class::{self, Class, NoProbe, Probe};
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
        probe: &dyn Probe,
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
    probe: &dyn Probe,
    progress: &mut Progress,
) -> Result<Vec<Outcome>> {
    let Some(first) = cases.first() else {
        return Ok(Vec::new());
    };
    let probe = match (first.placement, first.metric) {
        // The number of instructions does not depend on the distance.
        (Placement::SameCpu, _) | (_, Metric::Instructions | Metric::Memory) => &NoProbe,
        (Placement::TwoCpus, _) => probe,
    };
    let mut random = orders(first);
    let running = cases.into_iter().map(|case| case.start(rounds, progress));
    let mut running = running.collect::<Result<Vec<_>>>()?;
    let mut now = probe.class()?;
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
        probe: &dyn Probe,
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

    /// Returns recorded values, one per round; None is a failure.
    struct Script {
        name: &'static str,
        notes: Rc<RefCell<Vec<&'static str>>>,
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

    type Notes = Rc<RefCell<Vec<&'static str>>>;

    /// A case of subjects with these values.
    fn case(notes: &Notes, subjects: &[(&'static str, &[Option<f64>])]) -> Case {
        let subject = |&(name, values): &(&'static str, &[Option<f64>])| {
            let job = Script {
                name,
                notes: Rc::clone(notes),
                values: RefCell::new(values.iter().rev().copied().collect()),
            };
            Subject::new(name, name.into(), Waiting::Sleep, job)
        };
        Case {
            subjects: subjects.iter().map(subject).collect(),
            ..Case::new(
                "throughput",
                "test".into(),
                Placement::SameCpu,
                Metric::Rate,
            )
        }
    }

    /// The notes of each round, sorted: the order is random.
    fn sorted_rounds(notes: &[&'static str], size: usize) -> Vec<Vec<&'static str>> {
        let sorted = |round: &[&'static str]| {
            let mut round = round.to_vec();
            round.sort_unstable();
            round
        };
        notes.chunks(size).map(sorted).collect()
    }

    fn run_cases(cases: Vec<Case>, rounds: usize) -> Vec<Outcome> {
        run_together(cases, rounds, &NoProbe, &mut Progress::new(4)).unwrap()
    }

    /// Runs two subjects with these values, and returns the order of their calls.
    fn run_two(rounds: [&[Option<f64>]; 2]) -> (Outcome, Vec<&'static str>) {
        let notes = Notes::default();
        let case = case(&notes, &[("a", rounds[0]), ("b", rounds[1])]);
        let outcome = run_cases(vec![case], rounds[0].len()).remove(0);
        (outcome, notes.take())
    }

    #[test]
    fn subjects_are_checked_first_and_then_measured_in_rounds() {
        let (outcome, notes) = run_two([&[Some(2.0); 3], &[Some(4.0); 3]]);
        assert_eq!(notes[..2], ["check"; 2]);
        assert_eq!(sorted_rounds(&notes[2..], 2), [["a", "b"]; 3]);
        assert_eq!(outcome.series[1].values(), [4.0; 3]);
        let ratios = outcome.series[1].ratios_to(&outcome.series[0]);
        assert_eq!(ratios, [2.0; 3]);
    }

    #[test]
    fn a_subject_that_fails_is_dropped_and_the_others_continue() {
        let (outcome, notes) = run_two([&[Some(1.0); 3], &[Some(1.0), None, Some(1.0)]]);
        assert_eq!(sorted_rounds(&notes[2..6], 2), [["a", "b"]; 2]);
        assert_eq!(notes[6..], ["a"]);
        assert_eq!(outcome.series.len(), 1);
        let skip = &outcome.skipped[0];
        assert!(skip.failed && skip.label == "b" && skip.reason.contains("it broke"));
    }

    #[test]
    fn a_round_measures_all_cases_that_run_together() {
        let notes = Notes::default();
        let values = [Some(1.0); 2];
        let cases = vec![
            case(&notes, &[("a", &values), ("b", &values)]),
            case(&notes, &[("c", &values)]),
        ];
        let outcomes = run_cases(cases, 2);
        let notes = notes.take();
        assert_eq!(notes[..3], ["check"; 3]);
        assert_eq!(sorted_rounds(&notes[3..], 3), [["a", "b", "c"]; 2]);
        assert_eq!(outcomes[1].series[0].rounds[1].number, 1);
    }

    #[test]
    fn rounds_of_the_rarer_class_are_dropped() {
        let (outcome, _) = run_two([&[Some(1.0); 3], &[Some(2.0); 3]]);
        let mut series = outcome.series;
        for (round, class) in
            series[0]
                .rounds
                .iter_mut()
                .zip([Class::SharedCache, Class::Remote, Class::Remote])
        {
            round.class = Some(class);
        }
        series[0].keep_class(Some(Class::SharedCache));
        assert_eq!((series[0].rounds.len(), series[0].dropped), (1, 2));
        assert_eq!(series[0].class(), Some(Class::SharedCache));
        // Without a round of it, those of another one are kept.
        series[0].keep_class(Some(Class::SameCore));
        assert_eq!(series[0].class(), Some(Class::SharedCache));
    }

    #[test]
    fn the_order_differs_from_round_to_round() {
        let notes = Notes::default();
        let values = [Some(1.0); 8];
        let names = ["a", "b", "c", "d", "e"];
        let subjects = names.map(|name| (name, &values[..]));
        run_cases(vec![case(&notes, &subjects)], 8);
        let notes = notes.take();
        let orders: Vec<_> = notes[5..].chunks(5).collect();
        assert!(orders.iter().any(|order| *order != orders[0]), "{orders:?}");
        let first = orders.iter().filter(|order| order[0] == "a").count();
        assert!(first < 8, "{orders:?}");
    }

    #[test]
    fn a_reference_that_fails_is_replaced_by_none() {
        let broken: &[Option<f64>] = &[None; 2];
        let (outcome, _) = run_two([broken, &[Some(1.0); 2]]);
        assert_eq!(outcome.reference.as_deref(), Some("a"));
        assert!(outcome.reference_of(&outcome.series[0]).is_none());
    }

    #[test]
    fn a_named_reference_need_not_be_the_first() {
        let notes = Notes::default();
        let values = [Some(1.0); 2];
        let mut case = case(&notes, &[("a", &values), ("b", &values)]);
        case.reference = Some("b");
        let outcome = run_cases(vec![case], 2).remove(0);
        let reference = outcome.reference_of(&outcome.series[0]).unwrap();
        assert_eq!(reference.subject.mechanism, "b");
        assert!(outcome.reference_of(reference).is_none());
    }
}
