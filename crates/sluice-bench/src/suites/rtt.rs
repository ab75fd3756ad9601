// SPDX-License-Identifier: MIT OR Apache-2.0
//! The round trip of a message: two processes, a link there and a link back.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{PATIENCE, Plan, Room, Sizes};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::harness::units;
use crate::mechanisms::{Errand, Link, Mechanism, Shape, Task};

const SIZES: Sizes = Sizes {
    quick: &[1],
    standard: &[1, 1024],
    full: &[1, 64, 256, 1024, 4096],
    peers: &[1, 8, 64],
};
/// Not counted: caches, branch predictors and the adaptive parts of the kernel settle first.
const WARM_UP: usize = 200;
/// A spinning pair would otherwise fill the memory with samples.
const MOST_SAMPLES: usize = 200_000;
/// As many as show that what comes back is what was sent.
const CHECKED: usize = 256;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    plan.conditions(&SIZES)
        .map(|(size, placement)| cell(plan, size, placement))
        .collect()
}

fn cell(plan: &Plan, size: usize, placement: Placement) -> Result<Cell> {
    let (mechanisms, skips) = plan.rivals(&Task {
        size,
        placement,
        shape: Shape::Question,
    });
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        Contender::pair(
            &*mechanism,
            Box::new(RoundTrip {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                size,
                most: MOST_SAMPLES,
                duration: plan.duration,
            }),
        )
    };
    Ok(Cell {
        suite: "rtt",
        title: format!("{} {}", units::size(size), placement.name()),
        size: Some(size),
        placement,
        headline: Headline::Latency,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

pub struct RoundTrip {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    size: usize,
    /// Whatever comes first.
    most: usize,
    duration: Duration,
}

impl Job for RoundTrip {
    fn check(&self) -> Result<()> {
        self.run(CHECKED, PATIENCE).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.most, self.duration)
    }
}

type Links = [Box<dyn Link>; 2];

impl RoundTrip {
    pub fn new(mechanism: Rc<dyn Mechanism>, room: Room, size: usize, duration: Duration) -> Self {
        Self {
            mechanism,
            room,
            size,
            most: MOST_SAMPLES,
            duration,
        }
    }

    /// So many round trips, however long they take.
    pub fn counted(mechanism: Rc<dyn Mechanism>, room: Room, size: usize, most: usize) -> Self {
        Self {
            mechanism,
            room,
            size,
            most,
            duration: 2 * PATIENCE,
        }
    }

    fn run(&self, most: usize, duration: Duration) -> Result<Measurement> {
        let mut pair = self.start(most, duration)?;
        pair.go()?;
        let [mut asked, answered] = pair.finish(duration + PATIENCE)?;
        let samples = asked.split_off(2);
        let messages = 2 * samples.len() as u64;
        Ok(Measurement {
            messages,
            bytes: messages * self.size as u64,
            samples,
            elapsed_ns: asked[0],
            cpu_ns: asked[1] + answered[0],
            ..Measurement::default()
        })
    }

    fn start(&self, most: usize, duration: Duration) -> Result<Pair> {
        let errand = Errand::RoundTrips { most, duration };
        if let Some(programs) = self.mechanism.programs(self.size, errand)? {
            return self.room.start_programs(programs);
        }
        let links: Links = [
            self.mechanism.link(self.size)?,
            self.mechanism.link(self.size)?,
        ];
        Pair::start(links, PATIENCE, |side, links, start| match side {
            Side::First => self.ask(links, start, most, duration),
            Side::Second => self.answer(links, start),
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

        let mut sent = vec![0; self.size];
        let mut message = vec![0; self.size];
        // When it began and when it ended: making a message and looking at it are no part of it.
        let mut round_trip = |number: usize| {
            sent.fill(number as u8);
            let began = clock::now_ns();
            sender.send(&sent)?;
            let length = receiver.receive(&mut message)?;
            let ended = clock::now_ns();
            ensure!(length == self.size, "the other side ended in the middle");
            ensure!(message == sent, "message {number} came back changed");
            Ok((began, ended))
        };
        for number in 0..WARM_UP {
            round_trip(number)?;
        }

        let mut samples = Vec::with_capacity(most);
        let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
        let end = begin + duration.as_nanos() as u64;
        let mut now = begin;
        while samples.len() < most && now < end {
            let (began, ended) = round_trip(samples.len())?;
            samples.push(ended - began);
            now = ended;
        }
        Ok([vec![now - begin, clock::cpu_ns() - cpu], samples].concat())
    }

    /// Returns the processor time.
    fn answer(&self, links: Links, start: &mut Start) -> Result<Vec<u64>> {
        let [there, back] = links;
        let (mut receiver, mut sender) = (there.receiver()?, back.sender()?);
        self.room.enter(Side::Second)?;
        start.wait()?;

        let mut message = vec![0; self.size];
        let mut trips = 0;
        let mut cpu = clock::cpu_ns();
        while receiver.receive(&mut message)? == self.size {
            sender.send(&message)?;
            trips += 1;
            if trips == WARM_UP {
                cpu = clock::cpu_ns();
            }
        }
        Ok(vec![clock::cpu_ns() - cpu])
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::harness::process::tests::turn;
    use crate::harness::rounds::Skip;
    use crate::mechanisms::{Cacheline, Pipe};
    use crate::suites::Scale;

    pub fn plan() -> Plan {
        Plan {
            scale: Scale::Standard,
            suites: Vec::new(),
            sizes: Vec::new(),
            placements: vec![Placement::SameCpu],
            duration: Duration::from_millis(20),
            home: None,
            mechanisms: vec![Rc::new(Pipe), Rc::new(Cacheline::SHARED)],
            absent: vec![Skip::circumstance("sluice-pipe", "not in unit tests")],
            tree: Err(Skip::circumstance("sluice-pipe", "not in unit tests")),
        }
    }

    #[test]
    fn round_trips_over_a_pipe_are_all_kept() {
        let _turn = turn();
        let cell = cell(&plan(), 64, Placement::SameCpu).unwrap();
        let measurement = cell.contenders[0].job.measure().unwrap();
        assert!(measurement.samples.len() > 10);
        assert!(measurement.samples.iter().sum::<u64>() <= measurement.elapsed_ns);
        assert_eq!(measurement.bytes, measurement.messages * 64);
    }

    #[test]
    fn who_is_absent_or_cannot_carry_the_size_is_named() {
        let cell = cell(&plan(), 64, Placement::SameCpu).unwrap();
        let skipped: Vec<_> = cell.skips.iter().map(|skip| skip.mechanism).collect();
        assert_eq!(skipped, ["sluice-pipe", "cacheline"]);
    }
}
