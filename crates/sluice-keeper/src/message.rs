// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages that a read of the descriptor returns.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use sluice_abi::map::{KEY_MAX, VALUE_MAX};
use sluice_abi::{self as abi, keeper};

use crate::BUFFER;
use crate::error::ReadError;
use crate::map::StoredMap;

/// A message of the module. Those of one stream are in this order: [`Open`](Content::Open) or [`Resume`](Content::Resume), changes
/// with ascending numbers, [`Unlink`](Content::Unlink), [`Closed`](Content::Closed).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub stream: u64,
    pub content: Content<'a>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content<'a> {
    /// A map is opened that the module does not have. The answer is [`create`](crate::Keeper::create), the entries by
    /// [`restore`](crate::Keeper::restore), and [`ready`](crate::Keeper::ready); or [`refuse`](crate::Keeper::refuse).
    Open(Open<'a>),

    /// A stream that existed before this keeper. The changes that were not acknowledged follow.
    Resume(Resume<'a>),

    /// An entry was created or updated. Once that is stored: [`acknowledge`](crate::Keeper::acknowledge).
    Set(Set<'a>),

    /// An entry was deleted. As above.
    Delete(Removal<'a>),

    /// An entry has expired. As above.
    Expire(Removal<'a>),

    /// The map is unlinked. Once the stored map is deleted: [`unlinked`](crate::Keeper::unlinked); or
    /// [`refuse_unlink`](crate::Keeper::refuse_unlink).
    Unlink,

    /// The stream has ended. What is stored of the map stays.
    Closed,

    /// The changes up to this number are to be stored soon, because a process waits for it.
    Sync(u64),

    /// The type of a message that this library does not know.
    Other(u32),
}

/// The open of a map that the module does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// The path of the cgroup from the root of the hierarchy.
    pub path: &'a Path,
    /// The map to be created if none of this name is stored. Its owner is the process that opens it.
    pub map: StoredMap,
    /// A stored map is refused with EEXIST.
    pub exclusive: bool,
    /// The process that opens the map has CAP_SYS_ADMIN, and may open a map of any owner.
    pub administrator: bool,
}

/// A stream that existed before this keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume<'a> {
    /// The path of the cgroup from the root of the hierarchy.
    pub path: &'a Path,
    pub map: StoredMap,
    /// All changes up to this number were acknowledged.
    pub stored: u64,
}

/// The change that created or updated an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// The number of the change, which is the version of the entry.
    pub number: u64,
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The time at which the entry expires, in nanoseconds of CLOCK_BOOTTIME; 0: never.
    pub expires_ns: u64,
}

/// The change that removed an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal<'a> {
    /// The number of the change.
    pub number: u64,
    pub key: &'a [u8],
}

/// The messages of one [read](crate::Keeper::read). An error ends the iteration.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    rest: &'a [u8],
    is_all: bool,
}

impl<'a> Messages<'a> {
    /// Of a read with this room.
    pub(crate) fn new(bytes: &'a [u8], room: usize) -> Self {
        Self {
            rest: bytes,
            is_all: room.saturating_sub(bytes.len()) >= BUFFER,
        }
    }

    /// Whether the kernel had no more messages: any other one would have had room. A buffer of twice [`BUFFER`] saves the
    /// read that would tell.
    pub fn is_all(&self) -> bool {
        self.is_all
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = std::mem::take(&mut self.rest);
        if bytes.is_empty() {
            return None;
        }
        let Some((message, rest)) = split(bytes) else {
            let len = bytes.len();
            return Some(Err(ReadError::InvalidMessage { len }));
        };
        self.rest = rest;
        Some(Ok(message))
    }
}

impl std::iter::FusedIterator for Messages<'_> {}

/// The first message, and the bytes after it.
fn split(bytes: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let header = keeper::Message::from_bytes(bytes.first_chunk()?);
    let (message, rest) = bytes.split_at_checked(length(header.size)?)?;
    // Also excludes a size of 0, which would never end.
    let start = length(header.header).filter(|start| *start >= keeper::Message::SIZE)?;
    let (key, following) = message
        .get(start..)?
        .split_at_checked(length(header.key_length)?)?;
    let value = following.get(..length(header.value_length)?)?;
    let message = Message {
        stream: header.stream,
        content: content(&header, key, value)?,
    };
    Some((message, rest))
}

fn content<'a>(header: &keeper::Message, key: &'a [u8], value: &'a [u8]) -> Option<Content<'a>> {
    match header.r#type {
        keeper::OPEN => open(key, value).map(Content::Open),
        keeper::RESUME => resume(key, value, header.sequence).map(Content::Resume),
        keeper::SET => set(key, value, header).map(Content::Set),
        keeper::DELETE => removal(key, header.sequence).map(Content::Delete),
        keeper::EXPIRE => removal(key, header.sequence).map(Content::Expire),
        keeper::UNLINK => Some(Content::Unlink),
        keeper::CLOSED => Some(Content::Closed),
        keeper::SYNC => Some(Content::Sync(header.sequence)),
        other => Some(Content::Other(other)),
    }
}

