// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one operation costs does not grow with how many names or scopes there are. The median of many; the limit leaves
//! room for the noise of a machine that does other things too.

use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open};
use crate::support::kernel::expect_nothing_held;

topic!(
    "ctl_scale",
    fifo: [],
    pipe_only: [
        ten_thousand_names_cost_no_more_than_ten,
        a_thousand_scopes_cost_no_more_than_one,
    ],
);

const FEW: usize = 10;
const MANY: usize = 10_000;
const SCOPES: usize = 1_000;
const LIMIT: u32 = 2;
const SAMPLES: usize = 2_000;

fn name(number: usize) -> String {
    format!("channel-{number:05}")
}

fn median(mut act: impl FnMut(usize) -> Result<()>) -> Result<Duration> {
    let mut spans = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES {
        let start = Instant::now();
        act(sample)?;
        spans.push(start.elapsed());
    }
    spans.sort();
    Ok(spans[SAMPLES / 2])
}

/// Medians of one operation each, among the first `names` names of the own scope.
#[derive(Debug)]
struct Costs {
    attach: Duration,
    create: Duration,
    list: Duration,
}

impl Costs {
    fn measure(ctl: &Ctl, names: usize) -> Result<Self> {
        // Far apart, so that a look-up finds nothing where the last one was.
        let any = |sample: usize| sample * 7919 % names;
        let costs = Costs {
            attach: median(|sample| Ok(drop(ctl.attach(OWN, name(any(sample)))?)))?,
            create: median(|sample| {
                let fresh = format!("{}-fresh", name(any(sample)));
                Ok(drop(ctl.open(Open::new(fresh, BOTH | CREATE))?))
            })?,
            list: median(|sample| {
                let after = name(any(sample) % (names - FEW + 1));
                let page = ctl.page(OWN, Some(after.as_bytes()), FEW - 1)?;
                expect("entries", page.len(), FEW - 1)
            })?,
        };
        println!("{names} names: {costs:?}");
        Ok(costs)
    }

    fn expect_no_more_than(&self, fewer: &Costs, what: &str) -> Result<()> {
        for (operation, cost, before) in [
            ("open and close", self.attach, fewer.attach),
            ("create and close", self.create, fewer.create),
            ("a list of nine", self.list, fewer.list),
        ] {
            ensure!(
                cost <= before * LIMIT,
                "{operation}: {cost:?} with {what}, {before:?} without; at most {LIMIT} times as much is expected"
            );
        }
        Ok(())
    }
}

fn persist_all(ctl: &Ctl, scope: RawFd, numbers: std::ops::Range<usize>) -> Result<()> {
    for number in numbers {
        ctl.persist(scope, name(number))
            .with_context(|| format!("making {}", name(number)))?;
    }
    Ok(())
}

fn unlink_all(ctl: &Ctl) -> Result<()> {
    for name in ctl.names(OWN).context("listing")? {
        ctl.unlink(OWN, name).context("unlinking")?;
    }
    expect_nothing_held()
}

fn ten_thousand_names_cost_no_more_than_ten(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    persist_all(&ctl, OWN, 0..FEW)?;
    let few = Costs::measure(&ctl, FEW)?;
    persist_all(&ctl, OWN, FEW..MANY)?;
    expect("names", ctl.names(OWN)?.len(), MANY)?;
    let many = Costs::measure(&ctl, MANY)?;
    unlink_all(&ctl)?;
    many.expect_no_more_than(&few, "10,000 names")
}

fn a_thousand_scopes_cost_no_more_than_one(context: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    persist_all(&ctl, OWN, 0..FEW)?;
    let alone = Costs::measure(&ctl, FEW)?;
    for number in 0..SCOPES {
        let cgroup = context.cgroup()?.create_child(&format!("scope-{number}"))?;
        let directory = cgroup.directory()?;
        persist_all(&ctl, directory.as_raw_fd(), 0..1)?;
    }
    let crowded = Costs::measure(&ctl, FEW)?;
    unlink_all_and_scopes(&ctl, context)?;
    crowded.expect_no_more_than(&alone, "1,000 scopes")
}

fn unlink_all_and_scopes(ctl: &Ctl, context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    for number in 0..SCOPES {
        std::fs::remove_dir(home.path().join(format!("scope-{number}")))
            .context("removing a cgroup")?;
    }
    unlink_all(ctl)
}
