// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values at their numbers, without a search: lower bounds of stores. pread(2) copies the value from a file in memory. In an array the
//! process copies it itself, without a call or with getppid(2), a call without work. A value of the array has as much memory around it as
//! an entry of a mapped table.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use nix::unistd::getppid;
use sluice_abi::map::DEFAULT_CELL;
use sluice_testkit::shared::SharedWords;

use super::store::{Client, Key, Store, StoreResources, VALUE_SIZE, Value, filled, number_of};

const WORDS: usize = VALUE_SIZE / size_of::<u64>();
/// Words from one value of the array to the next: two cells, as a table has 1.6 to 3.2 for an entry.
const STRIDE: usize = 2 * DEFAULT_CELL as usize / size_of::<u64>();

pub fn create_pread(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let file = tempfile::tempfile_in("/dev/shm")?;
    let client = move || -> Result<Box<dyn Client>> { Ok(Box::new(Preader(file.try_clone()?))) };
    filled(client, keys)
}

/// Each get calls getppid(2), or makes no call.
pub fn create_array(keys: u64, calls: bool) -> Result<Rc<dyn Store>> {
    let words = Rc::new(SharedWords::new(keys as usize * STRIDE)?);
    let client = move || -> Result<Box<dyn Client>> {
        let words = Rc::clone(&words);
        Ok(Box::new(Array { words, calls }))
    };
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

struct Array {
    words: Rc<SharedWords>,
    calls: bool,
}

impl Array {
    fn words(&self, key: &Key) -> Result<&[AtomicU64]> {
        let begin = number_of(key)? as usize * STRIDE;
        Ok(&self.words.words()[begin..begin + WORDS])
    }
}

impl Client for Array {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        if self.calls {
            getppid();
        }
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
