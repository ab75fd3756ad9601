// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients and servers in a tokio runtime.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFdReadyGuard;
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;
use tokio::time;

use super::client::{Client, reply_lost};
use super::error::{CallError, ServeError};
use super::server::{self, Queue, Server, SlowClients, request_calls};
use super::{Asked, Losses, most_messages};
use crate::bus::error::{OpenError, RecvError, SendError};
use crate::bus::info::BusInfo;
use crate::bus::message::Header;
use crate::bus::subscriber::Subscriber;
use crate::bus::tokio::{AsyncSender, REGISTERING, WAITING};
use crate::system_error::SystemError;
use crate::tokio::Registered;
use crate::wait::Wait;

type Outcome = Result<Vec<u8>, CallError>;
type Ready<'a> = AsyncFdReadyGuard<'a, OwnedFd>;

/// The messages that a call receives for all before others run.
const RECEIVED_MAX: usize = 64;

fn waiting_failed(error: std::io::Error) -> RecvError {
    SystemError::new(WAITING, error).into()
}

/// A [`Client`] with asynchronous calls, any number of them at the same time. Clones are the same client.
///
/// A call that is dropped is cancelled: its request may have been sent, and a reply that arrives later is discarded.
///
/// ```no_run
/// use sluice::bus::AsyncClient;
/// use tokio::task::JoinSet;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = AsyncClient::new(sluice::Bus::named("sums").client()?)?;
/// let mut calls = JoinSet::new();
/// for number in 0..10 {
///     let client = client.clone();
///     calls.spawn(async move { client.call(format!("{number} + 1").as_bytes()).await });
/// }
/// while let Some(reply) = calls.join_next().await {
///     println!("{}", String::from_utf8_lossy(&reply??));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AsyncClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sender: AsyncSender,
    ready: Registered,
    replies: Mutex<Replies>,
}

impl AsyncClient {
    /// Needs a runtime with I/O enabled.
    pub fn new(client: Client) -> Result<Self, OpenError> {
        let (sender, replies) = client.into_parts();
        let shared = Shared {
            ready: Registered::new(&sender, Interest::READABLE, REGISTERING)?,
            sender: AsyncSender::new(sender)?,
            replies: Mutex::new(replies),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// As [`Client::call`]. Returns the bytes of the reply.
    pub async fn call(&self, request: &[u8]) -> Result<Vec<u8>, CallError> {
        let shared = &*self.shared;
        let mut call = shared.ask(request).await?;
        loop {
            let mut readable = pin!(shared.ready.readable());
            let event = poll_fn(|cx| match Pin::new(&mut call.outcome).poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Err(outcome)),
                Poll::Pending => readable.as_mut().poll(cx).map(Ok),
            });
            match event.await {
                Ok(ready) => shared.receive(ready.map_err(waiting_failed)?).await,
                // An outcome is sent before the other half is dropped.
                Err(outcome) => return outcome.unwrap_or(Err(RecvError::Destroyed.into())),
            }
        }
    }

    /// As [`call`](Self::call), but waits at most for `timeout`, then fails with [`CallError::TimedOut`]. Needs timers enabled.
    pub async fn call_timeout(
        &self,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Vec<u8>, CallError> {
        let replied = time::timeout(timeout, self.call(request)).await;
        replied.unwrap_or(Err(CallError::TimedOut(timeout)))
    }

    /// As [`Client::id`].
    pub fn id(&self) -> u64 {
        self.shared.sender.get_ref().id()
    }

    /// As [`Client::message_max`].
    pub fn message_max(&self) -> u64 {
        self.shared.sender.get_ref().message_max()
    }

    /// As [`Client::info`].
    pub fn info(&self) -> crate::Result<BusInfo> {
        self.shared.sender.get_ref().info()
    }
}

impl Shared {
    async fn ask(&self, request: &[u8]) -> Result<Call<'_>, CallError> {
        // What is left of earlier calls could hold the room of the request, and its losses are not those of this call.
        self.receive_some();
        loop {
            let server = self.sender.take_turn().await?;
            // Before the request, whose reply may be received by another call.
            let call = Call::begin(&self.replies, server);
            match self.sender.send_tagged(server, call.tag, request).await {
                // It has ended since the turn.
                Err(SendError::UnknownSubscriber { .. }) => {}
                sent => {
                    sent?;
                    lock(&self.replies).note_sent(call.tag);
                    return Ok(call);
                }
            }
        }
    }

