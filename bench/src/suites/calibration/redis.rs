// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gets from Redis, one after the other over one connection: by redis-benchmark, and by the client of the suites for maps.
//! Both run on the first processor, and the server, which both have alike, on the second one.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side, Start};

use super::{OWN, SUITE};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped, Subject};
use crate::harness::server::is_installed;
use crate::harness::waiting::Waiting;
use crate::suites::Plan;
use crate::suites::map::redis::{self, Redis};
use crate::suites::map::store::{Client, Resources, Store, VALUE_SIZE, key, value};
use crate::suites::setup::PROCESS_TIMEOUT;

const NAME: &str = "redis";
const PROGRAM: &str = "redis-benchmark";
/// The key of all gets.
const NUMBER: u64 = 7;
const CHECKED: u64 = 100;
/// The time in which a get is sure to be answered, for the number of gets in a round.
const GET_TIME: Duration = Duration::from_micros(50);

pub fn case(plan: &Plan) -> Result<Option<Case>> {
    if plan.one_placement() == Placement::SameCpu || !plan.wants(NAME) {
        return Ok(None);
    }
    let placement = Placement::TwoCpus;
    let gets = Gets {
        resources: Rc::new(Resources::new(
            plan.tree.clone(),
            plan.confinement(placement)?,
        )),
        count: (plan.duration.as_micros() / GET_TIME.as_micros()).max(1) as u64,
    };
    let title = format!("{NAME} gets {}", placement.name());
    let mut case = Case {
        size: Some(VALUE_SIZE),
        ..Case::new(SUITE, title, placement, Metric::Operations)
    };
    match missing() {
        Some(skip) => case.skipped.push(skip),
        None => {
            let subject = |label, job| Subject::new(NAME, label, Waiting::Sleep, job);
            let own = OwnBenchmark(gets.clone());
            case.subjects = vec![
                Subject::new(NAME, format!("{NAME}{OWN}"), Waiting::Sleep, own),
                subject(NAME.into(), gets),
            ];
        }
    }
    Ok(Some(case))
}

fn missing() -> Option<Skipped> {
    redis::missing().or_else(|| {
        let reason = format!("{PROGRAM} is not in PATH; install redis-tools");
        (!is_installed(PROGRAM)).then(|| Skipped::unavailable(NAME, reason))
    })
}

/// The client of the suites for maps.
#[derive(Clone)]
struct Gets {
    resources: Rc<Resources>,
    /// In a round.
    count: u64,
}

impl Gets {
    /// A server with the key.
    fn server(&self) -> Result<Redis> {
        let server = redis::server_for(&self.resources)?;
        server.client()?.set(&key(NUMBER), &value(NUMBER, 0))?;
        Ok(server)
    }

    fn run(&self, count: u64) -> Result<Measurement> {
        let server = self.server()?;
        let mut group = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| {
            let client = server.client()?;
            self.resources.confinement.enter(Side::First)?;
            get(client, count, start)
        })?;
        group.go()?;
        let numbers = group.finish(PROCESS_TIMEOUT + count as u32 * GET_TIME)?;
        let [elapsed_ns, cpu_ns] = numbers.concat()[..].try_into()?;
        Ok(Measurement {
            messages: count,
            elapsed_ns,
            cpu_ns,
            ..Measurement::default()
        })
    }
}

fn get(mut client: Box<dyn Client>, count: u64, start: &mut Start) -> Result<Vec<u64>> {
    let mut found = [0; VALUE_SIZE];
    start.wait()?;
    let (begin, cpu) = (clock::now_ns(), clock::cpu_ns());
    for _ in 0..count {
        client.get(&key(NUMBER), &mut found)?;
    }
    let (elapsed, used) = (clock::now_ns() - begin, clock::cpu_ns() - cpu);
    ensure!(found == value(NUMBER, 0), "a get returned another value");
    Ok(vec![elapsed, used])
}

impl Job for Gets {
    fn check(&self) -> Result<()> {
        self.run(CHECKED).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.count)
    }
}

struct OwnBenchmark(Gets);

impl OwnBenchmark {
    fn run(&self, count: u64) -> Result<Measurement> {
        let gets = &self.0;
        let server = gets.server()?;
        let [first, _] = gets.resources.confinement.cpus;
        let key = key(NUMBER);
        let output = Command::new("taskset")
            .args(["--cpu-list", &first.to_string(), PROGRAM, "-s"])
            .arg(server.path())
            .args(["-c", "1", "-n", &count.to_string(), "--csv", "GET"])
            .arg(std::str::from_utf8(&key)?)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {PROGRAM} with taskset; install util-linux"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = rate(&text)
            .with_context(|| format!("{PROGRAM} printed no rate: {}", text.trim_end()))?;
        Ok(Measurement {
            messages: count,
            elapsed_ns: (count as f64 * 1e9 / rate) as u64,
            ..Measurement::default()
        })
    }
}

/// The second column of the last line.
fn rate(csv: &str) -> Option<f64> {
    let cell = csv.lines().last()?.split("\",\"").nth(1)?;
    let rate: f64 = cell.trim_matches('"').parse().ok()?;
    (rate > 0.0).then_some(rate)
}

impl Job for OwnBenchmark {
    fn check(&self) -> Result<()> {
        self.run(CHECKED).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(self.0.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::plan::tests::plan;
    use sluice_testkit::workers::serial;

    #[test]
    fn the_rate_is_the_second_column() {
        let csv = "\"test\",\"rps\",\"avg\"\n\"GET 7\",\"40983.61\",\"0.019\"\n";
        assert_eq!(rate(csv), Some(40_983.61));
        assert_eq!(rate("\"test\",\"rps\"\n"), None);
        assert_eq!(rate("Could not connect"), None);
    }

    #[test]
    fn both_clients_measure_the_same_server() {
        let _serial = serial();
        if missing().is_some() || Placement::TwoCpus.cpus().unwrap().is_none() {
            return;
        }
        let plan = Plan {
            placements: vec![Placement::TwoCpus],
            ..plan()
        };
        let case = case(&plan).unwrap().unwrap();
        assert_eq!(case.subjects.len(), 2);
        for subject in &case.subjects {
            subject.job.check().unwrap();
            assert!(subject.job.measure().unwrap().elapsed_ns > 0);
        }
    }
}
