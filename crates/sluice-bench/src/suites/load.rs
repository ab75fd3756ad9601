// SPDX-License-Identifier: MIT OR Apache-2.0
//! Latency under load, open loop: messages are due at a constant rate, whatever became of the earlier ones, and each latency is
//! counted from the time at which the message was due. A mechanism that stops now and then delays all that become due meanwhile.

use std::hint::spin_loop;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{PATIENCE, Plan, Room, Scale, Sizes};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::harness::units;
use crate::mechanisms::{Errand, Link, Mechanism, Shape, Task};

const SIZES: Sizes = Sizes {
    quick: &[64],
    standard: &[64],
    full: &[64],
    peers: &[64],
};
/// Messages a second.
const RATES: [u64; 7] = [
    1_000, 50_000, 200_000, 1_000_000, 3_000_000, 5_000_000, 10_000_000,
];
/// What mechanisms with a system call for each message can carry.
const MODERATE_RATES: [u64; 3] = [1_000, 10_000, 50_000];
/// When it was due, and its number.
const FIXED: usize = 16;
/// Not counted: caches and whatever adapts settle first.
const WARM_UP: Duration = Duration::from_millis(20);
const CHECKED: u64 = 256;
/// A fast mechanism would otherwise fill the memory with samples: of more, each second, third, … one is kept.
const MOST_SAMPLES: u64 = 200_000;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let rates: &[u64] = match plan.scale {
        Scale::Peers => &RATES,
        Scale::Quick | Scale::Standard | Scale::Full => &MODERATE_RATES,
    };
    let conditions = plan.conditions(&SIZES).filter(|(size, _)| *size >= FIXED);
    conditions
        .flat_map(|(size, placement)| rates.iter().map(move |&rate| (size, placement, rate)))
        .map(|(size, placement, rate)| cell(plan, size, placement, rate))
        .collect()
}

