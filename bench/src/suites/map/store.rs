// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mechanism implements to store values under keys, and the keys and values that are used.

use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::cgroup::Tree;

use crate::harness::rounds::Skipped;
use crate::mechanisms::temp_paths::TempPaths;
use crate::suites::setup::Confinement;

pub const KEY_SIZE: usize = 16;
pub const VALUE_SIZE: usize = 64;
/// Decimal digits, so a key is also a string, and can be the name of a file.
pub type Key = [u8; KEY_SIZE];
pub type Value = [u8; VALUE_SIZE];

const WORD: usize = size_of::<u64>();
const WORDS: usize = VALUE_SIZE / WORD;

pub fn key(number: u64) -> Key {
    let mut key = [b'0'; KEY_SIZE];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

pub fn number_of(key: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(key).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.context("a key that nobody has set")
}

/// A value of the key with this number. Each set has a stamp of its own; all words after the first one are the stamp, so
/// that parts of two values are noticed.
pub fn value(number: u64, stamp: u64) -> Value {
    let mut value = [0; VALUE_SIZE];
    value[..WORD].copy_from_slice(&number.to_ne_bytes());
    for word in value[WORD..].chunks_exact_mut(WORD) {
        word.copy_from_slice(&stamp.to_ne_bytes());
    }
    value
}

/// The stamp of a value. Fails if it is not a whole value of this key.
pub fn stamp_of(value: &Value, number: u64) -> Result<u64> {
    let mut words = [0; WORDS];
    for (word, bytes) in words.iter_mut().zip(value.chunks_exact(WORD)) {
        *word = u64::from_ne_bytes(bytes.try_into()?);
    }
    ensure!(
        words[0] == number,
        "the value of key {} was returned for key {number}",
        words[0]
    );
    let differences = words[2..].iter().map(|word| word ^ words[1]);
    ensure!(
        differences.fold(0, |all, one| all | one) == 0,
        "a damaged value was returned for key {number}"
    );
    Ok(words[1])
}

/// A store in which values are measured; exists until it is dropped, in the process that created it.
pub trait Store {
    /// By a process that uses it.
    fn client(&self) -> Result<Box<dyn Client>>;

    /// Processor time of another process that works for the clients.
    fn helper_ns(&self) -> Result<u64> {
        Ok(0)
    }
}

pub trait Client {
    /// Fails if there is no such key.
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()>;

    fn set(&mut self, key: &Key, value: &Value) -> Result<()>;

    /// In one call, if there is one.
    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        let mut pairs = keys.iter().zip(values);
        pairs.try_for_each(|(key, value)| self.set(key, value))
    }

    /// In one call, if there is one that returns the values of chosen keys.
    fn get_batch(&mut self, keys: &[Key], values: &mut [Value]) -> Result<()> {
        let mut pairs = keys.iter().zip(values);
        pairs.try_for_each(|(key, value)| self.get(key, value))
    }

    /// Gets the next part of a list of all keys and values, the first one if `restart` is set. False: there are no more.
    fn dump_part(&mut self, _restart: bool) -> Result<bool> {
        bail!("it has no call that lists keys")
    }

    /// Passes the keys and values of this part on.
    fn visit_part(&self, _visit: &mut Visit) -> Result<()> {
        bail!("it has no list of keys")
    }
}

pub type Visit<'a> = dyn FnMut(&[u8], &Value) -> Result<()> + 'a;

/// What stores are created with.
pub struct Resources {
    /// The cgroups of mechanisms that need the module, or why there are none.
    pub cgroups: Result<Rc<Tree>, Skipped>,
    /// For sockets that have one.
    pub paths: TempPaths,
    /// The processors of the clients, and the cgroup of every process.
    pub confinement: Confinement,
}

impl Resources {
    pub fn new(cgroups: Result<Rc<Tree>, Skipped>, confinement: Confinement) -> Self {
        Self {
            cgroups,
            paths: TempPaths::in_directory(std::env::temp_dir()),
            confinement,
        }
    }
}

/// A mechanism.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    /// The reason why it cannot be measured here.
    pub unavailable: fn(&Resources) -> Option<Skipped>,
    /// With room for this many keys.
    pub create: fn(u64, &Resources) -> Result<Box<dyn Store>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_contains_its_number() {
        assert_eq!(&key(1207), b"0000000000001207");
        assert_eq!(number_of(&key(1207)).unwrap(), 1207);
        assert!(number_of(b"another key").is_err());
    }

    #[test]
    fn damaged_values_are_noticed() {
        let good = value(7, 1 << 40);
        assert_eq!(stamp_of(&good, 7).unwrap(), 1 << 40);
        assert!(stamp_of(&good, 8).is_err());
        for at in 0..VALUE_SIZE {
            let mut bad = good;
            bad[at] ^= 1;
            assert!(stamp_of(&bad, 7).is_err(), "byte {at}");
        }
        let mut torn = good;
        torn[32..].copy_from_slice(&value(7, 2)[32..]);
        assert!(stamp_of(&torn, 7).is_err());
    }
}
