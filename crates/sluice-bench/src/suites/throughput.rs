// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streaming throughput for each message size.

use std::rc::Rc;

use anyhow::Result;

use super::stream::{Length, Stream};
use super::{Plan, Sizes};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement};
use crate::harness::units;
use crate::mechanisms::{Mechanism, Shape, Task};

const SIZES: Sizes = Sizes {
    quick: &[1024],
    standard: &[64, 1024, 4096, 65536],
    full: &[64, 256, 1024, 4096, 16384, 65536],
};

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    plan.conditions(&SIZES)
        .map(|(size, placement)| cell(plan, size, placement))
        .collect()
}

fn cell(plan: &Plan, size: usize, placement: Placement) -> Result<Cell> {
    let (mechanisms, skips) = plan.rivals(&Task {
        size,
        placement,
        shape: Shape::Stream,
    });
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        Contender::pair(
            &*mechanism,
            Box::new(Stream {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                size,
                length: Length::For(plan.duration),
            }),
        )
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

impl Job for Stream {
    fn check(&self) -> Result<()> {
        Stream::check(self)
    }

    fn measure(&self) -> Result<Measurement> {
        Stream::measure(self)
    }
}
