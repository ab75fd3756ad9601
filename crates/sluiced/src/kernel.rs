// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon needs of the kernel module, as a trait, so that its rules are tested without one. docs/abi/map-keeper.md
//! defines the messages and the calls.

use nix::errno::Errno;
use sluice::Scope;

use crate::store::{Params, StoredEntry, StoredMap};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Open(Open),
    Resume(Resume),
    Change {
        stream: u64,
        change: Change,
    },
    Unlink {
        stream: u64,
    },
    Closed {
        stream: u64,
    },
    /// A process waits until all changes so far are stored.
    Sync {
        stream: u64,
    },
}

/// A map is opened that the kernel does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    pub stream: u64,
    pub path: Vec<u8>,
    pub name: Vec<u8>,
    /// Of the map, if it is new.
    pub params: Params,
    /// It must be new.
    pub exclusive: bool,
    /// May open the maps of all users.
    pub administrator: bool,
}

/// A stream that exists since an earlier daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    pub stream: u64,
    pub path: Vec<u8>,
    pub name: Vec<u8>,
    pub params: Params,
    /// The last change that was acknowledged.
    pub stored: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub number: u64,
    pub key: Vec<u8>,
    /// None: the entry was deleted or has expired.
    pub value: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    pub bytes: Vec<u8>,
    /// CLOCK_BOOTTIME; 0: never.
    pub expires_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// There may be more messages.
    Some,
    All,
}

/// The calls fail with ENOENT when the stream has ended meanwhile, which is no fault.
pub trait Kernel {
    /// Appends messages that are there to the inbox, without waiting.
    fn receive(&mut self, inbox: &mut Vec<Message>) -> Result<Received, String>;

    /// Begins the map of an open.
    fn create(&mut self, stream: u64, map: &StoredMap) -> Result<(), Errno>;

    /// Begins a map that nobody opens, and returns its stream.
    fn attach(&mut self, scope: &Scope, map: &StoredMap) -> Result<u64, Errno>;

    /// Times are those of CLOCK_BOOTTIME.
    fn restore(&mut self, stream: u64, entries: &[StoredEntry]) -> Result<(), Errno>;

    /// The map is complete.
    fn ready(&mut self, stream: u64) -> Result<(), Errno>;

    /// The map is not there; ESTALE: look again. Ends the stream.
    fn refuse(&mut self, stream: u64, errno: Errno) -> Result<(), Errno>;

    /// All changes up to `sequence` are stored, the numbers up to `limit` reserved; 0: as before. New changes fail with the error.
    fn acknowledge(
        &mut self,
        stream: u64,
        sequence: u64,
        limit: u64,
        error: Option<Errno>,
    ) -> Result<(), Errno>;

    /// The stored map is deleted. Ends the stream.
    fn unlinked(&mut self, stream: u64) -> Result<(), Errno>;

    /// The stored map is not deleted.
    fn refuse_unlink(&mut self, stream: u64, errno: Errno) -> Result<(), Errno>;

    /// Drops the map, and ends the stream. EBUSY: not all of its changes are acknowledged.
    fn detach(&mut self, stream: u64) -> Result<(), Errno>;
}
