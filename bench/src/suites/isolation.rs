// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of a pair that streams alone, next to stalled pairs, whose buffers are full and whose senders sleep, and
//! next to busy pairs, with which it shares the processors. Each pair of sluice-pipe is in its own cgroup.
//! misdelivery.rs measures the other half of isolation: which process receives the bytes.

use std::iter;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sluice_testkit::interrupt;
use sluice_testkit::workers::{Pair, Side, Start};

use super::plan::subject;
use super::setup::{PROCESS_TIMEOUT, Setup};
use super::stream::{Length, Stream};
use super::{Plan, Scale, misdelivery};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Activity, Case, Job, Measurement, Metric, Neighbours, Subject};
use crate::mechanisms::{Receiver, Sender, Task, Workload};

/// The number of other pairs.
fn others(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick | Scale::Standard | Scale::ThirdParty => &[7],
        Scale::Full => &[1, 2, 3, 4, 5, 6, 7],
    }
}

pub const SIZE: usize = 1024;
/// The mechanisms to compare.
const MECHANISMS: [&str; 3] = ["pipe", "unix-stream", "sluice-pipe"];

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let (mut setups, mut skipped) = plan.setups(&Task {
        size: SIZE,
        placement,
        workload: Workload::Stalled,
    })?;
    setups.retain(|setup| MECHANISMS.contains(&setup.mechanism.name));
    skipped.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let case = |setup| case(plan, placement, setup);
    let mut cases: Vec<Case> = setups.into_iter().map(case).collect();
    if let Some(case) = cases.first_mut() {
        case.skipped = skipped;
    }
    cases.extend(misdelivery::cases(plan)?);
    Ok(cases)
}

fn case(plan: &Plan, placement: Placement, setup: Setup) -> Case {
    let mechanism = Rc::clone(&setup.mechanism);
    let stream = Stream::new(setup, Length::For(plan.duration));
    let subject = |neighbours: Neighbours| Subject {
        label: neighbours.to_string(),
        processes: 2 + 2 * neighbours.pairs,
        neighbours: Some(neighbours),
        ..subject(
            &mechanism,
            WithOtherPairs {
                stream: stream.clone(),
                others: neighbours,
            },
        )
    };
    let activities = [Activity::Stalled, Activity::Busy].into_iter();
    let others = activities.flat_map(|activity| {
        let counts = others(plan.scale).iter();
        counts.map(move |&pairs| Neighbours {
            pairs,
            activity: Some(activity),
        })
    });
    let title = format!("{} 1 KiB {}", mechanism.label, placement.name());
    Case {
        size: Some(SIZE),
        subjects: iter::once(Neighbours::NONE)
            .chain(others)
            .map(subject)
            .collect(),
        ..Case::new("isolation", title, placement, Metric::Rate)
    }
}

struct WithOtherPairs {
    stream: Stream,
    others: Neighbours,
}

impl Job for WithOtherPairs {
    fn check(&self) -> Result<()> {
        let mut others = self.start_others()?;
        self.stream.check()?;
        others.iter_mut().try_for_each(Pair::expect_alive)
    }

    fn measure(&self) -> Result<Measurement> {
        let mut others = self.start_others()?;
        let measurement = self.stream.measure()?;
        others.iter_mut().try_for_each(Pair::expect_alive)?;
        Ok(measurement)
    }
}

impl WithOtherPairs {
    /// Pairs that run until they are dropped.
    fn start_others(&self) -> Result<Vec<Pair>> {
        let pairs: Vec<Pair> = (0..self.others.pairs)
            .map(|_| self.other_pair())
            .collect::<Result<_>>()?;
        if self.others.activity == Some(Activity::Stalled) {
            wait_until_stalled(&pairs)?;
        }
        Ok(pairs)
    }

    fn other_pair(&self) -> Result<Pair> {
        let setup = &self.stream.setup;
        let mut pair = match self.others.activity {
            Some(Activity::Stalled) => setup.pair(fill, stall)?,
            _ => setup.pair(fill, drain)?,
        };
        pair.go()?;
        Ok(pair)
    }
}

pub fn fill(mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    loop {
        sender.send(&[0; SIZE])?;
    }
}

pub fn stall(_receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    loop {
        sleep(Duration::MAX);
    }
}

fn drain(mut receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
    start.wait()?;
    while receiver.receive(&mut [0; SIZE])? > 0 {}
    Ok(Vec::new())
}

/// A pair counts as stalled when its sender was asleep in several successive checks.
pub fn wait_until_stalled(pairs: &[Pair]) -> Result<()> {
    const CHECKS: usize = 5;
    let deadline = Instant::now() + PROCESS_TIMEOUT;
    let mut asleep = 0;
    while asleep < CHECKS {
        interrupt::check()?;
        if Instant::now() > deadline {
            bail!(
                "a sender without a receiver never slept; check that the capacity of its channel is bounded"
            );
        }
        sleep(Duration::from_millis(20));
        let all = pairs
            .iter()
            .map(|pair| pair.worker(Side::First).is_asleep())
            .collect::<Result<Vec<_>>>()?;
        asleep = if all.iter().all(|&asleep| asleep) {
            asleep + 1
        } else {
            0
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::pipe;
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    #[test]
    fn other_pairs_do_not_stop_a_stream() {
        let _serial = serial();
        let stream = Stream::new(
            setup(pipe::mechanism(), SIZE),
            Length::For(Duration::from_millis(20)),
        );
        for activity in [Activity::Stalled, Activity::Busy] {
            let job = WithOtherPairs {
                stream: stream.clone(),
                others: Neighbours {
                    pairs: 3,
                    activity: Some(activity),
                },
            };
            assert!(job.measure().unwrap().messages > 0, "{activity:?}");
        }
    }
}
