// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of messages from 8 bytes to 1 MiB, whose data the programs touch or not. In both cases the message is copied into the
//! mechanism and out of it, as for all mechanisms: a library whose messages are made and read in place saves what the programs of
//! this suite do.

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
        .flat_map(|size| [Data::Untouched, Data::Touched].map(|data| (size, data)))
        .map(|(size, data)| case(plan, size, placement, data))
        .collect()
}

fn case(plan: &Plan, size: usize, placement: Placement, data: Data) -> Result<Case> {
    let what = match data {
        Data::Untouched => "untouched",
        Data::Touched => "touched",
    };
    let title = format!("{} {what} {}", units::size(size), placement.name());
    let task = Task {
        size,
        placement,
        workload: Workload::Stream,
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
    fn each_size_is_measured_with_and_without_touching_the_data() {
        let mut plan = plan();
        plan.sizes = vec![64];
        let titles: Vec<_> = cases(&plan)
            .unwrap()
            .into_iter()
            .map(|case| case.title)
            .collect();
        assert_eq!(titles, ["64 B untouched same-cpu", "64 B touched same-cpu"]);
    }
}
