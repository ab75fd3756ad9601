// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a call by name costs among few and among many: names in one scope, scopes in one kernel. The fewest come first, so the
//! ratio of each number to them says how a cost grows.

mod crowd;
mod ctl;
mod pages;

use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use sluice_abi::CHANNEL_PERSISTENT;

use super::Plan;
use crate::harness::cgroup::Tree;
use crate::harness::clock;
use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Among, Cell, Contender, Headline, Job, Measurement, Skip};
use crate::mechanisms::Waiting;
use crowd::{Late, Names, Picks, Scopes};
use ctl::Ctl;
use pages::Pages;

const NAMES: [usize; 4] = [10, 100, 1000, 10_000];
const SCOPES: [usize; 3] = [10, 100, 1000];
/// The share of --duration that a turn takes: there are many turns, and thousands of calls fit into a tenth of a second.
const SHARE: u32 = 10;
const MECHANISM: &str = "sluice-pipe";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Attach,
    /// All from the beginning, in the largest pages; for each name.
    List,
    /// The same in short pages of one length; for each name, without the page that tells of the end.
    ListShort,
    Info,
    Unlink,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::Create,
        Self::Attach,
        Self::List,
        Self::ListShort,
        Self::Info,
        Self::Unlink,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Attach => "attach",
            Self::List => "list, a name",
            Self::ListShort => "list by 10, a name",
            Self::Info => "info",
            Self::Unlink => "unlink",
        }
    }
}

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let tree = match &plan.tree {
        Ok(tree) => tree,
        Err(skip) => return Ok(vec![skipped(skip)]),
    };
    let names = NAMES.map(|count| Rc::new(late_names(tree, count)));
    let mut cells = Vec::new();
    for operation in Operation::ALL {
        let contenders = NAMES.iter().zip(&names).map(|(&count, names)| Contender {
            among: Some(Among {
                operation: operation.name(),
                names: count,
                scopes: 1,
            }),
            ..contender(
                format!("among {count} names"),
                AmongNames {
                    operation,
                    count,
                    names: Rc::clone(names),
                    duration: plan.duration / SHARE,
                },
            )
        });
        cells.push(cell(operation.name(), contenders.collect()));
    }
    cells.push(scopes_cell(tree, plan.duration / SHARE));
    Ok(cells)
}

fn late_names(tree: &Rc<Tree>, count: usize) -> Late<Names> {
    let tree = Rc::clone(tree);
    Late::new(move || Names::gather(&tree, count))
}

fn scopes_cell(tree: &Rc<Tree>, duration: Duration) -> Cell {
    let [.., most] = SCOPES;
    let tree = Rc::clone(tree);
    let scopes = Rc::new(Late::new(move || Scopes::gather(&tree, most)));
    let operation = Operation::Attach.name();
    let contenders = SCOPES.map(|count| Contender {
        among: Some(Among {
            operation,
            names: 1,
            scopes: count,
        }),
        ..contender(
            format!("among {count} scopes"),
            AmongScopes {
                count,
                scopes: Rc::clone(&scopes),
                duration,
            },
        )
    });
    cell(operation, contenders.into())
}

fn contender(label: String, job: impl Job + 'static) -> Contender {
    Contender {
        mechanism: MECHANISM,
        label,
        waiting: Waiting::Sleep,
        processes: 1,
        among: None,
        batch: None,
        sharing: None,
        job: Box::new(job),
    }
}

fn cell(title: &str, contenders: Vec<Contender>) -> Cell {
    Cell {
        suite: "names",
        title: title.into(),
        size: None,
        placement: Placement::SameCpu,
        headline: Headline::Latency,
        contenders,
        skips: Vec::new(),
    }
}

fn skipped(skip: &Skip) -> Cell {
    Cell {
        skips: vec![skip.clone()],
        ..cell("", Vec::new())
    }
}

