// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of calls by name, depending on the number of names in a scope and of scopes. The smallest number comes
//! first, so the ratios to it show the growth.

mod pages;
mod population;
mod scope;

use std::io::{Read, Write};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use pages::Pages;
use population::{Lazy, Names, Scopes, reproducible_rng};
use scope::timed;
use sluice_abi::CHANNEL_PERSISTENT;
use sluice_testkit::clock;

use super::plan::Plan;
use crate::harness::pinning::{self, Placement};
use crate::harness::rounds::{Case, Job, Measurement, Metric, Subject};
use crate::harness::waiting::Waiting;

const NAMES: [usize; 4] = [10, 100, 1000, 10_000];
const SCOPES: [usize; 3] = [10, 100, 1000];
/// Rounds are shorter than --duration by this factor: there are many, and a tenth of a second holds thousands of calls.
const SHARE: u32 = 10;
const ATTACH: &str = "attach";

/// An operation on one of the names.
struct Operation {
    name: &'static str,
    check: fn(&Names, &str) -> Result<()>,
    /// Returns the time; the rest of its work is not counted.
    take: fn(&Names, &str, &mut Pages) -> Result<u64>,
}

/// A list is a whole one in the largest pages, or in short pages of one length, without the final empty page; the time is that of a
/// name.
#[rustfmt::skip]
const OPERATIONS: [Operation; 6] = [
    Operation { name: "create", check: check_create_and_unlink, take: |names, name, _| Ok(create_and_unlink(names, name)?[0]) },
    Operation { name: ATTACH, check: check_attach, take: |names, name, _| Ok(timed(|| names.scope.attach(name).map(drop))?.0) },
    Operation { name: "list, a name", check: |_, _| Ok(()), take: |names, _, pages| pages.list_all(names) },
    Operation { name: "list by 10, a name", check: |_, _| Ok(()), take: |names, _, pages| pages.next_short(names) },
    Operation { name: "info", check: check_info, take: |names, name, _| Ok(timed(|| names.scope.info(name))?.0) },
    Operation { name: "unlink", check: check_create_and_unlink, take: |names, name, _| Ok(create_and_unlink(names, name)?[1]) },
];

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let tree = match &plan.tree {
        Ok(tree) => Rc::clone(tree),
        Err(skip) => {
            let mut case = case("", Vec::new());
            case.skipped.push(skip.clone());
            return Ok(vec![case]);
        }
    };
    let duration = plan.duration / SHARE;
    let names = NAMES.map(|count| {
        let tree = Rc::clone(&tree);
        let names = Lazy::new(move || Names::create(&tree, count));
        (count, Rc::new(names))
    });
    let of_operation = |operation: &'static Operation| {
        let subjects = names.iter().map(|(count, names)| {
            let job = ManyNames {
                operation,
                names: Rc::clone(names),
                duration,
            };
            let label = format!("among {count} names");
            subject(label, operation.name, [*count, 1], job)
        });
        case(operation.name, subjects.collect())
    };
    let mut cases: Vec<Case> = OPERATIONS.iter().map(of_operation).collect();
    let [.., most] = SCOPES;
    let scopes = Rc::new(Lazy::new(move || Scopes::create(&tree, most)));
    let subjects = SCOPES.map(|count| {
        let job = ManyScopes {
            count,
            scopes: Rc::clone(&scopes),
            duration,
        };
        subject(format!("among {count} scopes"), ATTACH, [1, count], job)
    });
    cases.push(case(ATTACH, subjects.into()));
    Ok(cases)
}

fn subject(
    label: String,
    operation: &str,
    [names, scopes]: [usize; 2],
    job: impl Job + 'static,
) -> Subject {
    let mut subject = Subject::new("sluice-pipe", label, Waiting::Sleep, job);
    subject.processes = 1;
    let subject = subject.axis("operation", operation);
    subject.axis("names", names).axis("scopes", scopes)
}

fn case(title: &str, subjects: Vec<Subject>) -> Case {
    Case {
        subjects,
        ..Case::new("names", title.into(), Placement::SameCpu, Metric::Latency)
    }
}

/// Collects samples for this time.
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

struct ManyNames {
    operation: &'static Operation,
    names: Rc<Lazy<Names>>,
    duration: Duration,
}

impl Job for ManyNames {
    fn check(&self) -> Result<()> {
        let names = self.names.get()?;
        Pages::new().expect_all(names)?;
        (self.operation.check)(names, &names.names[names.names.len() / 2])
    }

    fn measure(&self) -> Result<Measurement> {
        let names = self.names.get()?;
        let (mut random, mut pages) = (reproducible_rng(), Pages::new());
        collect(self.duration, || {
            let name = &names.names[random.usize(..names.names.len())];
            (self.operation.take)(names, name, &mut pages)
        })
    }
}

/// A name that sorts directly after an existing one.
fn next_name(name: &str) -> String {
    format!("{name}-new")
}

/// Returns the times of both.
fn create_and_unlink(names: &Names, name: &str) -> Result<[u64; 2]> {
    let name = next_name(name);
    let (create_ns, ()) = timed(|| names.scope.create(&name).map(drop))?;
    let (unlink_ns, ()) = timed(|| names.scope.unlink(&name))?;
    Ok([create_ns, unlink_ns])
}

fn check_create_and_unlink(names: &Names, name: &str) -> Result<()> {
    let new = next_name(name);
    names.scope.create(&new)?;
    expect_error(names.scope.create(&new), Errno::EEXIST)?;
    names.scope.unlink(&new)?;
    expect_error(names.scope.info(&new), Errno::ENOENT)?;
    Pages::new().expect_all(names)
}

fn expect_error<T>(returned: Result<T>, expected: Errno) -> Result<()> {
    let error = returned.err().and_then(|error| error.downcast().ok());
    ensure!(
        error == Some(expected),
        "a call returned {error:?} instead of {expected}"
    );
    Ok(())
}

fn check_attach(names: &Names, name: &str) -> Result<()> {
    names.scope.attach(name)?.write_all(b"!")?;
    let mut byte = [0];
    names.scope.attach(name)?.read_exact(&mut byte)?;
    ensure!(&byte == b"!", "received the wrong byte: {byte:?}");
    Ok(())
}

fn check_info(names: &Names, name: &str) -> Result<()> {
    let info = names.scope.info(name)?;
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
        let scopes = self.scopes.get()?;
        scopes.set_count(self.count)?;
        let (first, second) = (scopes.scope(0)?, scopes.scope(self.count / 2)?);
        first.attach(Scopes::NAME)?.write_all(b"!")?;
        let bytes = [
            first.info(Scopes::NAME)?.bytes,
            second.info(Scopes::NAME)?.bytes,
        ];
        ensure!(
            bytes == [1, 0],
            "one byte was sent to one of two scopes, which hold {bytes:?}"
        );
        first.attach(Scopes::NAME)?.read_exact(&mut [0])?;
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let scopes = self.scopes.get()?;
        scopes.set_count(self.count)?;
        let mut random = reproducible_rng();
        collect(self.duration, || {
            // Opening all directories in advance would exceed the limit of open files.
            let scope = scopes.scope(random.usize(..self.count))?;
            Ok(timed(|| scope.attach(Scopes::NAME).map(drop))?.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;

    #[test]
    fn without_the_module_the_suite_is_skipped() {
        assert!(NAMES.iter().all(|count| count % pages::SHORT == 0));
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
