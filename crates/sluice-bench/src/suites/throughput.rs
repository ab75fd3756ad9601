// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size.

use std::rc::Rc;

use anyhow::Result;

use super::stream::{Length, Stream};
use super::{Plan, Room, Sizes};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement, Skip};
use crate::harness::units;
use crate::mechanisms::{Batching, Mechanism, Shape, Task};

const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 1024, 4096, 65536],
    full: &[64, 256, 1024, 4096, 16384, 65536],
    peers: &[64, 1024, 4096, 65536],
};

/// Short messages, several of which are handed over at once.
const BATCHED: Sizes = Sizes {
    quick: &[],
    standard: &[64],
    full: &[64],
    peers: &[64],
};
const BATCH: usize = 32;

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let single = plan.conditions(&SIZES);
    let single = single.map(|(size, placement)| cell(plan, size, placement));
    let batched = plan.conditions(&BATCHED);
    let batched = batched.map(|(size, placement)| batched_cell(plan, size, placement));
    single.chain(batched).collect()
}

fn cell(plan: &Plan, size: usize, placement: Placement) -> Result<Cell> {
    let (mechanisms, skips) = plan.rivals(&task(size, placement));
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        let job = stream(plan, &mechanism, &room, size, None);
        Contender::pair(&*mechanism, Box::new(job))
    };
    Ok(Cell {
        suite: "throughput",
        title: format!("{} {}", units::size(size), placement.name()),
        size: Some(size),
        placement,
        headline: Headline::Rate,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

/// Of those for whom a batch is something else than its messages, and of those whom they are compared with.
fn batched_cell(plan: &Plan, size: usize, placement: Placement) -> Result<Cell> {
    let (mechanisms, mut skips) = plan.rivals(&task(size, placement));
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        let label = match mechanism.batching()? {
            Batching::Together => mechanism.label(),
            Batching::OneByOne => format!("{}, one by one", mechanism.label()),
        };
        let job = stream(plan, &mechanism, &room, size, Some(BATCH));
        Some(Contender {
            label,
            batch: Some(BATCH),
            ..Contender::pair(&*mechanism, Box::new(job))
        })
    };
    let takes_part = |skip: &Skip| {
        let mut all = plan.mechanisms.iter();
        all.any(|one| one.name() == skip.mechanism && one.batching().is_some())
    };
    skips.retain(takes_part);
    Ok(Cell {
        suite: "throughput",
        title: format!(
            "{} in batches of {BATCH} {}",
            units::size(size),
            placement.name()
        ),
        size: Some(size),
        placement,
        headline: Headline::Rate,
        contenders: mechanisms.into_iter().filter_map(contender).collect(),
        skips,
    })
}

fn task(size: usize, placement: Placement) -> Task {
    Task {
        size,
        placement,
        shape: Shape::Stream,
    }
}

fn stream(
    plan: &Plan,
    mechanism: &Rc<dyn Mechanism>,
    room: &Room,
    size: usize,
    batch: Option<usize>,
) -> Stream {
    Stream {
        mechanism: Rc::clone(mechanism),
        room: room.clone(),
        size,
        batch,
        length: Length::For(plan.duration),
    }
}

impl Job for Stream {
    fn check(&self) -> Result<()> {
        Stream::check(self)
    }

    fn measure(&self) -> Result<Measurement> {
        Stream::measure(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::{Cacheline, Pipe, SluiceRing};
    use crate::suites::rtt;

    #[test]
    fn batches_are_for_those_who_have_them_and_the_one_they_are_compared_with() {
        let plan = Plan {
            mechanisms: vec![
                Rc::new(Pipe),
                Rc::new(Cacheline::SHARED),
                Rc::new(SluiceRing::NeverSpins),
                Rc::new(SluiceRing::AlwaysSpins),
            ],
            ..rtt::tests::plan()
        };
        let cell = batched_cell(&plan, 64, Placement::SameCpu).unwrap();
        assert_eq!(cell.title, "64 B in batches of 32 same-cpu");
        let labels: Vec<_> = cell.contenders.iter().map(|one| &one.label).collect();
        assert_eq!(
            labels,
            ["pipe, one by one", "sluice-ring-memfd (never spins)"]
        );
        assert!(cell.contenders.iter().all(|one| one.batch == Some(BATCH)));
        // It has batches, and cannot do anything here.
        let skipped: Vec<_> = cell.skips.iter().map(|skip| &skip.label).collect();
        assert_eq!(skipped, ["sluice-ring-memfd (always spins)"]);
    }
}