fn open<'a>(key: &[u8], value: &'a [u8]) -> Option<Open<'a>> {
    let map = map(key)?;
    Some(Open {
        path: path(value)?,
        map: StoredMap::from_abi(&map)?,
        exclusive: map.open_flags & abi::OPEN_EXCL != 0,
        administrator: map.administrator != 0,
    })
}

fn resume<'a>(key: &[u8], value: &'a [u8], stored: u64) -> Option<Resume<'a>> {
    Some(Resume {
        path: path(value)?,
        map: StoredMap::from_abi(&map(key)?)?,
        stored,
    })
}

fn set<'a>(key: &'a [u8], value: &'a [u8], header: &keeper::Message) -> Option<Set<'a>> {
    Some(Set {
        number: header.sequence,
        key: entry_key(key)?,
        value: (value.len() <= VALUE_MAX).then_some(value)?,
        expires_ns: header.expires_ns,
    })
}

fn removal(key: &[u8], number: u64) -> Option<Removal<'_>> {
    let key = entry_key(key)?;
    Some(Removal { number, key })
}

fn entry_key(key: &[u8]) -> Option<&[u8]> {
    (1..=KEY_MAX).contains(&key.len()).then_some(key)
}

/// The structure in a message. That of a newer module may be longer.
fn map(bytes: &[u8]) -> Option<keeper::Map> {
    let mut known = [0; keeper::Map::SIZE];
    let len = bytes.len().min(known.len());
    known[..len].copy_from_slice(&bytes[..len]);
    let is_whole = bytes.len() >= length(keeper::MAP_SIZE_VER0)?;
    is_whole.then(|| keeper::Map::from_bytes(&known))
}

/// A path is absolute and has no NUL.
fn path(bytes: &[u8]) -> Option<&Path> {
    let is_valid = bytes.first() == Some(&b'/') && !bytes.contains(&0);
    is_valid.then(|| Path::new(OsStr::from_bytes(bytes)))
}

