// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buses in a tokio runtime.

use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::Interest;
use tokio::io::unix::AsyncFdReadyGuard;
use tokio::task::coop::{consume_budget, poll_proceed};
use tokio::time;

use super::error::{OpenError, RecvError, SendError};
use super::mapped::{MappedMessage, MappedSubscriber};
use super::message::{Batch, Header, Message};
use super::sender::Sender;
use super::subscriber::Subscriber;
use crate::system_error::SystemError;
use crate::timeout::Timeout;
use crate::tokio::Registered;
use crate::wait::Wait;

pub(super) const REGISTERING: &str = "registering the bus in the runtime";
pub(super) const WAITING: &str = "waiting for the bus in the runtime";

/// A [`Sender`] with asynchronous waits.
///
/// Calls are cancel safe: one that is dropped while it waits has sent nothing.
#[derive(Debug)]
pub struct AsyncSender {
    sender: Sender,
    ready: Registered,
}

impl AsyncSender {
    /// Needs a runtime with I/O enabled.
    pub fn new(sender: Sender) -> Result<Self, OpenError> {
        Ok(Self {
            ready: Registered::new(&sender, Interest::WRITABLE, REGISTERING)?,
            sender,
        })
    }

    /// As [`Sender::send`].
    pub async fn send(&self, message: &[u8]) -> Result<(), SendError> {
        self.until(|sender| sender.try_send(message)).await
    }

    /// As [`Sender::send_to`].
    pub async fn send_to(&self, id: u64, message: &[u8]) -> Result<(), SendError> {
        self.until(|sender| sender.try_send_to(id, message)).await
    }

    /// As [`send`](Self::send), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn send_timeout(&self, message: &[u8], timeout: Duration) -> Result<(), SendError> {
        let sent = time::timeout(timeout, self.send(message)).await;
        sent.unwrap_or(Err(SendError::TimedOut(timeout)))
    }

    /// As [`send_to`](Self::send_to), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn send_to_timeout(
        &self,
        id: u64,
        message: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        let sent = time::timeout(timeout, self.send_to(id, message)).await;
        sent.unwrap_or(Err(SendError::TimedOut(timeout)))
    }

    /// As [`Sender::try_send`].
    pub fn try_send(&self, message: &[u8]) -> Result<(), SendError> {
        self.sender.try_send(message)
    }

    /// As [`Sender::try_send_to`].
    pub fn try_send_to(&self, id: u64, message: &[u8]) -> Result<(), SendError> {
        self.sender.try_send_to(id, message)
    }

    /// The sender, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_ref(&self) -> &Sender {
        &self.sender
    }

    pub fn into_inner(self) -> Sender {
        self.sender
    }

    pub(super) async fn take_turn(&self) -> Result<u64, SendError> {
        self.until(|sender| sender.take_turn(Wait::Never)).await
    }

    /// Ready for the largest message, or for a subscriber that is no longer full.
    pub(super) async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, OwnedFd>> {
        self.ready.writable().await
    }

    pub(super) fn try_send_tagged(
        &self,
        target: u64,
        tag: u64,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.sender.send_tagged(target, tag, message, Wait::Never)
    }

    pub(super) async fn send_tagged(
        &self,
        target: u64,
        tag: u64,
        message: &[u8],
    ) -> Result<(), SendError> {
        self.until(|sender| sender.send_tagged(target, tag, message, Wait::Never))
            .await
    }

    /// Attempts before it waits: the readiness of the descriptor is that for the largest message. Each call has a waker of its own,
    /// because several tasks may send at the same time.
    async fn until<T>(
        &self,
        mut attempt: impl FnMut(&Sender) -> Result<T, SendError>,
    ) -> Result<T, SendError> {
        consume_budget().await;
        loop {
            match attempt(&self.sender) {
                Err(SendError::Full) => {}
                other => return other,
            }
            let ready = self.ready.writable().await;
            let mut ready = ready.map_err(|source| SystemError::new(WAITING, source))?;
            // Cleared before the next attempt, so that no wake-up after a failed one is lost.
            ready.clear_ready();
        }
    }
}

/// A [`Subscriber`] with asynchronous waits. As a [`Stream`] it yields headers and copies of the messages.
///
/// Calls are cancel safe: one that is dropped while it waits has received nothing.
#[derive(Debug)]
pub struct AsyncSubscriber {
    subscriber: Subscriber,
    ready: Registered,
}

impl AsyncSubscriber {
    /// Needs a runtime with I/O enabled.
    pub fn new(subscriber: Subscriber) -> Result<Self, OpenError> {
        Ok(Self {
            ready: Registered::new(&subscriber, Interest::READABLE, REGISTERING)?,
            subscriber,
        })
    }

