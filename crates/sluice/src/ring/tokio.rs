// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a tokio runtime: available records are received without a system call, and the descriptor wakes a side that waits.
//! A peer with endless records is limited to its share of the thread, as tokio's own sockets are.

use std::future::poll_fn;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::Interest;
use tokio::task::coop::poll_proceed;
use tokio::task::spawn_blocking;
use tokio::time;

use super::connection::Connection;
use super::consumer::{Consumer, ReadBatch, Record};
use super::error::{RecvError, SendError, SetupError};
use super::memfd::{Listener, Socket};
use super::options::SocketOptions;
use super::producer::{Producer, Reservation};
use crate::system_error::SystemError;
use crate::tokio::Registered;
use crate::wait::Wait;

const REGISTERING: &str = "registering the ring in the runtime";
const WAITING: &str = "waiting for the ring in the runtime";

/// A [`Listener`] whose accept is asynchronous.
#[derive(Debug)]
pub struct AsyncListener {
    listener: Listener,
    ready: Registered,
}

impl AsyncListener {
    /// As [`Listener::bind`]. Needs a runtime with I/O enabled.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self, SetupError> {
        let listener = Listener::bind(path)?;
        let doing = "registering the listening socket in the runtime";
        Ok(Self {
            ready: Registered::new(&listener, Interest::READABLE, doing)?,
            listener,
        })
    }

    /// Waits for the next connection.
    pub async fn accept(&self) -> Result<Socket, SetupError> {
        loop {
            let ready = self.ready.readable().await;
            let mut ready =
                ready.map_err(|source| SystemError::new("accepting a connection", source))?;
            match self.listener.accept_within(Wait::Never) {
                Err(SetupError::System(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready.clear_ready();
                }
                other => return other,
            }
        }
    }
}

impl SocketOptions {
    /// As [`producer`](Self::producer), on a thread that may block.
    pub async fn async_producer(&self, socket: Socket) -> Result<AsyncProducer, SetupError> {
        let options = self.clone();
        let producer = spawn_blocking(move || options.producer(socket)).await;
        AsyncProducer::new(producer.map_err(runtime_ended)??)
    }

    /// As [`consumer`](Self::consumer), on a thread that may block.
    pub async fn async_consumer(&self, socket: Socket) -> Result<AsyncConsumer, SetupError> {
        let options = self.clone();
        let consumer = spawn_blocking(move || options.consumer(socket)).await;
        AsyncConsumer::new(consumer.map_err(runtime_ended)??)
    }
}

fn runtime_ended(error: tokio::task::JoinError) -> SetupError {
    SystemError::new("setting up the ring in the runtime", error).into()
}

/// A [`Producer`] with asynchronous waits. As a [`Sink`] it sends any `AsRef<[u8]>`; closing it waits until all records are
/// released.
///
/// Calls are cancel safe: one that is dropped while it waits has sent nothing.
#[derive(Debug)]
pub struct AsyncProducer {
    producer: Producer,
    ready: Registered,
}

impl AsyncProducer {
    /// Of a ring in the module: `AsyncProducer::new(Ring::named("x").producer()?)`. Over a socket use [`SocketOptions::async_producer`].
    /// Needs a runtime with I/O enabled.
    pub fn new(producer: Producer) -> Result<Self, SetupError> {
        Ok(Self {
            ready: Registered::new(&producer, Interest::READABLE, REGISTERING)?,
            producer,
        })
    }

