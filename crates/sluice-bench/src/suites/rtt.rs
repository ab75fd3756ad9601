// SPDX-License-Identifier: MIT OR Apache-2.0
//! The round trip of one byte: two processes, a link there and a link back.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{PATIENCE, Plan, Room};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement, Skip};
use crate::mechanisms::{Cacheline, Link, Mechanism};

/// Not counted: caches, branch predictors and the adaptive parts of the kernel settle first.
const WARM_UP: usize = 200;
/// A spinning pair would otherwise fill the memory with samples.
const MOST_SAMPLES: usize = 200_000;
/// As many as show that what comes back is what was sent.
const CHECKED: usize = 256;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    plan.placements
        .iter()
        .map(|&placement| cell(plan, placement))
        .collect()
}

fn cell(plan: &Plan, placement: Placement) -> Result<Cell> {
    let (mut mechanisms, mut skips) = plan.rivals();
    match placement {
        Placement::TwoCpus => mechanisms.push(Rc::new(Cacheline)),
        Placement::SameCpu => skips.push(Skip {
            mechanism: "cacheline",
            reason: "spinning for another process needs a processor for each of the two".into(),
        }),
    }
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| Contender {
        mechanism: mechanism.name(),
        label: mechanism.label(),
        waiting: mechanism.waiting(),
        processes: 2,
        among: None,
        job: Box::new(RoundTrip {
            mechanism,
            room: room.clone(),
            duration: plan.duration,
        }),
    };
    Ok(Cell {
        suite: "rtt",
        title: format!("1 B {}", placement.name()),
        size: Some(1),
        placement,
        headline: Headline::Latency,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

pub struct RoundTrip {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    duration: Duration,
}

impl Job for RoundTrip {
    fn check(&self) -> Result<()> {
        self.run(CHECKED, PATIENCE).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(MOST_SAMPLES, self.duration)
    }
}

type Links = [Box<dyn Link>; 2];

impl RoundTrip {
    pub fn new(mechanism: Rc<dyn Mechanism>, room: Room, duration: Duration) -> Self {
        Self {
            mechanism,
            room,
            duration,
        }
    }

    fn run(&self, most: usize, duration: Duration) -> Result<Measurement> {
        let links: Links = [self.mechanism.link()?, self.mechanism.link()?];
        let mut pair = Pair::start(links, PATIENCE, |side, links, start| match side {
            Side::First => self.ask(links, start, most, duration),
            Side::Second => self.answer(links, start),
        })?;
        pair.go()?;
        let [mut asked, answered] = pair.finish(duration + PATIENCE)?;
        let samples = asked.split_off(2);
        Ok(Measurement {
            messages: 2 * samples.len() as u64,
            bytes: 2 * samples.len() as u64,
            samples,
            elapsed_ns: asked[0],
            cpu_ns: asked[1] + answered[0],
        })
    }

    /// Returns the time it took, the processor time, and all samples.
    fn ask(
        &self,
        links: Links,
        start: &mut Start,
        most: usize,
        duration: Duration,
    ) -> Result<Vec<u64>> {
        let [there, back] = links;
        let (mut sender, mut receiver) = (there.sender()?, back.receiver()?);
        self.room.enter(Side::First)?;
        start.wait()?;

        let mut byte = [0];
        let mut round_trip = |number: usize| {
            let sent = [number as u8];
            sender.send(&sent)?;
            ensure!(
                receiver.receive(&mut byte)? == 1,
                "the other side ended in the middle"
            );
            ensure!(byte == sent, "byte {} came back as {}", sent[0], byte[0]);
            Ok(())
        };
        (0..WARM_UP).try_for_each(&mut round_trip)?;

        let mut samples = Vec::with_capacity(most);
        let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
        let end = begin + duration.as_nanos() as u64;
        let mut now = begin;
        while samples.len() < most && now < end {
            let before = clock::now_ns();
            round_trip(samples.len())?;
            now = clock::now_ns();
            samples.push(now - before);
        }
        Ok([vec![now - begin, clock::cpu_ns() - cpu], samples].concat())
    }

    /// Returns the processor time.
    fn answer(&self, links: Links, start: &mut Start) -> Result<Vec<u64>> {
        let [there, back] = links;
        let (mut receiver, mut sender) = (there.receiver()?, back.sender()?);
        self.room.enter(Side::Second)?;
        start.wait()?;

        let mut byte = [0];
        let mut trips = 0;
        let mut cpu = clock::cpu_ns();
        while receiver.receive(&mut byte)? == 1 {
            sender.send(&byte)?;
            trips += 1;
            if trips == WARM_UP {
                cpu = clock::cpu_ns();
            }
        }
        Ok(vec![clock::cpu_ns() - cpu])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_over_a_pipe_are_all_kept() {
        let plan = Plan {
            suites: Vec::new(),
            sizes: Vec::new(),
            placements: vec![Placement::SameCpu],
            duration: Duration::from_millis(20),
            home: None,
            sluice: Err("not in unit tests".into()),
        };
        let cell = cell(&plan, Placement::SameCpu).unwrap();
        let measurement = cell.contenders[0].job.measure().unwrap();
        assert!(measurement.samples.len() > 10);
        assert!(measurement.samples.iter().sum::<u64>() <= measurement.elapsed_ns);
        assert_eq!(
            cell.skips.len(),
            2,
            "ours and the spinner are named as skipped"
        );
    }
}
