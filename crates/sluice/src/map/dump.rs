// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ops::Range;
use std::os::fd::AsFd;

use sluice_abi::map::{self, Cursor, Record};

use super::calls::{self, DumpFailure};
use super::endpoint::Map;
use super::entry::{Entry, EntryInfo, time_to_live};
use super::error::ReadError;

/// The initial size of the buffer for the entries of one call. It grows for a longer entry.
const BUFFER: usize = 64 << 10;

/// The iterator over all entries that [`Map::entries`] returns: keys and their entries. An error ends it.
#[derive(Debug)]
pub struct Entries<'a> {
    pages: Pages<'a>,
}

/// The iterator over all keys that [`Map::keys`] returns, with what is known of their entries. An error ends it.
#[derive(Debug)]
pub struct Keys<'a> {
    pages: Pages<'a>,
}

/// The pages of a dump, a record at a time.
#[derive(Debug)]
struct Pages<'a> {
    map: &'a Map,
    flags: u32,
    cursor: Cursor,
    buffer: Vec<u8>,
    /// The part of the buffer with records that were not returned yet.
    filled: Range<usize>,
    ended: bool,
}

impl<'a> Entries<'a> {
    pub(super) fn new(map: &'a Map) -> Self {
        Self {
            pages: Pages::new(map, 0),
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(Vec<u8>, Entry), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pages.next(|record| {
            let entry = Entry {
                value: record.value.to_vec(),
                version: record.info.version,
                time_to_live: record.info.time_to_live,
            };
            (record.key.to_vec(), entry)
        })
    }
}

impl<'a> Keys<'a> {
    pub(super) fn new(map: &'a Map) -> Self {
        Self {
            pages: Pages::new(map, map::KEYS),
        }
    }
}

impl Iterator for Keys<'_> {
    type Item = Result<(Vec<u8>, EntryInfo), ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.pages.next(|record| (record.key.to_vec(), record.info))
    }
}

impl<'a> Pages<'a> {
    fn new(map: &'a Map, flags: u32) -> Self {
        Self {
            map,
            flags,
            cursor: Cursor::default(),
            buffer: Vec::new(),
            filled: 0..0,
            ended: false,
        }
    }

    fn next<T>(&mut self, copy: impl FnOnce(Parsed<'_>) -> T) -> Option<Result<T, ReadError>> {
        if self.filled.is_empty() && !self.ended {
            if let Err(error) = self.fill() {
                return Some(Err(self.end(error)));
            }
        }
        let bytes = &self.buffer[self.filled.clone()];
        let len = bytes.len();
        if len == 0 {
            return None;
        }
        match Parsed::split(bytes, self.flags) {
            Some((record, size)) => {
                let item = copy(record);
                self.filled.start += size;
                Some(Ok(item))
            }
            None => Some(Err(self.end(ReadError::InvalidEntry { len }))),
        }
    }

    fn end(&mut self, error: ReadError) -> ReadError {
        self.filled = 0..0;
        self.ended = true;
        error
    }

    /// Gets the next page.
    fn fill(&mut self) -> Result<(), ReadError> {
        if self.buffer.is_empty() {
            self.buffer.resize(BUFFER, 0);
        }
        loop {
            let (fd, flags) = (self.map.as_fd(), self.flags);
            match calls::dump(fd, flags, &mut self.cursor, &mut self.buffer) {
                Ok(page) => {
                    self.ended = page.count == 0;
                    self.filled = 0..if self.ended { 0 } else { page.len };
                    return Ok(());
                }
                Err(DumpFailure::TooSmall { needed }) if needed > self.buffer.len() => {
                    self.buffer.resize(needed.next_power_of_two(), 0);
                }
                Err(DumpFailure::TooSmall { needed: len }) => {
                    return Err(ReadError::InvalidEntry { len });
                }
                Err(DumpFailure::Call(error)) => return Err(ReadError::new(error)),
            }
        }
    }
}

/// A record in the buffer.
struct Parsed<'a> {
    key: &'a [u8],
    value: &'a [u8],
    info: EntryInfo,
}