    /// Sends a record. Waits while the ring is full.
    pub async fn send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.room(record.len()).await?;
        self.producer.try_send(record)
    }

    /// As [`Producer::try_send`].
    pub fn try_send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.producer.try_send(record)
    }

    /// As [`send`](Self::send), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn send_timeout(
        &mut self,
        record: &[u8],
        timeout: Duration,
    ) -> Result<(), SendError> {
        let sent = time::timeout(timeout, self.send(record)).await;
        sent.unwrap_or_else(|_| {
            Err(SendError::TimedOut(
                self.producer.connection.timeout(timeout),
            ))
        })
    }

    /// As [`Producer::reserve`].
    pub async fn reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.room(length).await?;
        self.producer.try_reserve(length)
    }

    /// As [`Producer::try_reserve`].
    pub fn try_reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.producer.try_reserve(length)
    }

    /// As [`reserve`](Self::reserve), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn reserve_timeout(
        &mut self,
        length: usize,
        timeout: Duration,
    ) -> Result<Reservation<'_>, SendError> {
        let room = time::timeout(timeout, self.room(length)).await;
        room.unwrap_or_else(|_| {
            Err(SendError::TimedOut(
                self.producer.connection.timeout(timeout),
            ))
        })?;
        self.producer.try_reserve(length)
    }

    /// As [`Producer::send_batch`].
    pub fn send_batch(&mut self) -> AsyncWriteBatch<'_> {
        AsyncWriteBatch { producer: self }
    }

    /// Waits until the consumer has released all sent records.
    pub async fn flush(&mut self) -> Result<(), SendError> {
        poll_fn(|cx| self.poll_released(cx)).await
    }

    /// As [`flush`](Self::flush), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn flush_timeout(&mut self, timeout: Duration) -> Result<(), SendError> {
        let flushed = time::timeout(timeout, self.flush()).await;
        flushed.unwrap_or_else(|_| {
            Err(SendError::TimedOut(
                self.producer.connection.timeout(timeout),
            ))
        })
    }

    /// As [`Producer::is_closed`].
    pub fn is_closed(&mut self) -> bool {
        self.producer.is_closed()
    }

    /// As [`Producer::abort`].
    pub fn abort(self) {
        self.producer.abort();
    }

    /// The producer, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut Producer {
        &mut self.producer
    }

    pub fn into_inner(self) -> Producer {
        self.producer
    }

    async fn room(&mut self, length: usize) -> Result<(), SendError> {
        poll_fn(|cx| self.poll_room(length, cx)).await
    }

    fn poll_room(&mut self, length: usize, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_until(
            cx,
            |producer| producer.make_room(length, Wait::Never).map(drop),
            |producer| producer.prepare_wait(length),
        )
    }

    fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_until(
            cx,
            |producer| producer.flush_within(Wait::Never),
            Producer::prepare_flush,
        )
    }

    fn poll_until(
        &mut self,
        cx: &mut Context<'_>,
        mut attempt: impl FnMut(&mut Producer) -> Result<(), SendError>,
        mut prepare: impl FnMut(&mut Producer) -> Result<bool, SendError>,
    ) -> Poll<Result<(), SendError>> {
        let budget = ready!(poll_proceed(cx));
        loop {
            match attempt(&mut self.producer) {
                Err(SendError::Full) => {}
                other => {
                    budget.made_progress();
                    return Poll::Ready(other);
                }
            }
            if prepare(&mut self.producer)? {
                ready!(poll_woken(&mut self.producer.connection, &self.ready, cx))
                    .map_err(|source| SystemError::new(WAITING, source))?;
            }
            self.producer.connection.finish_wait();
        }
    }
}

/// Records that are sent together when the batch is dropped, as a [`WriteBatch`](super::WriteBatch).
#[derive(Debug)]
#[must_use = "a batch is sent when it is dropped"]
pub struct AsyncWriteBatch<'a> {
    producer: &'a mut AsyncProducer,
}

impl AsyncWriteBatch<'_> {
    /// Adds a record. When the ring is full, sends the records of the batch and waits.
    pub async fn send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.producer.room(record.len()).await?;
        self.try_send(record)
    }

    /// Reserves room for a record of the batch. When the ring is full, sends the records of the batch and waits.
    pub async fn reserve(&mut self, length: usize) -> Result<Reservation<'_>, SendError> {
        self.producer.room(length).await?;
        self.producer.producer.reserve_in_batch(length, Wait::Never)
    }

    /// As [`WriteBatch::try_send`](super::WriteBatch::try_send).
    pub fn try_send(&mut self, record: &[u8]) -> Result<(), SendError> {
        self.producer.producer.put(record, Wait::Never)
    }

    /// Sends the records now.
    pub fn publish(self) {}
}

impl Drop for AsyncWriteBatch<'_> {
    fn drop(&mut self) {
        self.producer.producer.publish();
    }
}

impl<T: AsRef<[u8]>> Sink<T> for AsyncProducer {
    type Error = SendError;

    /// For any record: the length is not known yet.
    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let len = self.producer.max_record_len();
        self.poll_room(len, cx)
    }

    fn start_send(mut self: Pin<&mut Self>, record: T) -> Result<(), SendError> {
        self.producer.try_send(record.as_ref())
    }

    /// A record is sent as soon as it is started.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        self.poll_released(cx)
    }
}

/// A [`Consumer`] with asynchronous waits. As a [`Stream`] it yields copies of the records.
///
/// Calls are cancel safe: one that is dropped while it waits has received nothing.
///
/// ```no_run
/// use sluice::ring::{AsyncListener, SocketOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = AsyncListener::bind("/tmp/orders")?;
/// let socket = listener.accept().await?;
/// let mut consumer = SocketOptions::new().async_consumer(socket).await?;
/// while let Some(record) = consumer.recv().await? {
///     println!("{} bytes", record.len());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncConsumer {
    consumer: Consumer,
    ready: Registered,
}

