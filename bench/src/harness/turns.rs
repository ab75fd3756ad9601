// SPDX-License-Identifier: MIT OR Apache-2.0
//! Each round measures every subject once, in an order that is drawn anew for each round, so that neither a machine that slows
//! down nor what a subject leaves behind affects one of them more than the others.

use anyhow::{Error, Result};
use fastrand::Rng;
use sluice_testkit::interrupt;

use super::class::{self, Class, Probe};
use super::pinning::Placement;
use super::progress::Progress;
use super::rounds::{Case, Metric, Skipped, Subject};
use super::rows::{self, Row};
use super::samples::Samples;

pub struct Series {
    pub case: usize,
    pub is_reference: bool,
    pub subject: Subject,
    pub rounds: Vec<Round>,
    /// It is not measured any more.
    pub failure: Option<Skipped>,
}

pub struct Round {
    pub number: usize,
    pub value: f64,
    pub samples: Samples,
    pub figures: Vec<(&'static str, f64)>,
    pub class: Option<Class>,
    pub is_noisy: bool,
}

impl Series {
    /// A failure of one subject; the others continue.
    fn fail(&mut self, error: &Error) -> Result<()> {
        interrupt::check()?;
        self.failure = Some(Skipped {
            reason: format!("{error:#}"),
            failed: true,
            label: self.subject.label.clone(),
            ..Skipped::unavailable(self.subject.mechanism, "")
        });
        Ok(())
    }

    fn measure_round(
        &mut self,
        number: usize,
        metric: Metric,
        probe: Probe,
        now: &mut Option<Class>,
    ) -> Result<()> {
        let (measurement, class, is_noisy) =
            class::bracket(probe, now, || self.subject.job.measure())?;
        let samples = measurement.samples.iter().copied().collect();
        self.rounds.push(Round {
            number,
            value: metric.value(&measurement, &samples)?,
            figures: rows::figures(&measurement, &samples),
            samples,
            class,
            is_noisy,
        });
        Ok(())
    }
}

/// The orders of the turns: the same in each run, so that runs can be compared, but different in each suite and case.
fn orders(first: &Case) -> Rng {
    let name = first.suite.bytes().chain(first.title.bytes());
    Rng::with_seed(name.fold(1, |seed, byte| {
        seed.wrapping_mul(31).wrapping_add(byte.into())
    }))
}

/// The subjects of the cases. One that fails its check is not measured.
fn checked(cases: &mut [Case], rounds: usize, progress: &mut Progress) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (number, case) in cases.iter_mut().enumerate() {
        let reference = case.reference_label();
        for subject in std::mem::take(&mut case.subjects) {
            interrupt::check()?;
            let what = format!("{} {}", case.title, subject.label);
            progress.set_message(&format!("checking {what}"));
            let outcome = subject.job.check();
            let mut series = Series {
                case: number,
                is_reference: reference.as_ref() == Some(&subject.label),
                subject,
                rounds: Vec::new(),
                failure: None,
            };
            if let Err(error) = outcome {
                progress.advance(&what, rounds as u64);
                series.fail(&error)?;
            }
            all.push(series);
        }
    }
    Ok(all)
}

/// Measures cases of one placement. Each round measures all of them, so that cases can be compared within rounds, too.
pub fn run_together(
    mut cases: Vec<Case>,
    rounds: usize,
    probe: Probe,
    progress: &mut Progress,
) -> Result<Vec<Row>> {
    let Some(first) = cases.first() else {
        return Ok(Vec::new());
    };
    let probe: Probe = match (first.placement, first.metric) {
        // The number of instructions does not depend on the distance.
        (Placement::SameCpu, _) | (_, Metric::Instructions | Metric::Memory) => &|| Ok(None),
        (Placement::TwoCpus, _) => probe,
    };
    let mut random = orders(first);
    let mut all = checked(&mut cases, rounds, progress)?;
    let mut now = probe()?;
    let mut turns: Vec<usize> = (0..all.len()).collect();
    for round in 0..rounds {
        turns.retain(|&turn| all[turn].failure.is_none());
        random.shuffle(&mut turns);
        for &turn in &turns {
            let series = &mut all[turn];
            let case = &cases[series.case];
            let what = format!("{} {}", case.title, series.subject.label);
            progress.set_message(&what);
            match series.measure_round(round, case.metric, probe, &mut now) {
                Ok(()) => progress.advance(&what, 1),
                Err(error) => {
                    progress.advance(&what, (rounds - round) as u64);
                    series.fail(&error)?;
                }
            }
        }
    }
    let measured = all.iter().filter(|series| series.failure.is_none());
    let rounds = measured.flat_map(|series| &series.rounds);
    let class = class::most_common(rounds.filter_map(|round| round.class));
    Ok(rows::rows(&cases, &all, class))
}

