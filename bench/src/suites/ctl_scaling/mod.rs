// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of calls by name, depending on the number of names in a scope and of scopes. The smallest number comes
//! first, so the ratios to it show the growth.

mod ctl;
mod pages;
mod population;

use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ctl::Ctl;
use nix::errno::Errno;
use pages::Pages;
use population::{Lazy, Names, Scopes, reproducible_rng};
use sluice_abi::CHANNEL_PERSISTENT;
use sluice_testkit::cgroup::Tree;
use sluice_testkit::clock;

use super::Plan;
use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Case, Job, Measurement, Metric, Population, Skipped, Subject};
use crate::harness::waiting::Waiting;

const NAMES: [usize; 4] = [10, 100, 1000, 10_000];
const SCOPES: [usize; 3] = [10, 100, 1000];
/// Rounds are shorter than --duration by this factor: there are many, and a tenth of a second holds thousands of calls.
const SHARE: u32 = 10;
const MECHANISM: &str = "sluice-pipe";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create,
    Attach,
    /// A whole listing in the largest pages; time per name.
    List,
    /// A listing in short pages of one length; time per name, without the final empty page.
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

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let tree = match &plan.tree {
        Ok(tree) => tree,
        Err(skip) => return Ok(vec![skipped(skip)]),
    };
    let names = NAMES.map(|count| Rc::new(lazy_names(tree, count)));
    let mut cases = Vec::new();
    for operation in Operation::ALL {
        let subjects = NAMES.iter().zip(&names).map(|(&count, names)| Subject {
            population: Some(Population {
                operation: operation.name(),
                names: count,
                scopes: 1,
            }),
            ..subject(
                format!("among {count} names"),
                ManyNames {
                    operation,
                    count,
                    names: Rc::clone(names),
                    duration: plan.duration / SHARE,
                },
            )
        });
        cases.push(case(operation.name(), subjects.collect()));
    }
    cases.push(scopes_case(tree, plan.duration / SHARE));
    Ok(cases)
}

fn lazy_names(tree: &Rc<Tree>, count: usize) -> Lazy<Names> {
    let tree = Rc::clone(tree);
    Lazy::new(move || Names::create(&tree, count))
}

fn scopes_case(tree: &Rc<Tree>, duration: Duration) -> Case {
    let [.., most] = SCOPES;
    let tree = Rc::clone(tree);
    let scopes = Rc::new(Lazy::new(move || Scopes::create(&tree, most)));
    let operation = Operation::Attach.name();
    let subjects = SCOPES.map(|count| Subject {
        population: Some(Population {
            operation,
            names: 1,
            scopes: count,
        }),
        ..subject(
            format!("among {count} scopes"),
            ManyScopes {
                count,
                scopes: Rc::clone(&scopes),
                duration,
            },
        )
    });
    case(operation, subjects.into())
}

fn subject(label: String, job: impl Job + 'static) -> Subject {
    Subject {
        processes: 1,
        ..Subject::new(MECHANISM, label, Waiting::Sleep, job)
    }
}

fn case(title: &str, subjects: Vec<Subject>) -> Case {
    Case {
        subjects,
        ..Case::new("names", title.into(), Placement::SameCpu, Metric::Latency)
    }
}

fn skipped(skip: &Skipped) -> Case {
    Case {
        skipped: vec![skip.clone()],
        ..case("", Vec::new())
    }
}

