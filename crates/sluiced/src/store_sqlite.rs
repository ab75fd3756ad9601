// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store in a database of SQLite, with a write-ahead log that is on the disk at the end of each commit. schema.sql describes
//! the tables.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension as _, Row, ToSql, Transaction,
    TransactionBehavior, ffi, params,
};

use crate::read_ahead::{ReadAhead, Wanted};
use crate::seeded::{self, Bug};
use crate::store::{
    MapId, PageLimit, Params, Store, StoreError, StoreErrorKind, StoredClock, StoredEntry,
    StoredMap, Usage, UsageChange, UsageChanges, Write,
};
use crate::store_directory::{StoreDirectory, io_error};

const SCHEMA: &str = include_str!("schema.sql");
/// What the second version of the schema has beside the first one.
const SCHEMA_CLOCK: &str = include_str!("schema_clock.sql");
/// What the third version adds to the second one.
const SCHEMA_MAPPED: &str = include_str!("schema_mapped.sql");
const SCHEMA_VERSION: i64 = 3;
/// "SLUC", which file(1) shows.
const APPLICATION_ID: i64 = 0x534C_5543;
/// Older ones can damage a database whose log is reset while another process reads it.
const SQLITE_MIN: i32 = 3_051_003;
/// How long a process that reads or changes the database by hand may delay a commit.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

pub struct SqliteStore {
    // Before the connection: the last one that is closed copies the log.
    read_ahead: Option<ReadAhead>,
    // Before the lock, which is released last.
    connection: Option<Connection>,
    directory: StoreDirectory,
}

impl SqliteStore {
    /// Creates the store if it does not exist, and checks it.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        check_library(rusqlite::version_number())?;
        let mut store = Self {
            read_ahead: None,
            connection: None,
            directory: StoreDirectory::lock(directory)?,
        };
        store.connect()?;
        store.check()?;
        Ok(store)
    }

    fn connect(&mut self) -> Result<(), StoreError> {
        self.directory.create_database()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(self.directory.database(), flags)
            .map_err(|error| self.error("cannot open", error))?;
        let prepared = prepare(&mut connection);
        // Before an error is returned, because its cause is asked of the connection.
        self.connection = Some(connection);
        match prepared.map_err(|error| self.error("cannot open", error))? {
            SCHEMA_VERSION => Ok(()),
            version => Err(self.version_error(version)),
        }
    }

    fn check(&mut self) -> Result<(), StoreError> {
        let connection = self.connection()?;
        let result =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match result {
            Ok(text) if text == "ok" => Ok(()),
            Ok(text) => Err(self.damaged(&text)),
            Err(error) => Err(self.error("cannot check", error)),
        }
    }

    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        self.connection.as_mut().ok_or_else(|| StoreError {
            kind: StoreErrorKind::Other,
            text: "the store is closed since an error; see the log for it".to_owned(),
        })
    }

    fn error(&self, what: &str, error: rusqlite::Error) -> StoreError {
        let path = self.directory.database();
        let system = self.connection.as_ref().and_then(system_error);
        match (error.sqlite_error_code(), system) {
            (Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase), _) => {
                self.damaged(&error.to_string())
            }
            (Some(ErrorCode::DiskFull), _) => io_error(what, &path, &Errno::ENOSPC.into()),
            (Some(ErrorCode::ReadOnly), None) => io_error(what, &path, &Errno::EROFS.into()),
            (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => StoreError {
                kind: StoreErrorKind::Other,
                text: format!(
                    "{what} {}: another process uses it; end that process, such as sqlite3",
                    path.display()
                ),
            },
            (Some(_), Some(errno)) => io_error(what, &path, &errno.into()),
            _ => StoreError {
                kind: StoreErrorKind::Other,
                text: format!("{what} {}: {error}; check the disk", path.display()),
            },
        }
    }

    fn damaged(&self, what: &str) -> StoreError {
        let (directory, path) = (self.directory.path(), self.directory.database());
        StoreError {
            kind: StoreErrorKind::Damaged,
            text: format!(
                "{} is damaged: {what}; use a backup (docs/durability.md), or copy {} and repair maps.db with '.recover' of sqlite3 \
                 from sqlite.org (that of Debian 12 cannot), or move it away to begin without stored maps",
                path.display(),
                directory.display()
            ),
        }
    }

    /// Of a database that has another version than the one that is known.
    fn version_error(&self, version: i64) -> StoreError {
        let path = self.directory.database();
        let text = match version {
            FOREIGN => format!(
                "{} is a database of another program; give another directory with --store",
                path.display()
            ),
            NO_LOG => format!(
                "the file system of {} has no shared memory mappings; give a directory of a local one with --store",
                path.display()
            ),
            _ => format!(
                "{} has the schema {version}, this sluiced knows {SCHEMA_VERSION}; install the newer sluiced",
                path.display()
            ),
        };
        StoreError {
            kind: StoreErrorKind::Other,
            text,
        }
    }

    fn read<T>(
        &mut self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let result = read(self.connection()?);
        result.map_err(|error| self.error("cannot read", error))
    }

    fn take_ahead(
        &mut self,
        map: MapId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Option<Vec<StoredEntry>> {
        let after = after?.to_vec();
        let ahead = self.read_ahead.as_mut()?;
        ahead.take(&Wanted { map, after, limit })
    }

    /// The thread exists from the first map of several pages on. Without it pages are read when they are asked for.
    fn request_ahead(&mut self, wanted: Wanted) {
        if self.read_ahead.is_none() {
            self.read_ahead = reader(&self.directory.database());
        }
        if let Some(ahead) = &mut self.read_ahead {
            ahead.request(wanted);
        }
    }
}

