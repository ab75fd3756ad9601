// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use sluice_abi::bus::{self, Frame};

use super::endpoint::{Endpoint, Role, common_calls};
use super::error::{OpenError, SendError};
use crate::sys::set;
use crate::wait::{NO_OFFSET, RoomWait, Wait, within};

/// Sends messages on a bus. Several threads may use one sender at the same time.
///
/// On a [nonblocking](super::Options::nonblocking) endpoint the calls that wait fail with [`SendError::Full`] instead.
///
/// # Descriptor
/// The endpoint has the format SLUICE_BUS_FRAMED: write(2) takes a frame before each message.
#[derive(Debug)]
pub struct Sender {
    pub(super) endpoint: Endpoint,
}

common_calls!(Sender);

impl Sender {
    /// Uses an endpoint that was inherited or received, and sets its format.
    pub fn attach(endpoint: OwnedFd) -> Result<Self, OpenError> {
        let (endpoint, info) = Endpoint::new(endpoint, Role::Sender)?;
        // A batching subscriber that shares it sends in the same format.
        if info.format == bus::RAW {
            endpoint.set_format(bus::FRAMED)?;
        }
        Ok(Self { endpoint })
    }

    /// Sends a message to those whom the mode of the bus determines. Waits while a subscriber that blocks senders has not
    /// received enough.
    pub fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_tagged(0, 0, message, Wait::Forever)
    }

    /// As [`send`](Self::send), but fails with [`SendError::Full`] instead of waiting.
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.send_tagged(0, 0, message, Wait::Never)
    }

    /// As [`send`](Self::send), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.send_tagged(0, 0, message, Wait::For(timeout))
    }

    /// As [`send`](Self::send), but waits for the given time.
    pub fn send_within(&self, message: &[u8], wait: impl Into<Wait>) -> Result<(), SendError> {
        self.send_tagged(0, 0, message, wait.into())
    }

    /// Sends a message to one subscriber, whose id is in its messages ([`Header::sender`](super::Header::sender)) and in the list of
    /// [subscribers](Self::subscribers). Fails with [`SendError::UnknownSubscriber`] if it has ended. Not in the mode unicast.
    pub fn send_to(&self, id: u64, message: &[u8]) -> Result<(), SendError> {
        self.send_to_within(id, message, Wait::Forever)
    }

    /// As [`send_to`](Self::send_to), but fails with [`SendError::Full`] instead of waiting.
    pub fn try_send_to(&self, id: u64, message: &[u8]) -> Result<(), SendError> {
        self.send_to_within(id, message, Wait::Never)
    }

    /// As [`send_to`](Self::send_to), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn send_to_timeout(
        &self,
        id: u64,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_to_within(id, message, Wait::For(timeout))
    }

    /// As [`send_to`](Self::send_to), but waits for the given time.
    pub fn send_to_within(
        &self,
        id: u64,
        message: &[u8],
        wait: impl Into<Wait>,
    ) -> Result<(), SendError> {
        match id {
            // In a frame it means none in particular.
            0 => Err(SendError::UnknownSubscriber { id }),
            _ => self.send_tagged(id, 0, message, wait.into()),
        }
    }

    /// Takes the turn of a message: the id of the next subscriber of a multicast bus, which may be full. Waits while all are full and
    /// none of them delays senders.
    pub(super) fn take_turn(&self, wait: Wait) -> Result<u64, SendError> {
        let mut room = RoomWait::new(self.as_fd());
        // SLUICE_BUS_TURN never waits.
        let wait = match wait {
            Wait::Forever => Wait::For(Duration::MAX),
            wait => wait,
        };
        within(
            wait,
            |_| set(self.as_fd(), bus::TURN, 0).map_err(errno_of),
            |time| room.sleep(time),
        )
        .map_err(|failure| SendError::of(failure, 0))
    }

    /// Sends a message; with a `target` of 0, to those whom the mode of the bus determines.
    pub(super) fn send_tagged(
        &self,
        target: u64,
        tag: u64,
        message: &[u8],
        wait: Wait,
    ) -> Result<(), SendError> {
        let frame = Frame {
            tag,
            ..self.frame(target, message)?
        };
        let frame = frame.to_bytes();
        let parts = [IoSlice::new(&frame), IoSlice::new(message)];
        let mut room = RoomWait::new(self.as_fd());
        within(
            wait,
            |flags| self.write(&parts, flags),
            |time| room.sleep(time),
        )
        .map_err(|failure| SendError::of(failure, target))
    }

    fn frame(&self, target: u64, message: &[u8]) -> Result<Frame, SendError> {
        let (len, max) = (message.len(), self.endpoint.message_max);
        match u32::try_from(len) {
            Ok(length) if u64::from(length) <= max => Ok(Frame::new(length, target)),
            _ => Err(SendError::MessageTooLong { len, max }),
        }
    }

    /// A message is sent as a whole.
    fn write(&self, parts: &[IoSlice<'_>], flags: ReadWriteFlags) -> Result<(), Errno> {
        pwritev2(&self.endpoint, parts, NO_OFFSET, flags).map(drop)
    }
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
