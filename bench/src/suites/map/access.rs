// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that use one store. Every value that they get is checked. For a rate, the scheduler places the processes on two processors,
//! and all of them compete until the end of the round; a rate includes the choice of keys, the checks and a reading of the clock. A time
//! is the time of the calls alone of one process on the first processor; a process beside it is on the second one.

use std::fs::File;
use std::io::Write;
use std::mem::replace;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread::yield_now;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side, Start};

use super::store::{Client, Key, Stopwatch, Store, VALUE_SIZE, key, number_of, stamp_of, value};
use crate::harness::figures::MESSAGES_PER_COMMIT;
use crate::harness::rounds::{Job, Measurement, Metric};
use crate::suites::counters::Counters;
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

pub const BATCH: usize = 64;
const COUNTS: u64 = u32::MAX as u64;

/// Returns the number of gets and sets that the process made.
pub type Step = fn(&mut Process) -> Result<u64>;

/// What processes do, and which mechanisms are compared.
pub struct Kind {
    /// The operation of a rate, or the title.
    pub name: &'static str,
    pub metric: Metric,
    pub keys: u64,
    /// Sets and gets of a check by each process.
    pub checked: u64,
    /// Operations of each process before the first one that counts.
    pub warm_up: u64,
    pub step: Step,
    /// What a process on the other processor repeats meanwhile.
    pub neighbour: Option<Step>,
    pub has_samples: bool,
    pub batch: Option<usize>,
    pub mechanisms: &'static [&'static str],
    /// Mechanisms that a quick run does not have.
    pub longer: &'static [&'static str],
    /// Of mechanisms with a label other than their name.
    pub labels: &'static [(&'static str, &'static str)],
}

pub struct Access {
    pub kind: &'static Kind,
    /// Returns a store in which all keys have a value.
    pub store: Box<dyn Fn() -> Result<Rc<dyn Store>>>,
    pub confinement: Confinement,
    /// Of a rate; None for the time of the calls of one process.
    pub processes: Option<usize>,
    pub duration: Duration,
}

impl Job for Access {
    /// Every process sets keys of its own, and gets them back; then all keys have whole values.
    fn check(&self) -> Result<()> {
        let store = (self.store)()?;
        let users = self.users() as u64;
        self.run(&*store, |process, start| {
            start.wait()?;
            let own = (process.number..self.kind.keys).step_by(users as usize);
            for number in own.take(self.kind.checked as usize) {
                let set = process.set(number as usize, number)?;
                let got = process.get(number as usize)?;
                ensure!(got == set, "key {number} has {got:#x} instead of {set:#x}");
            }
            Ok(Vec::new())
        })?;
        let changed = self.count(&*store, |stamp| stamp != 0)?;
        let expected = self.kind.checked.min(self.kind.keys / users) * users;
        ensure!(changed >= expected, "{changed} of {expected} keys changed");
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let store = (self.store)()?;
        store.settle()?;
        let counters = Counters::new(2)?;
        let work = |process: &mut Process, start: &mut Start| self.work(process, start, &counters);
        let (numbers, [cpu_ns, commits]) = self.run(&*store, work)?;
        // Pending commits must not reach the disk while another store is measured.
        store.settle()?;
        let changed = self.count(&*store, |stamp| stamp & COUNTS > self.kind.warm_up)?;
        let has_set = numbers.iter().any(|numbers| numbers[0] > 0);
        ensure!(changed > 0 || !has_set, "no set has changed a value");
        let mut total = Measurement {
            cpu_ns,
            ..Measurement::default()
        };
        for numbers in &numbers[..self.measured()] {
            let split = numbers.split_first_chunk();
            let ([_, elapsed, cpu, messages], samples) = split.context("too few numbers")?;
            total.elapsed_ns = *elapsed;
            total.cpu_ns += cpu;
            total.messages += messages;
            total.samples.extend(samples);
        }
        if commits > 0 {
            let figure = total.messages as f64 / commits as f64;
            total = total.with(MESSAGES_PER_COMMIT, figure);
        }
        Ok(total)
    }
}