/// A thread that reads pages by a connection of its own.
fn reader(database: &Path) -> Option<ReadAhead> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags).ok()?;
    connection.busy_timeout(BUSY_TIMEOUT).ok()?;
    connection
        .pragma_update(None, "cell_size_check", true)
        .ok()?;
    ReadAhead::start(move |wanted| {
        read_page(&connection, wanted.map, Some(&wanted.after), wanted.limit).ok()
    })
}

impl Store for SqliteStore {
    fn maps(&mut self) -> Result<Vec<StoredMap>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT * FROM maps ORDER BY id")?;
            statement.query_map([], stored_map)?.collect()
        })
    }

    fn page(
        &mut self,
        map: MapId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        let ahead = self.take_ahead(map, after, limit);
        let page = match ahead {
            Some(page) => page,
            None => self.read(|connection| read_page(connection, map, after, limit))?,
        };
        if let Some(last) = page.last().filter(|_| page.len() == limit.entries) {
            let after = last.key.clone();
            self.request_ahead(Wanted { map, after, limit });
        }
        Ok(page)
    }

    fn clock(&mut self) -> Result<Option<StoredClock>, StoreError> {
        self.read(|connection| {
            let sql = "SELECT * FROM clock";
            connection.query_row(sql, [], stored_clock).optional()
        })
    }

    fn removed(&mut self) -> Result<Option<MapId>, StoreError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT map FROM removed LIMIT 1")?;
            let first = statement.query_row([], |row| row.get(0).map(MapId));
            first.optional()
        })
    }

    fn commit(&mut self, writes: &[Write<'_>]) -> Result<UsageChanges, StoreError> {
        if let Some(ahead) = &mut self.read_ahead {
            ahead.invalidate();
        }
        let connection = self.connection()?;
        let result = match seeded::is_on(Bug::AppliedOutside) {
            true => commit_in_two(connection, writes),
            false => commit(connection, writes),
        };
        result.map_err(|error| self.error("cannot write", error))
    }

    /// A page of the log that could not be written may be in the memory of the system only, and the next fsync(2) does not
    /// report it again. So all of the log is copied to the database, whose pages are thereby written anew, and begins anew.
    fn reopen(&mut self) -> Result<(), StoreError> {
        self.read_ahead = None;
        // Closing copies the log, too, and may fail for the reason that is known by now.
        drop(self.connection.take());
        self.connect()?;
        let result = self
            .connection()?
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, bool>(0)
            });
        match result {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.error("cannot checkpoint", busy())),
            Err(error) => Err(self.error("cannot checkpoint", error)),
        }
    }

    fn last_id(&mut self) -> Result<i64, StoreError> {
        let sql = "SELECT max(coalesce((SELECT max(id) FROM maps), 0), coalesce((SELECT max(map) FROM removed), 0))";
        self.read(|connection| connection.query_row(sql, [], |row| row.get(0)))
    }
}

fn check_library(version: i32) -> Result<(), StoreError> {
    match version >= SQLITE_MIN {
        true => Ok(()),
        false => Err(StoreError {
            kind: StoreErrorKind::Other,
            text: format!(
                "this sluiced was built with SQLite {version}, which can damage a database; build it with 3.51.3 or newer"
            ),
        }),
    }
}

