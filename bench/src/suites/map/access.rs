// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that use one store. Every value that they get is checked.
//!
//! Rates are those of processes that the scheduler places on two processors, with the choice of keys, the checks and a reading
//! of the clock for each operation, until the end of the round, so that all of them compete all the time. Where one process
//! is measured, it is on the first processor, and one beside it on the second one; its time is that of the calls alone.

use std::fs::File;
use std::io::Write;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::thread::yield_now;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::{Group, Side, Start};

use super::store::{
    Client, Key, Resources, Store, VALUE_SIZE, Value, Way, key, number_of, stamp_of, value,
};
use crate::harness::rounds::{Job, Measurement};
use crate::reports::map::{BATCH, Measured, Operation};
use crate::suites::setup::PROCESS_TIMEOUT;

/// Keys in the store, except for a dump.
const KEYS: u64 = 1000;
const KEYS_OF_DUMP: u64 = 10_000;
/// Sets and gets of a check by each process.
const CHECKED: u64 = 100;
/// Operations of each process before the first one that counts.
const WARM_UP: u64 = 64;

pub struct Access {
    pub way: Way,
    pub resources: Rc<Resources>,
    pub measured: Measured,
    pub duration: Duration,
}

/// What the processes of one run share.
pub struct Progress {
    words: SharedWords,
    users: u64,
}

impl Progress {
    const ARRIVED: usize = 0;
    const DONE: usize = SharedWords::PER_LINE;

    pub fn new(users: usize) -> Result<Self> {
        Ok(Self {
            words: SharedWords::new(2 * SharedWords::PER_LINE)?,
            users: users as u64,
        })
    }

    /// Waits until all processes are here: they are started one after the other.
    pub fn await_all(&self) {
        let arrived = &self.words.words()[Self::ARRIVED];
        arrived.fetch_add(1, Ordering::Relaxed);
        while arrived.load(Ordering::Relaxed) < self.users {
            yield_now();
        }
    }

    fn set_done(&self) {
        self.words.set(Self::DONE, 1);
    }

    fn is_done(&self) -> bool {
        self.words.get(Self::DONE) == 1
    }
}

/// The time of calls.
#[derive(Default)]
struct Stopwatch {
    elapsed: u64,
    cpu: u64,
}

impl Stopwatch {
    fn time<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let cpu = clock::thread_cpu_ns();
        let begin = clock::now_ns();
        let returned = call()?;
        self.elapsed += clock::now_ns() - begin;
        self.cpu += clock::thread_cpu_ns() - cpu;
        Ok(returned)
    }
}

/// What a process has done, and the time of its calls.
struct Done {
    begin: u64,
    end: u64,
    elapsed: u64,
    cpu: u64,
    messages: u64,
}

impl Job for Access {
    /// Every process sets keys of its own, and gets them back; then all get all of them.
    fn check(&self) -> Result<()> {
        let store = self.filled_store()?;
        let users = self.users();
        let mut group = Group::start(users, (), PROCESS_TIMEOUT, |number, (), start| {
            let mut client = store.client()?;
            self.enter(number)?;
            start.wait()?;
            set_and_get_own(&mut *client, number as u64, users as u64)?;
            Ok(Vec::new())
        })?;
        group.go()?;
        group.finish(self.limit())?;
        let mut client = store.client()?;
        let sets = self.expect_all(&mut *client, |stamp| stamp != 0)?;
        let expected = CHECKED.min(self.keys() / users as u64) * users as u64;
        ensure!(
            sets == expected,
            "{expected} keys were set, and {sets} have a new value"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let store = self.filled_store()?;
        let measured = self.run(&*store)?;
        // The warm-up also sets values.
        let measured_set = |stamp| stamp & COUNTS > WARM_UP;
        let sets = self.expect_all(&mut *store.client()?, measured_set)?;
        ensure!(
            sets > 0 || !self.changes_values(),
            "no set has changed a value"
        );
        Ok(measured)
    }
}

impl Access {
    fn keys(&self) -> u64 {
        match self.measured {
            Measured::Dump => KEYS_OF_DUMP,
            _ => KEYS,
        }
    }

    /// Those that are measured.
    pub fn processes(&self) -> usize {
        match self.measured {
            Measured::Rate { processes, .. } => processes,
            _ => 1,
        }
    }

    /// With the one beside them.
    fn users(&self) -> usize {
        let has_neighbour = matches!(self.measured, Measured::ReaderCost { .. });
        self.processes() + usize::from(has_neighbour)
    }

    fn has_writer(&self) -> bool {
        matches!(
            self.measured,
            Measured::ReaderCost {
                beside_writer: true
            }
        )
    }

    fn changes_values(&self) -> bool {
        match self.measured {
            Measured::Rate { operation, .. } => operation != Operation::Get,
            _ => self.has_writer(),
        }
    }

    fn limit(&self) -> Duration {
        PROCESS_TIMEOUT + self.duration
    }