/// Takes samples for so long. `take` returns the time of one operation; what it does beside is not counted.
fn turn(duration: Duration, mut take: impl FnMut() -> Result<u64>) -> Result<Measurement> {
    let [cpu, _] = Placement::SameCpu
        .cpus()?
        .context("this process may use no processor")?;
    let _there = pinning::hold(cpu)?;
    let mut samples = Vec::new();
    let end = clock::now_ns() + duration.as_nanos() as u64;
    while clock::now_ns() < end {
        samples.push(take()?);
    }
    Ok(Measurement {
        messages: samples.len() as u64,
        elapsed_ns: samples.iter().sum(),
        samples,
        ..Measurement::default()
    })
}

fn timed<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let before = clock::now_ns();
    let result = call();
    (clock::now_ns() - before, result)
}

struct AmongNames {
    operation: Operation,
    count: usize,
    names: Rc<Late<Names>>,
    duration: Duration,
}

impl Job for AmongNames {
    fn check(&self) -> Result<()> {
        let (ctl, crowd) = (Ctl::new()?, self.names.get()?);
        Pages::default().expect_all(&ctl, crowd)?;
        let name = &crowd.names[self.count / 2];
        match self.operation {
            Operation::Create | Operation::Unlink => expect_comes_and_goes(&ctl, crowd, name),
            Operation::Attach => expect_meets(&ctl, crowd, name),
            Operation::Info => expect_told(&ctl, crowd, name),
            Operation::List | Operation::ListShort => Ok(()),
        }
    }

    fn measure(&self) -> Result<Measurement> {
        let (ctl, crowd) = (Ctl::new()?, self.names.get()?);
        let mut picks = Picks::new();
        let mut pages = Pages::default();
        turn(self.duration, || {
            let name = &crowd.names[picks.below(self.count)];
            match self.operation {
                Operation::Create => create(&ctl, crowd, name),
                Operation::Attach => attach(&ctl, crowd, name),
                Operation::Info => info(&ctl, crowd, name),
                Operation::Unlink => unlink(&ctl, crowd, name),
                Operation::List => Pages::default().walk(&ctl, crowd),
                Operation::ListShort => pages.next_short(&ctl, crowd),
            }
        })
    }
}

/// Right behind one that is there.
fn neighbour(name: &str) -> String {
    format!("{name}-new")
}

fn create(ctl: &Ctl, crowd: &Names, name: &str) -> Result<u64> {
    let name = neighbour(name);
    let (ns, created) = timed(|| ctl.create(&crowd.scope, &name).map(drop));
    created.with_context(|| format!("cannot create {name}"))?;
    ctl.unlink(&crowd.scope, &name)
        .with_context(|| format!("cannot unlink {name}"))?;
    Ok(ns)
}

fn unlink(ctl: &Ctl, crowd: &Names, name: &str) -> Result<u64> {
    let name = neighbour(name);
    let created = ctl.create(&crowd.scope, &name).map(drop);
    created.with_context(|| format!("cannot create {name}"))?;
    let (ns, unlinked) = timed(|| ctl.unlink(&crowd.scope, &name));
    unlinked.with_context(|| format!("cannot unlink {name}"))?;
    Ok(ns)
}

fn attach(ctl: &Ctl, crowd: &Names, name: &str) -> Result<u64> {
    let (ns, attached) = timed(|| ctl.attach(&crowd.scope, name).map(drop));
    attached.with_context(|| format!("cannot attach to {name}"))?;
    Ok(ns)
}

fn info(ctl: &Ctl, crowd: &Names, name: &str) -> Result<u64> {
    let (ns, told) = timed(|| ctl.info(&crowd.scope, name));
    told.with_context(|| format!("cannot ask about {name}"))?;
    Ok(ns)
}

