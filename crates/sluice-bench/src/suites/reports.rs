// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of the two reports that Sluice's pipe and its rivals come from, with the reports' own counts. What the
//! reports say and what came out here is set side by side by [`crate::reports`].

use std::rc::Rc;

use anyhow::Result;

use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use super::{Plan, Room};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Cell, Contender, Headline, Job};
use crate::mechanisms::{Mechanism, Shape, Task};
use crate::reports::{MECHANISMS, Measured, SUITE};

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let placement = plan.one_placement();
    let room = plan.room(placement)?;
    let cell = |measured: &Measured| cell(plan, &room, placement, *measured);
    Ok(Measured::ALL.iter().map(cell).collect())
}

fn cell(plan: &Plan, room: &Room, placement: Placement, measured: Measured) -> Cell {
    let (mut mechanisms, mut skips) = plan.rivals(&Task {
        size: measured.size(),
        placement,
        shape: match measured {
            Measured::RoundTrips { .. } => Shape::Question,
            Measured::Stream { .. } => Shape::Stream,
        },
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skips.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let contender = |mechanism: Rc<dyn Mechanism>| {
        Contender::pair(
            &*mechanism,
            job(Rc::clone(&mechanism), room.clone(), measured),
        )
    };
    Cell {
        suite: SUITE,
        title: measured.title(),
        size: Some(measured.size()),
        placement,
        headline: match measured {
            Measured::RoundTrips { .. } => Headline::Latency,
            Measured::Stream { .. } => Headline::Rate,
        },
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    }
}

fn job(mechanism: Rc<dyn Mechanism>, room: Room, measured: Measured) -> Box<dyn Job> {
    match measured {
        Measured::RoundTrips { size, count } => {
            Box::new(RoundTrip::counted(mechanism, room, size, count))
        }
        Measured::Stream { size, count } => Box::new(Stream {
            mechanism,
            room,
            size,
            batch: None,
            length: Length::Messages(count as u64),
        }),
    }
}
