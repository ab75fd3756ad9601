// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of the two reports on which the pipe and the naive driver are based, with their message counts.
//! [`crate::reports`] compares the results with those of the reports.

use std::rc::Rc;

use anyhow::Result;

use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use super::{Confinement, Plan};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Metric, Subject};
use crate::mechanisms::{Mechanism, Task, Workload};
use crate::reports::{MECHANISMS, Measured, SUITE};

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let confinement = plan.confinement(placement)?;
    let case = |measured: &Measured| case(plan, &confinement, placement, *measured);
    Ok(Measured::ALL.iter().map(case).collect())
}

fn case(plan: &Plan, confinement: &Confinement, placement: Placement, measured: Measured) -> Case {
    let (mut mechanisms, mut skipped) = plan.mechanisms_for(&Task {
        size: measured.size(),
        placement,
        workload: match measured {
            Measured::RoundTrips { .. } => Workload::RequestReply,
            Measured::Stream { .. } => Workload::Stream,
        },
    });
    mechanisms.retain(|one| MECHANISMS.contains(&one.name()));
    skipped.retain(|skip| MECHANISMS.contains(&skip.mechanism));
    let subject = |mechanism: Rc<dyn Mechanism>| {
        Subject::pair(
            &*mechanism,
            job(Rc::clone(&mechanism), confinement.clone(), measured),
        )
    };
    Case {
        suite: SUITE,
        title: measured.title(),
        size: Some(measured.size()),
        placement,
        metric: match measured {
            Measured::RoundTrips { .. } => Metric::Latency,
            Measured::Stream { .. } => Metric::Rate,
        },
        subjects: mechanisms.into_iter().map(subject).collect(),
        skipped,
    }
}

fn job(mechanism: Rc<dyn Mechanism>, confinement: Confinement, measured: Measured) -> Box<dyn Job> {
    match measured {
        Measured::RoundTrips { size, count } => {
            Box::new(RoundTrip::counted(mechanism, confinement, size, count))
        }
        Measured::Stream { size, count } => Box::new(Stream {
            mechanism,
            confinement,
            size,
            batch: None,
            length: Length::Messages(count as u64),
        }),
    }
}
