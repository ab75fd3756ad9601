// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{read, retry_on_intr};
use sluice::{Scope, StoreError, features};
use sluice_abi::{self as abi, keeper};

use crate::calls::{self, call};
use crate::error::{CallError, OpenError, ReadError};
use crate::map::StoredMap;
use crate::message::Messages;
use crate::restore::{Entry, restore};

const CTL_NODE: &str = "/dev/sluice/ctl";

/// The descriptor of the keeper, of which a host has one. It is closed on exec, and readable when there is a message.
///
/// Without a keeper the changes of durable maps wait, or fail. A later keeper is told of each stream by
/// [`Content::Resume`](crate::Content::Resume), and of each change that was not acknowledged.
///
/// Every call can fail with ENOENT: the stream, or the cgroup, is gone.
#[derive(Debug)]
pub struct Keeper {
    descriptor: OwnedFd,
}

impl Keeper {
    /// Makes this process the keeper, for which it needs CAP_SYS_ADMIN in the initial user namespace.
    pub fn open() -> Result<Self, OpenError> {
        // Fails with the reason if the module cannot be used.
        features()?;
        let control = File::open(CTL_NODE).map_err(OpenError::System)?;
        let keep = |flags| {
            let mut keep = keeper::Keep {
                flags,
                ..keeper::Keep::default()
            };
            // SAFETY: the structure has no address.
            unsafe { call(control.as_fd(), abi::CTL_KEEP, &mut keep) }
        };
        let called = keep(keeper::TABLES).or_else(|error| match error.raw_os_error() {
            // An older module, which has no map that is durable and mapped.
            Some(libc::EINVAL) => keep(0),
            _ => Err(error),
        });
        let descriptor = called.map_err(OpenError::new)?;
        // SAFETY: the kernel has just created this descriptor for the caller, and nothing else uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
    }

    /// Whether [`read`](Self::read) fails with [`ReadError::Empty`] instead of waiting. A new descriptor waits.
    pub fn set_nonblocking(&self, nonblocking: bool) -> Result<(), ReadError> {
        let set = |mut flags: OFlags| {
            flags.set(OFlags::NONBLOCK, nonblocking);
            fcntl_setfl(self, flags)
        };
        fcntl_getfl(self)
            .and_then(set)
            .map_err(|errno| ReadError::System {
                what: "setting O_NONBLOCK of the keeper",
                source: errno.into(),
            })
    }