fn length(field: u32) -> Option<usize> {
    usize::try_from(field).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::tests::example;

    const STREAM: u64 = 1 << 40;

    /// A message with a header of some length, as the module sends it.
    fn encode_with(header: usize, message: keeper::Message, key: &[u8], value: &[u8]) -> Vec<u8> {
        let size = (header + key.len() + value.len()).next_multiple_of(8);
        let message = keeper::Message {
            size: size as u32,
            stream: STREAM,
            key_length: key.len() as u32,
            value_length: value.len() as u32,
            header: header as u32,
            ..message
        };
        let mut bytes = message.to_bytes().to_vec();
        bytes.resize(header, 0);
        bytes.extend([key, value].concat());
        bytes.resize(size, 0);
        bytes
    }

    fn encode(r#type: u32, sequence: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let message = keeper::Message {
            r#type,
            sequence,
            expires_ns: 9,
            ..keeper::Message::default()
        };
        encode_with(keeper::Message::SIZE, message, key, value)
    }

    fn opened() -> Vec<u8> {
        let map = keeper::Map {
            open_flags: abi::OPEN_EXCL | abi::OPEN_CREATE,
            administrator: 1,
            ..example().to_abi()
        };
        encode(keeper::OPEN, 0, &map.to_bytes(), b"/a/b.service")
    }

    fn resumed() -> Vec<u8> {
        let map = example().to_abi();
        encode(keeper::RESUME, 7, &map.to_bytes(), b"/")
    }

    /// One message of each type, and what it says.
    fn all() -> Vec<(Vec<u8>, Content<'static>)> {
        let (key, map) = (&b"key"[..], example());
        let number = 8;
        let set = Set {
            number,
            key,
            value: b"a value",
            expires_ns: 9,
        };
        let removal = Removal { number, key };
        let open = Open {
            path: Path::new("/a/b.service"),
            map: map.clone(),
            exclusive: true,
            administrator: true,
        };
        let resume = Resume {
            path: Path::new("/"),
            map,
            stored: 7,
        };
        vec![
            (opened(), Content::Open(open)),
            (resumed(), Content::Resume(resume)),
            (encode(keeper::SET, 8, key, b"a value"), Content::Set(set)),
            (
                encode(keeper::DELETE, 8, key, b""),
                Content::Delete(removal),
            ),
            (
                encode(keeper::EXPIRE, 8, key, b""),
                Content::Expire(removal),
            ),
            (encode(keeper::UNLINK, 0, b"", b""), Content::Unlink),
            (encode(keeper::CLOSED, 0, b"", b""), Content::Closed),
            (encode(keeper::SYNC, 8, b"", b""), Content::Sync(8)),
            (encode(99, 8, b"?", b"?"), Content::Other(99)),
        ]
    }

    fn content_of(bytes: &[u8]) -> Option<Content<'_>> {
        split(bytes).map(|(message, _)| message.content)
    }

    #[test]
    fn messages_follow_one_another() {
        let all = all();
        let bytes: Vec<u8> = all.iter().flat_map(|(bytes, _)| bytes.clone()).collect();
        let mut messages = Messages::new(&bytes, bytes.len());
        for (_, content) in all {
            let stream = STREAM;
            let message = messages.next().unwrap().unwrap();
            assert_eq!(message, Message { stream, content });
        }
        assert!(messages.next().is_none());
    }

    #[test]
    fn a_read_with_room_for_any_message_was_the_last() {
        let bytes = [0; 64];
        let is_all = |room| Messages::new(&bytes, room).is_all();
        assert!(!is_all(64));
        assert!(!is_all(64 + BUFFER - 1));
        assert!(is_all(64 + BUFFER));
    }

    #[test]
    fn the_longest_message_fits_into_the_buffer() {
        let (key, value) = (vec![b'k'; KEY_MAX], vec![b'v'; VALUE_MAX]);
        let bytes = encode(keeper::SET, 1, &key, &value);
        assert!(bytes.len() <= BUFFER);
        let Some(Content::Set(set)) = content_of(&bytes) else {
            panic!("no set");
        };
        assert!(set.key == key && set.value == value);
    }

    #[test]
    fn an_incomplete_message_is_invalid_and_ends_the_iteration() {
        for (whole, _) in all() {
            for len in 1..whole.len() {
                let mut messages = Messages::new(&whole[..len], len);
                let invalid = messages.next();
                assert!(
                    matches!(invalid, Some(Err(ReadError::InvalidMessage { len: n })) if n == len),
                    "{len}: {invalid:?}"
                );
                assert!(messages.next().is_none());
            }
        }
    }

    /// With another value in one of the 32-bit fields of the header.
    fn with_field(bytes: &[u8], at: usize, value: u32) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_length_beyond_the_message_is_invalid() {
        let (size, key_length, value_length, header) = (0, 32, 36, 40);
        let valid = encode(keeper::SET, 1, b"key", b"a value");
        for (at, values) in [
            (size, vec![0, 8, 47, valid.len() as u32 + 1, u32::MAX]),
            (key_length, vec![0, 10, u32::MAX]),
            (value_length, vec![14, u32::MAX]),
            (header, vec![0, 47, 56, u32::MAX]),
        ] {
            for value in values {
                let invalid = with_field(&valid, at, value);
                assert_eq!(content_of(&invalid), None, "{at}: {value}");
            }
        }
    }

    #[test]
    fn keys_and_values_beyond_the_limits_are_invalid() {
        let long = vec![0; KEY_MAX + 1];
        for key in [&[][..], &long] {
            for r#type in [keeper::SET, keeper::DELETE, keeper::EXPIRE] {
                assert_eq!(content_of(&encode(r#type, 1, key, b"")), None);
            }
        }
        let long = vec![0; VALUE_MAX + 1];
        assert_eq!(content_of(&encode(keeper::SET, 1, b"key", &long)), None);
    }

    #[test]
    fn a_map_or_path_that_is_not_one_is_invalid() {
        let map = example().to_abi().to_bytes();
        for (key, path) in [
            (&map[..119], &b"/a"[..]),
            (b"", b"/a"),
            (&[0; keeper::Map::SIZE], b"/a"),
            (&map, b""),
            (&map, b"a"),
            (&map, b"/a\0"),
        ] {
            for r#type in [keeper::OPEN, keeper::RESUME] {
                assert_eq!(content_of(&encode(r#type, 1, key, path)), None);
            }
        }
    }

    #[test]
    fn a_shorter_map_of_an_older_module_has_no_table() {
        let map = StoredMap {
            cell: 0,
            table: 0,
            ..example()
        };
        let bytes = map.to_abi().to_bytes();
        let older = &bytes[..keeper::MAP_SIZE_VER0 as usize];
        let encoded = encode(keeper::RESUME, 7, older, b"/");
        let Some(Content::Resume(resume)) = content_of(&encoded) else {
            panic!("no message");
        };
        assert_eq!(resume.map, map);
    }

    #[test]
    fn longer_structures_of_a_newer_module_are_accepted() {
        let longer = [&example().to_abi().to_bytes()[..], &[7; 16]].concat();
        let message = keeper::Message {
            r#type: keeper::RESUME,
            sequence: 7,
            ..keeper::Message::default()
        };
        let bytes = encode_with(keeper::Message::SIZE + 8, message, &longer, b"/");
        assert_eq!(content_of(&bytes), content_of(&resumed()));
    }

    /// Neither a panic nor an endless loop, whatever the bytes.
    #[test]
    fn any_bytes_are_messages_or_invalid() {
        let mut state = 1_u64;
        let mut random = || {
            // xorshift64
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let valid: Vec<u8> = all().into_iter().flat_map(|(bytes, _)| bytes).collect();
        for _ in 0..20_000 {
            let mut bytes = valid.clone();
            for _ in 0..1 + random() % 4 {
                let at = random() as usize % bytes.len();
                bytes[at] = random() as u8;
            }
            let messages = Messages::new(&bytes, bytes.len());
            let most = bytes.len() / keeper::Message::SIZE;
            assert!(messages.count() <= most + 1);
        }
    }
}