/// In place of the version of the schema: a database of something else.
const FOREIGN: i64 = -1;
/// In its place, too: the file system cannot have a log beside the database.
const NO_LOG: i64 = -2;

/// Sets what a connection needs, and creates the tables in an empty database. Returns the version of the schema.
fn prepare(connection: &mut Connection) -> rusqlite::Result<i64> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let version = match schema_version(connection)? {
        0 => create_schema(connection, &[SCHEMA, SCHEMA_CLOCK, SCHEMA_MAPPED])?,
        1 => create_schema(connection, &[SCHEMA_CLOCK, SCHEMA_MAPPED])?,
        2 => create_schema(connection, &[SCHEMA_MAPPED])?,
        version => version,
    };
    if version != SCHEMA_VERSION {
        return Ok(version);
    }
    if !begin_log(connection)? {
        return Ok(NO_LOG);
    }
    connection.pragma_update(None, "synchronous", synchronous())?;
    connection.pragma_update(None, "cell_size_check", true)?;
    // The log becomes larger in one large transaction only, and small again after it.
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(version)
}

/// Returns whether there is a write-ahead log from now on.
fn begin_log(connection: &Connection) -> rusqlite::Result<bool> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        Ok(row.get_ref(0)?.as_str()? == "wal")
    })
}

fn synchronous() -> &'static str {
    if seeded::is_on(Bug::MissingSync) {
        return "OFF";
    }
    match seeded::is_on(Bug::NoWalSync) {
        true => "NORMAL",
        false => "FULL",
    }
}

/// 0: an empty database.
fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
        row.get::<_, i64>(0)
    })?;
    Ok(match (tables, pragma("application_id")?) {
        (0, 0) => 0,
        (_, APPLICATION_ID) => pragma("user_version")?,
        _ => FOREIGN,
    })
}

/// Of an empty database, or what an older one lacks.
fn create_schema(connection: &mut Connection, tables: &[&str]) -> rusqlite::Result<i64> {
    begin_log(connection)?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for sql in tables {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SCHEMA_VERSION)?;
    transaction.commit()?;
    Ok(SCHEMA_VERSION)
}

fn stored_map(row: &Row<'_>) -> rusqlite::Result<StoredMap> {
    let bytes = |name| -> rusqlite::Result<Vec<u8>> { Ok(row.get_ref(name)?.as_bytes()?.to_vec()) };
    let number = |name| row.get::<_, i64>(name).map(|number| number as u64);
    Ok(StoredMap {
        id: MapId(row.get("id")?),
        path: bytes("path")?,
        name: bytes("name")?,
        params: Params {
            uid: row.get("uid")?,
            gid: row.get("gid")?,
            mode: row.get("mode")?,
            flags: row.get("flags")?,
            capacity: number("capacity")?,
            entries_max: number("entries_max")?,
            events: row.get("events")?,
            deadline_ms: row.get("deadline_ms")?,
            interval_ms: row.get("interval_ms")?,
            cell: row.get("cell_bytes")?,
            table: number("table_bytes")?,
        },
        applied: number("applied")?,
        reserved: number("reserved")?,
        detached: row.get("detached")?,
        created: number("created")?,
        orphaned: row
            .get::<_, Option<i64>>("orphaned")?
            .map(|time| time as u64),
        usage: Usage {
            entries: number("stored_entries")?,
            bytes: number("stored_bytes")?,
        },
    })
}

fn stored_clock(row: &Row<'_>) -> rusqlite::Result<StoredClock> {
    Ok(StoredClock {
        boot: row.get("boot")?,
        boottime: row.get("boottime_ns")?,
        realtime: row.get("realtime_ns")?,
        synchronised: row.get("synchronised")?,
        offset: row.get("offset_ns")?,
        offset_min: row.get("offset_min_ns")?,
        realtime_offset: row.get("realtime_offset_ns")?,
    })
}

fn read_page(
    connection: &Connection,
    map: MapId,
    after: Option<&[u8]>,
    limit: PageLimit,
) -> rusqlite::Result<Vec<StoredEntry>> {
    let mut statement = connection.prepare_cached(
        "SELECT key, value, version, expires_ns FROM entries WHERE map = ? AND key > ? ORDER BY key LIMIT ?",
    )?;
    // No key is empty.
    let parameters = params![map.0, after.unwrap_or_default(), limit.entries as i64];
    let mut rows = statement.query(parameters)?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while bytes < limit.bytes {
        let Some(row) = rows.next()? else { break };
        let entry = StoredEntry {
            key: row.get(0)?,
            value: row.get(1)?,
            version: row.get::<_, i64>(2)? as u64,
            expires_ns: row.get::<_, i64>(3)? as u64,
        };
        bytes += entry.len();
        page.push(entry);
    }
    Ok(page)
}

