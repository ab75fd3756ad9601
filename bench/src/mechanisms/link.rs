// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction between two processes. A link is created before the fork; each of the two processes takes one end,
//! which closes the other one in that process.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use sluice_testkit::workers::Side;

pub struct Link {
    sender: Open<dyn Sender>,
    receiver: Open<dyn Receiver>,
}

/// The ends of a process that sends over one and receives over the other.
pub type Ends = (Box<dyn Sender>, Box<dyn Receiver>);

/// What exists before the fork; each of the two processes opens its ends of it.
pub type Exchange = Box<dyn FnOnce(Side) -> Result<Ends>>;

type Open<End> = Box<dyn FnOnce() -> Result<Box<End>>>;

impl Link {
    /// The two functions open the ends, each in its own process; one may wait until the other process opens its end.
    pub fn new<T: 'static, S: Sender + 'static, R: Receiver + 'static>(
        shared: T,
        sender: impl FnOnce(T) -> Result<S> + 'static,
        receiver: impl FnOnce(T) -> Result<R> + 'static,
    ) -> Self {
        let shared = Rc::new(Cell::new(Some(shared)));
        let other = Rc::clone(&shared);
        Self {
            sender: Box::new(move || Ok(Box::new(sender(take(&shared)?)?))),
            receiver: Box::new(move || Ok(Box::new(receiver(take(&other)?)?))),
        }
    }

    pub fn sender(self) -> Result<Box<dyn Sender>> {
        (self.sender)()
    }

    pub fn receiver(self) -> Result<Box<dyn Receiver>> {
        (self.receiver)()
    }
}

fn take<T>(shared: &Cell<Option<T>>) -> Result<T> {
    shared.take().context("a process opens one end of a link")
}

pub type Write<'a> = &'a mut dyn FnMut(&mut [u8]);
pub type Read<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

/// Dropping it ends the stream.
pub trait Sender {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Sends several messages of this size, stored contiguously.
    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut messages = messages.chunks_exact(size);
        messages.try_for_each(|message| self.send(message))
    }

    /// Sends a message that the function writes into memory of the mechanism, which may contain any bytes. Only if `in_place`.
    fn send_in_place(&mut self, _len: usize, _write: Write<'_>) -> Result<()> {
        bail!("this mechanism copies messages")
    }

    /// The underlying file, if there is one, for programs that use it as standard output.
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A call is all that most mechanisms need.
impl<F: FnMut(&[u8]) -> Result<()>> Sender for F {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self(message)
    }
}

/// One of the first two functions has to be implemented.
pub trait Receiver {
    /// Receives a whole message, or the rest of the stream at its end; returns 0 after the end.
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut len = 0;
        self.receive_in_place(&mut |received| {
            len = copy(received, message)?;
            Ok(())
        })?;
        Ok(len)
    }

    /// Shows at least one message in memory of the mechanism, and returns their number; 0 after the end. Only if `in_place`.
    fn receive_in_place(&mut self, _read: Read<'_>) -> Result<usize> {
        bail!("this mechanism copies messages")
    }

    /// Receives at least one message, and more if they have arrived and fit. Returns the number of bytes; 0 after the end.
    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        self.receive(&mut messages[..size])
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<F: FnMut(&mut [u8]) -> Result<usize>> Receiver for F {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        self(message)
    }
}

#[cfg(any(feature = "aeron", feature = "iceoryx2", feature = "tachyon"))]
pub fn await_peer<T>(peer: &str, mut check: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = sluice_testkit::time::Deadline::after(crate::harness::server::START_TIMEOUT);
    loop {
        if let Some(found) = check()? {
            return Ok(found);
        }
        ensure!(!deadline.passed(), "the {peer} did not connect in time");
        // Not a sleep, because the time is measured.
        std::thread::yield_now();
    }
}

/// Ends the stream with an empty message when it is dropped, where the receiver does not notice that the sender has gone.
pub struct MarksEnd<S: Sender>(pub S);

impl<S: Sender> Sender for MarksEnd<S> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message)
    }

    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        self.0.send_batch(messages, size)
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        self.0.send_in_place(len, write)
    }
}

impl<S: Sender> Drop for MarksEnd<S> {
    fn drop(&mut self) {
        // If the receiver misses the end, it has ended, or the harness kills it.
        let _ = self.0.send(&[]);
    }
}

#[inline]
pub fn copy(message: &[u8], buffer: &mut [u8]) -> Result<usize> {
    ensure_fits(message.len(), buffer.len())?;
    buffer[..message.len()].copy_from_slice(message);
    Ok(message.len())
}

#[inline]
pub fn ensure_fits(len: usize, buffer: usize) -> Result<()> {
    ensure!(len <= buffer, "{len} bytes exceed the buffer of {buffer}");
    Ok(())
}