impl<'a> Parsed<'a> {
    /// The first record, and its bytes with the padding.
    fn split(bytes: &'a [u8], flags: u32) -> Option<(Self, usize)> {
        let record = Record::from_bytes(bytes.first_chunk()?);
        let size = usize::try_from(record.size).ok()?;
        let len = usize::try_from(record.value_length).ok()?;
        let header = usize::from(record.header);
        let rest = bytes.get(..size)?.get(header..)?;
        let (key, rest) = rest.split_at_checked(record.key_length.into())?;
        let value = match flags & map::KEYS {
            0 => rest.get(..len)?,
            _ => &[],
        };
        let info = EntryInfo {
            len,
            version: record.version,
            time_to_live: time_to_live(record.ttl_ns),
        };
        // A size of 0 would never end.
        (header >= Record::SIZE).then_some((Self { key, value, info }, size))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use sluice_vectors::{bytes, number};

    use super::*;

    fn encode(version: u64, key: &[u8], value: &[u8], flags: u32) -> Vec<u8> {
        let shown = if flags & map::KEYS == 0 { value } else { b"" };
        let size = (Record::SIZE + key.len() + shown.len()).next_multiple_of(8);
        let record = Record {
            size: size as u32,
            value_length: value.len() as u32,
            version,
            ttl_ns: version - 1,
            key_length: key.len() as u16,
            header: Record::SIZE as u16,
            reserved: 0,
        };
        let mut bytes = [&record.to_bytes()[..], key, shown].concat();
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn records_follow_one_another() {
        let long = [7; 3000];
        let entries: [(&[u8], &[u8]); 4] = [
            (b"key", b"value"),
            (b"k", b""),
            (&long, &long),
            (b"8", b"-"),
        ];
        for flags in [0, map::KEYS] {
            let mut all = Vec::new();
            for ((key, value), version) in entries.iter().zip(1..) {
                all.extend(encode(version, key, value, flags));
            }
            let mut rest = &all[..];
            for ((key, value), version) in entries.iter().zip(1_u64..) {
                let (record, size) = Parsed::split(rest, flags).unwrap();
                let shown: &[u8] = if flags == 0 { value } else { b"" };
                assert_eq!((record.key, record.value), (*key, shown));
                assert_eq!(
                    (record.info.len, record.info.version),
                    (value.len(), version)
                );
                let time = (version > 1).then(|| Duration::from_nanos(version - 1));
                assert_eq!(record.info.time_to_live, time);
                rest = &rest[size..];
            }
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn the_vectors_are_records() {
        for vector in sluice_vectors::of("map-records") {
            let flags = match vector.given["keys"].as_bool() {
                Some(true) => map::KEYS,
                _ => 0,
            };
            let mut rest = &vector.bytes[..];
            for value in vector.parts() {
                let (record, size) = Parsed::split(rest, flags).unwrap();
                assert_eq!(record.key, bytes(&value["key"]));
                if flags == 0 {
                    assert_eq!(record.value, bytes(&value["value"]));
                }
                let numbers = (record.info.len as u64, record.info.version);
                let expected = (number(&value["value_length"]), number(&value["version"]));
                assert_eq!(numbers, expected);
                let time = time_to_live(number(&value["ttl_ns"]));
                assert_eq!(record.info.time_to_live, time);
                rest = &rest[size..];
            }
            assert!(rest.is_empty(), "{}", vector.name);
        }
    }

    #[test]
    fn an_incomplete_record_is_invalid() {
        let whole = encode(1, b"key", b"value", 0);
        for len in 0..whole.len() {
            assert!(Parsed::split(&whole[..len], 0).is_none(), "{len}");
        }
        let mut without_size = whole.clone();
        without_size[..4].fill(0);
        assert!(Parsed::split(&without_size, 0).is_none());
        let mut short_header = whole.clone();
        short_header[26] -= 1;
        assert!(Parsed::split(&short_header, 0).is_none());
        let mut long_value = whole;
        long_value[4] += 1;
        assert!(Parsed::split(&long_value, 0).is_none());
    }

    #[test]
    fn an_error_ends_the_iteration() {
        let map = Map::new(UnixStream::pair().unwrap().0.into());
        let mut entries = map.entries();
        let failed = entries.next();
        assert!(
            matches!(failed, Some(Err(ReadError::System(_)))),
            "{failed:?}"
        );
        assert!(entries.next().is_none());
        let mut keys = map.keys();
        assert!(keys.next().is_some_and(|item| item.is_err()));
        assert!(keys.next().is_none());
    }
}
