// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which process receives whose bytes: several pairs, each in its own cgroup, stream through one device node at the
//! same time. The bytes of a message are the number of its pair, and each receiver counts the bytes of its own pair and
//! those of others.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::interrupt;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::{Pair, Side, Start};

use super::{Confinement, PROCESS_TIMEOUT, Plan};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::{Link, Mechanism, Task, Workload};

const PAIRS: [usize; 4] = [1, 2, 4, 8];
const SIZE: usize = 1024;
/// Only mechanisms that are opened by name; the others are handed to their users.
const OPENED_BY_NAME: [&str; 2] = ["sluice-pipe", "myipc"];
const CHECK: Duration = Duration::from_millis(50);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    PAIRS.into_iter().map(|pairs| case(plan, pairs)).collect()
}

fn case(plan: &Plan, pairs: usize) -> Result<Case> {
    let placement = plan.one_placement();
    let (mut mechanisms, mut skipped) = plan.mechanisms_for(&Task {
        size: SIZE,
        placement,
        workload: Workload::SharedName,
    });
    mechanisms.retain(|one| one.is_opened_by_name());
    skipped.retain(|skip| OPENED_BY_NAME.contains(&skip.mechanism));
    // The pairs stay in their own cgroups.
    let confinement = Confinement {
        cgroup: None,
        ..plan.confinement(placement)?
    };
    let subject = |mechanism: Rc<dyn Mechanism>| Subject {
        processes: 2 * pairs,
        ..Subject::pair(
            &*mechanism,
            Box::new(Misdelivery {
                mechanism: Rc::clone(&mechanism),
                confinement: confinement.clone(),
                pairs,
                duration: plan.duration,
            }),
        )
    };
    Ok(Case {
        suite: "isolation",
        title: title(pairs, placement),
        size: Some(SIZE),
        placement,
        metric: Metric::Rate,
        subjects: mechanisms.into_iter().map(subject).collect(),
        skipped,
    })
}

fn title(pairs: usize, placement: Placement) -> String {
    let noun = if pairs == 1 { "pair" } else { "pairs" };
    format!("{pairs} {noun} on one node {}", placement.name())
}

struct Misdelivery {
    mechanism: Rc<dyn Mechanism>,
    confinement: Confinement,
    pairs: usize,
    duration: Duration,
}

impl Job for Misdelivery {
    /// Bytes that no pair sent are a failure of any mechanism; misdelivered bytes are the result.
    fn check(&self) -> Result<()> {
        self.run(CHECK).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.duration)
    }
}

impl Misdelivery {
    fn run(&self, duration: Duration) -> Result<Measurement> {
        let counts = Rc::new(Counts(SharedWords::new(
            self.pairs * SharedWords::PER_LINE,
        )?));
        let links = self.mechanism.links_by_name(self.pairs, SIZE)?;
        let mut pairs: Vec<Pair> = links
            .into_iter()
            .enumerate()
            .map(|(number, link)| self.pair(number, link, &counts))
            .collect::<Result<_>>()?;
        let begin = clock::now_ns();
        pairs.iter_mut().try_for_each(Pair::go)?;
        interruptible_sleep(duration)?;
        let (own, foreign) = counts.sums(self.pairs);
        let elapsed_ns = clock::now_ns() - begin;
        pairs.iter_mut().try_for_each(Pair::expect_alive)?;
        let bytes = own + foreign;
        Ok(Measurement {
            samples: Vec::new(),
            messages: bytes / SIZE as u64,
            bytes,
            elapsed_ns,
            cpu_ns: 0,
            misdelivered: Some(foreign),
            ..Measurement::default()
        })
    }

    fn pair(&self, number: usize, link: Box<dyn Link>, counts: &Counts) -> Result<Pair> {
        Pair::start(link, PROCESS_TIMEOUT, |side, link, start| match side {
            Side::First => self.send(number, link, start),
            Side::Second => self.receive(number, link, start, counts),
        })
    }

    fn send(&self, number: usize, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.confinement.enter(Side::First)?;
        start.wait()?;
        loop {
            sender.send(&[number as u8; SIZE])?;
        }
    }

