// SPDX-License-Identifier: MIT OR Apache-2.0
//! The log of the device-mapper target log-writes: everything that was written to a disk, in the order in which it became durable.
//!
//! The format is that of Linux's Documentation/admin-guide/device-mapper/log-writes.rst. One sector describes the log. Each entry is a
//! sector with its description, followed by the data that was written; a mark has its text in the first sector. The kernel logs a plain
//! write only when a later flush has completed, directly before that flush, and a write with FUA as soon as it has completed. So a mark
//! follows everything that was durable when it was made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const HEADER: usize = 32; // of an entry
const SECTOR: u64 = 512; // the unit of positions; a sector of the log may be larger

const FLUSH: u64 = 1 << 0;
const FUA: u64 = 1 << 1;
const DISCARD: u64 = 1 << 2;
const MARK: u64 = 1 << 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All writes before it are durable.
    Flush,
    /// In a cache until the next flush.
    Write,
    /// A write that is durable at once.
    ForcedWrite,
    /// As a write of zeros.
    Discard,
    Mark(String),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub kind: Kind,
    /// Where it was written, in bytes.
    pub offset: u64,
    pub length: u64,
    /// Where its data is in the log.
    data: u64,
}

/// A log, whose entries have been read.
pub struct Log {
    file: File,
    pub entries: Vec<Entry>,
}

impl Log {
    pub fn open(path: &Path) -> Result<Log> {
        let read = || {
            let file = File::open(path)?;
            let (count, sector) = read_super(&file)?;
            let entries = read_entries(&file, count, sector)?;
            Ok::<_, anyhow::Error>(Log { file, entries })
        };
        read().with_context(|| format!("cannot read the log of writes {}", path.display()))
    }

    /// What was written by an entry.
    pub fn data(&self, entry: &Entry) -> Result<Vec<u8>> {
        let mut data = vec![0; usize::try_from(entry.length)?];
        if entry.kind != Kind::Discard {
            let read = self.file.read_exact_at(&mut data, entry.data);
            read.with_context(|| format!("the log ends before its byte {}", entry.data))?;
        }
        Ok(data)
    }
}

/// The number of entries, and the size of a sector of the log.
fn read_super(file: &File) -> Result<(u64, u64)> {
    let mut sector = [0; 32];
    file.read_exact_at(&mut sector, 0)?;
    let magic = number(&sector, 0);
    ensure!(
        magic == MAGIC,
        "its magic number is {magic:#x}; was it made by dm-log-writes?"
    );
    let version = number(&sector, 8);
    ensure!(
        version == VERSION,
        "its version is {version}, and only {VERSION} is known"
    );
    let size = number(&sector, 24) & u64::from(u32::MAX);
    ensure!(
        size.is_power_of_two() && (SECTOR..=4096).contains(&size),
        "its sectors have {size} bytes"
    );
    Ok((number(&sector, 16), size))
}

fn read_entries(file: &File, count: u64, sector: u64) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut position = sector;
    for index in 0..count {
        let read = read_entry(file, position, sector);
        let entry = read.with_context(|| format!("entry {index} of {count}"))?;
        position += sector;
        if matches!(entry.kind, Kind::Write | Kind::ForcedWrite | Kind::Flush) {
            position += entry.length;
        }
        entries.extend(split(entry));
    }
    Ok(entries)
}

/// A flush with data is a flush before a write.
fn split(entry: Entry) -> Vec<Entry> {
    if entry.kind != Kind::Flush || entry.length == 0 {
        return vec![entry];
    }
    let flush = Entry {
        length: 0,
        ..entry.clone()
    };
    // Durable with the flush, at the latest: the log does not say in which order.
    let write = Entry {
        kind: Kind::ForcedWrite,
        ..entry
    };
    vec![flush, write]
}

fn read_entry(file: &File, position: u64, sector: u64) -> Result<Entry> {
    let mut block = vec![0; usize::try_from(sector)?];
    file.read_exact_at(&mut block, position)
        .with_context(|| format!("the log ends before its byte {position}"))?;
    let flags = number(&block, 16);
    let scale = |sectors: u64| {
        let bytes = sectors.checked_mul(sector);
        bytes.with_context(|| format!("there is no sector {sectors}"))
    };
    Ok(Entry {
        kind: kind(flags, &block)?,
        offset: scale(number(&block, 0))?,
        length: scale(number(&block, 8))?,
        data: position + sector,
    })
}

fn kind(flags: u64, block: &[u8]) -> Result<Kind> {
    if flags & MARK != 0 {
        let length = usize::try_from(number(block, 24))?;
        let text = HEADER
            .checked_add(length)
            .and_then(|end| block.get(HEADER..end));
        let text = text.context("a mark exceeds its sector")?;
        return Ok(Kind::Mark(String::from_utf8(text.to_vec())?));
    }
    Ok(if flags & FLUSH != 0 {
        Kind::Flush
    } else if flags & DISCARD != 0 {
        Kind::Discard
    } else if flags & FUA != 0 {
        Kind::ForcedWrite
    } else {
        Kind::Write
    })
}

