// SPDX-License-Identifier: MIT OR Apache-2.0
//! Feeds in a tokio runtime: available packets are received without a system call, and the descriptor wakes a task that waits.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use tokio::io::Interest;
use tokio::task::coop::poll_proceed;
use tokio::time;

use super::consumer::{Consumer, Packet};
use super::error::RecvError;
use super::packet::Header;
use crate::system_error::SystemError;
use crate::tokio::Registered;
use crate::wait::Wait;

/// A [`Consumer`] with asynchronous waits, which do not spin. As a [`Stream`] it yields headers and copies of the packets, and ends
/// with the feed.
///
/// Calls are cancel safe: one that is dropped while it waits has received nothing.
///
/// ```no_run
/// use sluice::Feed;
/// use sluice::feed::AsyncConsumer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut consumer = AsyncConsumer::new(Feed::named("frames").open()?.map()?)?;
/// loop {
///     let packet = consumer.recv().await?; // in place, released when it is dropped
///     println!("{}, {} lost: {} bytes", packet.sequence, packet.lost, packet.bytes().len());
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncConsumer {
    consumer: Consumer,
    ready: Registered,
}

impl AsyncConsumer {
    /// Needs a runtime with I/O enabled.
    pub fn new(consumer: Consumer) -> Result<Self, RecvError> {
        let ready = Registered::new(
            &consumer,
            Interest::READABLE,
            "registering the feed in the runtime",
        )?;
        Ok(Self { consumer, ready })
    }

    /// As [`Consumer::recv`].
    pub async fn recv(&mut self) -> Result<Packet<'_>, RecvError> {
        let len = poll_fn(|cx| self.poll_find(cx)).await?;
        self.consumer.packet(len)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<Packet<'_>, RecvError> {
        let received = time::timeout(timeout, self.recv()).await;
        received.unwrap_or(Err(RecvError::TimedOut(timeout)))
    }

    /// As [`Consumer::try_recv`].
    pub fn try_recv(&mut self) -> Result<Packet<'_>, RecvError> {
        self.consumer.try_recv()
    }

    /// The consumer, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    pub fn into_inner(self) -> Consumer {
        self.consumer
    }

    /// The length of the next record.
    fn poll_find(&mut self, cx: &mut Context<'_>) -> Poll<Result<u32, RecvError>> {
        let budget = ready!(poll_proceed(cx));
        loop {
            match self.consumer.find(Wait::Never) {
                Err(RecvError::Empty) => {}
                other => {
                    budget.made_progress();
                    return Poll::Ready(other);
                }
            }
            if self.consumer.prepare_wait()? {
                let mut ready = ready!(self.ready.poll_read_ready(cx))
                    .map_err(|source| SystemError::new("waiting for a packet", source))?;
                ready.clear_ready();
            }
            // After clear_ready(): the next attempt sees the packets of earlier wake-ups, and a later one is not cleared.
            self.consumer.finish_wait();
        }
    }
}

impl Stream for AsyncConsumer {
    type Item = Result<(Header, Vec<u8>), RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let found = ready!(self.poll_find(cx));
        let packet = found.and_then(|len| self.consumer.packet(len));
        Poll::Ready(match packet {
            Err(RecvError::Closed) => None,
            other => Some(other.map(|packet| (*packet, packet.bytes().to_vec()))),
        })
    }
}