    /// Reads as many messages as there are and `buffer` holds: [`BUFFER`](crate::BUFFER) bytes hold any message. Waits for one. After
    /// an [`InvalidMessage`](ReadError::InvalidMessage) the rest of the buffer is lost; the keeper must be opened again.
    pub fn read<'a>(&self, buffer: &'a mut [u8]) -> Result<Messages<'a>, ReadError> {
        let room = buffer.len();
        let len = retry_on_intr(|| read(self, &mut *buffer))
            .map_err(|errno| ReadError::new(errno.into(), room))?;
        Ok(Messages::new(&buffer[..len.min(room)], room))
    }

    /// Begins to restore the map of an [`Open`](crate::Content::Open). No change has had a number above `sequence`, and the store has
    /// reserved the numbers up to `limit` for changes. Nobody else finds the map before [`ready`](Self::ready).
    ///
    /// Errors: EEXIST: there is a map of this name. ENOSPC, EDQUOT: a limit of channels. EINVAL: invalid parameters. ENOMEM. ESTALE: the
    /// open must allocate another table: [`refuse`](Self::refuse) it with this errno. E2BIG: an older module has no such map.
    pub fn create(
        &self,
        stream: u64,
        map: &StoredMap,
        sequence: u64,
        limit: u64,
    ) -> Result<(), CallError> {
        self.create_in(stream, abi::SCOPE_SELF, map, sequence, limit)
            .map(drop)
    }

    /// Begins to restore a map that nobody has opened, in a cgroup, and returns its stream. Else as [`create`](Self::create);
    /// ENOENT: the cgroup is removed.
    pub fn attach(
        &self,
        scope: &Scope,
        map: &StoredMap,
        sequence: u64,
        limit: u64,
    ) -> Result<u64, CallError> {
        self.create_in(0, scope.scope_fd(), map, sequence, limit)
    }

    fn create_in(
        &self,
        stream: u64,
        scope_fd: i32,
        map: &StoredMap,
        sequence: u64,
        limit: u64,
    ) -> Result<u64, CallError> {
        let map = map.to_abi();
        calls::create(self.as_fd(), stream, scope_fd, &map, sequence, limit)
            .map_err(|error| CallError::new("creating a durable map", error))
    }

    /// Restores entries of a map between [`create`](Self::create) or [`attach`](Self::attach) and [`ready`](Self::ready), in any order.
    ///
    /// Errors: EEXIST: the key was restored before. ENOSPC: the map is full. EINVAL: the map is complete, or the entry invalid. ENOMEM.
    pub fn restore(&self, stream: u64, entries: &[Entry<'_>]) -> Result<(), CallError> {
        restore(self.as_fd(), stream, entries)
    }

    /// The map is complete, and gets its name: an open of it succeeds.
    ///
    /// Errors: EEXIST: there is a map of this name by now, and the stream has ended.
    /// EINVAL: the map was not created.
    pub fn ready(&self, stream: u64) -> Result<(), CallError> {
        let mut ready = keeper::Ready::new(stream, 0);
        self.call(keeper::READY, &mut ready, "completing a durable map")
    }

    /// The open fails with this errno; with ESTALE it looks the name up again. The stream has ended, and what was restored is dropped.
    pub fn refuse(&self, stream: u64, errno: i32) -> Result<(), CallError> {
        let mut ready = keeper::Ready::new(stream, positive(errno));
        self.call(keeper::READY, &mut ready, "refusing a durable map")
    }

    /// All changes up to `sequence` are stored, and the numbers up to `limit` are reserved in the store. New changes are admitted, also
    /// after [`fail`](Self::fail). 0 leaves a number as it is.
    ///
    /// Errors: EINVAL: `sequence` was not delivered yet, or a number decreases.
    pub fn acknowledge(&self, stream: u64, sequence: u64, limit: u64) -> Result<(), CallError> {
        let mut ack = keeper::Ack::new(stream, sequence, limit, 0);
        self.call(keeper::ACK, &mut ack, "acknowledging changes")
    }

    /// The store does not work: new changes are refused with this error until [`acknowledge`](Self::acknowledge). Those that were made
    /// wait.
    pub fn fail(&self, stream: u64, error: StoreError) -> Result<(), CallError> {
        let mut ack = keeper::Ack::new(stream, 0, 0, positive(error.errno()));
        self.call(keeper::ACK, &mut ack, "reporting an error of the store")
    }

    /// [`acknowledge`](Self::acknowledge) and [`fail`](Self::fail) at once: no change is admitted in between.
    pub fn acknowledge_and_fail(
        &self,
        stream: u64,
        sequence: u64,
        limit: u64,
        error: StoreError,
    ) -> Result<(), CallError> {
        let mut ack = keeper::Ack::new(stream, sequence, limit, positive(error.errno()));
        self.call(keeper::ACK, &mut ack, "acknowledging changes")
    }

    /// The stored map of an [`Unlink`](crate::Content::Unlink) is deleted. The stream has ended.
    ///
    /// Errors: EINVAL: nobody unlinks it.
    pub fn unlinked(&self, stream: u64) -> Result<(), CallError> {
        self.end(stream, keeper::UNLINKED, 0)
    }

    /// The stored map of an [`Unlink`](crate::Content::Unlink) is not deleted: the unlink fails with this errno, and the map is as
    /// before.
    ///
    /// Errors: EINVAL: nobody unlinks it.
    pub fn refuse_unlink(&self, stream: u64, errno: i32) -> Result<(), CallError> {
        self.end(stream, keeper::UNLINKED, positive(errno))
    }

    /// Drops the map from the kernel; what is stored of it stays. The stream has ended.
    ///
    /// Errors: EBUSY: some changes are not acknowledged.
    pub fn detach(&self, stream: u64) -> Result<(), CallError> {
        self.end(stream, 0, 0)
    }

    fn end(&self, stream: u64, flags: u32, error: u32) -> Result<(), CallError> {
        let mut end = keeper::End::new(stream, flags, error);
        self.call(keeper::END, &mut end, "ending a durable map")
    }

    fn call<T>(
        &self,
        command: libc::Ioctl,
        argument: &mut T,
        what: &'static str,
    ) -> Result<(), CallError> {
        // SAFETY: the callers pass the structure of the command, which has no address.
        unsafe { call(self.as_fd(), command, argument) }
            .map(drop)
            .map_err(|error| CallError::new(what, error))
    }
}

