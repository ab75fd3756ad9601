// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::{Errno, ReadWriteFlags, pwritev2};
use sluice_abi::bus::{self, Frame};

use super::endpoint::{Endpoint, Role, common_calls};
use super::error::{OpenError, SendError};
use super::send_batch::{self, SendBatch};
use crate::sys::set;
use crate::wait::{Failure, NO_OFFSET, RoomWait, Wait, within};

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

    /// An empty batch of messages.
    pub fn batch(&self) -> SendBatch {
        SendBatch::new(self.endpoint.message_max)
    }

    /// Sends the messages of a batch, and waits as [`send`](Self::send) does. What was sent has left the batch. After an error, the batch
    /// begins with the message that was not sent: try again, or [remove](SendBatch::remove_first) it.
    ///
    /// Other senders may send between the messages. A module without batches refuses more than one message with EINVAL.
    pub fn send_batch(&self, batch: &mut SendBatch) -> Result<(), SendError> {
        self.send_batch_within(batch, Wait::Forever)
    }

    /// As [`send_batch`](Self::send_batch), but fails with [`SendError::Full`] instead of waiting.
    pub fn try_send_batch(&self, batch: &mut SendBatch) -> Result<(), SendError> {
        self.send_batch_within(batch, Wait::Never)
    }

    /// As [`send_batch`](Self::send_batch), but waits at most for `timeout` altogether, then fails with [`SendError::TimedOut`].
    pub fn send_batch_timeout(
        &self,
        batch: &mut SendBatch,
        timeout: Duration,
    ) -> Result<(), SendError> {
        self.send_batch_within(batch, Wait::For(timeout))
    }

    /// As [`send_batch`](Self::send_batch), but waits for the given time.
    pub fn send_batch_within(
        &self,
        batch: &mut SendBatch,
        wait: impl Into<Wait>,
    ) -> Result<(), SendError> {
        let (wait, began) = (wait.into(), Instant::now());
        let mut room = RoomWait::new(self.as_fd());
        while !batch.is_empty() {
            // A write waits for its first message only.
            let written = within(
                wait.left(began),
                |flags| self.write(&[IoSlice::new(batch.rest())], flags),
                |time| room.sleep(time),
            );
            match (written, wait) {
                (Ok(bytes), _) => batch.written(bytes),
                (Err(Failure::TimedOut(_)), Wait::For(limit)) => {
                    return Err(SendError::TimedOut(limit));
                }
                (Err(failure), _) => return Err(SendError::of(failure, batch.first_target())),
            }
        }
        Ok(())
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
            ..send_batch::frame(target, message, self.endpoint.message_max)?
        };
        let frame = frame.to_bytes();
        let parts = [IoSlice::new(&frame), IoSlice::new(message)];
        let mut room = RoomWait::new(self.as_fd());
        within(
            wait,
            |flags| self.write(&parts, flags),
            |time| room.sleep(time),
        )
        .map(drop)
        .map_err(|failure| SendError::of(failure, target))
    }

    /// Each message is sent as a whole.
    fn write(&self, parts: &[IoSlice<'_>], flags: ReadWriteFlags) -> Result<usize, Errno> {
        pwritev2(&self.endpoint, parts, NO_OFFSET, flags)
    }
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
