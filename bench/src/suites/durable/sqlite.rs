// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program without the daemon does: a transaction of SQLite for each set, in each process. The tables, the settings and
//! the library are those of the daemon, and a set writes the same two rows: the entry, and the number of the last change.
//!
//! A log that grows needs more writes than one that is overwritten from its beginning, as it is after each checkpoint. The log of a
//! process that runs for long is of the second kind, so it has its full size before sets are measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, TransactionBehavior, params};

use super::resources::{DurableStore, Resources};
use crate::suites::map::store::{Client, Key, Store, VALUE_SIZE, Value, key, value};

const SCHEMA: &str = include_str!("../../../../crates/sluiced/src/schema.sql");
/// SQLite waits for other processes by sleeping, first 1 ms, and in the end 100 ms.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);
const MAP: &str = "INSERT INTO maps VALUES (1, '/', 'bench', 0, 0, 384, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, 0, 0)";
const SET: &str = "INSERT INTO entries VALUES (1, ?1, ?2, ?3, 0) \
                   ON CONFLICT (map, key) DO UPDATE SET value = ?2, version = ?3, expires_ns = 0";
const NEXT: &str = "UPDATE maps SET applied = applied + 1 WHERE id = 1 RETURNING applied";

/// Pages of the log after which SQLite begins it anew.
const LOG_PAGES: u64 = 1000;
const PAGE: u64 = 4096;
/// A page in each row.
const FILLER: &str = "CREATE TABLE filler (id INTEGER PRIMARY KEY, page BLOB NOT NULL) STRICT";
const FILL: &str = "INSERT INTO filler (page) VALUES (zeroblob(4000))";
/// Other bytes than before: SQLite does not write a page that stays the same.
const REFILL: &str = "UPDATE filler SET page = randomblob(4000)";

pub fn create(keys: u64, resources: &Resources) -> Result<Box<dyn DurableStore>> {
    let database = resources.environment()?.folder("sqlite")?.join("maps.db");
    create_tables(&database, keys)?;
    Ok(Box::new(Database(database)))
}

fn create_tables(database: &Path, keys: u64) -> Result<()> {
    let mut connection = connect(database)?;
    connection.execute_batch(SCHEMA)?;
    connection.execute_batch(FILLER)?;
    connection.execute(MAP, [])?;
    let transaction = connection.transaction()?;
    for number in 0..keys {
        transaction.execute(SET, params![key(number), value(number, 0), 0])?;
    }
    for _ in 0..LOG_PAGES {
        transaction.execute(FILL, [])?;
    }
    transaction.commit()?;
    Ok(())
}

/// As the daemon's has it. The first process does it; when the last one ends, SQLite deletes the log.
fn fill_log(connection: &mut Connection, database: &Path) -> Result<()> {
    let log_len = || fs::metadata(database.with_extension("db-wal")).map(|file| file.len());
    connection.pragma_update(None, "synchronous", "OFF")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if log_len()? < LOG_PAGES * PAGE {
        transaction.execute(REFILL, [])?;
    }
    transaction.commit()?;
    ensure!(log_len()? >= LOG_PAGES * PAGE, "the log is not full");
    // Otherwise the first measured transaction would.
    for file in [database.to_path_buf(), database.with_extension("db-wal")] {
        File::open(file)?.sync_all()?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(())
}

/// As the daemon does.
fn connect(database: &Path) -> Result<Connection> {
    let connection = Connection::open(database)
        .with_context(|| format!("cannot open {}", database.display()))?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cell_size_check", true)?;
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    Ok(connection)
}

/// Not a connection: processes that are forked must not inherit one.
struct Database(PathBuf);

impl Store for Database {
    fn client(&self) -> Result<Box<dyn Client>> {
        let mut connection = connect(&self.0)?;
        fill_log(&mut connection, &self.0)?;
        Ok(Box::new(Process(connection)))
    }
}

impl DurableStore for Database {}

struct Process(Connection);

impl Client for Process {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let sql = "SELECT value FROM entries WHERE map = 1 AND key = ?";
        let mut statement = self.0.prepare_cached(sql)?;
        *value = statement.query_row([key], |row| row.get::<_, [u8; VALUE_SIZE]>(0))?;
        Ok(())
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let transaction = self
            .0
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let number: i64 = transaction
            .prepare_cached(NEXT)?
            .query_row([], |row| row.get(0))?;
        transaction
            .prepare_cached(SET)?
            .execute(params![key, value, number])?;
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::temp_paths::Directory;

    #[test]
    fn sets_overwrite_a_log_of_the_full_size() {
        let directory = Directory::new(&std::env::temp_dir()).unwrap();
        let database = directory.0.join("maps.db");
        create_tables(&database, 10).unwrap();
        let log_len = || {
            fs::metadata(database.with_extension("db-wal"))
                .unwrap()
                .len()
        };
        let mut client = Database(database.clone()).client().unwrap();
        let before = log_len();
        assert!(before >= LOG_PAGES * PAGE);
        for stamp in 1..=20 {
            client.set(&key(3), &value(3, stamp)).unwrap();
        }
        assert_eq!(log_len(), before);
        let mut found = value(0, 0);
        client.get(&key(3), &mut found).unwrap();
        assert_eq!(found, value(3, 20));
    }
}