    /// Of several processes, from the first one that began to the end of the round, which is that of the first one that
    /// saw it; of one, that of its calls.
    fn elapsed(&self, done: &[Done]) -> u64 {
        let all = match self.measured {
            Measured::Rate { .. } => {
                let begin = done.iter().map(|one| one.begin).min();
                let end = done.iter().map(|one| one.end).min();
                end.unwrap_or(0) - begin.unwrap_or(0)
            }
            _ => done.iter().map(|one| one.elapsed).sum(),
        };
        all.max(1)
    }

    fn enter(&self, number: usize) -> Result<()> {
        let confinement = &self.resources.confinement;
        match self.measured {
            Measured::Rate { .. } => confinement.enter_any_cpu(),
            _ if number == 0 => confinement.enter(Side::First),
            _ => confinement.enter(Side::Second),
        }
    }

    /// All values have the stamp 0.
    fn filled_store(&self) -> Result<Box<dyn Store>> {
        let store = (self.way.create)(self.keys(), &self.resources)?;
        let mut client = store.client()?;
        for number in 0..self.keys() {
            client.set(&key(number), &value(number, 0))?;
        }
        drop(client);
        Ok(store)
    }

    /// The number of values with such a stamp. Those with which the store was filled have the stamp 0.
    fn expect_all(&self, client: &mut dyn Client, wanted: impl Fn(u64) -> bool) -> Result<u64> {
        let mut sets = 0;
        for number in 0..self.keys() {
            sets += u64::from(wanted(get(client, number)?));
        }
        Ok(sets)
    }

    fn run(&self, store: &dyn Store) -> Result<Measurement> {
        let progress = Progress::new(self.users())?;
        let mut group = Group::start(self.users(), (), PROCESS_TIMEOUT, |number, (), start| {
            let mut client = store.client()?;
            self.enter(number)?;
            match number < self.processes() {
                true => self.work(&mut *client, number, start, &progress),
                false => self.accompany(&mut *client, number, start, &progress),
            }
        })?;
        // After the warm-up.
        let helper = store.helper_ns()?;
        group.go()?;
        let numbers = group.finish(self.limit())?.into_iter();
        let helper = store.helper_ns()? - helper;
        let done = numbers.take(self.processes()).map(|one| {
            let [begin, end, elapsed, cpu, messages] = one[..].try_into()?;
            Ok(Done {
                begin,
                end,
                elapsed,
                cpu,
                messages,
            })
        });
        let done = done.collect::<Result<Vec<_>>>()?;
        let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum::<u64>();
        Ok(Measurement {
            elapsed_ns: self.elapsed(&done),
            cpu_ns: sum(|one| one.cpu) + helper,
            messages: sum(|one| one.messages),
            ..Measurement::default()
        })
    }

    /// Until the end of the round, which the first process that sees it tells the others. Returns the fields of [`Done`].
    fn work(
        &self,
        client: &mut dyn Client,
        number: usize,
        start: &mut Start,
        progress: &Progress,
    ) -> Result<Vec<u64>> {
        let mut keys = Keys::new(number, self.keys());
        // A dump is long enough without.
        if self.measured != Measured::Dump {
            self.warm_up(client, &mut keys)?;
        }
        let mut watch = Stopwatch::default();
        start.wait()?;
        progress.await_all();
        let begin = clock::now_ns();
        let messages = match self.measured {
            Measured::Rate { operation, .. } => {
                watch.time(|| self.repeat(progress, || operate(client, operation, &mut keys)))?
            }
            _ => self.repeat(progress, || self.perform(client, &mut keys, &mut watch))?,
        };
        let end = clock::now_ns();
        Ok(vec![begin, end, watch.elapsed, watch.cpu, messages])
    }

    /// Until the end of the round. What was done later does not count. Returns the number of gets and sets.
    fn repeat(&self, progress: &Progress, mut step: impl FnMut() -> Result<u64>) -> Result<u64> {
        let begin = clock::now_ns();
        let mut messages = 0;
        loop {
            let done = step()?;
            if progress.is_done() {
                return Ok(messages);
            }
            messages += done;
            if u128::from(clock::now_ns() - begin) >= self.duration.as_nanos() {
                progress.set_done();
                return Ok(messages);
            }
        }
    }

    fn warm_up(&self, client: &mut dyn Client, keys: &mut Keys) -> Result<()> {
        let mut done = 0;
        while done < WARM_UP {
            done += self.perform(client, keys, &mut Stopwatch::default())?;
        }
        // What is set from now on can be told from what was set before.
        keys.sets = WARM_UP;
        Ok(())
    }

    /// Returns the number of gets and sets.
    fn perform(
        &self,
        client: &mut dyn Client,
        keys: &mut Keys,
        watch: &mut Stopwatch,
    ) -> Result<u64> {
        match self.measured {
            Measured::Rate { operation, .. } => operate(client, operation, keys),
            Measured::Dump => self.dump(client, watch),
            Measured::Get | Measured::ReaderCost { .. } | Measured::Batch => {
                self.get_group(client, keys, watch)
            }
        }
    }

