// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of messages from 8 bytes to 1 MiB, whose data the programs touch or not. In both cases the message is copied into the
//! mechanism and out of it, as for all mechanisms. Those that have an interface for it are measured a third time, with messages
//! that are written and read in place: beside the touched ones, this shows from which size on the two copies matter.

use anyhow::Result;
use sluice_testkit::units;

use super::Plan;
use super::plan::Sizes;
use super::stream::{Data, Length, Stream};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::{Task, Workload};

const SIZES: Sizes = Sizes {
    quick: &[64, 65_536],
    standard: &[8, 64, 512, 4096, 32_768, 262_144, 1_048_576],
    full: &[8, 64, 512, 4096, 32_768, 262_144, 1_048_576],
    third_party: &[8, 64, 512, 4096, 32_768, 262_144, 1_048_576],
};

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placement = plan.one_placement();
    let sizes = plan.sizes_or(&SIZES).into_iter();
    sizes
        .flat_map(|size| [Data::Untouched, Data::Touched, Data::InPlace].map(|data| (size, data)))
        .map(|(size, data)| case(plan, size, placement, data))
        .collect()
}

fn case(plan: &Plan, size: usize, placement: Placement, data: Data) -> Result<Case> {
    let what = match data {
        Data::Untouched => "untouched",
        Data::Touched => "touched",
        Data::InPlace => "in place",
    };
    let title = format!("{} {what} {}", units::size(size), placement.name());
    let task = Task {
        size,
        placement,
        workload: match data {
            Data::InPlace => Workload::InPlace,
            Data::Untouched | Data::Touched => Workload::Stream,
        },
    };
    let length = Length::For(plan.duration);
    plan.case("sizes", title, Metric::Rate, task, |setup| Stream {
        data,
        ..Stream::new(setup, length)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn each_size_is_measured_in_each_way() {
        let mut plan = plan();
        plan.sizes = vec![64];
        let titles: Vec<_> = cases(&plan)
            .unwrap()
            .into_iter()
            .map(|case| case.title)
            .collect();
        let ways = ["untouched", "touched", "in place"];
        assert_eq!(titles, ways.map(|way| format!("64 B {way} same-cpu")));
    }
}
