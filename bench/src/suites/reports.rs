// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of the two reports on which the pipe and the naive driver are based, with their message counts.
//! [`crate::reports`] compares the results with the results of the reports.

use anyhow::Result;

use super::plan::Plan;
use super::rtt::RoundTrip;
use super::stream::{Length, Stream};
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::Workload;

/// The mechanisms of the reports; shm-spin is the shared memory of ipc-bench, whose two sides spin.
const MECHANISMS: [&str; 5] = ["pipe", "sluice-pipe", "myipc", "shm-sem", "shm-spin"];
/// The size of a message, and the number of round trips. Those of 1024 bytes are the "message rate" of ipc-bench.
const ROUND_TRIPS: [(usize, usize); 3] = [(1, 1000), (1, 10_000), (1024, 1000)];
/// The size and the number of messages. The last one is 64 MB in chunks of 512 bytes.
const STREAMS: [(usize, u64); 4] = [
    (64, 100_000),
    (256, 100_000),
    (1024, 100_000),
    (512, 125_000),
];

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let round_trips = ROUND_TRIPS.into_iter().map(|(size, count)| {
        let title = format!("{count} round trips of {size} B");
        let task = plan.task(size, Workload::RequestReply);
        plan.case("reports", title, Metric::Latency, task, |setup| {
            RoundTrip::counted(setup, count)
        })
    });
    let streams = STREAMS.into_iter().map(|(size, count)| {
        let title = format!("{count} messages of {size} B");
        let task = plan.task(size, Workload::Stream);
        plan.case("reports", title, Metric::Rate, task, |setup| {
            Stream::new(setup, Length::Messages(count))
        })
    });
    let cases = round_trips.chain(streams);
    cases.map(|case| Ok(case?.only(&MECHANISMS))).collect()
}