/// An errno as a field of a call. 0 would be success.
fn positive(errno: i32) -> u32 {
    match u32::try_from(errno) {
        Ok(errno @ 1..) => errno,
        _ => libc::EIO.unsigned_abs(),
    }
}

impl AsFd for Keeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl AsRawFd for Keeper {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }
}

impl From<Keeper> for OwnedFd {
    fn from(keeper: Keeper) -> Self {
        keeper.descriptor
    }
}

/// An inherited or received descriptor of the keeper. The first use fails if it is not one.
impl From<OwnedFd> for Keeper {
    fn from(descriptor: OwnedFd) -> Self {
        Self { descriptor }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{Content, Message};

    /// A keeper of a socket, into which a test writes messages.
    fn pair() -> (UnixStream, Keeper) {
        let (writer, reader) = UnixStream::pair().unwrap();
        (writer, OwnedFd::from(reader).into())
    }

    fn closed(stream: u64) -> [u8; keeper::Message::SIZE] {
        let size = keeper::Message::SIZE as u32;
        let message = keeper::Message {
            size,
            r#type: keeper::CLOSED,
            stream,
            header: size,
            ..keeper::Message::default()
        };
        message.to_bytes()
    }

    #[test]
    fn a_buffer_is_used_again() {
        let (mut writer, keeper) = pair();
        keeper.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        for first in [1, 3] {
            let sent = [closed(first), closed(first + 1)];
            writer.write_all(sent.as_flattened()).unwrap();
            let messages: Vec<_> = keeper
                .read(&mut buffer)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let expected = [first, first + 1].map(|stream| Message {
                stream,
                content: Content::Closed,
            });
            assert_eq!(messages, expected);
        }
        let empty = keeper.read(&mut buffer).map(drop);
        assert!(matches!(empty, Err(ReadError::Empty)), "{empty:?}");
    }

    #[test]
    fn an_ioctl_on_another_descriptor_fails() {
        let (_writer, keeper) = pair();
        let map = crate::map::tests::example();
        for called in [
            keeper.create(1, &map, 0, 7),
            keeper.attach(&Scope::root(), &map, 0, 7).map(drop),
            keeper.ready(1),
            keeper.refuse(1, libc::EACCES),
            keeper.acknowledge(1, 2, 3),
            keeper.fail(1, StoreError::Full),
            keeper.acknowledge_and_fail(1, 2, 3, StoreError::Full),
            keeper.unlinked(1),
            keeper.refuse_unlink(1, libc::EIO),
            keeper.detach(1),
        ] {
            let error = called.unwrap_err();
            assert_eq!(error.errno(), libc::ENOTTY);
        }
    }

    #[test]
    fn a_refusal_is_never_success() {
        assert_eq!(positive(libc::EACCES), libc::EACCES as u32);
        for none in [0, -1, i32::MIN] {
            assert_eq!(positive(none), libc::EIO as u32);
        }
    }
}
