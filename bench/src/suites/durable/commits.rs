// SPDX-License-Identifier: MIT OR Apache-2.0
//! The number of commits of a database, by what all of its processes share: the index of the write-ahead log has a counter of
//! the transactions that changed the database, which also continues after a checkpoint (sqlite.org/walformat.html, section 2.1).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The header is there twice, and both are the same unless it is being written.
const HEADER: usize = 48;
/// Of the counter, in the byte order of the machine.
const COUNTER: usize = 8;
const TRIES: usize = 1000;

/// Of all transactions since the log exists, modulo 2^32.
pub fn count(database: &Path) -> Result<u32> {
    let path = index_of(database);
    for _ in 0..TRIES {
        let mut headers = [0; 2 * HEADER];
        File::open(&path)
            .and_then(|mut file| file.read_exact(&mut headers))
            .with_context(|| format!("cannot read {}", path.display()))?;
        let (first, second) = headers.split_at(HEADER);
        if first == second {
            let counter = first[COUNTER..].first_chunk();
            return Ok(u32::from_ne_bytes(*counter.context("a short header")?));
        }
    }
    bail!("{} is always being written", path.display())
}

fn index_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-shm");
    path.into()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::mechanisms::temp_paths::Directory;

    #[test]
    fn each_commit_is_counted_once_also_across_checkpoints() {
        let directory = Directory::new(&std::env::temp_dir()).unwrap();
        let path = directory.0.join("maps.db");
        let mut connection = Connection::open(&path).unwrap();
        connection
            .pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))
            .unwrap();
        connection
            .execute_batch("CREATE TABLE numbers (a)")
            .unwrap();
        let before = count(&path).unwrap();
        for round in 1..=30 {
            let transaction = connection.transaction().unwrap();
            for number in 0..5 {
                let sql = "INSERT INTO numbers VALUES (?)";
                transaction.execute(sql, [number]).unwrap();
            }
            transaction.commit().unwrap();
            // No changes: not counted.
            connection
                .query_row("SELECT count(*) FROM numbers", [], |_| Ok(()))
                .unwrap();
            assert_eq!(count(&path).unwrap() - before, round);
            if round % 10 == 0 {
                let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
                connection.query_row(sql, [], |_| Ok(())).unwrap();
            }
        }
    }
}
