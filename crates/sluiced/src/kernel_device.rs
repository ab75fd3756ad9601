// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel module, by the descriptor of its keeper.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;

use nix::errno::Errno;
use sluice::{Name, Scope, StoreError};
use sluice_keeper::{
    self as keeper, BUFFER, CallError, Content, Entry, Keeper, OpenError, ReadError,
};

use crate::kernel::{Change, Kernel, Message, Open, Received, Resume, Value};
use crate::store::{Params, StoredEntry, StoredMap};

pub struct DeviceKernel {
    keeper: Keeper,
    buffer: Vec<u8>,
}

impl DeviceKernel {
    pub fn open() -> Result<Self, OpenError> {
        let keeper = Keeper::open()?;
        Ok(Self {
            keeper,
            buffer: vec![0; 2 * BUFFER],
        })
    }

    pub fn set_nonblocking(&self) -> Result<(), ReadError> {
        self.keeper.set_nonblocking(true)
    }
}

/// Readable when there is a message.
impl AsFd for DeviceKernel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keeper.as_fd()
    }
}

impl Kernel for DeviceKernel {
    fn receive(&mut self, inbox: &mut Vec<Message>) -> Result<Received, String> {
        let messages = match self.keeper.read(&mut self.buffer) {
            Ok(messages) => messages,
            Err(ReadError::Empty) => return Ok(Received::All),
            Err(error) => return Err(sluice::explain(&error)),
        };
        let received = match messages.is_all() {
            true => Received::All,
            false => Received::Some,
        };
        for message in messages {
            let message = message.map_err(|error| sluice::explain(&error))?;
            inbox.extend(owned(&message));
        }
        Ok(received)
    }

    fn create(&mut self, stream: u64, map: &StoredMap) -> Result<(), Errno> {
        let created = self
            .keeper
            .create(stream, &described(map)?, map.applied, map.reserved);
        created.map_err(errno)
    }

    fn attach(&mut self, scope: &Scope, map: &StoredMap) -> Result<u64, Errno> {
        let attached = self
            .keeper
            .attach(scope, &described(map)?, map.applied, map.reserved);
        attached.map_err(errno)
    }

    fn restore(&mut self, stream: u64, entries: &[StoredEntry]) -> Result<(), Errno> {
        let entries: Vec<_> = entries
            .iter()
            .map(|entry| Entry {
                key: &entry.key,
                value: &entry.value,
                version: entry.version,
                expires_ns: entry.expires_ns,
            })
            .collect();
        self.keeper.restore(stream, &entries).map_err(errno)
    }

    fn ready(&mut self, stream: u64) -> Result<(), Errno> {
        self.keeper.ready(stream).map_err(errno)
    }

    fn refuse(&mut self, stream: u64, error: Errno) -> Result<(), Errno> {
        self.keeper.refuse(stream, error as i32).map_err(errno)
    }

    fn acknowledge(
        &mut self,
        stream: u64,
        sequence: u64,
        limit: u64,
        error: Option<Errno>,
    ) -> Result<(), Errno> {
        let acknowledged = match error {
            None => self.keeper.acknowledge(stream, sequence, limit),
            Some(error) => {
                let error = store_error(error);
                self.keeper
                    .acknowledge_and_fail(stream, sequence, limit, error)
            }
        };
        acknowledged.map_err(errno)
    }

    fn unlinked(&mut self, stream: u64) -> Result<(), Errno> {
        self.keeper.unlinked(stream).map_err(errno)
    }

    fn refuse_unlink(&mut self, stream: u64, error: Errno) -> Result<(), Errno> {
        self.keeper
            .refuse_unlink(stream, error as i32)
            .map_err(errno)
    }

    fn detach(&mut self, stream: u64) -> Result<(), Errno> {
        self.keeper.detach(stream).map_err(errno)
    }
}

fn errno(error: CallError) -> Errno {
    Errno::from_raw(error.errno())
}

fn store_error(errno: Errno) -> StoreError {
    match errno {
        Errno::ENOSPC => StoreError::Full,
        Errno::EROFS => StoreError::ReadOnly,
        _ => StoreError::Failed,
    }
}

/// None: a message of a newer module that needs no answer.
fn owned(message: &keeper::Message<'_>) -> Option<Message> {
    let stream = message.stream;
    let removed = |removal: &keeper::Removal<'_>| Message::Change {
        stream,
        change: Change {
            number: removal.number,
            key: removal.key.to_vec(),
            value: None,
        },
    };
    Some(match &message.content {
        Content::Open(open) => Message::Open(Open {
            stream,
            path: open.path.as_os_str().as_bytes().to_vec(),
            name: open.map.name.as_bytes().to_vec(),
            params: params(&open.map),
            exclusive: open.exclusive,
            administrator: open.administrator,
        }),
        Content::Resume(resume) => Message::Resume(Resume {
            stream,
            path: resume.path.as_os_str().as_bytes().to_vec(),
            name: resume.map.name.as_bytes().to_vec(),
            params: params(&resume.map),
            stored: resume.stored,
        }),
        Content::Set(set) => Message::Change {
            stream,
            change: Change {
                number: set.number,
                key: set.key.to_vec(),
                value: Some(Value {
                    bytes: set.value.to_vec(),
                    expires_ns: set.expires_ns,
                }),
            },
        },
        Content::Delete(removal) | Content::Expire(removal) => removed(removal),
        Content::Unlink => Message::Unlink { stream },
        Content::Closed => Message::Closed { stream },
        Content::Sync(_) => Message::Sync { stream },
        _ => return None,
    })
}

fn params(map: &keeper::StoredMap) -> Params {
    Params {
        uid: map.uid,
        gid: map.gid,
        mode: map.mode,
        flags: map.flags,
        capacity: map.capacity,
        entries_max: map.entries,
        events: map.events,
        deadline_ms: map.deadline_ms,
        interval_ms: map.interval_ms,
        cell: map.cell,
        table: map.table,
    }
}

/// EINVAL: the name in the store is none.
fn described(map: &StoredMap) -> Result<keeper::StoredMap, Errno> {
    let params = &map.params;
    Ok(keeper::StoredMap {
        name: Name::new(&map.name).map_err(|_| Errno::EINVAL)?,
        flags: params.flags,
        uid: params.uid,
        gid: params.gid,
        mode: params.mode,
        capacity: params.capacity,
        entries: params.entries_max,
        events: params.events,
        deadline_ms: params.deadline_ms,
        interval_ms: params.interval_ms,
        cell: params.cell,
        table: params.table,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_the_same_after_it_was_stored() {
        let map = keeper::StoredMap {
            name: Name::new("x").unwrap(),
            flags: 3,
            uid: 1,
            gid: 2,
            mode: 0o640,
            capacity: 5,
            entries: 6,
            events: 7,
            deadline_ms: 8,
            interval_ms: 9,
            cell: 10,
            table: 11,
        };
        let stored = StoredMap {
            params: params(&map),
            ..crate::store_conformance::sample(1, "/a", "x")
        };
        assert_eq!(described(&stored), Ok(map));
    }

    #[test]
    fn a_stored_name_that_is_none_is_invalid() {
        let stored = crate::store_conformance::sample(1, "/a", "x/y");
        assert_eq!(described(&stored), Err(Errno::EINVAL));
    }
}
