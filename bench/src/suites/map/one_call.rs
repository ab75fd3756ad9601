// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values at their numbers, without a search: lower bounds of stores whose gets are system calls. pread(2) copies the value from a file in
//! memory; getppid(2) is a call without work, beside a value that the process copies itself.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use nix::unistd::getppid;
use sluice_testkit::shared::SharedWords;

use super::store::{Client, Key, Store, StoreResources, VALUE_SIZE, Value, filled, number_of};

const WORDS: usize = VALUE_SIZE / size_of::<u64>();

pub fn create_pread(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let file = tempfile::tempfile_in("/dev/shm")?;
    let client = move || -> Result<Box<dyn Client>> { Ok(Box::new(Preader(file.try_clone()?))) };
    filled(client, keys)
}

pub fn create_getppid(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let words = Rc::new(SharedWords::new(keys as usize * WORDS)?);
    let client = move || -> Result<Box<dyn Client>> { Ok(Box::new(Array(Rc::clone(&words)))) };
    filled(client, keys)
}

struct Preader(File);

fn offset_of(key: &Key) -> Result<u64> {
    Ok(number_of(key)? * VALUE_SIZE as u64)
}

impl Client for Preader {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        Ok(self.0.read_exact_at(value, offset_of(key)?)?)
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        Ok(self.0.write_all_at(value, offset_of(key)?)?)
    }
}

struct Array(Rc<SharedWords>);

impl Array {
    fn words(&self, key: &Key) -> Result<&[AtomicU64]> {
        let begin = number_of(key)? as usize * WORDS;
        Ok(&self.0.words()[begin..begin + WORDS])
    }
}

impl Client for Array {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        getppid();
        for (bytes, word) in value
            .chunks_exact_mut(size_of::<u64>())
            .zip(self.words(key)?)
        {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        for (bytes, word) in value.chunks_exact(size_of::<u64>()).zip(self.words(key)?) {
            word.store(u64::from_ne_bytes(bytes.try_into()?), Ordering::Relaxed);
        }
        Ok(())
    }
}
