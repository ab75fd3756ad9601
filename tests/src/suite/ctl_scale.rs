// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one operation costs does not grow with how many names or scopes there are. The limit leaves room
//! for the noise of a machine that does other things too; the costs are in the kernel log.

use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::registry::{Context, topic};
use crate::support::check::{expect, skip};
use crate::support::ctl::{BOTH, CREATE, Ctl, OWN, Open, PERSIST};
use crate::support::kernel::{expect_nothing_held, freed_memory_is_kept_back, mark_log};
use crate::support::memory::PAGE;

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
const SAMPLES: usize = 500;
const ROUNDS: usize = 5;

fn name(number: usize) -> String {
    format!("channel-{number:05}")
}

fn skip_where_costs_tell_nothing() -> Result<()> {
    if freed_memory_is_kept_back()? {
        return Err(skip(
            "KASAN looks at every access, so what an operation costs tells nothing",
        ));
    }
    Ok(())
}

/// The least of a few medians: what else the machine does only adds.
fn cost(act: impl Fn(usize) -> Result<()>) -> Result<Duration> {
    let mut medians = Vec::new();
    for _ in 0..ROUNDS {
        let mut spans = Vec::with_capacity(SAMPLES);
        for sample in 0..SAMPLES {
            let start = Instant::now();
            act(sample)?;
            spans.push(start.elapsed());
        }
        spans.sort();
        medians.push(spans[SAMPLES / 2]);
    }
    medians.into_iter().min().context("there was no round")
}

/// Of one operation each, in the own scope, which has so many names.
#[derive(Debug)]
struct Costs {
    attach: Duration,
    create: Duration,
    list: Duration,
}

impl Costs {
    fn measure(ctl: &Ctl, names: usize, what: &str) -> Result<Self> {
        // Far apart, so that a look-up finds nothing where the last one was.
        let any = |sample: usize| name(sample * 7919 % names);
        let costs = Costs {
            attach: cost(|sample| ctl.attach(OWN, any(sample)).map(drop).context("opening"))?,
            create: cost(|sample| {
                let fresh = format!("{}-fresh", any(sample));
                ctl.create(fresh).map(drop).context("making one")
            })?,
            list: cost(|_| {
                let page = ctl.page(OWN, None, FEW)?;
                expect("entries", page.len(), FEW)
            })?,
        };
        mark_log(&format!("{what}: {costs:?}"));
        Ok(costs)
    }

    fn expect_no_more_than(&self, fewer: &Costs, what: &str) -> Result<()> {
        for (operation, cost, before) in [
            ("open and close", self.attach, fewer.attach),
            ("create and close", self.create, fewer.create),
            ("a list of the first ten", self.list, fewer.list),
        ] {
            ensure!(
                cost <= before * LIMIT,
                "{operation}: {cost:?} with {what}, {before:?} without; at most {LIMIT} times as much is expected"
            );
        }
        Ok(())
    }
}

fn persist_all(ctl: &Ctl, scope_fd: RawFd, numbers: std::ops::Range<usize>) -> Result<()> {
    for number in numbers {
        // Small, or a limit on all of them would be met.
        let request = Open {
            scope_fd,
            capacity: PAGE as u64,
            ..Open::new(name(number), BOTH | CREATE | PERSIST)
        };
        drop(
            ctl.open(request)
                .with_context(|| format!("making {}", name(number)))?,
        );
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
    skip_where_costs_tell_nothing()?;
    let ctl = Ctl::new()?;
    persist_all(&ctl, OWN, 0..FEW)?;
    let few = Costs::measure(&ctl, FEW, "10 names")?;
    persist_all(&ctl, OWN, FEW..MANY)?;
    expect("names", ctl.names(OWN)?.len(), MANY)?;
    let many = Costs::measure(&ctl, MANY, "10,000 names")?;
    unlink_all(&ctl)?;
    many.expect_no_more_than(&few, "10,000 names")
}

fn a_thousand_scopes_cost_no_more_than_one(context: &Context) -> Result<()> {
    skip_where_costs_tell_nothing()?;
    let ctl = Ctl::new()?;
    persist_all(&ctl, OWN, 0..FEW)?;
    let alone = Costs::measure(&ctl, FEW, "1 scope")?;
    for number in 0..SCOPES {
        let cgroup = context.cgroup()?.create_child(&format!("scope-{number}"))?;
        let directory = cgroup.directory()?;
        persist_all(&ctl, directory.as_raw_fd(), 0..1)?;
    }
    let crowded = Costs::measure(&ctl, FEW, "1,001 scopes")?;
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