#[cfg(test)]
pub mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use anyhow::Context;

    use super::*;
    use crate::harness::figures::LOST;
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
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            self.notes.borrow_mut().push(self.name);
            let next = self.values.borrow_mut().pop().flatten();
            Ok(measurement(next.context("it broke")?))
        }
    }

    fn case(notes: &Notes, metric: Metric, subjects: &[(&'static str, &[Option<f64>])]) -> Case {
        let title = "1 B same-cpu".into();
        let subject = |&(name, values): &(&'static str, &[_])| {
            let job = Script {
                name,
                notes: Rc::clone(notes),
                values: RefCell::new(values.iter().rev().copied().collect()),
            };
            Subject::new(name, name.into(), Waiting::Sleep, job)
        };
        Case {
            subjects: subjects.iter().map(subject).collect(),
            ..Case::new("rtt", title, Placement::SameCpu, metric)
        }
    }

    fn run(cases: Vec<Case>, rounds: usize) -> Vec<Row> {
        run_together(cases, rounds, &|| Ok(None), &mut Progress::new(4)).unwrap()
    }

    /// The rows of pipe(2) and sluice-pipe, both sleeping, and of a skipped mechanism.
    pub fn rows_of(metric: Metric, theirs: &[f64], ours: &[f64]) -> Vec<Row> {
        let values = [theirs, ours].map(|values| values.iter().copied().map(Some).collect());
        let [theirs, ours]: [Vec<_>; 2] = values;
        let both = [("pipe", &theirs[..]), ("sluice-pipe", &ours)];
        let mut case = case(&Notes::default(), metric, &both);
        case.skipped = vec![Skipped::unavailable("cacheline", "spins")];
        run(vec![case], theirs.len())
    }

    #[test]
    fn a_round_measures_all_cases_that_run_together_each_time_in_another_order() {
        let notes = Notes::default();
        let of = |names: &[&'static str]| -> Case {
            let subjects: Vec<_> = names
                .iter()
                .map(|&name| (name, &[Some(1.0); 8][..]))
                .collect();
            case(&notes, Metric::Rate, &subjects)
        };
        run(vec![of(&["a", "b", "c"]), of(&["d", "e"])], 8);
        let calls = notes.take();
        let orders: Vec<_> = calls.chunks(5).collect();
        for order in &orders {
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, ["a", "b", "c", "d", "e"]);
        }
        assert!(orders.iter().any(|order| order[0] != "a"), "{orders:?}");
    }

    #[test]
    fn a_subject_that_fails_is_dropped_and_no_reference_of_the_others() {
        let (all, some): (&[_], &[_]) = (&[Some(4.0); 3], &[Some(4.0), None]);
        for (reference, values, rounds, expected) in [
            (None, [all, all], 6, [None, Some("a")]),
            (Some("b"), [all, all], 6, [Some("b"), None]),
            (None, [some, all], 5, [None, None]),
        ] {
            let (notes, subjects) = (Notes::default(), [("a", values[0]), ("b", values[1])]);
            let case = Case {
                reference,
                ..case(&notes, Metric::Rate, &subjects)
            };
            let rows = run(vec![case], 3);
            assert_eq!(notes.borrow().len(), rounds);
            let row = |label| rows.iter().find(|row| row.label == label).unwrap();
            let to = |label| Some(row(label).ratio.as_ref()?.to.as_str());
            assert_eq!(["a", "b"].map(to), expected);
            let (failed, reason) = (rounds < 6, row("a").skipped.as_deref());
            assert!(row("a").failed == failed && row("a").is_measured() != failed);
            assert_eq!(reason, failed.then_some("it broke"));
        }
    }

    #[test]
    fn rounds_of_the_rarer_class_are_dropped_and_different_classes_have_no_ratio() {
        use Class::{Far, Near};
        let subjects = ["pipe", "a", "b"].map(|name| (name, &[][..]));
        let mut case = case(&Notes::default(), Metric::Latency, &subjects);
        case.subjects[1].waiting = Waiting::Spin;
        let classes = [[Near, Far, Near], [Near, Near, Far], [Far; 3]];
        let subjects = std::mem::take(&mut case.subjects).into_iter();
        let round = |(number, class)| Round {
            number,
            value: 1.0,
            samples: [1].into_iter().collect(),
            figures: vec![(LOST, number as f64)],
            class: Some(class),
            is_noisy: number == 0,
        };
        let series = subjects.zip(classes).map(|(subject, classes)| Series {
            case: 0,
            is_reference: subject.mechanism == "pipe",
            subject,
            rounds: classes.into_iter().enumerate().map(round).collect(),
            failure: None,
        });
        let series: Vec<Series> = series.collect();
        let rows = rows::rows(&[case], &series, Some(Near));
        let kept = rows.iter().map(|row| (row.rounds(), row.dropped_rounds));
        assert!(kept.eq([(2, Some(1)), (2, Some(1)), (3, None)]));
        let ratio = rows[1].ratio.as_ref().unwrap();
        assert!(ratio.across_waiting && ratio.values.values == [(0, 1.0)]);
        assert!(rows[2].other_class && rows[2].ratio.is_none());
        assert_eq!(rows[0].figures.get(LOST).map(|lost| lost.sum()), Some(2.0));
        assert_eq!(rows[0].noisy_rounds, Some(1));
    }
}
