// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others cost: a pair streams alone, beside stalled pairs, whose pipes are full and whose writers wait, and beside busy
//! ones, with which it shares the processors. Each pair of ours is in a cgroup of its own. The other half of isolation, who gets whose bytes, is in strangers.rs.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::stream::{Length, Stream};
use super::{PATIENCE, Plan, Room, Scale, strangers};
use crate::harness::interrupt;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::mechanisms::{Link, Mechanism, Shape, Task};

/// Pairs beside the measured one.
fn others(scale: Scale) -> &'static [usize] {
    match scale {
        Scale::Quick => &[7],
        Scale::Standard | Scale::Peers => &[1, 3, 7],
        Scale::Full => &[1, 2, 3, 4, 5, 6, 7],
    }
}

const SIZE: usize = 1024;
/// What people use today, and ours.
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

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let placement = plan.one_placement();
    let (mut mechanisms, mut skips) = plan.rivals(&Task {
        size: SIZE,
        placement,
        shape: Shape::Stalled,
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skips.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let mut cells: Vec<Cell> = mechanisms
        .into_iter()
        .map(|mechanism| cell(plan, placement, mechanism))
        .collect::<Result<_>>()?;
    if let Some(cell) = cells.first_mut() {
        cell.skips.append(&mut skips);
    }
    cells.extend(strangers::cells(plan)?);
    Ok(cells)
}

fn cell(plan: &Plan, placement: Placement, mechanism: Rc<dyn Mechanism>) -> Result<Cell> {
    let room = plan.room(placement)?;
    let stream = Stream {
        mechanism: Rc::clone(&mechanism),
        room: room.clone(),
        size: SIZE,
        batch: None,
        length: Length::For(plan.duration),
    };
    let contender = |label: String, count: usize, job: Box<dyn Job>| Contender {
        label,
        processes: 2 + 2 * count,
        ..Contender::pair(&*mechanism, job)
    };
    let mut contenders = vec![contender("alone".into(), 0, Box::new(stream.clone()))];
    for others in [Others::Stalled, Others::Busy] {
        for &count in self::others(plan.scale) {
            let label = format!("beside {count} {}", others.name());
            let beside = Beside {
                stream: stream.clone(),
                room: room.clone(),
                others,
                count,
            };
            contenders.push(contender(label, count, Box::new(beside)));
        }
    }
    Ok(Cell {
        suite: "isolation",
        title: format!("{} 1 KiB {}", mechanism.label(), placement.name()),
        size: Some(SIZE),
        placement,
        headline: Headline::Rate,
        contenders,
        skips: Vec::new(),
    })
}

struct Beside {
    stream: Stream,
    room: Room,
    others: Others,
    count: usize,
}

impl Job for Beside {
    fn check(&self) -> Result<()> {
        let _others = self.start_others()?;
        self.stream.check()
    }

    fn measure(&self) -> Result<Measurement> {
        let _others = self.start_others()?;
        self.stream.measure()
    }
}

impl Beside {
    /// Pairs that do what they do until they are dropped.
    fn start_others(&self) -> Result<Vec<Pair>> {
        let pairs: Vec<Pair> = (0..self.count)
            .map(|_| self.other_pair())
            .collect::<Result<_>>()?;
        if self.others == Others::Stalled {
            await_stall(&pairs)?;
        }
        Ok(pairs)
    }

    fn other_pair(&self) -> Result<Pair> {
        let link = self.stream.mechanism.link(SIZE)?;
        let mut pair = Pair::start(link, PATIENCE, |side, link, start| {
            match (side, self.others) {
                (Side::First, _) => self.fill(link, start),
                (Side::Second, Others::Stalled) => self.hold(link, start),
                (Side::Second, Others::Busy) => self.drain(link, start),
            }
        })?;
        pair.go()?;
        Ok(pair)
    }

    fn fill(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        start.wait()?;
        loop {
            sender.send(&[0; SIZE])?;
        }
    }

    fn hold(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let _receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        start.wait()?;
        loop {
            sleep(Duration::MAX);
        }
    }

    fn drain(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        start.wait()?;
        while receiver.receive(&mut [0; SIZE])? > 0 {}
        Ok(Vec::new())
    }
}

/// Stalled is a writer that was asleep each time that it was looked at.
fn await_stall(pairs: &[Pair]) -> Result<()> {
    const LOOKS: usize = 5;
    let deadline = Instant::now() + PATIENCE;
    let mut asleep = 0;
    while asleep < LOOKS {
        interrupt::check()?;
        if Instant::now() > deadline {
            bail!(
                "a writer without a reader did not fall asleep: is the capacity of its pipe bounded?"
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
    use crate::harness::process::tests::turn;
    use crate::mechanisms::Pipe;

    #[test]
    fn pairs_beside_a_stream_do_not_stop_it() {
        let _turn = turn();
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let room = Room { home: None, cpus };
        let length = Length::For(Duration::from_millis(20));
        let stream = Stream {
            mechanism: Rc::new(Pipe),
            room: room.clone(),
            size: SIZE,
            batch: None,
            length,
        };
        for others in [Others::Stalled, Others::Busy] {
            let beside = Beside {
                stream: stream.clone(),
                room: room.clone(),
                others,
                count: 3,
            };
            assert!(beside.measure().unwrap().messages > 0, "{others:?}");
        }
    }
}