impl Access {
    fn measured(&self) -> usize {
        self.processes.unwrap_or(1)
    }

    /// The measured processes, and the one beside them.
    fn users(&self) -> usize {
        self.measured() + usize::from(self.kind.neighbour.is_some())
    }

    fn nanoseconds(&self) -> u64 {
        self.duration.as_nanos() as u64
    }

    /// Returns the numbers of each process; and the processor time and the commits of the helper of the store meanwhile.
    fn run(
        &self,
        store: &dyn Store,
        work: impl Fn(&mut Process, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<(Vec<Vec<u64>>, [u64; 2])> {
        let mut group = Group::start(self.users(), (), PROCESS_TIMEOUT, |number, (), start| {
            let mut process = Process::new(number, self.kind.keys, store)?;
            match (self.processes, number) {
                (Some(_), _) => self.confinement.enter_any_cpu()?,
                (None, 0) => self.confinement.enter(Side::First)?,
                (None, _) => self.confinement.enter(Side::Second)?,
            }
            work(&mut process, start)
        })?;
        // After the warm-up.
        let (cpu_before, commits_before) = store.helper()?;
        group.go()?;
        let numbers = group.finish(PROCESS_TIMEOUT + self.duration)?;
        let (cpu, commits) = store.helper()?;
        let commits = commits.wrapping_sub(commits_before);
        Ok((numbers, [cpu - cpu_before, commits.into()]))
    }

    /// The number of values with such a stamp. The values with which the store was filled have the stamp 0.
    fn count(&self, store: &dyn Store, wanted: impl Fn(u64) -> bool) -> Result<u64> {
        let mut process = Process::new(0, self.kind.keys, store)?;
        let mut stamps = (0..self.kind.keys as usize).map(|number| process.get(number));
        stamps.try_fold(0, |count, stamp| Ok(count + u64::from(wanted(stamp?))))
    }

    /// Returns the number of sets, the elapsed time, the processor time, the number of gets and sets in it, and the samples.
    fn work(
        &self,
        process: &mut Process,
        start: &mut Start,
        counters: &Counters,
    ) -> Result<Vec<u64>> {
        let neighbour = self.kind.neighbour.filter(|_| process.number > 0);
        let step = neighbour.unwrap_or(self.kind.step);
        let mut warmed_up = 0;
        while warmed_up < self.kind.warm_up {
            warmed_up += step(process)?;
        }
        // What is set from now on can be told from what was set before.
        process.sets = self.kind.warm_up;
        process.calls = Stopwatch::default();
        start.wait()?;
        let end = self.await_all(counters);
        let (mut samples, mut messages) = (Vec::new(), 0);
        let cpu = clock::thread_cpu_ns();
        let mut now = clock::now_ns();
        while now <= end {
            let done = step(process)?;
            let before = replace(&mut now, clock::now_ns());
            if self.kind.has_samples {
                samples.push(now - before);
            }
            // What ends after the round does not count for a rate.
            if now <= end || self.processes.is_none() {
                messages += done;
            }
        }
        let [elapsed, cpu] = match self.processes {
            Some(_) => [self.nanoseconds(), clock::thread_cpu_ns() - cpu],
            None => [process.calls.elapsed_ns, process.calls.cpu_ns],
        };
        let sets = process.sets - self.kind.warm_up;
        Ok([&[sets, elapsed, cpu, messages], &samples[..]].concat())
    }

    /// Waits until all processes are here, because they are started one after the other. Returns the end of the round.
    fn await_all(&self, counters: &Counters) -> u64 {
        const END: usize = 1;
        let before = counters.at(0).fetch_add(1, Ordering::Relaxed);
        if before + 1 == self.users() as u64 {
            counters.set(END, clock::now_ns() + self.nanoseconds());
        }
        while counters.get(END) == 0 {
            yield_now();
        }
        counters.get(END)
    }
}

/// One of the processes, which uses pseudo-random keys, the same in every run.
pub struct Process {
    number: u64,
    client: Box<dyn Client>,
    keys: Vec<Key>,
    random: Rng,
    sets: u64,
    calls: Stopwatch,
    nothing: File,
}

impl Process {
    fn new(number: usize, keys: u64, store: &dyn Store) -> Result<Self> {
        Ok(Self {
            number: number as u64,
            client: store.client()?,
            keys: (0..keys).map(key).collect(),
            random: Rng::with_seed(number as u64),
            sets: 0,
            calls: Stopwatch::default(),
            nothing: File::options().write(true).open("/dev/null")?,
        })
    }

    fn get(&mut self, number: usize) -> Result<u64> {
        let mut value = [0; VALUE_SIZE];
        self.client.get(&self.keys[number], &mut value)?;
        stamp_of(&value, number as u64)
    }

    /// Returns the stamp of the value, which is never 0.
    fn set(&mut self, number: usize, count: u64) -> Result<u64> {
        let stamp = (self.number + 1) << 32 | count;
        let value = value(number as u64, stamp);
        self.client.set(&self.keys[number], &value)?;
        Ok(stamp)
    }

    fn next(&mut self) -> usize {
        self.random.usize(..self.keys.len())
    }

    pub fn get_next(&mut self) -> Result<u64> {
        let number = self.next();
        self.get(number).map(|_| 1)
    }

    pub fn set_next(&mut self) -> Result<u64> {
        let number = self.next();
        self.sets += 1;
        self.set(number, self.sets).map(|_| 1)
    }

    /// What does not concern the store: on many machines, and in an emulator, a busy processor slows another one down.
    pub fn write_to_nothing(&mut self) -> Result<u64> {
        self.nothing.write_all(&value(0, 0))?;
        Ok(1)
    }

    pub fn get_group(&mut self, in_batch: bool) -> Result<u64> {
        let numbers: [usize; BATCH] = std::array::from_fn(|_| self.next());
        let keys = numbers.map(|number| self.keys[number]);
        let mut values = [[0; VALUE_SIZE]; BATCH];
        let client = &mut self.client;
        self.calls.time(|| match in_batch {
            true => client.get_batch(&keys, &mut values),
            false => {
                let mut pairs = keys.iter().zip(&mut values);
                pairs.try_for_each(|(key, value)| client.get(key, value))
            }
        })?;
        for (number, value) in numbers.iter().zip(&values) {
            stamp_of(value, *number as u64)?;
        }
        Ok(BATCH as u64)
    }

    pub fn set_group(&mut self) -> Result<u64> {
        let numbers: [usize; BATCH] = std::array::from_fn(|_| self.next());
        self.sets += BATCH as u64;
        let stamp = (self.number + 1) << 32 | self.sets;
        let pairs = numbers.map(|number| (self.keys[number], value(number as u64, stamp)));
        let client = &mut self.client;
        self.calls.time(|| {
            pairs
                .iter()
                .try_for_each(|(key, value)| client.set(key, value))
        })?;
        Ok(BATCH as u64)
    }

    /// Each dump must have every key once.
    pub fn dump(&mut self) -> Result<u64> {
        let mut seen = vec![false; self.keys.len()];
        let visit = &mut |key: &[u8], value: &_| {
            let number = number_of(key)?;
            stamp_of(value, number)?;
            let seen = seen.get_mut(number as usize);
            let is_new = seen.is_some_and(|seen| !replace(seen, true));
            ensure!(is_new, "key {number} was listed twice, or never set");
            Ok(())
        };
        self.client.dump(&mut self.calls, visit)?;
        ensure!(!seen.contains(&false), "a key is missing in the list");
        Ok(self.keys.len() as u64)
    }
}