    fn receive(
        &self,
        number: usize,
        link: Box<dyn Link>,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.confinement.enter(Side::Second)?;
        start.wait()?;
        let mut message = [0; SIZE];
        loop {
            let n = receiver.receive(&mut message)?;
            ensure!(n == SIZE, "the stream ended unexpectedly");
            let (own, foreign) = count_own(&message, number, self.pairs)?;
            counts.add(number, own, foreign);
        }
    }
}

/// The numbers of bytes of this pair and of other pairs.
fn count_own(message: &[u8], number: usize, pairs: usize) -> Result<(u64, u64)> {
    let unknown = message.iter().find(|&&byte| usize::from(byte) >= pairs);
    ensure!(
        unknown.is_none(),
        "a byte {unknown:?} arrived that none of {pairs} pairs sent"
    );
    let own = message
        .iter()
        .filter(|&&byte| usize::from(byte) == number)
        .count();
    Ok((own as u64, (message.len() - own) as u64))
}

/// The bytes of its own pair and of others that each receiver got, in a cache line per receiver.
struct Counts(SharedWords);

impl Counts {
    fn add(&self, number: usize, own: u64, foreign: u64) {
        let line = number * SharedWords::PER_LINE;
        self.0.words()[line].fetch_add(own, Ordering::Relaxed);
        self.0.words()[line + 1].fetch_add(foreign, Ordering::Relaxed);
    }

    fn sums(&self, pairs: usize) -> (u64, u64) {
        let sum = |word: usize| {
            let lines = (0..pairs).map(|number| number * SharedWords::PER_LINE);
            lines
                .map(|line| self.0.words()[line + word].load(Ordering::Relaxed))
                .sum()
        };
        (sum(0), sum(1))
    }
}

/// Sleeps, but returns an error after an interrupt.
pub fn interruptible_sleep(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        interrupt::check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    use crate::mechanisms::{Pipe, Receiver, Sender, StreamReceiver, StreamSender, Waiting};

    #[test]
    fn bytes_are_counted_by_sending_pair() {
        assert_eq!(count_own(&[1, 1, 0, 2], 1, 3).unwrap(), (2, 2));
        assert!(count_own(&[1, 3], 1, 3).is_err());
    }

    /// Each pair has its own pipe, or all share one, whose bytes reach whichever receiver reads next.
    struct Pipes {
        shared: bool,
    }

    impl Mechanism for Pipes {
        fn name(&self) -> &'static str {
            "pipes"
        }

        fn waiting(&self) -> Waiting {
            Waiting::Sleep
        }

        fn link(&self, size: usize) -> Result<Box<dyn Link>> {
            Pipe.link(size)
        }

        fn links_by_name(&self, pairs: usize, size: usize) -> Result<Vec<Box<dyn Link>>> {
            if !self.shared {
                return (0..pairs).map(|_| self.link(size)).collect();
            }
            let (output, input) = nix::unistd::pipe()?;
            let (output, input) = (File::from(output), File::from(input));
            let link = |_| -> Result<Box<dyn Link>> {
                Ok(Box::new(Ends(output.try_clone()?, input.try_clone()?)))
            };
            (0..pairs).map(link).collect()
        }
    }

    struct Ends(File, File);

    impl Link for Ends {
        fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
            Ok(Box::new(StreamSender(self.1)))
        }

        fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
            Ok(Box::new(StreamReceiver(self.0)))
        }
    }

    fn measure(shared: bool) -> Measurement {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let misdelivery = Misdelivery {
            mechanism: Rc::new(Pipes { shared }),
            confinement: Confinement { cgroup: None, cpus },
            pairs: 3,
            duration: Duration::from_millis(100),
        };
        misdelivery.measure().unwrap()
    }

    #[test]
    fn misdelivery_on_a_shared_pipe_is_counted() {
        let measurement = measure(true);
        let misdelivered = measurement.misdelivered.unwrap();
        assert!(
            misdelivered > 0 && misdelivered <= measurement.bytes,
            "{measurement:?}"
        );
    }

    #[test]
    fn separate_pipes_have_no_misdelivery() {
        let measurement = measure(false);
        assert!(measurement.bytes > 0);
        assert_eq!(measurement.misdelivered, Some(0));
    }
}
