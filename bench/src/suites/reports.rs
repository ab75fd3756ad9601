// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of the two reports on which the pipe and the naive driver are based, with their message counts.
//! [`crate::reports`] compares the results with those of the reports.

use anyhow::Result;

use super::Plan;
use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::{Task, Workload};
use crate::reports::{MECHANISMS, Measured, SUITE};

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    Measured::ALL.iter().map(|one| case(plan, *one)).collect()
}

fn case(plan: &Plan, measured: Measured) -> Result<Case> {
    let task = |workload| Task {
        size: measured.size(),
        placement: plan.one_placement(),
        workload,
    };
    let title = measured.title();
    let case = match measured {
        Measured::RoundTrips { count, .. } => {
            let task = task(Workload::RequestReply);
            plan.case(SUITE, title, Metric::Latency, task, |setup| {
                RoundTrip::counted(setup, count)
            })
        }
        Measured::Stream { count, .. } => {
            let length = Length::Messages(count as u64);
            let task = task(Workload::Stream);
            plan.case(SUITE, title, Metric::Rate, task, |setup| {
                Stream::new(setup, length)
            })
        }
    };
    Ok(case?.only(&MECHANISMS))
}