fn expect_comes_and_goes(ctl: &Ctl, crowd: &Names, name: &str) -> Result<()> {
    let fresh = neighbour(name);
    drop(ctl.create(&crowd.scope, &fresh)?);
    let again = ctl.create(&crowd.scope, &fresh).map(drop);
    ensure!(
        again == Err(Errno::EEXIST),
        "making {fresh} a second time: {again:?}"
    );
    ctl.unlink(&crowd.scope, &fresh)?;
    let gone = ctl.info(&crowd.scope, &fresh).map(drop);
    ensure!(
        gone == Err(Errno::ENOENT),
        "{fresh} after its unlinking: {gone:?}"
    );
    Pages::default().expect_all(ctl, crowd)
}

fn expect_meets(ctl: &Ctl, crowd: &Names, name: &str) -> Result<()> {
    ctl.attach(&crowd.scope, name)?.write_all(b"!")?;
    let mut byte = [0];
    ctl.attach(&crowd.scope, name)?.read_exact(&mut byte)?;
    ensure!(&byte == b"!", "another byte came back: {byte:?}");
    Ok(())
}

fn expect_told(ctl: &Ctl, crowd: &Names, name: &str) -> Result<()> {
    let info = ctl.info(&crowd.scope, name)?;
    ensure!(
        info.name() == name.as_bytes() && info.flags == CHANNEL_PERSISTENT && info.readers == 0,
        "the module tells of {name}: {info:?}"
    );
    Ok(())
}

struct AmongScopes {
    count: usize,
    scopes: Rc<Late<Scopes>>,
    duration: Duration,
}

impl Job for AmongScopes {
    fn check(&self) -> Result<()> {
        let (ctl, scopes) = (Ctl::new()?, self.scopes.get()?);
        scopes.inhabit(&ctl, self.count)?;
        let [first, second] = [0, self.count / 2].map(|number| scopes.directory(number));
        let (first, second) = (first?, second?);
        ctl.attach(&first, Scopes::NAME)?.write_all(b"!")?;
        let bytes = [&first, &second].map(|scope| {
            let told = ctl.info(scope, Scopes::NAME);
            told.map(|info| info.bytes)
        });
        ensure!(
            bytes == [Ok(1), Ok(0)],
            "a byte for one scope: {bytes:?} in it and in another"
        );
        ctl.attach(&first, Scopes::NAME)?.read_exact(&mut [0])?;
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let (ctl, scopes) = (Ctl::new()?, self.scopes.get()?);
        scopes.inhabit(&ctl, self.count)?;
        let mut picks = Picks::new();
        turn(self.duration, || {
            // Opening a thousand beforehand would be more than a process may have open.
            let scope = scopes.directory(picks.below(self.count))?;
            let (ns, attached) = timed(|| ctl.attach(&scope, Scopes::NAME).map(drop));
            attached.context("cannot attach to the channel of a scope")?;
            Ok(ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::Scale;

    #[test]
    fn every_short_page_is_full() {
        assert!(NAMES.iter().all(|count| count % pages::SHORT == 0));
    }

    #[test]
    fn without_the_module_the_suite_is_named_as_skipped() {
        let plan = Plan {
            scale: Scale::Standard,
            suites: Vec::new(),
            sizes: Vec::new(),
            placements: vec![Placement::SameCpu],
            duration: Duration::from_millis(20),
            home: None,
            mechanisms: Vec::new(),
            absent: Vec::new(),
            tree: Err(Skip::circumstance(MECHANISM, "not in unit tests")),
        };
        let cells = cells(&plan).unwrap();
        assert!(cells.iter().all(|cell| cell.contenders.is_empty()));
        assert_eq!(cells[0].skips[0].reason, "not in unit tests");
    }

    #[test]
    fn a_turn_keeps_what_was_measured_and_not_what_it_took_beside() {
        let measurement = turn(Duration::from_millis(5), || Ok(3)).unwrap();
        assert_eq!(measurement.messages, measurement.samples.len() as u64);
        assert_eq!(measurement.elapsed_ns, 3 * measurement.messages);
    }
}
