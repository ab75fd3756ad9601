// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program without the daemon does: a transaction of SQLite for each set, in each process. The tables, the settings and
//! the library are the daemon's, and a set writes the same two rows: the entry, and the number of the last change.
//!
//! A log that grows needs more writes than one that is overwritten from its beginning, as it is after each checkpoint. The log of a
//! process that runs for long is of the second kind, so it has its full size before sets are measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::slice;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::TransactionBehavior::Immediate;
use rusqlite::{Connection, params};

use super::resources::DurableResources;
use crate::suites::map::store::{Client, Key, Store, Value, filled};

const SCHEMA: &str = include_str!("../../../../crates/sluiced/src/schema.sql");
/// SQLite waits for other processes by sleeping, first 1 ms, and in the end 100 ms.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const MAP: &str = "INSERT INTO maps VALUES (1, '/', 'bench', 0, 0, 384, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0)";
const GET: &str = "SELECT value FROM entries WHERE map = 1 AND key = ?";
const SET: &str = "INSERT INTO entries VALUES (1, ?1, ?2, ?3, 0) \
                   ON CONFLICT (map, key) DO UPDATE SET value = ?2, version = ?3, expires_ns = 0";
const NEXT: &str = "UPDATE maps SET applied = applied + 1 WHERE id = 1 RETURNING applied";

/// Pages of the log after which SQLite begins it anew.
const LOG_PAGES: u64 = 1000;
const PAGE: u64 = 4096;
const FILLER: &str = "CREATE TABLE filler (id INTEGER PRIMARY KEY, page BLOB NOT NULL) STRICT";
const FILL: &str = "INSERT INTO filler (page) VALUES (zeroblob(4000))";
/// Other bytes than before: SQLite does not write a page that stays the same.
const REFILL: &str = "UPDATE filler SET page = randomblob(4000)";

pub fn create(keys: u64, resources: &DurableResources) -> Result<Rc<dyn Store>> {
    let folder = resources.disk()?.folder("sqlite")?;
    filled(Database::create(&folder)?, keys)
}

/// Not a connection: processes that are forked must not inherit one.
struct Database(PathBuf);

impl Database {
    fn create(folder: &Path) -> Result<Self> {
        let database = Self(folder.join("maps.db"));
        let mut connection = database.connect()?;
        for sql in [SCHEMA, FILLER, MAP] {
            connection.execute_batch(sql)?;
        }
        let transaction = connection.transaction()?;
        for _ in 0..LOG_PAGES {
            transaction.execute(FILL, [])?;
        }
        transaction.commit()?;
        Ok(database)
    }

    fn connect(&self) -> Result<Connection> {
        let connection = Connection::open(&self.0)
            .with_context(|| format!("cannot open {}", self.0.display()))?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
        Ok(connection)
    }

    /// As the log of the daemon. The first process does it; when the last one ends, SQLite deletes the log.
    fn fill_log(&self, connection: &mut Connection) -> Result<()> {
        let log = self.0.with_extension("db-wal");
        let is_full = || fs::metadata(&log).map(|file| file.len() >= LOG_PAGES * PAGE);
        connection.pragma_update(None, "synchronous", "OFF")?;
        let transaction = connection.transaction_with_behavior(Immediate)?;
        if !is_full()? {
            transaction.execute(REFILL, [])?;
        }
        transaction.commit()?;
        ensure!(is_full()?, "the log is not full");
        // Otherwise the first measured transaction would.
        for file in [&self.0, &log] {
            File::open(file)?.sync_all()?;
        }
        connection.pragma_update(None, "synchronous", "FULL")?;
        Ok(())
    }
}

impl Store for Database {
    fn client(&self) -> Result<Box<dyn Client>> {
        let mut connection = self.connect()?;
        self.fill_log(&mut connection)?;
        Ok(Box::new(Process(connection)))
    }
}

struct Process(Connection);

impl Client for Process {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let mut statement = self.0.prepare_cached(GET)?;
        *value = statement.query_row([key], |row| row.get(0))?;
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        self.set_batch(slice::from_ref(key), slice::from_ref(value))
    }

    fn set_batch(&mut self, keys: &[Key], values: &[Value]) -> Result<()> {
        let transaction = self.0.transaction_with_behavior(Immediate)?;
        for (key, value) in keys.iter().zip(values) {
            let mut next = transaction.prepare_cached(NEXT)?;
            let number: i64 = next.query_row([], |row| row.get(0))?;
            let mut set = transaction.prepare_cached(SET)?;
            set.execute(params![key, value, number])?;
        }
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::temp_paths::private_directory;
    use crate::suites::map::store::{key, value};

    #[test]
    fn sets_overwrite_a_log_of_the_full_size() {
        let directory = private_directory(&std::env::temp_dir()).unwrap();
        let database = Database::create(directory.path()).unwrap();
        let log = database.0.with_extension("db-wal");
        let mut client = database.client().unwrap();
        let before = fs::metadata(&log).unwrap().len();
        assert!(before >= LOG_PAGES * PAGE);
        for stamp in 1..=20 {
            client.set(&key(3), &value(3, stamp)).unwrap();
        }
        assert_eq!(fs::metadata(&log).unwrap().len(), before);
        let mut found = value(0, 0);
        client.get(&key(3), &mut found).unwrap();
        assert_eq!(found, value(3, 20));
    }
}
