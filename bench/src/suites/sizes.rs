// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of messages from 8 bytes to 1 MiB, whose data the programs touch or not. In both cases the message is copied into the
//! mechanism and out of it, as for all mechanisms. Those that have an interface for it are measured a third time, with messages
//! that are written and read in place: beside the touched ones, this shows from which size on the two copies matter.

use anyhow::Result;

use super::plan::{Plan, Sizes, title};
use super::stream::{Data, Length, Stream};
use crate::harness::rounds::{Case, Metric};
use crate::mechanisms::Workload;

const ALL: &[usize] = &[8, 64, 512, 4096, 32_768, 262_144, 1_048_576];
const SIZES: Sizes = [&[64, 65_536], ALL, ALL, ALL];
const WAYS: [(&str, Data, Workload); 3] = [
    ("untouched", Data::Untouched, Workload::Stream),
    ("touched", Data::Touched, Workload::Stream),
    ("in place", Data::InPlace, Workload::InPlace),
];

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let sizes = plan.sizes_or(&SIZES).into_iter();
    let conditions = sizes.flat_map(|size| WAYS.map(|way| (size, way)));
    let case = |(size, (way, data, workload))| {
        let task = plan.task(size, workload);
        let title = title(&task, way);
        let case = plan.case("sizes", title, Metric::Rate, task, |setup| Stream {
            data,
            ..Stream::new(setup, Length::For(plan.duration))
        })?;
        Ok(case.axis("data", way))
    };
    conditions.map(case).collect()
}