fn cell(plan: &Plan, size: usize, placement: Placement, rate: u64) -> Result<Cell> {
    let (mechanisms, skips) = plan.rivals(&Task {
        size,
        placement,
        shape: Shape::Stream,
    });
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        let job = Load {
            mechanism: Rc::clone(&mechanism),
            room: room.clone(),
            size,
            rate,
            duration: plan.duration,
        };
        Contender::pair(&*mechanism, Box::new(job))
    };
    Ok(Cell {
        suite: "load",
        title: format!(
            "{} {} {}",
            units::size(size),
            units::per_second(rate as f64),
            placement.name()
        ),
        size: Some(size),
        placement,
        headline: Headline::Latency,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

struct Load {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    size: usize,
    rate: u64,
    duration: Duration,
}

impl Job for Load {
    fn check(&self) -> Result<()> {
        let arrived = self.run(CHECKED, 0, 1)?.messages;
        ensure!(
            arrived == CHECKED,
            "{arrived} of {CHECKED} messages arrived"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let warm_up = self.due_within(WARM_UP);
        let messages = self.due_within(self.duration);
        let stride = messages.div_ceil(MOST_SAMPLES).max(1);
        self.run(warm_up + messages, warm_up, stride)
    }
}

impl Load {
    fn due_within(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * self.rate as f64).round() as u64
    }

    /// Sends so many messages, and keeps the latency of every `stride`th behind the warm-up. The processor time is the receiver's: the
    /// sender always spins until the next message is due.
    fn run(&self, messages: u64, warm_up: u64, stride: u64) -> Result<Measurement> {
        let errand = Errand::Load {
            messages,
            warm_up,
            stride,
            rate: self.rate,
        };
        let mut pair = match self.mechanism.programs(self.size, errand)? {
            Some(programs) => self.room.start_programs(programs)?,
            None => {
                let link = self.mechanism.link(self.size)?;
                Pair::start(link, PATIENCE, |side, link, start| match side {
                    Side::First => self.send(link, start, messages),
                    Side::Second => self.receive(link, start, warm_up, stride),
                })?
            }
        };
        pair.go()?;
        let [_, mut received] = pair.finish(self.duration + PATIENCE)?;
        let samples = received.split_off(3);
        let [arrived, elapsed_ns, cpu_ns] = received[..].try_into()?;
        Ok(Measurement {
            messages: arrived,
            bytes: arrived * self.size as u64,
            samples,
            elapsed_ns,
            cpu_ns,
            ..Measurement::default()
        })
    }

    fn send(&self, link: Box<dyn Link>, start: &mut Start, messages: u64) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        let mut message = vec![0; self.size];
        let interval = 1e9 / self.rate as f64;
        start.wait()?;
        let begin = clock::now_ns();
        for number in 0..messages {
            let due = begin + (number as f64 * interval) as u64;
            message[..8].copy_from_slice(&due.to_ne_bytes());
            message[8..FIXED].copy_from_slice(&number.to_ne_bytes());
            while clock::now_ns() < due {
                spin_loop();
            }
            sender.send(&message)?;
        }
        Ok(Vec::new())
    }

    /// Returns how many arrived behind the warm-up, the time and the processor time that it took, and the samples.
    fn receive(
        &self,
        link: Box<dyn Link>,
        start: &mut Start,
        warm_up: u64,
        stride: u64,
    ) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        let mut message = vec![0; self.size];
        let mut samples = Vec::with_capacity(MOST_SAMPLES as usize);
        start.wait()?;
        let (mut arrived, mut begin, mut cpu) = (0, clock::now_ns(), clock::cpu_ns());
        while receiver.receive(&mut message)? == self.size {
            let now = clock::now_ns();
            let due = u64::from_ne_bytes(message[..8].try_into()?);
            let number = u64::from_ne_bytes(message[8..FIXED].try_into()?);
            ensure!(
                number == arrived,
                "message {number} arrived where {arrived} was next"
            );
            arrived += 1;
            if arrived == warm_up {
                (begin, cpu) = (now, clock::cpu_ns());
            }
            if number >= warm_up && number % stride == 0 {
                samples.push(now.saturating_sub(due));
            }
        }
        let counted = arrived.saturating_sub(warm_up);
        let figures = vec![counted, clock::now_ns() - begin, clock::cpu_ns() - cpu];
        Ok([figures, samples].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::process::tests::turn;
    use crate::mechanisms::{Pipe, SluiceRing};
    use crate::suites::rtt::tests::plan;

    fn load(mechanism: Rc<dyn Mechanism>, rate: u64) -> Load {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        Load {
            mechanism,
            room: Room { home: None, cpus },
            size: 64,
            rate,
            duration: Duration::from_millis(50),
        }
    }

    #[test]
    fn as_many_are_sent_as_become_due() {
        let _turn = turn();
        let load = load(Rc::new(Pipe), 10_000);
        load.check().unwrap();
        let measurement = load.measure().unwrap();
        assert_eq!(measurement.messages, 500);
        assert_eq!(measurement.samples.len(), 500);
    }

    #[test]
    fn of_very_many_samples_some_are_kept() {
        let _turn = turn();
        let measurement = load(Rc::new(SluiceRing::NeverSpins), 100_000)
            .run(1000, 0, 3)
            .unwrap();
        assert_eq!(measurement.messages, 1000);
        assert_eq!(measurement.samples.len(), 334);
    }

    /// A mechanism that is too slow shows in the latency, not in a lower rate.
    #[test]
    fn latency_is_counted_from_the_due_time() {
        let _turn = turn();
        let load = load(Rc::new(Pipe), 1_000_000_000);
        let measurement = load.run(10_000, 0, 1).unwrap();
        let last = *measurement.samples.last().unwrap();
        assert!(last > measurement.elapsed_ns / 2, "{last}");
    }

    #[test]
    fn a_message_without_room_for_its_time_is_not_sent() {
        let mut plan = plan();
        plan.sizes = vec![8, 64];
        let sizes: Vec<_> = cells(&plan).unwrap().iter().map(|cell| cell.size).collect();
        assert_eq!(sizes, [Some(64); MODERATE_RATES.len()]);
    }
}
