// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites: each turns the options into cases, which the harness measures.

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
mod isolation;
mod load;
mod map;
mod memory;
mod misdelivery;
mod pairs;
mod plan;
mod probe;
mod reports;
mod rtt;
mod setup;
mod sizes;
mod stream;
mod tar;
mod throughput;
mod versions;
mod wakeup;

use anyhow::Result;
use clap::ValueEnum;

use crate::harness::rounds::Case;

pub use plan::{Plan, Scale};
pub use probe::CachelineProbe;
pub use versions::versions;
pub use wakeup::wakeup_cost;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    Rtt,
    Throughput,
    Sizes,
    Load,
    Calibration,
    Wakeup,
    Connect,
    Memory,
    Tar,
    Contention,
    Isolation,
    Pairs,
    Fanout,
    Map,
    Durable,
    Names,
    Reports,
    Feed,
    Instructions,
}

impl Suite {
    /// The suites of a run that does not select any.
    pub fn of(scale: Scale) -> Vec<Self> {
        let standard = [
            Self::Rtt,
            Self::Throughput,
            Self::Wakeup,
            Self::Connect,
            Self::Tar,
            Self::Contention,
            Self::Isolation,
            Self::Fanout,
            Self::Map,
            Self::Durable,
            Self::Calibration,
            Self::Names,
            Self::Reports,
        ];
        match scale {
            Scale::Quick => vec![
                Self::Rtt,
                Self::Throughput,
                Self::Fanout,
                Self::Map,
                Self::Durable,
            ],
            Scale::Standard => standard.to_vec(),
            Scale::Full => {
                let others = [Self::Sizes, Self::Load, Self::Memory, Self::Pairs];
                standard.into_iter().chain(others).collect()
            }
            Scale::ThirdParty => vec![
                Self::Calibration,
                Self::Rtt,
                Self::Throughput,
                Self::Sizes,
                Self::Load,
                Self::Connect,
                Self::Memory,
                Self::Pairs,
            ],
        }
    }

    fn cases(self, plan: &Plan) -> Result<Vec<Case>> {
        match self {
            Self::Rtt => rtt::cases(plan),
            Self::Throughput => throughput::cases(plan),
            Self::Sizes => sizes::cases(plan),
            Self::Load => load::cases(plan),
            Self::Calibration => calibration::cases(plan),
            Self::Wakeup => wakeup::cases(plan),
            Self::Connect => connect::cases(plan),
            Self::Memory => memory::cases(plan),
            Self::Tar => tar::cases(plan),
            Self::Contention => contention::cases(plan),
            Self::Isolation => isolation::cases(plan),
            Self::Pairs => pairs::cases(plan),
            Self::Fanout => fanout::cases(plan),
            Self::Map => map::cases(plan),
            Self::Durable => durable::cases(plan),
            Self::Names => ctl_scaling::cases(plan),
            Self::Reports => reports::cases(plan),
            Self::Feed => feed::cases(plan),
            Self::Instructions => instructions::cases(plan),
        }
    }
}

/// The mechanisms of single suites, beside those of the registry.
pub fn mechanisms() -> Vec<&'static str> {
    [
        fanout::mechanisms(),
        map::mechanisms(),
        durable::mechanisms(),
        feed::mechanisms(),
    ]
    .concat()
}

/// Groups of cases that are measured together.
pub fn cases(suites: &[Suite], plan: &Plan) -> Result<Vec<Vec<Case>>> {
    let mut groups = Vec::new();
    for suite in suites {
        let cases = suite.cases(plan)?;
        match suite {
            // Their criteria are ratios of different cases, too.
            Suite::Map | Suite::Durable => groups.push(cases),
            _ => groups.extend(cases.into_iter().map(|case| vec![case])),
        }
    }
    Ok(groups)
}
