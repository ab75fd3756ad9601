// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of a store of values under keys, and the keys and values that are measured.

use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::cgroup::{Cgroup, Tree};
use sluice_testkit::clock;

use crate::harness::rounds::Skipped;
use crate::mechanisms::temp_paths::TempPaths;
use crate::suites::setup::Confinement;

pub const KEY_SIZE: usize = 16;
pub const VALUE_SIZE: usize = 64;
/// Decimal digits, so a key is also a string, and can be the name of a file.
pub type Key = [u8; KEY_SIZE];
pub type Value = [u8; VALUE_SIZE];

const WORD: usize = size_of::<u64>();

pub fn key(number: u64) -> Key {
    std::array::from_fn(|at| {
        let rest = number / 10u64.pow((KEY_SIZE - 1 - at) as u32);
        b'0' + (rest % 10) as u8
    })
}

pub fn number_of(key: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(key).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.context("a key that nobody has set")
}

/// A value of the key with this number. Each set has its own stamp, which is repeated to detect parts of two values.
pub fn value(number: u64, stamp: u64) -> Value {
    let mut value = [0; VALUE_SIZE];
    let (first, others) = value.split_at_mut(WORD);
    first.copy_from_slice(&number.to_ne_bytes());
    for word in others.chunks_exact_mut(WORD) {
        word.copy_from_slice(&stamp.to_ne_bytes());
    }
    value
}

/// The stamp of a value. Fails if it is not a whole value of this key.
pub fn stamp_of(value: &Value, number: u64) -> Result<u64> {
    let stamp = u64::from_ne_bytes(value[WORD..2 * WORD].try_into()?);
    ensure!(
        *value == self::value(number, stamp),
        "key {number} has a damaged value, or the value of another key"
    );
    Ok(stamp)
}

/// Exists until it is dropped, in the process that created it.
pub trait Store {
    fn client(&self) -> Result<Box<dyn Client>>;

    /// The processor time of another process that works for the clients, and its commits, modulo 2^32, or 0 where sets share none.
    fn helper(&self) -> Result<(u64, u32)> {
        Ok((0, 0))
    }

    /// Waits until all values that were set are stored, and nothing is written any more.
    fn settle(&self) -> Result<()> {
        Ok(())
    }
}

/// A store that only its clients use.
impl<F: Fn() -> Result<Box<dyn Client>>> Store for F {
    fn client(&self) -> Result<Box<dyn Client>> {
        self()
    }
}

pub trait Client {
    /// Fails if there is no such key.
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()>;

    fn set(&mut self, key: &Key, value: &Value) -> Result<()>;

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        let mut pairs = keys.iter().zip(values);
        pairs.try_for_each(|(key, value)| self.set(key, value))
    }

    /// In one call, if there is one that returns the values of chosen keys.
    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        let mut pairs = keys.iter().zip(values);
        pairs.try_for_each(|(key, value)| self.get(key, value))
    }

    /// Passes each key with its value on. Only the calls that list them are timed.
    fn dump(&mut self, _calls: &mut Stopwatch, _visit: &mut Visit) -> Result<()> {
        bail!("it has no call that lists keys")
    }
}

pub type Visit<'a> = dyn FnMut(&[u8], &Value) -> Result<()> + 'a;

#[derive(Default)]
pub struct Stopwatch {
    pub elapsed_ns: u64,
    pub cpu_ns: u64,
}

impl Stopwatch {
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let cpu = clock::thread_cpu_ns();
        let begin = clock::now_ns();
        let returned = call();
        self.elapsed_ns += clock::now_ns() - begin;
        self.cpu_ns += clock::thread_cpu_ns() - cpu;
        returned
    }
}

/// A store in which this many keys have values with the stamp 0.
pub fn filled(store: impl Store + 'static, keys: u64) -> Result<Rc<dyn Store>> {
    let values: Vec<_> = (0..keys).map(|number| value(number, 0)).collect();
    let keys: Vec<_> = (0..keys).map(key).collect();
    store.client()?.set_batch(&keys, &values)?;
    Ok(Rc::new(store))
}

pub struct StoreResources {
    /// The cgroups of mechanisms that need the module, or why there are none.
    pub cgroups: Result<Rc<Tree>, Skipped>,
    pub paths: TempPaths,
    /// The processors of the clients, and the cgroup of every process.
    pub confinement: Confinement,
}

impl StoreResources {
    pub fn new(cgroups: Result<Rc<Tree>, Skipped>, confinement: Confinement) -> Self {
        Self {
            cgroups,
            paths: TempPaths::in_directory(std::env::temp_dir()),
            confinement,
        }
    }

    pub fn create_cgroup(&self) -> Result<Cgroup> {
        match &self.cgroups {
            Ok(tree) => tree.create_cgroup(),
            Err(skip) => bail!("{}", skip.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_whole_and_that_of_its_key() {
        assert_eq!(&key(1207), b"0000000000001207");
        assert_eq!(number_of(&key(1207)).unwrap(), 1207);
        assert!(number_of(b"another key").is_err());
        let good = value(7, 1 << 40);
        assert_eq!(stamp_of(&good, 7).unwrap(), 1 << 40);
        for at in 0..VALUE_SIZE {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(stamp_of(&bad, 7).is_err(), "byte {at}");
        }
    }
}