    /// The readiness remains unless no message is left: a later event is not cleared by this guard.
    async fn receive(&self, mut ready: Ready<'_>) {
        match self.receive_some() {
            true => ready.clear_ready(),
            false => {
                drop(ready);
                yield_now().await;
            }
        }
    }

    /// Returns whether no message is left. The calls are told without the lock: that may run their tasks.
    fn receive_some(&self) -> bool {
        let mut ended = Vec::new();
        let emptied = lock(&self.replies).receive(&mut ended);
        for (call, outcome) in ended {
            // A call that was dropped meanwhile has no use for it.
            call.send(outcome).ok();
        }
        emptied
    }
}

/// A call in progress. Dropping it cancels the call.
struct Call<'a> {
    replies: &'a Mutex<Replies>,
    tag: u64,
    outcome: oneshot::Receiver<Outcome>,
}

impl<'a> Call<'a> {
    fn begin(replies: &'a Mutex<Replies>, server: u64) -> Self {
        let (sender, outcome) = oneshot::channel();
        let tag = lock(replies).expect(server, sender);
        Self {
            replies,
            tag,
            outcome,
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Dropped without the lock.
        let _expected = lock(self.replies).expected.remove(&self.tag);
    }
}

/// What the calls of a client share. The call that is polled receives the replies of all.
pub(super) struct Replies {
    subscriber: Subscriber,
    last_tag: u64,
    losses: Losses,
    expected: HashMap<u64, Expected>,
    failure: Option<PendingFailure>,
}

/// A call whose reply is not there yet.
struct Expected {
    server: u64,
    is_sent: bool,
    call: oneshot::Sender<Outcome>,
}

/// Why calls fail, unless their reply is one of the next messages.
struct PendingFailure {
    ended_servers: BTreeSet<u64>,
    lost: u64,
    next: u64,
}

impl PendingFailure {
    fn error(&self, reply: &Expected) -> Option<CallError> {
        let server = reply.server;
        match self.ended_servers.contains(&server) {
            true => Some(CallError::ServerEnded { server }),
            false if reply.is_sent => reply_lost(self.lost),
            false => None,
        }
    }
}

type Ended = Vec<(oneshot::Sender<Outcome>, Outcome)>;

impl Replies {
    pub fn new(subscriber: Subscriber, last_tag: u64, losses: Losses) -> Self {
        Self {
            subscriber,
            last_tag,
            losses,
            expected: HashMap::new(),
            failure: None,
        }
    }

    /// Returns the tag of a new request.
    fn expect(&mut self, server: u64, call: oneshot::Sender<Outcome>) -> u64 {
        self.last_tag += 1;
        let reply = Expected {
            server,
            is_sent: false,
            call,
        };
        self.expected.insert(self.last_tag, reply);
        self.last_tag
    }

    fn note_sent(&mut self, tag: u64) {
        if let Some(reply) = self.expected.get_mut(&tag) {
            reply.is_sent = true;
        }
    }

    /// Receives messages, and adds the calls that end. Returns whether no message is left.
    fn receive(&mut self, ended: &mut Ended) -> bool {
        for _ in 0..RECEIVED_MAX {
            let received = match self.subscriber.fill_next(Wait::Never) {
                Ok(()) => self.dispatch(ended),
                Err(RecvError::Notice) => self.look(0),
                Err(error) => Err(error),
            };
            match received {
                Ok(()) => {}
                Err(RecvError::Empty) => {
                    self.give_up(ended);
                    return true;
                }
                Err(error) => {
                    self.fail(ended, |_| Some(same(&error).into()));
                    return true;
                }
            }
        }
        false
    }

    fn dispatch(&mut self, ended: &mut Ended) -> Result<(), RecvError> {
        let message = self.subscriber.filled_message()?;
        let tag = message.tag;
        let lost = self.losses.add_frame(&message);
        let server = self.expected.get(&tag).map(|reply| reply.server);
        let asked = server.map(|server| Asked { server, tag });
        let answered = asked.filter(|asked| asked.is_answered_by(&message));
        if let Some(reply) = answered.and_then(|asked| self.expected.remove(&asked.tag)) {
            ended.push((reply.call, Ok(message.bytes().to_vec())));
        }
        match &mut self.failure {
            Some(failure) if failure.next == 0 => self.give_up(ended),
            Some(failure) => failure.next -= 1,
            None => {}
        }
        match lost {
            0 => Ok(()),
            lost => self.look(lost),
        }
    }