/// Collects samples for this time. `take` returns the time of one operation; the rest of its work is not counted.
fn collect(duration: Duration, mut take: impl FnMut() -> Result<u64>) -> Result<Measurement> {
    let [cpu, _] = Placement::SameCpu
        .cpus()?
        .context("no processor is available to this process")?;
    let _pinned = pinning::pin_temporarily(cpu)?;
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

struct ManyNames {
    operation: Operation,
    count: usize,
    names: Rc<Lazy<Names>>,
    duration: Duration,
}

impl Job for ManyNames {
    fn check(&self) -> Result<()> {
        let (ctl, population) = (Ctl::new()?, self.names.get()?);
        Pages::default().expect_all(&ctl, population)?;
        let name = &population.names[self.count / 2];
        match self.operation {
            Operation::Create | Operation::Unlink => {
                expect_create_and_unlink(&ctl, population, name)
            }
            Operation::Attach => expect_attach(&ctl, population, name),
            Operation::Info => expect_info(&ctl, population, name),
            Operation::List | Operation::ListShort => Ok(()),
        }
    }

    fn measure(&self) -> Result<Measurement> {
        let (ctl, population) = (Ctl::new()?, self.names.get()?);
        let mut random = reproducible_rng();
        let mut pages = Pages::default();
        collect(self.duration, || {
            let name = &population.names[random.usize(..self.count)];
            match self.operation {
                Operation::Create => create(&ctl, population, name),
                Operation::Attach => attach(&ctl, population, name),
                Operation::Info => info(&ctl, population, name),
                Operation::Unlink => unlink(&ctl, population, name),
                Operation::List => Pages::default().list_all(&ctl, population),
                Operation::ListShort => pages.next_short(&ctl, population),
            }
        })
    }
}

/// A name that sorts directly after an existing one.
fn next_name(name: &str) -> String {
    format!("{name}-new")
}

fn create(ctl: &Ctl, population: &Names, name: &str) -> Result<u64> {
    let name = next_name(name);
    let (ns, created) = timed(|| ctl.create(&population.scope, &name).map(drop));
    created.with_context(|| format!("cannot create {name}"))?;
    ctl.unlink(&population.scope, &name)
        .with_context(|| format!("cannot unlink {name}"))?;
    Ok(ns)
}

fn unlink(ctl: &Ctl, population: &Names, name: &str) -> Result<u64> {
    let name = next_name(name);
    let created = ctl.create(&population.scope, &name).map(drop);
    created.with_context(|| format!("cannot create {name}"))?;
    let (ns, unlinked) = timed(|| ctl.unlink(&population.scope, &name));
    unlinked.with_context(|| format!("cannot unlink {name}"))?;
    Ok(ns)
}

fn attach(ctl: &Ctl, population: &Names, name: &str) -> Result<u64> {
    let (ns, attached) = timed(|| ctl.attach(&population.scope, name).map(drop));
    attached.with_context(|| format!("cannot attach to {name}"))?;
    Ok(ns)
}

fn info(ctl: &Ctl, population: &Names, name: &str) -> Result<u64> {
    let (ns, info) = timed(|| ctl.info(&population.scope, name));
    info.with_context(|| format!("cannot get info of {name}"))?;
    Ok(ns)
}

fn expect_create_and_unlink(ctl: &Ctl, population: &Names, name: &str) -> Result<()> {
    let new = next_name(name);
    drop(ctl.create(&population.scope, &new)?);
    let again = ctl.create(&population.scope, &new).map(drop);
    ensure!(
        again == Err(Errno::EEXIST),
        "creating {new} again returned {again:?}"
    );
    ctl.unlink(&population.scope, &new)?;
    let after = ctl.info(&population.scope, &new).map(drop);
    ensure!(
        after == Err(Errno::ENOENT),
        "info of {new} after unlink returned {after:?}"
    );
    Pages::default().expect_all(ctl, population)
}

fn expect_attach(ctl: &Ctl, population: &Names, name: &str) -> Result<()> {
    ctl.attach(&population.scope, name)?.write_all(b"!")?;
    let mut byte = [0];
    ctl.attach(&population.scope, name)?.read_exact(&mut byte)?;
    ensure!(&byte == b"!", "received the wrong byte: {byte:?}");
    Ok(())
}

fn expect_info(ctl: &Ctl, population: &Names, name: &str) -> Result<()> {
    let info = ctl.info(&population.scope, name)?;
    ensure!(
        info.name() == name.as_bytes() && info.flags == CHANNEL_PERSISTENT && info.readers == 0,
        "wrong info of {name}: {info:?}"
    );
    Ok(())
}

struct ManyScopes {
    count: usize,
    scopes: Rc<Lazy<Scopes>>,
    duration: Duration,
}

impl Job for ManyScopes {
    fn check(&self) -> Result<()> {
        let (ctl, scopes) = (Ctl::new()?, self.scopes.get()?);
        scopes.set_count(&ctl, self.count)?;
        let [first, second] = [0, self.count / 2].map(|number| scopes.directory(number));
        let (first, second) = (first?, second?);
        ctl.attach(&first, Scopes::NAME)?.write_all(b"!")?;
        let bytes = [&first, &second].map(|scope| {
            let info = ctl.info(scope, Scopes::NAME);
            info.map(|info| info.bytes)
        });
        ensure!(
            bytes == [Ok(1), Ok(0)],
            "one byte was sent to one of two scopes, which hold {bytes:?}"
        );
        ctl.attach(&first, Scopes::NAME)?.read_exact(&mut [0])?;
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let (ctl, scopes) = (Ctl::new()?, self.scopes.get()?);
        scopes.set_count(&ctl, self.count)?;
        let mut random = reproducible_rng();
        collect(self.duration, || {
            // Opening all directories in advance would exceed the limit of open files.
            let scope = scopes.directory(random.usize(..self.count))?;
            let (ns, attached) = timed(|| ctl.attach(&scope, Scopes::NAME).map(drop));
            attached.context("cannot attach to the channel of a scope")?;
            Ok(ns)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn every_short_page_is_full() {
        assert!(NAMES.iter().all(|count| count % pages::SHORT == 0));
    }

    #[test]
    fn without_the_module_the_suite_is_skipped() {
        let cases = cases(&plan()).unwrap();
        assert!(cases.iter().all(|case| case.subjects.is_empty()));
        assert_eq!(cases[0].skipped[0].reason, "not in unit tests");
    }

    #[test]
    fn only_the_measured_time_is_counted() {
        let measurement = collect(Duration::from_millis(5), || Ok(3)).unwrap();
        assert_eq!(measurement.messages, measurement.samples.len() as u64);
        assert_eq!(measurement.elapsed_ns, 3 * measurement.messages);
    }
}
