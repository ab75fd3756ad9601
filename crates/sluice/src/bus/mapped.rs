// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use sluice_abi::bus::{self, Entry};

use super::calls;
use super::endpoint::{Endpoint, Role, common_calls};
use super::error::{OpenError, RecvError};
use crate::shared::bytes::Bytes;
use crate::shared::region::{Access, Region};
use crate::shared::setup_process::SetupProcess;
use crate::system_error::SystemError;
use crate::timeout::Timeout;
use crate::wait::{Wait, wait_readable};

/// Up to this part of the capacity is kept in messages that were dropped and not released yet.
const HELD_PART: u64 = 8;

/// A bus has a slot for a message per this number of bytes of its capacity.
const SLOT_BYTES: u64 = 256;

/// Receives the messages of a bus in place. One system call returns up to 32 messages.
///
/// Senders wait for this subscriber, because its policy is [`Policy::Block`](super::Policy::Block). A dropped message is released
/// with the next call that receives, or at once if dropped messages hold an eighth of the capacity; [`release`](Self::release) does
/// not wait for that.
///
/// Calls that do not wait, or with a timeout, set O_NONBLOCK of the descriptor, and those without clear it.
///
/// Only one mapped subscriber may use an endpoint: another process or [`attach`](Self::attach) that uses a duplicate of the descriptor
/// releases the messages of this one.
///
/// With the feature `tokio` there is `AsyncMappedSubscriber`.
pub struct MappedSubscriber {
    endpoint: Endpoint,
    /// The process that has the subscriber. Its children must not release messages.
    process: SetupProcess,
    data: Region,
    capacity: u64,
    entries: [Entry; bus::RECEIVE_MAX],
    /// The entries that were received and not returned yet.
    next: usize,
    filled: usize,
    /// All messages before this sequence were dropped.
    dropped: u64,
    /// Those of the descriptor after the last call that received, and whether it was opened as nonblocking.
    flags: OFlags,
    is_nonblocking: bool,
    /// The part of the capacity in dropped messages that the module has not been told of, in bytes.
    held: u64,
    /// Whether the last returned entry is that of a message that is held.
    is_holding: bool,
}

common_calls!(MappedSubscriber);

impl MappedSubscriber {
    /// Uses an endpoint that was inherited or received, and opened for mapping.
    pub fn attach(endpoint: OwnedFd) -> Result<Self, OpenError> {
        let (endpoint, info) = Endpoint::new(endpoint, Role::Subscriber)?;
        if info.flags & bus::MAPPED == 0 {
            return Err(OpenError::WrongRole {
                purpose: "mapping",
                role: "MappedSubscriber",
            });
        }
        let flags = flags_of(&endpoint)?;
        Ok(Self {
            flags,
            process: SetupProcess::current(),
            is_nonblocking: flags.contains(OFlags::NONBLOCK),
            data: map(&endpoint, info.capacity)?,
            endpoint,
            capacity: info.capacity,
            entries: [Entry::default(); bus::RECEIVE_MAX],
            next: 0,
            filled: 0,
            dropped: 0,
            held: 0,
            is_holding: false,
        })
    }

