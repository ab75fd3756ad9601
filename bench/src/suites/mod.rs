// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: each turns the plan of a run into cases, which the harness measures.

pub mod calibration;
#[cfg(test)]
mod conformance;
mod connect;
mod contention;
mod counters;
mod durable;
mod fanout;
mod feed;
mod instructions;
mod load;
mod map;
mod memory;
pub mod plan;
mod reports;
mod requests;
mod rtt;
mod setup;
mod stream;
mod throughput;
mod versions;
mod wakeup;

use anyhow::Result;

use self::plan::{Plan, Scale};
use crate::harness::rounds::Case;

pub use instructions::CONTROL_LOOP;
pub use rtt::CachelineProbe;
pub use versions::versions;
pub use wakeup::wakeup_cost;

/// The description of a suite. It drives measuring, the command line, the tables on the terminal, and the page with its plots.
pub struct Suite {
    pub name: &'static str,
    /// What its rows measure, in a sentence before their conditions, such as "Round trip of".
    pub operation: &'static str,
    /// The scales at which it is measured if the options name no suite.
    pub scales: &'static [Scale],
    /// All of its cases are measured in the same rounds, because its tables have ratios of different cases, too.
    pub together: bool,
    pub cases: fn(&Plan) -> Result<Vec<Case>>,
    /// Mechanisms of this suite alone, beside the mechanisms of the registry.
    pub mechanisms: fn() -> Vec<&'static str>,
    /// The tables that compare its rows with a report or with criteria: a template in reports/.
    pub tables: Option<&'static str>,
}

const EVERY: &[Scale] = &[
    Scale::Quick,
    Scale::Standard,
    Scale::Full,
    Scale::ThirdParty,
];
const NOT_QUICK: &[Scale] = &[Scale::Standard, Scale::Full, Scale::ThirdParty];
/// The scales without third-party libraries: all three, or without the quick one.
const ALWAYS: &[Scale] = &[Scale::Quick, Scale::Standard, Scale::Full];
const STANDARD: &[Scale] = &[Scale::Standard, Scale::Full];
/// The full scale, and the scale that compares third-party libraries.
const RINGS: &[Scale] = &[Scale::Full, Scale::ThirdParty];

/// In the order of the tables.
#[rustfmt::skip]
pub const SUITES: [Suite; 16] = [
    Suite { name: "rtt", operation: "Round trip of", scales: EVERY, together: false, cases: rtt::cases, mechanisms: Vec::new, tables: Some("rings") },
    Suite { name: "requests", operation: "Request of", scales: EVERY, together: false, cases: requests::cases, mechanisms: requests::mechanisms, tables: None },
    Suite { name: "throughput", operation: "Stream of", scales: EVERY, together: false, cases: throughput::cases, mechanisms: Vec::new, tables: Some("rings") },
    Suite { name: "sizes", operation: "Stream of", scales: RINGS, together: false, cases: throughput::sizes, mechanisms: Vec::new, tables: None },
    Suite { name: "load", operation: "Latency under load,", scales: RINGS, together: false, cases: load::cases, mechanisms: Vec::new, tables: Some("load") },
    Suite { name: "calibration", operation: "Calibration,", scales: NOT_QUICK, together: false, cases: calibration::cases, mechanisms: Vec::new, tables: None },
    Suite { name: "wakeup", operation: "Wake-up,", scales: STANDARD, together: false, cases: wakeup::cases, mechanisms: Vec::new, tables: None },
    Suite { name: "connect", operation: "Connection,", scales: NOT_QUICK, together: false, cases: connect::cases, mechanisms: Vec::new, tables: None },
    Suite { name: "memory", operation: "Memory of a channel,", scales: RINGS, together: false, cases: memory::cases, mechanisms: Vec::new, tables: None },
    Suite { name: "contention", operation: "Writers × readers,", scales: STANDARD, together: false, cases: contention::cases, mechanisms: Vec::new, tables: None },
    Suite { name: "fanout", operation: "Fan-out,", scales: ALWAYS, together: false, cases: fanout::cases, mechanisms: fanout::mechanisms, tables: Some("fanout") },
    Suite { name: "map", operation: "", scales: ALWAYS, together: true, cases: map::cases, mechanisms: map::mechanisms, tables: Some("map") },
    Suite { name: "durable", operation: "", scales: ALWAYS, together: true, cases: durable::cases, mechanisms: durable::mechanisms, tables: Some("durable") },
    Suite { name: "reports", operation: "", scales: STANDARD, together: false, cases: reports::cases, mechanisms: Vec::new, tables: Some("reports") },
    Suite { name: "feed", operation: "", scales: &[], together: false, cases: feed::cases, mechanisms: feed::mechanisms, tables: Some("feed") },
    Suite { name: "instructions", operation: "Instructions,", scales: &[], together: false, cases: instructions::cases, mechanisms: Vec::new, tables: Some("instructions") },
];

pub fn by_name(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

pub fn of(scale: Scale) -> impl Iterator<Item = &'static Suite> {
    let suites = SUITES.iter();
    suites.filter(move |suite| suite.scales.contains(&scale))
}

pub fn mechanisms() -> Vec<&'static str> {
    let suites = SUITES.iter();
    suites.flat_map(|suite| (suite.mechanisms)()).collect()
}

/// Groups of cases that are measured together.
pub fn cases(suite: &Suite, plan: &Plan) -> Result<Vec<Vec<Case>>> {
    let cases = (suite.cases)(plan)?;
    Ok(match suite.together {
        true => vec![cases],
        false => cases.into_iter().map(|case| vec![case]).collect(),
    })
}
