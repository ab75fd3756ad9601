// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store that is written without the module and its daemon, to try the tests themselves.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use nix::errno::Errno;
use rusqlite::{Connection, params};

use crate::history::Outcome;
use crate::store::FILE;
use crate::workload::{Change, Operation};

/// The columns that a check reads.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS maps (
        id INTEGER PRIMARY KEY, path TEXT NOT NULL, name TEXT NOT NULL, applied INTEGER NOT NULL, reserved INTEGER NOT NULL,
        UNIQUE (path, name)
    ) STRICT;
    CREATE TABLE IF NOT EXISTS entries (
        map INTEGER NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (map, key)
    ) STRICT, WITHOUT ROWID;";

/// What SQLite waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Synchronous {
    Full,
    /// Nothing: a bug, which is to be detected
    Off,
}

pub struct StandIn(Mutex<State>);

struct State {
    store: Connection,
    applied: i64,
}

impl StandIn {
    pub fn open(directory: &Path, map: &str, synchronous: Synchronous) -> Result<StandIn> {
        let open = || {
            std::fs::create_dir_all(directory)?;
            let store = Connection::open(directory.join(FILE))?;
            store.pragma_update(None, "journal_mode", "wal")?;
            let setting = if synchronous == Synchronous::Full {
                "full"
            } else {
                "off"
            };
            store.pragma_update(None, "synchronous", setting)?;
            store.execute_batch(SCHEMA)?;
            store.execute(
                "INSERT OR IGNORE INTO maps VALUES (1, '/', ?, 0, 1000)",
                [map],
            )?;
            let applied = store.query_row("SELECT applied FROM maps", [], |row| row.get(0))?;
            Ok::<_, anyhow::Error>(State { store, applied })
        };
        let state = open().with_context(|| format!("cannot open {}", directory.display()))?;
        Ok(StandIn(Mutex::new(state)))
    }

    pub fn apply(&self, operation: &Operation) -> Result<Outcome> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .apply(operation)
    }
}

impl State {
    fn apply(&mut self, operation: &Operation) -> Result<Outcome> {
        let number = self.applied + 1;
        let transaction = self.store.transaction()?;
        let changed = match &operation.change {
            Change::Set(value) => transaction.execute(
                "INSERT OR REPLACE INTO entries VALUES (1, ?, ?, ?)",
                params![operation.key, value, number],
            )?,
            Change::Delete => {
                transaction.execute("DELETE FROM entries WHERE key = ?", [&operation.key])?
            }
        };
        if changed == 0 {
            return Ok(Outcome::Refused(Errno::ENOENT));
        }
        transaction.execute(
            "UPDATE maps SET applied = ?1, reserved = ?1 + 1000",
            [number],
        )?;
        transaction.commit()?;
        self.applied = number;
        Ok(Outcome::Stored(number as u64))
    }
}