    /// As [`Subscriber::recv`].
    pub async fn recv(&mut self) -> Result<Message<'_>, RecvError> {
        poll_fn(|cx| self.poll_fill(cx, fill_next)).await?;
        self.subscriber.filled_message()
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<Message<'_>, RecvError> {
        let filled = poll_fn(|cx| self.poll_fill(cx, fill_next));
        match time::timeout(timeout, filled).await {
            Ok(filled) => filled?,
            Err(_) => return Err(no_message(timeout, &self.subscriber)),
        }
        self.subscriber.filled_message()
    }

    /// As [`Subscriber::try_recv`].
    pub fn try_recv(&mut self) -> Result<Message<'_>, RecvError> {
        self.subscriber.try_recv()
    }

    /// As [`Subscriber::recv_batch`].
    pub async fn recv_batch(&mut self) -> Result<Batch<'_>, RecvError> {
        poll_fn(|cx| self.poll_fill(cx, Subscriber::fill_batch)).await?;
        self.subscriber.filled_batch()
    }

    /// As [`recv_batch`](Self::recv_batch), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers
    /// enabled.
    pub async fn recv_batch_timeout(&mut self, timeout: Duration) -> Result<Batch<'_>, RecvError> {
        let filled = poll_fn(|cx| self.poll_fill(cx, Subscriber::fill_batch));
        match time::timeout(timeout, filled).await {
            Ok(filled) => filled?,
            Err(_) => return Err(no_message(timeout, &self.subscriber)),
        }
        self.subscriber.filled_batch()
    }

    /// As [`Subscriber::try_recv_batch`].
    pub fn try_recv_batch(&mut self) -> Result<Batch<'_>, RecvError> {
        self.subscriber.try_recv_batch()
    }

    /// As [`Subscriber::recv_into`].
    pub async fn recv_into(&mut self, into: &mut [u8]) -> Result<Header, RecvError> {
        poll_fn(|cx| self.poll_fill(cx, |subscriber| subscriber.try_recv_into(into))).await
    }

    /// As [`recv_into`](Self::recv_into), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers
    /// enabled.
    pub async fn recv_into_timeout(
        &mut self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Header, RecvError> {
        let received = time::timeout(timeout, self.recv_into(into)).await;
        received.unwrap_or_else(|_| Err(no_message(timeout, &self.subscriber)))
    }

    /// As [`Subscriber::try_recv_into`].
    pub fn try_recv_into(&mut self, into: &mut [u8]) -> Result<Header, RecvError> {
        self.subscriber.try_recv_into(into)
    }

    /// The subscriber, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut Subscriber {
        &mut self.subscriber
    }

    pub fn into_inner(self) -> Subscriber {
        self.subscriber
    }

    fn poll_fill<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Subscriber) -> Result<T, RecvError>,
    ) -> Poll<Result<T, RecvError>> {
        poll_receive(cx, &self.ready, || attempt(&mut self.subscriber))
    }
}

impl Stream for AsyncSubscriber {
    type Item = Result<(Header, Vec<u8>), RecvError>;

    /// An error does not end the stream: that of an ended bus is returned again.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let filled = ready!(self.poll_fill(cx, fill_next));
        let message = filled.and_then(|()| self.subscriber.filled_message());
        Poll::Ready(Some(
            message.map(|message| (*message, message.bytes().to_vec())),
        ))
    }
}

/// A [`MappedSubscriber`] with asynchronous waits. A wait releases all dropped messages before.
///
/// Calls are cancel safe: one that is dropped while it waits has received nothing. The descriptor becomes nonblocking, also for a
/// duplicate of it.
///
/// ```no_run
/// use sluice::Bus;
/// use sluice::bus::{AsyncMappedSubscriber, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let frames = Bus::named("frames").create(true).policies([Policy::Block]).mappable(true);
/// let subscriber = frames.mapped_subscriber()?;
/// let mut subscriber = AsyncMappedSubscriber::new(subscriber)?;
/// loop {
///     let message = subscriber.recv().await?; // in place, released after it is dropped
///     println!("{} of {}: {} bytes", message.sequence(), message.sender(), message.bytes().len());
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncMappedSubscriber {
    subscriber: MappedSubscriber,
    ready: Registered,
}

impl AsyncMappedSubscriber {
    /// Needs a runtime with I/O enabled.
    pub fn new(subscriber: MappedSubscriber) -> Result<Self, OpenError> {
        Ok(Self {
            ready: Registered::new(&subscriber, Interest::READABLE, REGISTERING)?,
            subscriber,
        })
    }

    /// As [`MappedSubscriber::recv`].
    pub async fn recv(&mut self) -> Result<MappedMessage<'_>, RecvError> {
        poll_fn(|cx| poll_receive(cx, &self.ready, || self.subscriber.fill(Wait::Never))).await?;
        self.subscriber.filled_message()
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<MappedMessage<'_>, RecvError> {
        let filled =
            poll_fn(|cx| poll_receive(cx, &self.ready, || self.subscriber.fill(Wait::Never)));
        match time::timeout(timeout, filled).await {
            Ok(filled) => filled?,
            Err(_) => return Err(no_message(timeout, &self.subscriber)),
        }
        self.subscriber.filled_message()
    }

    /// As [`MappedSubscriber::try_recv`].
    pub fn try_recv(&mut self) -> Result<MappedMessage<'_>, RecvError> {
        self.subscriber.try_recv()
    }

    /// The subscriber, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut MappedSubscriber {
        &mut self.subscriber
    }

    pub fn into_inner(self) -> MappedSubscriber {
        self.subscriber
    }
}

fn fill_next(subscriber: &mut Subscriber) -> Result<(), RecvError> {
    subscriber.fill_next(Wait::Never)
}

/// Attempts to receive before it waits, and after each wake-up.
fn poll_receive<T>(
    cx: &mut Context<'_>,
    descriptor: &Registered,
    mut attempt: impl FnMut() -> Result<T, RecvError>,
) -> Poll<Result<T, RecvError>> {
    let budget = ready!(poll_proceed(cx));
    loop {
        match attempt() {
            Err(RecvError::Empty) => {}
            other => {
                budget.made_progress();
                return Poll::Ready(other);
            }
        }
        let mut ready = ready!(descriptor.poll_read_ready(cx))
            .map_err(|source| SystemError::new(WAITING, source))?;
        ready.clear_ready();
    }
}

fn no_message(limit: Duration, endpoint: impl AsFd) -> RecvError {
    RecvError::TimedOut(Timeout::receiving(limit, endpoint))
}