fn commit(connection: &mut Connection, writes: &[Write<'_>]) -> rusqlite::Result<UsageChanges> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut usage = UsageChanges::default();
    for write in writes {
        apply(&transaction, write, &mut usage)?;
    }
    store_usage(&transaction, &usage)?;
    transaction.commit()?;
    Ok(usage)
}

/// The seeded bug `applied-outside`.
fn commit_in_two(
    connection: &mut Connection,
    writes: &[Write<'_>],
) -> rusqlite::Result<UsageChanges> {
    let is_progress = |write: &&Write<'_>| matches!(write, Write::Progress { .. });
    let (progress, others): (Vec<_>, Vec<_>) = writes
        .iter()
        .cloned()
        .partition(|write| is_progress(&write));
    commit(connection, &progress)?;
    commit(connection, &others)
}

/// Text of any bytes.
struct Text<'a>(&'a [u8]);

impl ToSql for Text<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

fn apply(
    transaction: &Transaction<'_>,
    write: &Write<'_>,
    usage: &mut UsageChanges,
) -> rusqlite::Result<()> {
    let execute =
        |sql: &str, parameters: &[&dyn ToSql]| transaction.prepare_cached(sql)?.execute(parameters);
    match *write {
        Write::Create(map) => create(transaction, map)?,
        Write::Set {
            map,
            key,
            value,
            version,
            expires_ns,
        } => {
            let Some(old) = stored_length(transaction, map, key)? else {
                return Ok(());
            };
            let sql = match old {
                None => "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
                Some(_) => {
                    "UPDATE entries SET value = ?3, version = ?4, expires_ns = ?5 WHERE map = ?1 AND key = ?2"
                }
            };
            execute(
                sql,
                params![map.0, key, value, version as i64, expires_ns as i64],
            )?;
            usage.replaced(map, key, old, Some(value.len()));
        }
        Write::Delete { map, key } => {
            let Some(old) = stored_length(transaction, map, key)? else {
                return Ok(());
            };
            let sql = "DELETE FROM entries WHERE map = ? AND key = ?";
            if execute(sql, params![map.0, key])? > 0 {
                usage.replaced(map, key, old, None);
            }
        }
        Write::Expire { map, key, version } => {
            let Some(old) = stored_length(transaction, map, key)? else {
                return Ok(());
            };
            let sql = "DELETE FROM entries WHERE map = ? AND key = ? AND version = ?";
            if execute(sql, params![map.0, key, version as i64])? > 0 {
                usage.replaced(map, key, old, None);
            }
        }
        Write::Progress {
            map,
            applied,
            reserved,
        } => {
            let sql = "UPDATE maps SET applied = ?, reserved = ? WHERE id = ?";
            execute(sql, params![applied as i64, reserved as i64, map.0])?;
        }
        Write::Detached { map, detached } => {
            let sql = "UPDATE maps SET detached = ? WHERE id = ?";
            execute(sql, params![detached, map.0])?;
        }
        Write::Orphaned { map, since } => {
            let sql = "UPDATE maps SET orphaned = ? WHERE id = ?";
            execute(sql, params![since.map(|time| time as i64), map.0])?;
        }
        Write::Clock(clock) => {
            let sql = "INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?, ?, ?, ?, ?)";
            execute(
                sql,
                params![
                    clock.boot,
                    clock.boottime,
                    clock.realtime,
                    clock.synchronised,
                    clock.offset,
                    clock.offset_min,
                    clock.realtime_offset
                ],
            )?;
        }
        Write::Remove(map) => {
            if execute("DELETE FROM maps WHERE id = ?", params![map.0])? > 0 {
                execute("INSERT INTO removed VALUES (?)", params![map.0])?;
            }
        }
        Write::Purge { map, entries } => {
            let sql = "DELETE FROM entries WHERE map = ?1 AND map IN (SELECT map FROM removed) \
                       AND key IN (SELECT key FROM entries WHERE map = ?1 ORDER BY key LIMIT ?2)";
            if execute(sql, params![map.0, entries as i64])? < entries {
                execute("DELETE FROM removed WHERE map = ?", params![map.0])?;
            }
        }
    }
    Ok(())
}

fn create(transaction: &Transaction<'_>, map: &StoredMap) -> rusqlite::Result<()> {
    let sql = "INSERT INTO maps (id, path, name, uid, gid, mode, flags, capacity, entries_max, events, deadline_ms, interval_ms, \
               cell_bytes, table_bytes, applied, reserved, detached, created, orphaned, stored_entries, stored_bytes) \
               VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)";
    transaction.prepare_cached(sql)?.execute(params![
        map.id.0,
        Text(&map.path),
        Text(&map.name),
        map.params.uid,
        map.params.gid,
        map.params.mode,
        map.params.flags,
        map.params.capacity as i64,
        map.params.entries_max as i64,
        map.params.events,
        map.params.deadline_ms,
        map.params.interval_ms,
        map.params.cell,
        map.params.table as i64,
        map.applied as i64,
        map.reserved as i64,
        map.detached,
        map.created as i64,
        map.orphaned.map(|time| time as i64),
    ])?;
    Ok(())
}

/// Of the value of an entry; Some(None): the map has none of this key; None: there is no such map.
fn stored_length(
    transaction: &Transaction<'_>,
    map: MapId,
    key: &[u8],
) -> rusqlite::Result<Option<Option<usize>>> {
    let sql = "SELECT (SELECT length(value) FROM entries WHERE map = ?1 AND key = ?2) FROM maps WHERE id = ?1";
    let mut statement = transaction.prepare_cached(sql)?;
    let length = statement.query_row(params![map.0, key], |row| row.get::<_, Option<i64>>(0));
    let length = length.optional()?;
    Ok(length.map(|entry| entry.map(|length| length as usize)))
}

fn store_usage(transaction: &Transaction<'_>, usage: &UsageChanges) -> rusqlite::Result<()> {
    let sql = "UPDATE maps SET stored_entries = stored_entries + ?, stored_bytes = stored_bytes + ? WHERE id = ?";
    let mut statement = transaction.prepare_cached(sql)?;
    // Most changes replace a value by one of the same length.
    let changes = usage
        .0
        .iter()
        .filter(|(_, change)| **change != UsageChange::default());
    for (map, change) in changes {
        statement.execute(params![change.entries, change.bytes, map.0])?;
    }
    Ok(())
}

fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_BUSY), None)
}

