// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate of a pair that streams alone, next to stalled pairs, whose buffers are full and whose senders sleep, and
//! next to busy pairs, with which it shares the processors. Each pair of sluice-pipe is in its own cgroup.
//! misdelivery.rs measures the other half of isolation: which process receives the bytes.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sluice_testkit::interrupt;
use sluice_testkit::workers::{Pair, Side, Start};

use super::stream::{Length, Stream};
use super::{Confinement, PROCESS_TIMEOUT, Plan, Scale, misdelivery};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::mechanisms::{Link, Mechanism, Task, Workload};

/// The number of other pairs.
fn others(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick => &[7],
        Scale::Standard | Scale::ThirdParty => &[1, 3, 7],
        Scale::Full => &[1, 2, 3, 4, 5, 6, 7],
    }
}

const SIZE: usize = 1024;
/// The mechanisms to compare.
const MECHANISMS: [&str; 3] = ["pipe", "unix-stream", "sluice-pipe"];

/// What the other pairs do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Stalled,
    Busy,
}

impl Others {
    fn name(self) -> &'static str {
        match self {
            Self::Stalled => "stalled",
            Self::Busy => "busy",
        }
    }
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let (mut mechanisms, mut skipped) = plan.mechanisms_for(&Task {
        size: SIZE,
        placement,
        workload: Workload::Stalled,
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skipped.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let mut cases: Vec<Case> = mechanisms
        .into_iter()
        .map(|mechanism| case(plan, placement, mechanism))
        .collect::<Result<_>>()?;
    if let Some(case) = cases.first_mut() {
        case.skipped.append(&mut skipped);
    }
    cases.extend(misdelivery::cases(plan)?);
    Ok(cases)
}

fn case(plan: &Plan, placement: Placement, mechanism: Rc<dyn Mechanism>) -> Result<Case> {
    let confinement = plan.confinement(placement)?;
    let stream = Stream {
        mechanism: Rc::clone(&mechanism),
        confinement: confinement.clone(),
        size: SIZE,
        batch: None,
        length: Length::For(plan.duration),
    };
    let subject = |label: String, count: usize, job: Box<dyn Job>| Subject {
        label,
        processes: 2 + 2 * count,
        ..Subject::pair(&*mechanism, job)
    };
    let mut subjects = vec![subject("alone".into(), 0, Box::new(stream.clone()))];
    for others in [Others::Stalled, Others::Busy] {
        for &count in self::others(plan.scale) {
            let label = format!("beside {count} {}", others.name());
            let job = WithOtherPairs {
                stream: stream.clone(),
                confinement: confinement.clone(),
                others,
                count,
            };
            subjects.push(subject(label, count, Box::new(job)));
        }
    }
    Ok(Case {
        suite: "isolation",
        title: format!("{} 1 KiB {}", mechanism.label(), placement.name()),
        size: Some(SIZE),
        placement,
        metric: Metric::Rate,
        subjects,
        skipped: Vec::new(),
    })
}

struct WithOtherPairs {
    stream: Stream,
    confinement: Confinement,
    others: Others,
    count: usize,
}

impl Job for WithOtherPairs {
    fn check(&self) -> Result<()> {
        let _others = self.start_others()?;
        self.stream.check()
    }

    fn measure(&self) -> Result<Measurement> {
        let _others = self.start_others()?;
        self.stream.measure()
    }
}

impl WithOtherPairs {
    /// Pairs that run until they are dropped.
    fn start_others(&self) -> Result<Vec<Pair>> {
        let pairs: Vec<Pair> = (0..self.count)
            .map(|_| self.other_pair())
            .collect::<Result<_>>()?;
        if self.others == Others::Stalled {
            wait_until_stalled(&pairs)?;
        }
        Ok(pairs)
    }

    fn other_pair(&self) -> Result<Pair> {
        let link = self.stream.mechanism.link(SIZE)?;
        let mut pair = Pair::start(link, PROCESS_TIMEOUT, |side, link, start| {
            match (side, self.others) {
                (Side::First, _) => self.fill(link, start),
                (Side::Second, Others::Stalled) => self.stall(link, start),
                (Side::Second, Others::Busy) => self.drain(link, start),
            }
        })?;
        pair.go()?;
        Ok(pair)
    }

    fn fill(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.confinement.enter(Side::First)?;
        start.wait()?;
        loop {
            sender.send(&[0; SIZE])?;
        }
    }

    fn stall(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let _receiver = link.receiver()?;
        self.confinement.enter(Side::Second)?;
        start.wait()?;
        loop {
            sleep(Duration::MAX);
        }
    }

    fn drain(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.confinement.enter(Side::Second)?;
        start.wait()?;
        while receiver.receive(&mut [0; SIZE])? > 0 {}
        Ok(Vec::new())
    }
}

/// A pair counts as stalled when its sender was asleep in several successive checks.
fn wait_until_stalled(pairs: &[Pair]) -> Result<()> {
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
    use crate::harness::pinning::Placement;
    use crate::mechanisms::Pipe;
    use sluice_testkit::workers::serial;

    #[test]
    fn other_pairs_do_not_stop_a_stream() {
        let _serial = serial();
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let confinement = Confinement { cgroup: None, cpus };
        let length = Length::For(Duration::from_millis(20));
        let stream = Stream {
            mechanism: Rc::new(Pipe),
            confinement: confinement.clone(),
            size: SIZE,
            batch: None,
            length,
        };
        for others in [Others::Stalled, Others::Busy] {
            let job = WithOtherPairs {
                stream: stream.clone(),
                confinement: confinement.clone(),
                others,
                count: 3,
            };
            assert!(job.measure().unwrap().messages > 0, "{others:?}");
        }
    }
}
