// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction between two processes. A link is created before the fork; each of the two processes takes one end,
//! which closes the other one in that process.

use std::os::fd::BorrowedFd;

use anyhow::{Result, bail, ensure};

pub struct Link(Box<dyn Open>);

impl Link {
    /// `shared` exists before the fork. The two functions open the ends, each in its own process; one may wait until
    /// the other process opens its end.
    pub fn new<T: 'static, S: Sender + 'static, R: Receiver + 'static>(
        shared: T,
        sender: impl FnOnce(T) -> Result<S> + 'static,
        receiver: impl FnOnce(T) -> Result<R> + 'static,
    ) -> Self {
        Self(Box::new((shared, sender, receiver)))
    }

    pub fn sender(self) -> Result<Box<dyn Sender>> {
        self.0.sender()
    }

    pub fn receiver(self) -> Result<Box<dyn Receiver>> {
        self.0.receiver()
    }
}

trait Open {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>>;

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>>;
}

impl<T, S, R, F, G> Open for (T, F, G)
where
    S: Sender + 'static,
    R: Receiver + 'static,
    F: FnOnce(T) -> Result<S>,
    G: FnOnce(T) -> Result<R>,
{
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let (shared, sender, _) = *self;
        Ok(Box::new(sender(shared)?))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let (shared, _, receiver) = *self;
        Ok(Box::new(receiver(shared)?))
    }
}

/// Writes all bytes of a message.
pub type Write<'a> = &'a mut dyn FnMut(&mut [u8]);
/// Reads a message.
pub type Read<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Dropping it ends the stream.
pub trait Sender {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Sends several messages of this size, stored contiguously.
    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut messages = messages.chunks_exact(size);
        messages.try_for_each(|message| self.send(message))
    }

    /// Sends a message of this length that the function writes into memory of the mechanism, which may contain any bytes before.
    /// Only for mechanisms that are `in_place`.
    fn send_in_place(&mut self, _len: usize, _write: Write<'_>) -> Result<()> {
        bail!("this mechanism copies messages")
    }

    /// The underlying file, if there is one, for programs that use it as standard output.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

pub trait Receiver {
    /// Receives a whole message, or the rest of the stream at its end; returns 0 after the end.
    fn receive(&mut self, message: &mut [u8]) -> Result<usize>;

    /// Receives at least one message of this size, and more if they have arrived and fit, stored contiguously. Returns
    /// the number of bytes; 0 after the end of the stream.
    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        self.receive(&mut messages[..size])
    }

    /// Shows messages to the function in memory of the mechanism, at least one of them, and returns their number; 0 after the
    /// end of the stream. Only for mechanisms that are `in_place`.
    fn receive_in_place(&mut self, _read: Read<'_>) -> Result<usize> {
        bail!("this mechanism copies messages")
    }

    /// The underlying file, if there is one.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Fails if a received message is longer than the buffer.
#[inline]
pub fn ensure_fits(len: usize, buffer: usize) -> Result<()> {
    ensure!(
        len <= buffer,
        "a message of {len} bytes exceeds the buffer of {buffer}"
    );
    Ok(())
}
