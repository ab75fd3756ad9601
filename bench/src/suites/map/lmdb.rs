// SPDX-License-Identifier: MIT OR Apache-2.0
//! LMDB, whose readers search a tree in mapped memory: as fast as it can be, without synchronization of its file, which is in memory. A reader
//! renews its transaction for each get, so that it finds the latest value; a writer commits each set.

use std::rc::Rc;

use anyhow::{Context as _, Result, ensure};
use lmdb::{
    Database, DatabaseFlags, Environment, EnvironmentFlags, InactiveTransaction, Transaction as _,
    WriteFlags,
};
use tempfile::TempDir;

use super::store::{Client, Key, Store, StoreResources, VALUE_SIZE, Value, filled};

/// Of addresses; the file is as long as its content.
const SIZE: usize = 1 << 30;

pub fn create(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let directory = tempfile::tempdir_in("/dev/shm")?;
    // Made by the process that fills the store; the others open the files.
    open(&directory)?.create_db(None, DatabaseFlags::empty())?;
    let client = move || -> Result<Box<dyn Client>> { Ok(Box::new(User::new(&directory)?)) };
    filled(client, keys)
}

fn open(directory: &TempDir) -> Result<Environment> {
    let flags = EnvironmentFlags::NO_SYNC | EnvironmentFlags::WRITE_MAP | EnvironmentFlags::NO_TLS;
    let mut builder = Environment::new();
    let builder = builder.set_flags(flags).set_map_size(SIZE);
    Ok(builder.open(directory.path())?)
}

struct User {
    /// None: it is active. Dropped before the environment, which it borrows.
    reader: Option<InactiveTransaction<'static>>,
    database: Database,
    environment: Box<Environment>,
}

impl User {
    fn new(directory: &TempDir) -> Result<Self> {
        let environment = Box::new(open(directory)?);
        // SAFETY: the environment stays at its address, and is dropped after what borrows it.
        let borrowed: &'static Environment = unsafe { &*(&raw const *environment) };
        Ok(Self {
            reader: Some(borrowed.begin_ro_txn()?.reset()),
            database: environment.open_db(None)?,
            environment,
        })
    }
}

impl Client for User {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let active = self.reader.take().context("no transaction")?.renew()?;
        let found = active.get(self.database, key)?;
        ensure!(
            found.len() == VALUE_SIZE,
            "a value has {} bytes",
            found.len()
        );
        value.copy_from_slice(found);
        self.reader = Some(active.reset());
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let mut writer = self.environment.begin_rw_txn()?;
        writer.put(self.database, key, value, WriteFlags::empty())?;
        Ok(writer.commit()?)
    }

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        let mut writer = self.environment.begin_rw_txn()?;
        for (key, value) in keys.iter().zip(values) {
            writer.put(self.database, key, value, WriteFlags::empty())?;
        }
        Ok(writer.commit()?)
    }
}
