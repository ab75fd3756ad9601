// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: each turns the plan of a run into cases, which the harness measures.

pub mod calibration;
#[cfg(test)]
mod conformance;
mod connect;
mod contention;
mod ctl_scaling;
mod durable;
mod fanout;
mod feed;
mod instructions;
mod load;
mod map;
mod memory;
mod pairs;
pub mod plan;
mod probe;
mod reports;
mod rtt;
mod setup;
mod sizes;
mod stream;
mod suite;
mod tar;
mod throughput;
mod versions;
mod wakeup;

use anyhow::Result;

use self::plan::{Plan, Scale};
use self::suite::none;
use crate::harness::figures::{MESSAGES_PER_SECOND, P99, Unit};
use crate::harness::rounds::Case;

pub use instructions::CONTROL_LOOP;
pub use probe::CachelineProbe;
pub use suite::{Lines, Suite};
pub use versions::versions;
pub use wakeup::wakeup_cost;

/// The scales without third-party libraries: all three, or without the quick one.
const ALWAYS: &[Scale] = &[Scale::Quick, Scale::Standard, Scale::Full];
const STANDARD: &[Scale] = &[Scale::Standard, Scale::Full];
/// The full scale, and the scale that compares third-party libraries.
const RINGS: &[Scale] = &[Scale::Full, Scale::ThirdParty];

const BY_SIZE: Lines = Lines {
    title: "Throughput",
    x: "size",
    x_figure: None,
    y: "bytes per second",
    y_figure: None,
    unit: Unit::BytesPerSecond,
    per: &["batch", "placement"],
};
const P99_BY_RATE: Lines = Lines {
    title: "p99 of the latency",
    x: "load_percent",
    x_figure: Some(MESSAGES_PER_SECOND),
    y: "p99 of the latency",
    y_figure: Some(P99),
    unit: Unit::Nanoseconds,
    per: &["size", "placement"],
};
const COST_BY_RECEIVERS: Lines = Lines {
    title: "Cost of a message",
    x: "receivers",
    y: "processor time of the sender for a message",
    unit: Unit::Nanoseconds,
    per: &["cost", "size", "receiver_state"],
    ..BY_SIZE
};
const BY_PROCESSES: Lines = Lines {
    title: "Rate",
    x: "processes",
    y: "operations per second, all processes",
    unit: Unit::OperationsPerSecond,
    per: &["operation"],
    ..BY_SIZE
};
const BY_NAMES: Lines = Lines {
    title: "Time of a call",
    x: "names",
    y: "time of a call",
    unit: Unit::Nanoseconds,
    per: &["scopes"],
    ..BY_SIZE
};

/// In the order of the tables.
#[rustfmt::skip]
pub const SUITES: [Suite; 18] = [
    Suite { name: "rtt", operation: "Round trip of", scales: &[Scale::Quick, Scale::Standard, Scale::Full, Scale::ThirdParty], together: false,
        cases: rtt::cases, mechanisms: none, lines: &[], tables: Some("rings") },
    Suite { name: "throughput", operation: "Stream of", scales: &[Scale::Quick, Scale::Standard, Scale::Full, Scale::ThirdParty], together: false,
        cases: throughput::cases, mechanisms: none, lines: &[BY_SIZE], tables: Some("rings") },
    Suite { name: "sizes", operation: "Stream of", scales: RINGS, together: false,
        cases: sizes::cases, mechanisms: none, lines: &[Lines { per: &["data", "placement"], ..BY_SIZE }], tables: None },
    Suite { name: "load", operation: "Latency under load,", scales: RINGS, together: false,
        cases: load::cases, mechanisms: none,
        lines: &[P99_BY_RATE], tables: Some("load") },
    Suite { name: "calibration", operation: "Calibration,", scales: &[Scale::Standard, Scale::Full, Scale::ThirdParty], together: false,
        cases: calibration::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "wakeup", operation: "Wake-up,", scales: STANDARD, together: false,
        cases: wakeup::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "connect", operation: "Connection,", scales: &[Scale::Standard, Scale::Full, Scale::ThirdParty], together: false,
        cases: connect::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "memory", operation: "Memory of a channel,", scales: RINGS, together: false,
        cases: memory::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "tar", operation: "tar of", scales: STANDARD, together: false,
        cases: tar::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "contention", operation: "Writers × readers,", scales: STANDARD, together: false,
        cases: contention::cases, mechanisms: none, lines: &[Lines { per: &["writers", "receivers", "placement"], ..BY_SIZE }], tables: None },
    Suite { name: "pairs", operation: "Several pairs,", scales: RINGS, together: false,
        cases: pairs::cases, mechanisms: none, lines: &[], tables: None },
    Suite { name: "fanout", operation: "Fan-out,", scales: ALWAYS, together: false,
        cases: fanout::cases, mechanisms: fanout::mechanisms,
        lines: &[COST_BY_RECEIVERS, Lines { title: "Bytes delivered", per: &["receivers", "receiver_state"], ..BY_SIZE }], tables: Some("fanout") },
    Suite { name: "map", operation: "", scales: ALWAYS, together: true,
        cases: map::cases, mechanisms: map::mechanisms,
        lines: &[BY_PROCESSES], tables: Some("map") },
    Suite { name: "durable", operation: "", scales: ALWAYS, together: true,
        cases: durable::cases, mechanisms: durable::mechanisms,
        lines: &[BY_PROCESSES], tables: Some("durable") },
    Suite { name: "names", operation: "", scales: STANDARD, together: false,
        cases: ctl_scaling::cases, mechanisms: none,
        lines: &[BY_NAMES, Lines { x: "scopes", per: &["names"], ..BY_NAMES }], tables: None },
    Suite { name: "reports", operation: "", scales: STANDARD, together: false,
        cases: reports::cases, mechanisms: none, lines: &[], tables: Some("reports") },
    Suite { name: "feed", operation: "", scales: &[], together: false,
        cases: feed::cases, mechanisms: feed::mechanisms, lines: &[], tables: Some("feed") },
    Suite { name: "instructions", operation: "Instructions,", scales: &[], together: false,
        cases: instructions::cases, mechanisms: none, lines: &[], tables: Some("instructions") },
];

pub fn by_name(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

/// The suites of a run that does not select any.
pub fn of(scale: Scale) -> impl Iterator<Item = &'static Suite> {
    SUITES
        .iter()
        .filter(move |suite| suite.scales.contains(&scale))
}

/// The mechanisms of single suites.
pub fn mechanisms() -> Vec<&'static str> {
    SUITES
        .iter()
        .flat_map(|suite| (suite.mechanisms)())
        .collect()
}

/// Groups of cases that are measured together.
pub fn cases(suites: &[&Suite], plan: &Plan) -> Result<Vec<Vec<Case>>> {
    let mut groups = Vec::new();
    for suite in suites {
        let cases = (suite.cases)(plan)?;
        match suite.together {
            true => groups.push(cases),
            false => groups.extend(cases.into_iter().map(|case| vec![case])),
        }
    }
    Ok(groups)
}
