// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gets from Redis, one after the other over one connection: by redis-benchmark, and by the client of the suites for maps.
//! Both run on the first processor, and the server, which both have alike, on the second one.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side};

use super::annotate::{OWN, SUITE};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped, Subject};
use crate::harness::server::is_installed;
use crate::harness::waiting::Waiting;
use crate::suites::map::redis::{self, Redis};
use crate::suites::map::store::{Store, StoreResources, VALUE_SIZE, key, value};
use crate::suites::plan::Plan;
use crate::suites::setup::PROCESS_TIMEOUT;

const NAME: &str = "redis";
const PROGRAM: &str = "redis-benchmark";
const NUMBER: u64 = 7;
const CHECKED: u32 = 100;
/// The time in which a get is sure to be answered, for the number of gets in a round.
const GET_TIME: Duration = Duration::from_micros(50);

pub fn case(plan: &Plan) -> Result<Option<Case>> {
    let placement = Placement::TwoCpus;
    if plan.one_placement() != placement || !plan.wants(NAME) {
        return Ok(None);
    }
    let title = format!("{NAME} gets {}", placement.name());
    let mut case = Case::new(SUITE, title, placement, Metric::Operations).of_size(VALUE_SIZE);
    if let Some(skip) = missing() {
        case.skipped.push(skip);
        return Ok(Some(case));
    }
    let confinement = plan.confinement(placement)?;
    let resources = Rc::new(StoreResources::new(plan.tree.clone(), confinement));
    let clients: [(String, Client); 2] =
        [(format!("{NAME}{OWN}"), benchmark), (NAME.into(), client)];
    let subjects = clients.map(|(label, client)| {
        let job = Gets {
            resources: Rc::clone(&resources),
            count: (plan.duration.as_micros() / GET_TIME.as_micros()).max(1) as u32,
            client,
        };
        Subject::new(NAME, label, Waiting::Sleep, job)
    });
    case.subjects.extend(subjects);
    Ok(Some(case))
}

fn missing() -> Option<Skipped> {
    redis::missing().or_else(|| {
        let reason = format!("{PROGRAM} is not in PATH; install redis-tools");
        (!is_installed(PROGRAM)).then(|| Skipped::unavailable(NAME, reason))
    })
}

/// Gets the value of the key as often; returns the elapsed time and its processor time, 0 if that is not known.
type Client = fn(&Redis, &StoreResources, u32) -> Result<[u64; 2]>;

struct Gets {
    resources: Rc<StoreResources>,
    count: u32,
    client: Client,
}

impl Gets {
    fn run(&self, count: u32) -> Result<Measurement> {
        let server = redis::server_for(&self.resources)?;
        server.client()?.set(&key(NUMBER), &value(NUMBER, 0))?;
        let [elapsed_ns, cpu_ns] = (self.client)(&server, &self.resources, count)?;
        Ok(Measurement {
            messages: count.into(),
            elapsed_ns,
            cpu_ns,
            ..Measurement::default()
        })
    }
}

impl Job for Gets {
    fn check(&self) -> Result<()> {
        self.run(CHECKED).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.count)
    }
}

fn client(server: &Redis, resources: &StoreResources, count: u32) -> Result<[u64; 2]> {
    let mut group = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| {
        let mut client = server.client()?;
        resources.confinement.enter(Side::First)?;
        let mut found = [0; VALUE_SIZE];
        start.wait()?;
        let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
        for _ in 0..count {
            client.get(&key(NUMBER), &mut found)?;
        }
        let times = vec![clock::now_ns() - begin, clock::cpu_ns() - cpu];
        ensure!(found == value(NUMBER, 0), "a get returned another value");
        Ok(times)
    })?;
    group.go()?;
    let numbers = group.finish(PROCESS_TIMEOUT + count * GET_TIME)?;
    Ok(numbers.concat()[..].try_into()?)
}

fn benchmark(server: &Redis, resources: &StoreResources, count: u32) -> Result<[u64; 2]> {
    let [first, _] = resources.confinement.cpus;
    let key = key(NUMBER);
    let output = Command::new("taskset")
        .args(["--cpu-list", &first.to_string(), PROGRAM, "-s"])
        .arg(&server.path)
        .args(["-c", "1", "-n", &count.to_string(), "--csv", "GET"])
        .arg(std::str::from_utf8(&key)?)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {PROGRAM} with taskset; install util-linux"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = rate(&text);
    let rate = rate.with_context(|| format!("{PROGRAM} printed no rate: {}", text.trim_end()))?;
    Ok([(f64::from(count) * 1e9 / rate) as u64, 0])
}

/// The second column of the last line.
fn rate(csv: &str) -> Option<f64> {
    let cell = csv.lines().last()?.split("\",\"").nth(1)?;
    let rate: f64 = cell.trim_matches('"').parse().ok()?;
    (rate > 0.0).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_second_column() {
        let csv = "\"test\",\"rps\",\"avg\"\n\"GET 7\",\"40983.61\",\"0.019\"\n";
        assert_eq!(rate(csv), Some(40_983.61));
        for other in ["\"test\",\"rps\"\n", "Could not connect"] {
            assert_eq!(rate(other), None);
        }
    }
}