    /// Sets values until the reader beside this process is done, or writes them to /dev/null.
    fn accompany(
        &self,
        client: &mut dyn Client,
        number: usize,
        start: &mut Start,
        progress: &Progress,
    ) -> Result<Vec<u64>> {
        let mut keys = Keys::new(number, self.keys());
        let mut nothing = File::options().write(true).open("/dev/null")?;
        start.wait()?;
        progress.await_all();
        while !progress.is_done() {
            match self.has_writer() {
                true => keys.set_next(client)?,
                false => nothing.write_all(&value(0, 0))?,
            }
        }
        Ok(Vec::new())
    }

    /// Gets of as many keys as a batch has, in a batch or one by one.
    fn get_group(
        &self,
        client: &mut dyn Client,
        keys: &mut Keys,
        watch: &mut Stopwatch,
    ) -> Result<u64> {
        let mut numbers = [0; BATCH];
        let mut group = [key(0); BATCH];
        let mut values = [[0; VALUE_SIZE]; BATCH];
        for (number, key) in numbers.iter_mut().zip(&mut group) {
            (*number, *key) = keys.next();
        }
        watch.time(|| match self.measured {
            Measured::Batch => client.get_batch(&group, &mut values),
            _ => {
                let mut pairs = group.iter().zip(&mut values);
                pairs.try_for_each(|(key, value)| client.get(key, value))
            }
        })?;
        for (number, value) in numbers.iter().zip(&values) {
            stamp_of(value, *number)?;
        }
        Ok(BATCH as u64)
    }

    /// Each dump must have every key once.
    fn dump(&self, client: &mut dyn Client, watch: &mut Stopwatch) -> Result<u64> {
        let mut seen = vec![false; self.keys() as usize];
        let mut restart = true;
        while watch.time(|| client.dump_part(restart))? {
            restart = false;
            client.visit_part(&mut |key: &[u8], value: &Value| {
                let number = number_of(key)?;
                stamp_of(value, number)?;
                let again = seen
                    .get_mut(number as usize)
                    .is_none_or(|seen| std::mem::replace(seen, true));
                ensure!(!again, "key {number} was listed twice, or never set");
                Ok(())
            })?;
        }
        ensure!(
            seen.iter().all(|seen| *seen),
            "a key is missing in the list"
        );
        Ok(self.keys())
    }
}

/// Returns the number of gets and sets.
fn operate(client: &mut dyn Client, operation: Operation, keys: &mut Keys) -> Result<u64> {
    match operation {
        Operation::Get => keys.get_next(client).map(|()| 1),
        Operation::Set => keys.set_next(client).map(|()| 1),
        Operation::GetAndSet => {
            keys.get_next(client)?;
            keys.set_next(client).map(|()| 2)
        }
    }
}

fn get(client: &mut dyn Client, number: u64) -> Result<u64> {
    let mut value = [0; VALUE_SIZE];
    client.get(&key(number), &mut value)?;
    stamp_of(&value, number)
}

fn set_and_get_own(client: &mut dyn Client, process: u64, processes: u64) -> Result<()> {
    let own = (0..KEYS).filter(|number| number % processes == process);
    for number in own.take(CHECKED as usize) {
        let stamp = stamp(process, number);
        client.set(&key(number), &value(number, stamp))?;
        let returned = get(client, number)?;
        ensure!(
            returned == stamp,
            "key {number} has the value {returned:#x} after {stamp:#x} was set"
        );
    }
    Ok(())
}

/// The part of a stamp that is the count.
const COUNTS: u64 = u32::MAX as u64;

/// Never 0.
fn stamp(process: u64, count: u64) -> u64 {
    (process + 1) << 32 | count
}

/// Pseudo-random keys of one process, the same in every run.
struct Keys {
    keys: Vec<Key>,
    random: Rng,
    process: u64,
    sets: u64,
}

impl Keys {
    fn new(process: usize, count: u64) -> Self {
        Self {
            keys: (0..count).map(key).collect(),
            random: Rng::with_seed(process as u64),
            process: process as u64,
            sets: 0,
        }
    }

    fn next(&mut self) -> (u64, Key) {
        let number = self.random.usize(..self.keys.len());
        (number as u64, self.keys[number])
    }

    fn get_next(&mut self, client: &mut dyn Client) -> Result<()> {
        let (number, key) = self.next();
        let mut value = [0; VALUE_SIZE];
        client.get(&key, &mut value)?;
        stamp_of(&value, number).map(drop)
    }

    fn set_next(&mut self, client: &mut dyn Client) -> Result<()> {
        let (number, key) = self.next();
        self.sets += 1;
        client.set(&key, &value(number, stamp(self.process, self.sets)))
    }
}
