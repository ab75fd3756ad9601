// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contenders take turns, round by round (A B A B …), so that a machine that slows down slows all of them.

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::interrupt;
use super::pinning::Placement;
use super::progress::Progress;
use super::samples::Spread;
use crate::mechanisms::Waiting;

/// What one contender did in one round.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Every latency, in nanoseconds; none where only the rate was taken.
    pub samples: Vec<u64>,
    pub messages: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
}

/// Something that can be measured again and again.
pub trait Job {
    /// Moves data once and looks at every byte; not timed.
    fn check(&self) -> Result<()>;

    fn measure(&self) -> Result<Measurement>;
}

pub struct Contender {
    pub mechanism: &'static str,
    /// How the table calls it.
    pub label: String,
    pub waiting: Waiting,
    pub processes: usize,
    pub among: Option<Among>,
    pub job: Box<dyn Job>,
}

/// Of an operation that is done again and again: what it is, and how many others there are of what it has to find.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Among {
    pub operation: &'static str,
    /// In the scope.
    pub names: usize,
    pub scopes: usize,
}

/// A contender that cannot take part, and why.
pub struct Skip {
    pub mechanism: &'static str,
    pub reason: String,
}

/// What is quoted of a cell, and with it which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headline {
    /// The median of the samples, in nanoseconds.
    Latency,
    /// Bytes per second.
    Rate,
}

impl Headline {
    fn value(self, measurement: &Measurement) -> Result<f64> {
        match self {
            Self::Latency => {
                let summary = super::samples::summarize(measurement.samples.clone());
                Ok(summary
                    .context("a round had no sample; give it longer with --duration")?
                    .p50 as f64)
            }
            Self::Rate => {
                ensure!(
                    measurement.bytes > 0 && measurement.elapsed_ns > 0,
                    "a round moved nothing; give it longer with --duration"
                );
                Ok(measurement.bytes as f64 * 1e9 / measurement.elapsed_ns as f64)
            }
        }
    }
}

/// Contenders under the same conditions. The first one is what the others are compared with.
pub struct Cell {
    pub suite: &'static str,
    pub title: String,
    pub size: Option<usize>,
    pub placement: Placement,
    pub headline: Headline,
    pub contenders: Vec<Contender>,
    pub skips: Vec<Skip>,
}

/// All rounds of one contender.
pub struct Series {
    pub contender: Contender,
    pub measurements: Vec<Measurement>,
    /// One value per round.
    pub headlines: Vec<f64>,
}

impl Series {
    pub fn spread(&self) -> Spread {
        Spread::of(&self.headlines).expect("a series has at least one round")
    }

    pub fn ratio_to(&self, reference: &Self) -> Option<Spread> {
        Spread::of_ratios(&self.headlines, &reference.headlines)
    }

    /// A spinner set against a sleeper pays with the processor's time: whoever tells the ratio has to tell that.
    pub fn waits_like(&self, reference: &Self) -> bool {
        self.contender.waiting == reference.contender.waiting
    }
}

pub struct Outcome {
    pub suite: &'static str,
    pub title: String,
    pub size: Option<usize>,
    pub placement: Placement,
    pub headline: Headline,
    pub series: Vec<Series>,
    pub skips: Vec<Skip>,
}

impl Cell {
    pub fn steps(&self, rounds: usize) -> u64 {
        (self.contenders.len() * rounds) as u64
    }

    pub fn run(mut self, rounds: usize, progress: &mut Progress) -> Result<Outcome> {
        let mut series = self.checked(progress)?;
        for _ in 0..rounds {
            for one in &mut series {
                let what = format!("{} {}", self.title, one.contender.label);
                progress.say(&what);
                one.measure(self.headline)
                    .with_context(|| format!("measuring {what}"))?;
                progress.step(&what);
            }
        }
        Ok(Outcome {
            suite: self.suite,
            title: self.title,
            size: self.size,
            placement: self.placement,
            headline: self.headline,
            series,
            skips: self.skips,
        })
    }

    /// Correctness first: whoever misdelivers is not measured.
    fn checked(&mut self, progress: &Progress) -> Result<Vec<Series>> {
        let contenders = std::mem::take(&mut self.contenders);
        let check = |contender: Contender| {
            interrupt::check()?;
            let what = format!("{} {}", self.title, contender.label);
            progress.say(&format!("checking {what}"));
            contender
                .job
                .check()
                .with_context(|| format!("checking what {what} delivers"))?;
            Ok(Series {
                contender,
                measurements: Vec::new(),
                headlines: Vec::new(),
            })
        };
        contenders.into_iter().map(check).collect()
    }
}

impl Series {
    fn measure(&mut self, headline: Headline) -> Result<()> {
        interrupt::check()?;
        let measurement = self.contender.job.measure()?;
        self.headlines.push(headline.value(&measurement)?);
        self.measurements.push(measurement);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    struct Noting(&'static str, Rc<RefCell<Vec<&'static str>>>);

    impl Job for Noting {
        fn check(&self) -> Result<()> {
            self.1.borrow_mut().push("check");
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            self.1.borrow_mut().push(self.0);
            Ok(Measurement {
                bytes: 100,
                elapsed_ns: 50,
                ..Measurement::default()
            })
        }
    }

    fn contender(
        mechanism: &'static str,
        waiting: Waiting,
        notes: &Rc<RefCell<Vec<&'static str>>>,
    ) -> Contender {
        let job = Box::new(Noting(mechanism, Rc::clone(notes)));
        Contender {
            mechanism,
            label: mechanism.into(),
            waiting,
            processes: 2,
            among: None,
            job,
        }
    }

    fn run_two(rounds: usize, waiting: Waiting) -> (Outcome, Vec<&'static str>) {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let cell = Cell {
            suite: "throughput",
            title: "test".into(),
            size: None,
            placement: Placement::SameCpu,
            headline: Headline::Rate,
            contenders: vec![
                contender("a", Waiting::Sleep, &notes),
                contender("b", waiting, &notes),
            ],
            skips: Vec::new(),
        };
        let outcome = cell.run(rounds, &mut Progress::new(4)).unwrap();
        let notes = notes.borrow().clone();
        (outcome, notes)
    }

    #[test]
    fn contenders_are_checked_first_and_then_take_turns() {
        let (outcome, notes) = run_two(3, Waiting::Sleep);
        assert_eq!(notes, ["check", "check", "a", "b", "a", "b", "a", "b"]);
        assert_eq!(outcome.series[1].headlines, [2e9; 3]);
    }

    #[test]
    fn like_waits_are_told_from_unlike_ones() {
        let (outcome, _) = run_two(1, Waiting::Spin);
        assert!(!outcome.series[1].waits_like(&outcome.series[0]));
        let (outcome, _) = run_two(1, Waiting::Sleep);
        assert!(outcome.series[1].waits_like(&outcome.series[0]));
        let ratio = outcome.series[1].ratio_to(&outcome.series[0]);
        assert_eq!(ratio.unwrap().median, 1.0);
    }

    #[test]
    fn a_round_without_a_sample_is_an_error() {
        assert!(Headline::Latency.value(&Measurement::default()).is_err());
        assert!(Headline::Rate.value(&Measurement::default()).is_err());
    }
}
