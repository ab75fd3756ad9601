// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

use sluice_abi::map;

use super::error::WatchError;

/// A change of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event<K = Vec<u8>> {
    pub change: Change,
    pub key: K,
    /// The number of the change.
    pub sequence: u64,
    /// The version of the entry; of one that was deleted or has expired, the version that it had.
    pub version: u64,
    /// Changes directly before this one that the watcher has missed.
    pub missed: u64,
}

/// What happened to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Change {
    /// It was set, and there was no entry of this key before.
    Created,
    /// Its value or its time to live was set.
    Updated,
    /// It was deleted.
    Deleted,
    /// Its time to live is over.
    Expired,
    /// The number of a change that this library does not know.
    Other(u16),
}

impl Change {
    fn from_number(number: u16) -> Self {
        match number {
            map::CREATED => Self::Created,
            map::UPDATED => Self::Updated,
            map::DELETED => Self::Deleted,
            map::EXPIRED => Self::Expired,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created => f.pad("created"),
            Self::Updated => f.pad("updated"),
            Self::Deleted => f.pad("deleted"),
            Self::Expired => f.pad("expired"),
            Self::Other(number) => f.pad(&format!("change {number}")),
        }
    }
}

impl Event {
    /// The first event of the result of read(2), and its bytes with the padding.
    pub(super) fn split(bytes: &[u8]) -> Result<(Self, usize), WatchError> {
        let invalid = WatchError::InvalidEvent { len: bytes.len() };
        Self::parse(bytes).ok_or(invalid)
    }

    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = map::Event::from_bytes(bytes.first_chunk()?);
        let size = usize::try_from(header.size).ok()?;
        let rest = bytes.get(map::Event::SIZE..size)?;
        let key = rest.get(..header.key_length.into())?.to_vec();
        let event = Self {
            change: Change::from_number(header.change),
            key,
            sequence: header.sequence,
            version: header.version,
            missed: header.missed,
        };
        Some((event, size))
    }
}

#[cfg(test)]
mod tests {
    use sluice_vectors::{bytes, number};

    use super::*;

    pub(super) fn encode(sequence: u64, change: u16, key: &[u8]) -> Vec<u8> {
        let size = (map::Event::SIZE + key.len()).next_multiple_of(8);
        let header = map::Event {
            size: size as u32,
            change,
            key_length: key.len() as u16,
            sequence,
            version: sequence + 1,
            missed: sequence + 2,
        };
        let mut bytes = [&header.to_bytes()[..], key].concat();
        bytes.resize(size, 0);
        bytes
    }

    #[test]
    fn an_event_ends_after_its_padding() {
        let keys: [&[u8]; 4] = [b"k", b"eightby.", &[0xff; 4096], b"three"];
        let all: Vec<u8> = keys
            .iter()
            .zip(1..)
            .flat_map(|(key, number)| encode(number, number as u16, key))
            .collect();
        let mut rest = &all[..];
        let changes = [
            Change::Created,
            Change::Updated,
            Change::Deleted,
            Change::Expired,
        ];
        for ((key, number), change) in keys.iter().zip(1_u64..).zip(changes) {
            let (event, size) = Event::split(rest).unwrap();
            assert_eq!((event.change, &event.key[..]), (change, *key));
            let numbers = (event.sequence, event.version, event.missed);
            assert_eq!(numbers, (number, number + 1, number + 2));
            rest = &rest[size..];
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn the_vectors_are_events() {
        for vector in sluice_vectors::of("map-events") {
            let mut rest = &vector.bytes[..];
            for value in vector.parts() {
                let (event, size) = Event::split(rest).unwrap();
                let numbers = [event.sequence, event.version, event.missed];
                let expected = ["sequence", "version", "missed"].map(|name| number(&value[name]));
                assert_eq!((numbers, event.key), (expected, bytes(&value["key"])));
                let change = number(&value["change"]) as u16;
                assert_eq!(event.change, Change::from_number(change));
                rest = &rest[size..];
            }
            assert!(rest.is_empty(), "{}", vector.name);
        }
    }

    #[test]
    fn an_incomplete_event_is_invalid() {
        let whole = encode(1, map::CREATED, b"three");
        for len in 0..whole.len() {
            let parsed = Event::split(&whole[..len]);
            assert!(
                matches!(parsed, Err(WatchError::InvalidEvent { .. })),
                "{len}"
            );
        }
        let mut longer = encode(1, map::CREATED, b"eightby.");
        longer[6] += 1;
        assert!(Event::split(&longer).is_err());
        let mut without_header = whole;
        without_header[0] = 0;
        assert!(Event::split(&without_header).is_err());
    }

    #[test]
    fn a_change_has_a_name_or_a_number() {
        assert_eq!(Change::from_number(9).to_string(), "change 9");
        assert_eq!(format!("{:<9}|", Change::Expired), "expired  |");
    }
}