/// The cause of the last error of a connection, if the system reported one.
fn system_error(connection: &Connection) -> Option<Errno> {
    // SAFETY: the handle is used for this call only, by the only thread that uses the connection.
    let number = unsafe { ffi::sqlite3_system_errno(connection.handle()) };
    (number != 0).then(|| Errno::from_raw(number))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::{Seek as _, SeekFrom, Write as _};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::store_conformance::{self as conformance, sample};
    use crate::test_directory::TestDirectory;

    #[test]
    fn it_is_a_store() {
        let directory = TestDirectory::new();
        conformance::check(|| {
            let _ = fs::remove_dir_all(directory.path());
            SqliteStore::open(directory.path()).unwrap()
        });
    }

    #[test]
    fn it_is_the_same_after_it_was_opened_again() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        conformance::fill(&mut store);
        let (maps, entries) = conformance::content(&mut store);
        assert!(!entries.is_empty());
        drop(store);
        let mut store = SqliteStore::open(directory.path()).unwrap();
        assert_eq!(conformance::content(&mut store), (maps, entries));
    }

    #[test]
    fn every_commit_waits_for_the_disk() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        let mut value = |name: &str| -> String {
            let connection = store.connection().unwrap();
            let value = connection.pragma_query_value(None, name, |row| {
                row.get_ref(0)?
                    .as_str()
                    .map(str::to_owned)
                    .or_else(|_| row.get::<_, i64>(0).map(|number| number.to_string()))
            });
            value.unwrap()
        };
        assert_eq!(value("journal_mode"), "wal");
        assert_eq!(value("synchronous"), "2");
    }

    #[test]
    fn all_files_are_for_their_owner_only() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        conformance::fill(&mut store);
        let files: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{file:?}");
        }
    }

    #[test]
    fn a_newer_schema_is_refused() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        let connection = store.connection().unwrap();
        let newer = SCHEMA_VERSION + 1;
        connection
            .pragma_update(None, "user_version", newer)
            .unwrap();
        drop(store);
        let error = SqliteStore::open(directory.path()).err().unwrap();
        assert!(error.text.contains("install the newer sluiced"), "{error}");
    }

    #[test]
    fn a_store_of_an_older_version_keeps_its_maps() {
        let without_tables =
            "ALTER TABLE maps DROP COLUMN cell_bytes; ALTER TABLE maps DROP COLUMN table_bytes;";
        let without_clock = format!("{without_tables} DROP TABLE clock;");
        for (version, sql) in [(1, without_clock.as_str()), (2, without_tables)] {
            let directory = TestDirectory::new();
            let mut store = SqliteStore::open(directory.path()).unwrap();
            conformance::fill(&mut store);
            let (mut maps, entries) = conformance::content(&mut store);
            let clock = store.clock().unwrap().filter(|_| version == 2);
            let connection = store.connection().unwrap();
            connection.execute_batch(sql).unwrap();
            connection
                .pragma_update(None, "user_version", version)
                .unwrap();
            drop(store);
            let mut store = SqliteStore::open(directory.path()).unwrap();
            for map in &mut maps {
                (map.params.cell, map.params.table) = (0, 0);
            }
            assert_eq!(conformance::content(&mut store), (maps, entries));
            assert_eq!(store.clock().unwrap(), clock);
        }
    }

    /// What is written after a failure has to differ from what is stored.
    #[test]
    fn a_row_that_is_as_before_is_not_written() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        conformance::fill(&mut store);
        let log = directory.path().join("maps.db-wal");
        let mut written = |write: Write<'_>| {
            let before = fs::metadata(&log).unwrap().len();
            store.commit(&[write]).unwrap();
            fs::metadata(&log).unwrap().len() > before
        };
        let progress = Write::Progress {
            map: MapId(1),
            applied: 7,
            reserved: 9,
        };
        assert!(written(progress.clone()));
        assert!(!written(progress));
        let mut clock = conformance::clock("boot");
        assert!(written(Write::Clock(&clock)));
        clock.boottime += 1;
        assert!(written(Write::Clock(&clock)));
    }

    #[test]
    fn a_database_of_another_program_is_refused() {
        let directory = TestDirectory::new();
        let path = directory.path().join("maps.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE maps (a)").unwrap();
        drop(other);
        let error = SqliteStore::open(directory.path()).err().unwrap();
        assert!(error.text.contains("another program"), "{error}");
    }

    #[test]
    fn a_damaged_database_is_refused_and_left_as_it_is() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        for number in 0..1000_u64 {
            conformance::set(&mut store, 1, &number.to_be_bytes(), &[7; 100]);
        }
        drop(store);
        let path = directory.path().join("maps.db");
        let mut file = OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(4096 * 5)).unwrap();
        file.write_all(&[0xA5; 4096 * 3]).unwrap();
        let before = fs::read(&path).unwrap();
        let error = SqliteStore::open(directory.path()).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
        assert!(error.text.contains(".recover"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), before);
        fs::write(
            &path,
            "no database, but longer than its header: ".repeat(30),
        )
        .unwrap();
        let error = SqliteStore::open(directory.path()).err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
    }

    #[test]
    fn a_full_disk_leaves_the_store_as_it_was() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        conformance::fill(&mut store);
        let before = conformance::content(&mut store);
        let limit = |store: &mut SqliteStore, pages: i64| {
            let connection = store.connection().unwrap();
            connection
                .pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
                .unwrap();
        };
        limit(&mut store, 1);
        let large = Write::Set {
            map: MapId(1),
            key: b"large",
            value: &[0; 1 << 20],
            version: 9,
            expires_ns: 0,
        };
        let error = store.commit(std::slice::from_ref(&large)).err().unwrap();
        assert_eq!(error.errno(), Errno::ENOSPC, "{error}");
        store.reopen().unwrap();
        assert_eq!(conformance::content(&mut store), before);
        store.commit(&[large]).unwrap();
    }

    #[test]
    fn another_process_that_changes_it_is_named() {
        let directory = TestDirectory::new();
        let mut store = SqliteStore::open(directory.path()).unwrap();
        let connection = store.connection().unwrap();
        connection.busy_timeout(Duration::from_millis(1)).unwrap();
        let other = Connection::open(directory.path().join("maps.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let map = sample(7, "/a", "x");
        let error = store.commit(&[Write::Create(&map)]).err().unwrap();
        assert!(error.text.contains("another process"), "{error}");
        other.execute_batch("ROLLBACK").unwrap();
        store.reopen().unwrap();
        store.commit(&[Write::Create(&map)]).unwrap();
    }

    #[test]
    fn an_old_library_is_refused() {
        assert!(check_library(3_051_002).is_err());
        check_library(rusqlite::version_number()).unwrap();
    }
}