/// The little-endian number at this position of a description, which has room for it.
fn number(bytes: &[u8], position: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[position..position + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
pub mod fixture {
    use super::*;
    use crate::scratch::Scratch;

    /// A log that is made for a test.
    pub struct LogFixture {
        entries: Vec<u8>,
        count: u64,
    }

    impl LogFixture {
        pub fn new() -> LogFixture {
            LogFixture {
                entries: Vec::new(),
                count: 0,
            }
        }

        /// Sectors of these bytes, one after the other.
        pub fn write(self, sector: u64, bytes: &[u8]) -> LogFixture {
            self.entry(sector, 0, bytes, "")
        }

        pub fn forced_write(self, sector: u64, byte: u8) -> LogFixture {
            self.entry(sector, FUA, &[byte], "")
        }

        pub fn flush(self) -> LogFixture {
            self.entry(0, FLUSH, &[], "")
        }

        pub fn mark(self, stored: u64) -> LogFixture {
            self.entry(0, MARK, &[], &format!("map:{stored}:{stored}"))
        }

        pub fn entry(mut self, sector: u64, flags: u64, bytes: &[u8], text: &str) -> LogFixture {
            let numbers = [sector, bytes.len() as u64, flags, text.len() as u64];
            let mut block = numbers.map(u64::to_le_bytes).concat();
            block.extend(text.as_bytes());
            block.resize(512, 0);
            self.entries.extend(block);
            self.entries
                .extend(bytes.iter().flat_map(|byte| [*byte; 512]));
            self.count += 1;
            self
        }

        pub fn open(self) -> Result<Log> {
            let mut bytes = [MAGIC, VERSION, self.count, 512]
                .map(u64::to_le_bytes)
                .concat();
            bytes.resize(512, 0);
            bytes.extend(self.entries);
            parse(&bytes)
        }
    }

    pub fn parse(bytes: &[u8]) -> Result<Log> {
        let scratch = Scratch::new("log")?;
        let path = scratch.path().join("log");
        std::fs::write(&path, bytes)?;
        Log::open(&path)
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::parse;
    use super::*;

    const SIZE: usize = 512;

    fn super_block(entries: u64, sector: u32) -> Vec<u8> {
        let mut block = Vec::new();
        block.extend(MAGIC.to_le_bytes());
        block.extend(VERSION.to_le_bytes());
        block.extend(entries.to_le_bytes());
        block.extend(sector.to_le_bytes());
        block.resize(sector as usize, 0);
        block
    }

    fn entry(sector: u64, sectors: u64, flags: u64, text: &str) -> Vec<u8> {
        let mut block = Vec::new();
        block.extend(sector.to_le_bytes());
        block.extend(sectors.to_le_bytes());
        block.extend(flags.to_le_bytes());
        block.extend((text.len() as u64).to_le_bytes());
        block.extend(text.as_bytes());
        block.resize(SIZE, 0);
        block
    }

    #[test]
    fn entries_of_each_kind_are_read() -> Result<()> {
        let mut bytes = super_block(5, 512);
        bytes.extend(entry(8, 2, 0, ""));
        bytes.extend([7; 2 * SIZE]);
        bytes.extend(entry(0, 0, FLUSH, ""));
        bytes.extend(entry(3, 1, FUA, ""));
        bytes.extend([9; SIZE]);
        // A discard has a length, and no data.
        bytes.extend(entry(4, 100, DISCARD, ""));
        bytes.extend(entry(0, 0, MARK, "stored=4"));
        let log = parse(&bytes)?;
        let kinds: Vec<Kind> = log.entries.iter().map(|entry| entry.kind.clone()).collect();
        let mark = Kind::Mark("stored=4".into());
        assert_eq!(
            kinds,
            [
                Kind::Write,
                Kind::Flush,
                Kind::ForcedWrite,
                Kind::Discard,
                mark
            ]
        );
        assert_eq!(log.entries[0].offset, 8 * 512);
        assert_eq!(log.data(&log.entries[0])?, [7; 2 * SIZE]);
        assert_eq!(log.data(&log.entries[2])?, [9; SIZE]);
        assert_eq!(log.data(&log.entries[3])?, vec![0; 100 * SIZE]);
        Ok(())
    }

    #[test]
    fn a_flush_with_data_is_a_flush_and_a_write() -> Result<()> {
        let mut bytes = super_block(1, 512);
        bytes.extend(entry(1, 1, FLUSH | FUA, ""));
        bytes.extend([5; SIZE]);
        let log = parse(&bytes)?;
        assert_eq!(log.entries.len(), 2);
        assert_eq!(log.entries[0].kind, Kind::Flush);
        assert_eq!(log.entries[1].kind, Kind::ForcedWrite);
        assert_eq!(log.data(&log.entries[1])?, [5; SIZE]);
        Ok(())
    }

    #[test]
    fn sectors_may_have_4096_bytes() -> Result<()> {
        let mut bytes = super_block(1, 4096);
        let mut description = entry(2, 1, 0, "");
        description.resize(4096, 0);
        bytes.extend(description);
        bytes.extend([1; 4096]);
        let log = parse(&bytes)?;
        assert_eq!((log.entries[0].offset, log.entries[0].length), (8192, 4096));
        assert_eq!(log.data(&log.entries[0])?, [1; 4096]);
        Ok(())
    }

    #[test]
    fn a_log_that_is_none_is_refused() {
        assert!(parse(&[0; 512]).is_err());
        assert!(parse(&super_block(1, 500)).is_err());
        let mut other = super_block(0, 512);
        other[8] = 2;
        assert!(parse(&other).is_err());
    }

    #[test]
    fn a_log_that_ends_early_is_refused() -> Result<()> {
        let mut bytes = super_block(2, 512);
        bytes.extend(entry(0, 0, FLUSH, ""));
        assert!(parse(&bytes).is_err());
        bytes.extend(entry(0, 4, 0, ""));
        let log = parse(&bytes)?;
        assert!(log.data(&log.entries[1]).is_err());
        Ok(())
    }

    #[test]
    fn a_mark_that_exceeds_its_sector_is_refused() {
        let mut bytes = super_block(1, 512);
        let mut mark = entry(0, 0, MARK, "x");
        mark[24..32].copy_from_slice(&u64::MAX.to_le_bytes());
        bytes.extend(mark);
        assert!(parse(&bytes).is_err());
    }
}
