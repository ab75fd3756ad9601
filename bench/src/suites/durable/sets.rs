// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that set values of one store, for a while, on processors that the scheduler chooses. Where a set waits for the
//! disk, its time is that of the whole wait.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Start};

use super::resources::{DurableStore, Resources};
use super::{KEYS, Way};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::map::access::Progress;
use crate::suites::map::store::{Client, VALUE_SIZE, key, stamp_of, value};
use crate::suites::setup::PROCESS_TIMEOUT;

/// Sets of a check by each process.
const CHECKED: u64 = 10;
/// Numbers of a process before its samples.
const NUMBERS: usize = 4;

pub struct Sets {
    pub way: Way,
    pub resources: Rc<Resources>,
    pub processes: usize,
    pub duration: Duration,
    /// The durable maps there are beside the measured one.
    pub beside: Beside,
}

/// The other maps of the daemon.
#[derive(Clone, Copy)]
pub enum Beside {
    /// As they are.
    Any,
    /// No durable map.
    None,
    /// A durable map of this way that nobody uses.
    Idle(Way),
}

/// When a process ends.
#[derive(Clone, Copy)]
enum Until {
    Count(u64),
    Elapsed(Duration),
}

impl Until {
    fn is_reached(self, sets: usize) -> bool {
        matches!(self, Self::Count(count) if sets as u64 >= count)
    }

    fn is_over(self, elapsed_ns: u64) -> bool {
        matches!(self, Self::Elapsed(duration) if u128::from(elapsed_ns) > duration.as_nanos())
    }
}

impl Job for Sets {
    /// Every process gets back what it has set.
    fn check(&self) -> Result<()> {
        let store = self.resources.store(&self.way)?;
        let done = self.run(&*store, Until::Count(CHECKED))?;
        ensure!(
            done.messages == CHECKED * self.processes as u64,
            "{} sets were made",
            done.messages
        );
        expect_values(&mut *store.client()?)
    }

    fn measure(&self) -> Result<Measurement> {
        self.prepare()?;
        let store = self.resources.store(&self.way)?;
        store.settle()?;
        let daemon = match store.is_stored_by_daemon() {
            true => Some(self.resources.environment()?.daemon()?),
            false => None,
        };
        if let Some(daemon) = daemon {
            daemon.await_idle()?;
        }
        let cpu_before = store.helper_ns()? + daemon.map_or(Ok(0), |daemon| daemon.cpu_ns())?;
        let before = daemon.map(|daemon| daemon.commits()).transpose()?;
        let mut done = self.run(&*store, Until::Elapsed(self.duration))?;
        // With `always`, all of them were stored when the last set returned.
        let after = daemon.map(|daemon| daemon.commits()).transpose()?;
        let cpu_after = store.helper_ns()? + daemon.map_or(Ok(0), |daemon| daemon.cpu_ns())?;
        done.cpu_ns += cpu_after - cpu_before;
        done.commits = after
            .zip(before)
            .map(|(after, before)| u64::from(after.wrapping_sub(before)));
        // What is not stored yet must not be stored while another store is measured.
        store.settle()?;
        expect_values(&mut *store.client()?)?;
        Ok(done)
    }
}

impl Sets {
    fn prepare(&self) -> Result<()> {
        match self.beside {
            Beside::Any => return Ok(()),
            Beside::None => self.resources.drop_durable_maps(),
            Beside::Idle(way) => drop(self.resources.store(&way)?),
        }
        self.resources.environment()?.daemon()?.await_idle()
    }

    fn run(&self, store: &dyn DurableStore, until: Until) -> Result<Measurement> {
        let progress = Progress::new(self.processes)?;
        let mut group = Group::start(self.processes, (), PROCESS_TIMEOUT, |number, (), start| {
            let mut client = store.client()?;
            self.resources.confinement.enter_any_cpu()?;
            set_until(&mut *client, number as u64, until, start, &progress)
        })?;
        group.go()?;
        let done = group.finish(PROCESS_TIMEOUT + self.duration)?;
        total(&done)
    }
}

/// The numbers of all processes together.
fn total(processes: &[Vec<u64>]) -> Result<Measurement> {
    let mut total = Measurement::default();
    let (mut begin, mut end) = (u64::MAX, 0);
    for numbers in processes {
        let (numbers, samples) = numbers
            .split_at_checked(NUMBERS)
            .context("a process returned too few numbers")?;
        begin = begin.min(numbers[0]);
        end = end.max(numbers[1]);
        total.cpu_ns += numbers[2];
        total.messages += numbers[3];
        total.samples.extend(samples);
    }
    total.elapsed_ns = end.saturating_sub(begin);
    Ok(total)
}

/// Returns the beginning and the end of its time, its processor time, the number of sets in it, and the time of each set, also of
/// the last one, which may have ended late: a rate that included the wait of one process for the others would be that of none.
fn set_until(
    client: &mut dyn Client,
    process: u64,
    until: Until,
    start: &mut Start,
    progress: &Progress,
) -> Result<Vec<u64>> {
    let mut random = Rng::with_seed(process);
    let mut times = Vec::new();
    start.wait()?;
    progress.await_all();
    let cpu = clock::thread_cpu_ns();
    let begin = clock::now_ns();
    let (mut now, mut in_time) = (begin, 0);
    while !until.is_reached(times.len()) {
        let number = random.u64(..KEYS);
        let stamp = (process + 1) << 32 | (times.len() as u64 + 1);
        client.set(&key(number), &value(number, stamp))?;
        let end = clock::now_ns();
        times.push(end - now);
        if until.is_over(end - begin) {
            break;
        }
        in_time += 1;
        now = end;
    }
    let cpu = clock::thread_cpu_ns() - cpu;
    let end = match until {
        Until::Count(_) => now,
        Until::Elapsed(duration) => begin + duration.as_nanos() as u64,
    };
    Ok([&[begin, end, cpu, in_time], &times[..]].concat())
}

/// Each key must have a whole value that was set for it.
fn expect_values(client: &mut dyn Client) -> Result<()> {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut values = vec![[0; VALUE_SIZE]; keys.len()];
    client.get_batch(&keys, &mut values)?;
    let mut changed = 0;
    for (number, value) in (0..KEYS).zip(&values) {
        changed += u64::from(stamp_of(value, number)? != 0);
    }
    ensure!(changed > 0, "no set has changed a value");
    Ok(())
}