    /// After a notice or losses that a frame has told.
    fn look(&mut self, lost: u64) -> Result<(), RecvError> {
        let endpoint = &self.subscriber.endpoint;
        let asked: BTreeSet<u64> = self.expected.values().map(|reply| reply.server).collect();
        let mut ended_servers = BTreeSet::new();
        for server in asked {
            if !endpoint.has_subscriber(server)? {
                ended_servers.insert(server);
            }
        }
        let seen = endpoint.raw_info()?;
        let mut lost = lost + self.losses.set_total(seen.own_lost);
        if let Some(before) = self.failure.take() {
            ended_servers.extend(before.ended_servers);
            lost += before.lost;
        }
        let next = most_messages(&seen);
        self.failure = Some(PendingFailure {
            ended_servers,
            lost,
            next,
        });
        Ok(())
    }

    /// No message is left that was there at the last look.
    fn give_up(&mut self, ended: &mut Ended) {
        if let Some(failure) = self.failure.take() {
            self.fail(ended, |reply| failure.error(reply));
        }
    }

    /// Ends the calls for which there is an error.
    fn fail(&mut self, ended: &mut Ended, error: impl Fn(&Expected) -> Option<CallError>) {
        let errors = |(tag, reply): (&u64, &Expected)| Some((*tag, error(reply)?));
        let failed: Vec<_> = self.expected.iter().filter_map(errors).collect();
        for (tag, error) in failed {
            if let Some(reply) = self.expected.remove(&tag) {
                ended.push((reply.call, Err(error)));
            }
        }
    }
}

/// The same error for another call.
fn same(error: &RecvError) -> RecvError {
    RecvError::new(Errno::from_raw_os_error(
        error.raw_os_error().unwrap_or(libc::EIO),
    ))
}

/// Nothing panics while it is locked.
fn lock(replies: &Mutex<Replies>) -> MutexGuard<'_, Replies> {
    replies.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replies")
            .field("expected", &self.expected.len())
            .finish_non_exhaustive()
    }
}

/// A [`Server`] with asynchronous waits.
///
/// Receiving is cancel safe. A call of [`serve`](Self::serve) that is dropped while it answers loses that request: its client keeps waiting.
///
/// ```no_run
/// use sluice::bus::AsyncServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut server = AsyncServer::new(sluice::Bus::named("sums").create(true).server()?)?;
/// loop {
///     let request = server.recv().await?;
///     // A task that ends without a reply, as by a panic, leaves its client waiting.
///     tokio::spawn(async move {
///         let reply = format!("{} bytes", request.len);
///         request.reply(reply.as_bytes()).await
///     });
/// }
/// # }
/// ```
pub struct AsyncServer {
    shared: Arc<Serving>,
    reply_timeout: Duration,
}

/// What a server and its requests have in common.
struct Serving {
    sender: AsyncSender,
    ready: Registered,
    queue: Mutex<Queue>,
    /// A reply has received requests: they are in the queue.
    arrived: Notify,
}