    /// Returns the next message in place. Waits for one.
    pub fn recv(&mut self) -> Result<MappedMessage<'_>, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv(&mut self) -> Result<MappedMessage<'_>, RecvError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<MappedMessage<'_>, RecvError> {
        self.recv_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<MappedMessage<'_>, RecvError> {
        self.fill(wait.into())?;
        self.filled_message()
    }

    /// Whether a message is held: see [`MappedMessage::hold`].
    pub fn is_holding(&self) -> bool {
        self.is_holding
    }

    /// Drops the message that is held.
    pub fn release_held(&mut self) {
        if mem::take(&mut self.is_holding) {
            self.drop_message(self.entries[self.next - 1]);
        }
    }

    /// Releases all dropped messages.
    pub fn release(&mut self) -> Result<(), RecvError> {
        if self.held > 0 {
            self.call(0)?;
        }
        Ok(())
    }

    /// Receives entries, unless there are some that were not returned yet.
    pub(super) fn fill(&mut self, wait: Wait) -> Result<(), RecvError> {
        match self.next < self.filled {
            true => Ok(()),
            false => self.receive(wait),
        }
    }

    /// Follows fill().
    pub(super) fn filled_message(&mut self) -> Result<MappedMessage<'_>, RecvError> {
        let entry = self.entries[self.next];
        self.next += 1;
        let invalid = RecvError::InvalidMessage {
            len: entry.length as usize,
        };
        let end = entry.offset.checked_add(entry.length.into());
        if entry.offset % 8 != 0 || end.is_none_or(|end| end > 2 * self.capacity) {
            return Err(invalid);
        }
        // The end is within the mapping, whose size is a usize.
        let start = self.data.at(entry.offset as usize).cast();
        // SAFETY: the message is within the mapping, which lives as long as the subscriber that the message borrows.
        let bytes = unsafe { Bytes::new(start, entry.length) };
        Ok(MappedMessage {
            entry,
            bytes,
            subscriber: self,
        })
    }

    /// Receives at least one entry.
    fn receive(&mut self, wait: Wait) -> Result<(), RecvError> {
        self.set_nonblocking(!matches!(wait, Wait::Forever) || self.is_nonblocking)?;
        let began = Instant::now();
        loop {
            // The last attempt is after the timeout.
            let elapsed = began.elapsed();
            match (self.call(bus::RECEIVE_MAX), wait) {
                (Err(RecvError::Empty), Wait::For(limit)) if elapsed >= limit => {
                    return Err(RecvError::TimedOut(Timeout::receiving(limit, self)));
                }
                (Err(RecvError::Empty), Wait::For(limit)) => {
                    wait_readable(self.as_fd(), limit - elapsed).map_err(RecvError::new)?;
                }
                (received, _) => return received,
            }
        }
    }

    /// Releases the dropped messages, and receives up to `count`, at least one unless `count` is 0.
    fn call(&mut self, count: usize) -> Result<(), RecvError> {
        let entries = &mut self.entries[..count];
        let received =
            calls::receive(self.endpoint.as_fd(), self.dropped, entries).map_err(failure);
        if matches!(received, Ok(_) | Err(RecvError::Empty)) {
            self.held = 0;
        }
        match received? {
            0 if count > 0 => Err(RecvError::Empty),
            filled if count > 0 => {
                (self.next, self.filled) = (0, filled);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// SLUICE_BUS_RECEIVE has no flag for one call. Another user of the descriptor may have changed its flags, and a call that must not wait
    /// must not wait for that reason.
    fn set_nonblocking(&mut self, nonblocking: bool) -> Result<(), RecvError> {
        if nonblocking {
            self.flags = flags_of(&self.endpoint)?;
        }
        if self.flags.contains(OFlags::NONBLOCK) != nonblocking {
            let mut flags = self.flags;
            flags.set(OFlags::NONBLOCK, nonblocking);
            fcntl_setfl(&self.endpoint, flags)
                .map_err(|errno| SystemError::new("setting the flags of the bus", errno))?;
            self.flags = flags;
        }
        Ok(())
    }

    fn drop_message(&mut self, entry: Entry) {
        // A forked child must not release a message of its parent.
        if !self.process.is_current() {
            return;
        }
        self.dropped = entry.sequence + 1;
        self.held += u64::from(entry.length).max(SLOT_BYTES);
        if self.held >= self.capacity / HELD_PART {
            // A failure is that of the next call too.
            let _ = self.release();
        }
    }
}

fn flags_of(endpoint: &impl AsFd) -> Result<OFlags, SystemError> {
    fcntl_getfl(endpoint).map_err(|errno| SystemError::new("querying the flags of the bus", errno))
}

fn failure(error: io::Error) -> RecvError {
    match Errno::from_io_error(&error) {
        Some(errno) => RecvError::new(errno),
        None => SystemError::new("receiving a message", error).into(),
    }
}

/// Maps the data twice in a row.
fn map(endpoint: &Endpoint, capacity: u64) -> Result<Region, OpenError> {
    let failed = |errno| SystemError::new("mapping the bus", errno);
    let bytes = capacity.checked_mul(2).map(usize::try_from);
    let Some(Ok(bytes)) = bytes else {
        return Err(failed(Errno::OVERFLOW).into());
    };
    Ok(Region::map(endpoint, bus::MMAP_DATA, bytes, Access::ReadOnly).map_err(failed)?)
}

impl fmt::Debug for MappedSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedSubscriber")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// A message in place. Dropping it releases its room, see [`MappedSubscriber`].
#[derive(Debug)]
pub struct MappedMessage<'a> {
    entry: Entry,
    bytes: Bytes<'a>,
    subscriber: &'a mut MappedSubscriber,
}

impl MappedMessage<'_> {
    /// The bytes of the message. A process that has this endpoint too may release them at any time; then they may change.
    pub fn bytes(&self) -> &Bytes<'_> {
        &self.bytes
    }

    /// The endpoint that sent it.
    pub fn sender(&self) -> u64 {
        self.entry.sender
    }

    /// The number of the message, of all that were sent on the bus.
    pub fn sequence(&self) -> u64 {
        self.entry.sequence
    }

    /// Ends the borrow without a release, for a binding to a language without borrows: the message stays in place until
    /// [`MappedSubscriber::release_held`]. Call that before the next message is received.
    pub fn hold(self) {
        self.subscriber.is_holding = true;
        mem::forget(self);
    }
}

impl Drop for MappedMessage<'_> {
    fn drop(&mut self) {
        self.subscriber.drop_message(self.entry);
    }
}
