// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads a map from the store of sluiced, without its code.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

/// The file in the directory of a store.
pub const FILE: &str = "maps.db";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub version: u64,
}

/// A map, as it is stored, or as it is in the kernel.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// It has all changes up to this one, and no later one.
    pub applied: u64,
    /// The next change has a greater number.
    pub reserved: u64,
    pub entries: Vec<Entry>,
}

/// A store that was recovered, and is in order.
pub struct Store(Connection);

impl Store {
    /// Opens a store, which recovers it. `None`: there is none yet.
    pub fn open(directory: &Path) -> Result<Option<Store>> {
        let path = directory.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        // Not read-only: the recovery writes.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let store = Connection::open_with_flags(&path, flags)
            .with_context(|| format!("SQLite cannot open the store {}", path.display()))?;
        store.busy_timeout(Duration::from_secs(10))?;
        check_integrity(&store)?;
        if !has_tables(&store)? {
            return Ok(None);
        }
        check_owners(&store)?;
        Ok(Some(Store(store)))
    }

    /// `None`: there is no such map.
    pub fn map(&self, name: &str) -> Result<Option<Contents>> {
        read_map(&self.0, name).context("the store cannot be read")
    }
}

/// A map in a store that may be missing.
pub fn map(store: Option<&Store>, name: &str) -> Result<Option<Contents>> {
    store.map_or(Ok(None), |store| store.map(name))
}

fn check_integrity(store: &Connection) -> Result<()> {
    let mut statement = store.prepare("PRAGMA integrity_check(3)")?;
    let lines: Vec<String> = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    ensure!(
        lines == ["ok"],
        "SQLite's check of integrity: {}",
        lines.join("; ").replace('\n', "; ")
    );
    Ok(())
}

/// Whether the store was set up before the crash.
fn has_tables(store: &Connection) -> Result<bool> {
    let query =
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('maps', 'entries')";
    let count: u32 = store.query_row(query, [], |row| row.get(0))?;
    Ok(count == 2)
}

/// Each entry is that of a map, or of one that was removed.
fn check_owners(store: &Connection) -> Result<()> {
    let query = "SELECT count(*) FROM entries
        WHERE (map IN (SELECT id FROM maps)) + (map IN (SELECT map FROM removed)) <> 1";
    let count: u64 = store.query_row(query, [], |row| number(row, 0))?;
    ensure!(count == 0, "{count} entries are not those of one map");
    Ok(())
}

fn read_map(store: &Connection, map: &str) -> Result<Option<Contents>> {
    let query =
        "SELECT id, applied, reserved, stored_entries, stored_bytes FROM maps WHERE name = ?";
    let row = store.query_row(query, [map], |row| {
        let id: i64 = row.get(0)?;
        Ok((
            id,
            number(row, 1)?,
            number(row, 2)?,
            (number(row, 3)?, number(row, 4)?),
        ))
    });
    let Some((id, applied, reserved, counted)) = row.optional()? else {
        return Ok(None);
    };
    let mut statement = store.prepare("SELECT key, value, version FROM entries WHERE map = ?")?;
    let entries = statement.query_map([id], |row| {
        Ok(Entry {
            key: row.get(0)?,
            value: row.get(1)?,
            version: number(row, 2)?,
        })
    })?;
    let entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    let bytes = entries
        .iter()
        .map(|entry| entry.key.len() + entry.value.len());
    let found = (entries.len() as u64, bytes.sum::<usize>() as u64);
    ensure!(
        found == counted,
        "entries and bytes of a map are {found:?}, counted {counted:?}"
    );
    Ok(Some(Contents {
        applied,
        reserved,
        entries,
    }))
}

/// A number of a sequence: SQLite's are signed.
fn number(row: &Row, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, i64>(column)? as u64)
}
