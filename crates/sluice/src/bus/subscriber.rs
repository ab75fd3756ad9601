// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, ioctl_fionread, preadv2};
use sluice_abi::bus;

use super::endpoint::{Endpoint, Role, common_calls};
use super::error::{OpenError, RecvError};
use super::message::{Batch, Header, Message};
use crate::system_error::SystemError;
use crate::timeout::Timeout;
use crate::wait::{Failure, NO_OFFSET, Wait, wait_readable, within};

/// The initial size of the buffer for one message, and for a batch. It grows for larger messages.
const MESSAGE_BUFFER: usize = 4 << 10;
const BATCH_BUFFER: usize = 64 << 10;

/// Receives the messages of a bus that are sent from its open on; of a unicast bus those in its queue.
///
/// On a [nonblocking](super::Options::nonblocking) endpoint the calls that wait fail with [`RecvError::Empty`] instead.
///
/// # Descriptor
/// The endpoint has the format SLUICE_BUS_FRAMED, except after [`recv_batch`](Self::recv_batch): read(2), also that of io_uring, returns one
/// message after [`Header::LEN`] bytes, for [`Message::from_frame`].
pub struct Subscriber {
    pub(super) endpoint: Endpoint,
    format: u32,
    buffer: Vec<u8>,
    /// Bytes in the buffer.
    filled: usize,
}

common_calls!(Subscriber);

impl Subscriber {
    /// Uses an endpoint that was inherited or received, and sets its format.
    pub fn attach(endpoint: OwnedFd) -> Result<Self, OpenError> {
        let (endpoint, info) = Endpoint::new(endpoint, Role::Subscriber)?;
        if info.flags & bus::MAPPED != 0 {
            return Err(OpenError::WrongRole {
                purpose: "receiving by read(2)",
                role: "Subscriber",
            });
        }
        endpoint.set_format(bus::FRAMED)?;
        Ok(Self {
            endpoint,
            format: bus::FRAMED,
            buffer: Vec::new(),
            filled: 0,
        })
    }

    /// Returns the next message, in a buffer of the subscriber. Waits for one.
    pub fn recv(&mut self) -> Result<Message<'_>, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv(&mut self) -> Result<Message<'_>, RecvError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, RecvError> {
        self.recv_within(Wait::For(timeout))
    }

    /// Copies the next message to `into`, and returns its header. Waits for one. A message longer than `into` is not received and
    /// stays the next one: [`RecvError::BufferTooSmall`].
    pub fn recv_into(&mut self, into: &mut [u8]) -> Result<Header, RecvError> {
        self.recv_into_within(into, Wait::Forever)
    }

    /// As [`recv_into`](Self::recv_into), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv_into(&mut self, into: &mut [u8]) -> Result<Header, RecvError> {
        self.recv_into_within(into, Wait::Never)
    }

    /// As [`recv_into`](Self::recv_into), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_into_timeout(
        &mut self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Header, RecvError> {
        self.recv_into_within(into, Wait::For(timeout))
    }

    /// Returns all messages that there are, as far as the buffer has room for them: one system call for many small messages. Waits
    /// for the first one.
    pub fn recv_batch(&mut self) -> Result<Batch<'_>, RecvError> {
        self.recv_batch_within(Wait::Forever)
    }

    /// As [`recv_batch`](Self::recv_batch), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv_batch(&mut self) -> Result<Batch<'_>, RecvError> {
        self.recv_batch_within(Wait::Never)
    }

    /// As [`recv_batch`](Self::recv_batch), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_batch_timeout(&mut self, timeout: Duration) -> Result<Batch<'_>, RecvError> {
        self.recv_batch_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<Message<'_>, RecvError> {
        self.fill_next(wait.into())?;
        self.filled_message()
    }

    /// As [`recv_batch`](Self::recv_batch), but waits for the given time.
    pub fn recv_batch_within(&mut self, wait: impl Into<Wait>) -> Result<Batch<'_>, RecvError> {
        self.fill(bus::BATCHED, wait.into())?;
        self.filled_batch()
    }

    /// As [`recv_into`](Self::recv_into), but waits for the given time.
    pub fn recv_into_within(
        &mut self,
        into: &mut [u8],
        wait: impl Into<Wait>,
    ) -> Result<Header, RecvError> {
        let wait = wait.into();
        self.set_format(bus::FRAMED)?;
        let mut frame = [0; Header::LEN];
        loop {
            let mut parts = [IoSliceMut::new(&mut frame), IoSliceMut::new(into)];
            let read = self.read(&mut parts, wait)?;
            if let Some(len) = read {
                let header = Header::from_bytes(&frame);
                let whole = header.filter(|header| Header::LEN + header.len == len);
                return whole.ok_or(RecvError::InvalidMessage { len });
            }
            let (len, room) = (self.next_len()?, into.len());
            if len > room {
                return Err(RecvError::BufferTooSmall { len, room });
            }
        }
    }

    /// Fills the buffer with the next message.
    pub(super) fn fill_next(&mut self, wait: Wait) -> Result<(), RecvError> {
        self.fill(bus::FRAMED, wait)
    }

    /// Fills the buffer with messages if there are any.
    #[cfg(feature = "tokio")]
    pub(super) fn fill_batch(&mut self) -> Result<(), RecvError> {
        self.fill(bus::BATCHED, Wait::Never)
    }

    pub(super) fn filled_message(&self) -> Result<Message<'_>, RecvError> {
        Message::from_frame(&self.buffer[..self.filled])
    }

    pub(super) fn filled_batch(&self) -> Result<Batch<'_>, RecvError> {
        Batch::new(&self.buffer[..self.filled])
    }

    /// Fills the buffer, which grows if the next message needs it.
    fn fill(&mut self, format: u32, wait: Wait) -> Result<(), RecvError> {
        self.set_format(format)?;
        let initial = match format {
            bus::BATCHED => BATCH_BUFFER,
            _ => MESSAGE_BUFFER,
        };
        if self.buffer.len() < initial {
            self.buffer.resize(initial, 0);
        }
        loop {
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.read(&mut [IoSliceMut::new(&mut buffer)], wait);
            self.buffer = buffer;
            if let Some(len) = read? {
                self.filled = len;
                return Ok(());
            }
            let needed = Header::LEN + self.next_len()?;
            if self.buffer.len() < needed {
                self.buffer.resize(needed.next_power_of_two(), 0);
            }
        }
    }

    /// Returns the number of bytes, or none if there was too little room for the next message.
    fn read(&self, parts: &mut [IoSliceMut<'_>], wait: Wait) -> Result<Option<usize>, RecvError> {
        let read = within(
            wait,
            |flags| preadv2(&self.endpoint, parts, NO_OFFSET, flags),
            |time| wait_readable(self.as_fd(), time),
        );
        match read {
            Ok(len) => Ok(Some(len)),
            Err(Failure::Call(Errno::MSGSIZE)) => Ok(None),
            Err(Failure::Call(errno)) => Err(RecvError::new(errno)),
            Err(Failure::TimedOut(limit)) => {
                Err(RecvError::TimedOut(Timeout::receiving(limit, self)))
            }
        }
    }

    /// The length of the next message, or 0. In the mode unicast another subscriber may receive it meanwhile.
    fn next_len(&self) -> Result<usize, RecvError> {
        let len = ioctl_fionread(&self.endpoint).map_err(RecvError::new)?;
        Ok(usize::try_from(len).unwrap_or(usize::MAX))
    }

    fn set_format(&mut self, format: u32) -> Result<(), SystemError> {
        if self.format != format {
            self.endpoint.set_format(format)?;
            self.format = format;
        }
        Ok(())
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}
