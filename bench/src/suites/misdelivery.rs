// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which process receives whose bytes: several pairs, each in its own cgroup, stream through one device node at the
//! same time. The bytes of a message are the number of its pair, and each receiver counts the bytes of its own pair and
//! those of others.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::{Pair, Start};

use super::setup::{Setup, interruptible_sleep};
use super::{Plan, Scale};
use crate::harness::rounds::{Case, Job, Measurement, Metric};
use crate::mechanisms::{Link, Receiver, Sender, Task, Workload};

/// The numbers of pairs.
fn pairs(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick | Scale::Standard | Scale::ThirdParty => &[8],
        Scale::Full => &[1, 2, 4, 8],
    }
}

const SIZE: usize = 1024;
/// Only mechanisms that are opened by name; the others are passed to their users.
const OPENED_BY_NAME: [&str; 3] = ["sluice-pipe", "sluice-ring", "myipc"];
const CHECK: Duration = Duration::from_millis(50);

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let pairs = pairs(plan.scale).iter();
    pairs.map(|&pairs| case(plan, pairs)).collect()
}

fn case(plan: &Plan, pairs: usize) -> Result<Case> {
    let placement = plan.one_placement();
    let noun = if pairs == 1 { "pair" } else { "pairs" };
    let title = format!("{pairs} {noun} on one node {}", placement.name());
    let task = Task {
        size: SIZE,
        placement,
        workload: Workload::SharedName,
    };
    let case = plan.case("isolation", title, Metric::Rate, task, |mut setup| {
        // The pairs stay in their own cgroups.
        setup.confinement.cgroup = None;
        Misdelivery {
            setup,
            pairs,
            duration: plan.duration,
        }
    });
    let mut case = case?.only(&OPENED_BY_NAME);
    case.subjects
        .iter_mut()
        .for_each(|one| one.processes = 2 * pairs);
    Ok(case)
}

struct Misdelivery {
    setup: Setup,
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
        let mechanism = &self.setup.mechanism;
        let links = mechanism.links_by_name.as_ref();
        let links = links.with_context(|| format!("{} is not opened by name", mechanism.name))?;
        let links = links(self.pairs)?;
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
            messages: bytes / SIZE as u64,
            bytes,
            elapsed_ns,
            misdelivered: Some(foreign),
            ..Measurement::default()
        })
    }

    fn pair(&self, number: usize, link: Link, counts: &Counts) -> Result<Pair> {
        self.setup.pair_over(
            link,
            |sender, start| send(number, sender, start),
            |receiver, start| self.receive(number, receiver, start, counts),
        )
    }

    fn receive(
        &self,
        number: usize,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        counts: &Counts,
    ) -> Result<Vec<u64>> {
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

fn send(number: usize, mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    loop {
        sender.send(&[number as u8; SIZE])?;
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

#[cfg(test)]
mod tests {
    use sluice_testkit::workers::serial;

    use super::*;
    use crate::mechanisms::{Mechanism, pipe};
    use crate::suites::setup::tests::setup;

    #[test]
    fn bytes_are_counted_by_sending_pair() {
        assert_eq!(count_own(&[1, 1, 0, 2], 1, 3).unwrap(), (2, 2));
        assert!(count_own(&[1, 3], 1, 3).is_err());
    }

    /// Each pair has its own pipe, or all share one, whose bytes reach whichever receiver reads next.
    fn measure(shared: bool) -> Measurement {
        let own_pipes = |pairs| (0..pairs).map(|_| pipe::mechanism().link(SIZE)).collect();
        let mechanism = Mechanism {
            links_by_name: Some(match shared {
                true => Box::new(pipe::shared_links),
                false => Box::new(own_pipes),
            }),
            ..pipe::mechanism()
        };
        let misdelivery = Misdelivery {
            setup: setup(mechanism, SIZE),
            pairs: 3,
            duration: Duration::from_millis(100),
        };
        misdelivery.measure().unwrap()
    }

    #[test]
    fn misdelivery_on_a_shared_pipe_is_counted() {
        let _serial = serial();
        let measurement = measure(true);
        let misdelivered = measurement.misdelivered.unwrap();
        assert!(
            misdelivered > 0 && misdelivered <= measurement.bytes,
            "{measurement:?}"
        );
    }

    #[test]
    fn separate_pipes_have_no_misdelivery() {
        let _serial = serial();
        let measurement = measure(false);
        assert!(measurement.bytes > 0);
        assert_eq!(measurement.misdelivered, Some(0));
    }
}
