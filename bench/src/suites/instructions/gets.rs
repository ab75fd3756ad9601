// SPDX-License-Identifier: MIT OR Apache-2.0
//! Gets of a store, one after the other by one process. Nothing is compared between the marks.

use std::rc::Rc;

use anyhow::{Context, Result};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side};

use super::counter::{Counter, mark};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::map::store::{Client, Key, Store, VALUE_SIZE, Value, key, stamp_of};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

pub const KEYS: u64 = 1000;

pub struct Gets {
    /// Returns a store in which all keys have a value.
    pub store: Box<dyn Fn() -> Result<Rc<dyn Store>>>,
    pub confinement: Confinement,
    pub counter: Rc<Counter>,
}

impl Job for Gets {
    fn check(&self) -> Result<()> {
        get_all(&mut *(self.store)()?.client()?, &keys())
    }

    fn measure(&self) -> Result<Measurement> {
        let store = (self.store)()?;
        let (times, count) = self.counter.count(|| self.run(&*store))?;
        Ok(self.counter.measurement(count, times, KEYS))
    }
}

impl Gets {
    /// Returns the time between the marks, in ns.
    fn run(&self, store: &dyn Store) -> Result<u64> {
        let mut process = Group::start(1, (), PROCESS_TIMEOUT, |_, (), start| {
            let (mut client, keys) = (store.client()?, keys());
            self.confinement.enter(Side::First)?;
            start.wait()?;
            get_all(&mut *client, &keys)?;
            let mut value = [0; VALUE_SIZE];
            let begin = clock::now_ns();
            mark();
            for key in &keys {
                client.get(key, &mut value)?;
            }
            mark();
            Ok(vec![clock::now_ns() - begin])
        })?;
        process.go()?;
        let times = process.finish(PROCESS_TIMEOUT)?.concat();
        times.first().copied().context("a process measured nothing")
    }
}

fn keys() -> Vec<Key> {
    (0..KEYS).map(key).collect()
}

/// Compares each value.
fn get_all(client: &mut dyn Client, keys: &[Key]) -> Result<()> {
    for (number, key) in keys.iter().enumerate() {
        let mut value: Value = [0; VALUE_SIZE];
        client.get(key, &mut value)?;
        stamp_of(&value, number as u64)?;
    }
    Ok(())
}
