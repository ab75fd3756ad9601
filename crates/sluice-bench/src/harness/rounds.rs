// SPDX-License-Identifier: MIT OR Apache-2.0
//! Contenders take turns, round by round (A B A B …), so that a machine that slows down slows all of them.

use anyhow::{Context, Result, ensure};

use super::class::{self, Bracketed, Class, NoProbe, Probe};
use super::interrupt;
use super::pinning::Placement;
use super::progress::Progress;
use super::samples::Spread;
use crate::mechanisms::{Mechanism, Waiting};

/// What one contender did in one round.
#[derive(Clone, Debug, Default)]
pub struct Measurement {
    /// Every latency, in nanoseconds; none where only the rate was taken.
    pub samples: Vec<u64>,
    pub messages: u64,
    pub bytes: u64,
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
    /// Bytes that came to another pair than they were meant for; None where there is no other.
    pub misdelivered: Option<u64>,
    /// Of several writers into one channel: how many messages the busiest wrote for each message of the least busy.
    pub imbalance: Option<f64>,
    /// Of all processes, where they were counted.
    pub context_switches: Option<u64>,
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
    /// How many messages are handed over at once, where that is compared.
    pub batch: Option<usize>,
    /// Those that use one channel, where there are more than a sender and a receiver.
    pub sharing: Option<Sharing>,
    pub job: Box<dyn Job>,
}

impl Contender {
    /// A sender and a receiver.
    pub fn pair(mechanism: &dyn Mechanism, job: Box<dyn Job>) -> Self {
        Self {
            mechanism: mechanism.name(),
            label: mechanism.label(),
            waiting: mechanism.waiting(),
            processes: 2,
            among: None,
            batch: None,
            sharing: None,
            job,
        }
    }
}

/// Processes at one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    pub writers: usize,
    pub readers: usize,
}

/// Of an operation that is done again and again: what it is, and how many others there are of what it has to find.
#[derive(Clone, Copy, Debug)]
pub struct Among {
    pub operation: &'static str,
    /// In the scope.
    pub names: usize,
    pub scopes: usize,
}

/// A contender that does not take part.
#[derive(Clone)]
pub struct Skip {
    pub mechanism: &'static str,
    pub label: String,
    pub reason: String,
    /// It was to take part and could not: that is a fault, not a circumstance.
    pub failed: bool,
}

impl Skip {
    /// It cannot be had here.
    pub fn circumstance(mechanism: &'static str, reason: impl Into<String>) -> Self {
        Self {
            mechanism,
            label: mechanism.into(),
            reason: reason.into(),
            failed: false,
        }
    }
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

/// One round of one contender.
pub struct Turn {
    pub round: usize,
    pub measurement: Measurement,
    /// The quoted figure.
    pub headline: f64,
    pub class: Option<Class>,
    pub noisy: bool,
}

/// The rounds of one contender.
pub struct Series {
    pub contender: Contender,
    pub turns: Vec<Turn>,
}

impl Series {
    pub fn headlines(&self) -> Vec<f64> {
        self.turns.iter().map(|turn| turn.headline).collect()
    }

    pub fn measurements(&self) -> impl Iterator<Item = &Measurement> {
        self.turns.iter().map(|turn| &turn.measurement)
    }

    pub fn class(&self) -> Option<Class> {
        class::most_common(self.turns.iter().filter_map(|turn| turn.class))
    }

    /// Rounds whose conditions would not stay what they were.
    pub fn noisy_rounds(&self) -> usize {
        self.turns.iter().filter(|turn| turn.noisy).count()
    }

    pub fn spread(&self) -> Spread {
        Spread::of(&self.headlines()).expect("a series has at least one round")
    }

    /// Within each round that both have, so that what disturbs both cancels out; None when they are of different classes.
    pub fn ratio_to(&self, reference: &Self) -> Option<Spread> {
        let ratio = |turn: &Turn| {
            let same = |other: &&Turn| other.round == turn.round && other.class == turn.class;
            let other = reference.turns.iter().find(same)?;
            Some(turn.headline / other.headline)
        };
        let ratios: Vec<f64> = self.turns.iter().filter_map(ratio).collect();
        Spread::of(&ratios)
    }

    /// A spinner set against a sleeper pays with the processor's time: whoever tells the ratio has to tell that.
    pub fn waits_like(&self, reference: &Self) -> bool {
        self.contender.waiting == reference.contender.waiting
    }

