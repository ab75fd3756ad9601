// SPDX-License-Identifier: MIT OR Apache-2.0
//! What others' trouble costs: a pair streams alone, and beside stalled pairs whose pipes are full and whose writers wait.
//! Each pair of ours is in a cgroup of its own. The other half of isolation, who gets whose bytes, is in strangers.rs.

use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::stream::{Length, Stream};
use super::{PATIENCE, Plan, Room, strangers};
use crate::harness::interrupt;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::mechanisms::{Link, Mechanism, Shape, Task};

const STALLED: usize = 7;
const SIZE: usize = 1024;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let placement = plan.one_placement();
    let (mechanisms, mut skips) = plan.rivals(&Task {
        size: SIZE,
        placement,
        shape: Shape::Stalled,
    });
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
        length: Length::For(plan.duration),
    };
    let contender = |stalled: usize, job: Box<dyn Job>| Contender {
        mechanism: mechanism.name(),
        label: match stalled {
            0 => "alone".into(),
            _ => format!("beside {stalled} stalled"),
        },
        waiting: mechanism.waiting(),
        processes: 2 + 2 * stalled,
        among: None,
        job,
    };
    let contenders = vec![
        contender(0, Box::new(stream.clone())),
        contender(STALLED, Box::new(Beside { stream, room })),
    ];
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
}

impl Job for Beside {
    fn check(&self) -> Result<()> {
        let _stalled = self.stall()?;
        self.stream.check()
    }

    fn measure(&self) -> Result<Measurement> {
        let _stalled = self.stall()?;
        self.stream.measure()
    }
}

impl Beside {
    /// Pairs that stand still until they are dropped.
    fn stall(&self) -> Result<Vec<Pair>> {
        let pairs: Vec<Pair> = (0..STALLED)
            .map(|_| self.stalled_pair())
            .collect::<Result<_>>()?;
        await_stall(&pairs)?;
        Ok(pairs)
    }

    fn stalled_pair(&self) -> Result<Pair> {
        let link = self.stream.mechanism.link(SIZE)?;
        let mut pair = Pair::start(link, PATIENCE, |side, link, start| match side {
            Side::First => self.fill(link, start),
            Side::Second => self.hold(link, start),
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
    fn pairs_beside_a_stream_stand_still_and_do_not_stop_it() {
        let _turn = turn();
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        let room = Room { home: None, cpus };
        let length = Length::For(Duration::from_millis(20));
        let stream = Stream {
            mechanism: Rc::new(Pipe),
            room: room.clone(),
            size: SIZE,
            length,
        };
        let beside = Beside { stream, room };
        assert!(beside.measure().unwrap().messages > 0);
    }
}