impl AsyncConsumer {
    /// Of a ring in the module: `AsyncConsumer::new(Ring::named("x").consumer()?)`. Over a socket use [`SocketOptions::async_consumer`].
    /// Needs a runtime with I/O enabled.
    pub fn new(consumer: Consumer) -> Result<Self, SetupError> {
        Ok(Self {
            ready: Registered::new(&consumer, Interest::READABLE, REGISTERING)?,
            consumer,
        })
    }

    /// Copies the next record to `into` and returns its length, or none at the end of the stream. A record longer than `into` is
    /// not received and stays the next one.
    pub async fn recv_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        let found = self.find().await?;
        found.map(|len| self.consumer.take(len, into)).transpose()
    }

    /// As [`Consumer::try_recv_into`].
    pub fn try_recv_into(&mut self, into: &mut [u8]) -> Result<Option<usize>, RecvError> {
        self.consumer.try_recv_into(into)
    }

    /// As [`recv_into`](Self::recv_into), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_into_timeout(
        &mut self,
        into: &mut [u8],
        timeout: Duration,
    ) -> Result<Option<usize>, RecvError> {
        let received = time::timeout(timeout, self.recv_into(into)).await;
        received.unwrap_or_else(|_| {
            Err(RecvError::TimedOut(
                self.consumer.connection.timeout(timeout),
            ))
        })
    }

    /// As [`Consumer::recv`].
    pub async fn recv(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        let found = self.find().await?;
        Ok(found.map(|len| self.consumer.record(len)))
    }

    /// As [`Consumer::try_recv`].
    pub fn try_recv(&mut self) -> Result<Option<Record<'_>>, RecvError> {
        self.consumer.try_recv()
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Record<'_>>, RecvError> {
        let found = time::timeout(timeout, self.find()).await;
        let found = found.unwrap_or_else(|_| {
            Err(RecvError::TimedOut(
                self.consumer.connection.timeout(timeout),
            ))
        })?;
        Ok(found.map(|len| self.consumer.record(len)))
    }

    /// As [`Consumer::recv_batch`].
    pub async fn recv_batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        let found = self.find().await?;
        let consumer = &mut self.consumer;
        Ok(found.map(|_| ReadBatch { consumer }))
    }

    /// As [`recv_batch`](Self::recv_batch), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers
    /// enabled.
    pub async fn recv_batch_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<ReadBatch<'_>>, RecvError> {
        let found = time::timeout(timeout, self.find()).await;
        let found = found.unwrap_or_else(|_| {
            Err(RecvError::TimedOut(
                self.consumer.connection.timeout(timeout),
            ))
        })?;
        let consumer = &mut self.consumer;
        Ok(found.map(|_| ReadBatch { consumer }))
    }

    /// As [`Consumer::try_recv_batch`].
    pub fn try_recv_batch(&mut self) -> Result<Option<ReadBatch<'_>>, RecvError> {
        self.consumer.try_recv_batch()
    }

    /// As [`Consumer::is_closed`].
    pub fn is_closed(&mut self) -> bool {
        self.consumer.is_closed()
    }

    /// As [`Consumer::abort`].
    pub fn abort(self) {
        self.consumer.abort();
    }

    /// The consumer, for calls that this type lacks. Its calls that wait block the runtime.
    pub fn get_mut(&mut self) -> &mut Consumer {
        &mut self.consumer
    }

    pub fn into_inner(self) -> Consumer {
        self.consumer
    }

    /// The length of the next record.
    async fn find(&mut self) -> Result<Option<u32>, RecvError> {
        poll_fn(|cx| self.poll_find(cx)).await
    }

    fn poll_find(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<u32>, RecvError>> {
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
                ready!(poll_woken(&mut self.consumer.connection, &self.ready, cx))
                    .map_err(|source| SystemError::new(WAITING, source))?;
            }
            self.consumer.connection.finish_wait();
        }
    }
}

impl Stream for AsyncConsumer {
    type Item = Result<Vec<u8>, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let found = ready!(self.poll_find(cx));
        let record = found.map(|found| found.map(|len| self.consumer.record(len).to_vec()));
        Poll::Ready(record.transpose())
    }
}

/// Ready when the peer may have woken this side.
fn poll_woken(
    connection: &mut Connection,
    descriptor: &Registered,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    let mut ready = ready!(descriptor.poll_read_ready(cx))?;
    if connection.drain() {
        ready.clear_ready();
    }
    Poll::Ready(Ok(()))
}