    /// Leaves the turns of this class, or if there is none those of the most common one.
    fn keep(&mut self, class: Option<Class>) {
        let has_some = self.turns.iter().any(|turn| turn.class == class);
        let class = if has_some { class } else { self.class() };
        self.turns.retain(|turn| turn.class == class);
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

impl Outcome {
    /// What this one is compared with: the first, which is not compared with itself.
    pub fn reference_of(&self, series: &Series) -> Option<&Series> {
        let first = self.series.first();
        first.filter(|reference| !std::ptr::eq(*reference, series))
    }
}

impl Cell {
    pub fn steps(&self, rounds: usize) -> u64 {
        (self.contenders.len() * rounds) as u64
    }

    pub fn run(
        mut self,
        rounds: usize,
        probe: &dyn Probe,
        progress: &mut Progress,
    ) -> Result<Outcome> {
        let probe = match self.placement {
            Placement::TwoCpus => probe,
            Placement::SameCpu => &NoProbe,
        };
        let mut series = self.checked(rounds, progress)?;
        let mut now = probe.class()?;
        for round in 0..rounds {
            let mut staying = Vec::new();
            for mut one in series {
                let what = format!("{} {}", self.title, one.contender.label);
                progress.say(&what);
                match one.take_turn(round, self.headline, probe, &mut now) {
                    Ok(()) => {
                        progress.step(&what, 1);
                        staying.push(one);
                    }
                    Err(error) => {
                        progress.step(&what, (rounds - round) as u64);
                        self.give_up(one.contender, &error)?;
                    }
                }
            }
            series = staying;
        }
        Ok(self.outcome(series))
    }

    /// Correctness first: whoever misdelivers is not measured.
    fn checked(&mut self, rounds: usize, progress: &mut Progress) -> Result<Vec<Series>> {
        let mut series = Vec::new();
        for contender in std::mem::take(&mut self.contenders) {
            interrupt::check()?;
            let what = format!("{} {}", self.title, contender.label);
            progress.say(&format!("checking {what}"));
            match contender.job.check() {
                Ok(()) => series.push(Series {
                    contender,
                    turns: Vec::new(),
                }),
                Err(error) => {
                    progress.step(&what, rounds as u64);
                    self.give_up(contender, &error)?;
                }
            }
        }
        Ok(series)
    }

    /// The others go on without it.
    fn give_up(&mut self, contender: Contender, error: &anyhow::Error) -> Result<()> {
        interrupt::check()?;
        self.skips.push(Skip {
            mechanism: contender.mechanism,
            label: contender.label,
            reason: format!("{error:#}"),
            failed: true,
        });
        Ok(())
    }

    fn outcome(self, mut series: Vec<Series>) -> Outcome {
        let turns = series.iter().flat_map(|one| &one.turns);
        let class = class::most_common(turns.filter_map(|turn| turn.class));
        series.iter_mut().for_each(|one| one.keep(class));
        Outcome {
            suite: self.suite,
            title: self.title,
            size: self.size,
            placement: self.placement,
            headline: self.headline,
            series,
            skips: self.skips,
        }
    }
}

impl Series {
    fn take_turn(
        &mut self,
        round: usize,
        headline: Headline,
        probe: &dyn Probe,
        now: &mut Option<Class>,
    ) -> Result<()> {
        let Bracketed {
            value: measurement,
            class,
            noisy,
        } = class::bracket(probe, now, || self.contender.job.measure())?;
        self.turns.push(Turn {
            round,
            headline: headline.value(&measurement)?,
            measurement,
            class,
            noisy,
        });
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Measures what it is told to, once a round; None fails.
    struct Script {
        name: &'static str,
        notes: Rc<RefCell<Vec<&'static str>>>,
        headlines: RefCell<Vec<Option<f64>>>,
    }

    impl Job for Script {
        fn check(&self) -> Result<()> {
            self.notes.borrow_mut().push("check");
            Ok(())
        }

        fn measure(&self) -> Result<Measurement> {
            self.notes.borrow_mut().push(self.name);
            let next = self.headlines.borrow_mut().pop().flatten();
            Ok(measurement(next.context("it broke")?))
        }
    }

    /// One whose headline is this, as a latency and as a rate.
    fn measurement(headline: f64) -> Measurement {
        Measurement {
            samples: vec![headline as u64],
            messages: 10,
            bytes: headline as u64,
            elapsed_ns: 1_000_000_000,
            cpu_ns: 500,
            ..Measurement::default()
        }
    }

    fn contender(mechanism: &'static str, waiting: Waiting, job: Box<dyn Job>) -> Contender {
        Contender {
            mechanism,
            label: mechanism.into(),
            waiting,
            processes: 2,
            among: None,
            batch: None,
            sharing: None,
            job,
        }
    }

    fn idle(mechanism: &'static str) -> Box<dyn Job> {
        Box::new(Script {
            name: mechanism,
            notes: Rc::default(),
            headlines: RefCell::default(),
        })
    }

    /// As if it had been measured.
    pub fn series(mechanism: &'static str, waiting: Waiting, headlines: &[f64]) -> Series {
        let turn = |(round, &headline): (usize, &f64)| Turn {
            round,
            measurement: measurement(headline),
            headline,
            class: None,
            noisy: false,
        };
        Series {
            contender: contender(mechanism, waiting, idle(mechanism)),
            turns: headlines.iter().enumerate().map(turn).collect(),
        }
    }

    /// pipe(2) and ours, who both sleep, and one who cannot take part.
    pub fn outcome(headline: Headline, theirs: &[f64], ours: &[f64]) -> Outcome {
        Outcome {
            suite: "rtt",
            title: "1 B same-cpu".into(),
            size: Some(1),
            placement: Placement::SameCpu,
            headline,
            series: vec![
                series("pipe", Waiting::Sleep, theirs),
                series("sluice-pipe", Waiting::Sleep, ours),
            ],
            skips: vec![Skip::circumstance("cacheline", "spins")],
        }
    }

    /// Runs two that measure these, round by round, and notes who did what.
    fn run_two(rounds: [&[Option<f64>]; 2]) -> (Outcome, Vec<&'static str>) {
        let notes = Rc::new(RefCell::new(Vec::new()));
        let script = |name, headlines: &[Option<f64>]| {
            let job = Script {
                name,
                notes: Rc::clone(&notes),
                headlines: RefCell::new(headlines.iter().rev().copied().collect()),
            };
            contender(name, Waiting::Sleep, Box::new(job))
        };
        let cell = Cell {
            suite: "throughput",
            title: "test".into(),
            size: None,
            placement: Placement::SameCpu,
            headline: Headline::Rate,
            contenders: vec![script("a", rounds[0]), script("b", rounds[1])],
            skips: Vec::new(),
        };
        let outcome = cell.run(rounds[0].len(), &NoProbe, &mut Progress::new(4));
        let notes = notes.borrow().clone();
        (outcome.unwrap(), notes)
    }

    #[test]
    fn contenders_are_checked_first_and_then_take_turns() {
        let (outcome, notes) = run_two([&[Some(2.0); 3], &[Some(4.0); 3]]);
        assert_eq!(notes, ["check", "check", "a", "b", "a", "b", "a", "b"]);
        assert_eq!(outcome.series[1].headlines(), [4.0; 3]);
        let ratio = outcome.series[1].ratio_to(&outcome.series[0]);
        assert_eq!(ratio.unwrap().median, 2.0);
    }

    #[test]
    fn one_that_fails_is_left_out_and_the_others_go_on() {
        let (outcome, notes) = run_two([&[Some(1.0); 3], &[Some(1.0), None, Some(1.0)]]);
        assert_eq!(notes, ["check", "check", "a", "b", "a", "b", "a"]);
        assert_eq!(outcome.series.len(), 1);
        let skip = &outcome.skips[0];
        assert!(skip.failed && skip.label == "b" && skip.reason.contains("it broke"));
    }

    #[test]
    fn turns_of_the_rarer_class_are_left_out() {
        let (outcome, _) = run_two([&[Some(1.0); 3], &[Some(2.0); 3]]);
        let mut series = outcome.series;
        for (turn, class) in series[0]
            .turns
            .iter_mut()
            .zip([Class::Near, Class::Far, Class::Far])
        {
            turn.class = Some(class);
        }
        series[0].keep(Some(Class::Near));
        assert_eq!(series[0].turns.len(), 1);
        assert_eq!(series[0].class(), Some(Class::Near));
    }

    #[test]
    fn like_waits_are_told_from_unlike_ones() {
        let sleeper = series("a", Waiting::Sleep, &[1.0]);
        assert!(series("b", Waiting::Sleep, &[1.0]).waits_like(&sleeper));
        assert!(!series("b", Waiting::Spin, &[1.0]).waits_like(&sleeper));
    }

    #[test]
    fn a_round_without_a_sample_is_an_error() {
        assert!(Headline::Latency.value(&Measurement::default()).is_err());
        assert!(Headline::Rate.value(&Measurement::default()).is_err());
    }
}