impl AsyncServer {
    /// Needs a runtime with I/O enabled.
    pub fn new(server: Server) -> Result<Self, OpenError> {
        let (sender, queue, reply_timeout) = server.into_parts()?;
        let shared = Serving {
            ready: Registered::new(&sender, Interest::READABLE, REGISTERING)?,
            sender: AsyncSender::new(sender)?,
            queue: Mutex::new(queue),
            arrived: Notify::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
            reply_timeout,
        })
    }

    /// As [`Server::serve`]: answers one request after the other. `answer` gets the header and the bytes of a request. To answer several at
    /// the same time, spawn tasks for what [`recv`](Self::recv) returns. Needs timers enabled.
    ///
    /// ```no_run
    /// # async fn serve(mut server: sluice::bus::AsyncServer) -> Result<(), sluice::bus::ServeError> {
    /// server.serve(|header, bytes| async move { format!("{} of user {}", bytes.len(), header.uid) }).await
    /// # }
    /// ```
    pub async fn serve<F, R>(
        &mut self,
        mut answer: impl FnMut(Header, Vec<u8>) -> F,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = R>,
        R: AsRef<[u8]>,
    {
        let mut clients = SlowClients::new(self.reply_timeout);
        loop {
            let (header, bytes) = match self.shared.next().await {
                Err(RecvError::Destroyed) => return Ok(()),
                request => request?,
            };
            let reply = answer(header, bytes).await;
            let time = clients.timeout_for(header.sender);
            let sent = self.shared.reply(&header, reply.as_ref());
            let sent = time::timeout(time, sent).await;
            let sent = sent.unwrap_or(Err(SendError::TimedOut(time)));
            if clients.record(header.sender, sent)?.is_break() {
                return Ok(());
            }
        }
    }

    /// As [`Server::set_reply_timeout`].
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// As [`Server::recv`].
    pub async fn recv(&mut self) -> Result<AsyncRequest, RecvError> {
        let received = self.shared.next().await?;
        Ok(self.request(received))
    }

    /// As [`Server::try_recv`].
    pub fn try_recv(&mut self) -> Result<AsyncRequest, RecvError> {
        let received = server::lock(&self.shared.queue).next(Wait::Never)?;
        Ok(self.request(received))
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<AsyncRequest, RecvError> {
        let received = time::timeout(timeout, self.recv()).await;
        received.unwrap_or(Err(RecvError::TimedOut(timeout.into())))
    }

    /// As [`Server::id`].
    pub fn id(&self) -> u64 {
        self.shared.sender.get_ref().id()
    }

    /// As [`Server::message_max`].
    pub fn message_max(&self) -> u64 {
        self.shared.sender.get_ref().message_max()
    }

    /// As [`Server::info`].
    pub fn info(&self) -> crate::Result<BusInfo> {
        self.shared.sender.get_ref().info()
    }

    fn request(&self, (header, bytes): (Header, Vec<u8>)) -> AsyncRequest {
        AsyncRequest {
            header,
            bytes,
            shared: self.shared.clone(),
        }
    }
}

impl fmt::Debug for AsyncServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncServer")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

impl Serving {
    async fn next(&self) -> Result<(Header, Vec<u8>), RecvError> {
        loop {
            match server::lock(&self.queue).next(Wait::Never) {
                Err(RecvError::Empty) => {}
                other => return other,
            }
            let (mut readable, mut arrived) =
                (pin!(self.ready.readable()), pin!(self.arrived.notified()));
            poll_fn(|cx| match arrived.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Ok(())),
                Poll::Pending => readable.as_mut().poll(cx).map(cleared),
            })
            .await
            .map_err(waiting_failed)?;
        }
    }

    /// Receives the requests meanwhile that may hold the room of the reply.
    async fn reply(&self, header: &Header, bytes: &[u8]) -> Result<(), SendError> {
        loop {
            match self
                .sender
                .try_send_tagged(header.sender, header.tag, bytes)
            {
                Err(SendError::Full) => {}
                other => return other,
            }
            if server::lock(&self.queue).receive_ahead() {
                self.arrived.notify_one();
            }
            let (mut readable, mut writable) =
                (pin!(self.ready.readable()), pin!(self.sender.writable()));
            poll_fn(|cx| match writable.as_mut().poll(cx) {
                Poll::Ready(ready) => Poll::Ready(cleared(ready)),
                Poll::Pending => readable.as_mut().poll(cx).map(cleared),
            })
            .await
            .map_err(|error| SystemError::new(WAITING, error))?;
        }
    }
}

/// Before the next attempt, so that no wake-up after a failed one is lost.
fn cleared(ready: std::io::Result<Ready<'_>>) -> std::io::Result<()> {
    ready.map(|mut ready| ready.clear_ready())
}

/// A request that an [`AsyncServer`] has received, which any task may answer. Dereferences to its header. If one is dropped
/// without a reply, its client keeps waiting. A server remains in turn until its last request is dropped.
#[must_use = "its client waits for a reply"]
pub struct AsyncRequest {
    header: Header,
    bytes: Vec<u8>,
    shared: Arc<Serving>,
}

impl AsyncRequest {
    /// As [`Request::reply`](super::Request::reply).
    pub async fn reply(self, bytes: &[u8]) -> Result<(), SendError> {
        self.shared.reply(&self.header, bytes).await
    }

    /// As [`reply`](Self::reply), but waits at most for `timeout`, then fails with [`SendError::TimedOut`]. Needs timers enabled.
    pub async fn reply_timeout(self, bytes: &[u8], timeout: Duration) -> Result<(), SendError> {
        let sent = time::timeout(timeout, self.reply(bytes)).await;
        sent.unwrap_or(Err(SendError::TimedOut(timeout)))
    }
}

request_calls!(AsyncRequest);
