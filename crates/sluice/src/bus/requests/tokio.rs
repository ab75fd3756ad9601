// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients and servers in a tokio runtime.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time;

use super::client::{Client, reply_lost};
use super::error::{CallError, ServeError};
use super::server::{REPLY_TIMEOUT, Request, Server, is_of_client};
use super::{Asked, Losses};
use crate::bus::error::{OpenError, RecvError, SendError};
use crate::bus::message::Header;
use crate::bus::subscriber::Subscriber;
use crate::bus::tokio::{AsyncSender, AsyncSubscriber, REGISTERING, WAITING};
use crate::system_error::SystemError;
use crate::tokio::register;
use crate::wait::Wait;

type Outcome = Result<Vec<u8>, CallError>;

/// A [`Client`] with asynchronous calls, any number of them at the same time.
///
/// A call that is dropped is cancelled: its request may have been sent, and a reply that arrives later is discarded.
///
/// ```no_run
/// use sluice::bus::AsyncClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = AsyncClient::new(sluice::Bus::named("sums").client()?)?;
/// let sum = client.call(b"2 + 2").await?;
/// println!("{}", String::from_utf8_lossy(&sum));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncClient {
    sender: AsyncSender,
    ready: AsyncFd<OwnedFd>,
    replies: Mutex<Replies>,
}

impl AsyncClient {
    /// Needs a runtime with I/O enabled.
    pub fn new(client: Client) -> Result<Self, OpenError> {
        let (sender, replies) = client.into_parts();
        Ok(Self {
            ready: register(&sender, Interest::READABLE, REGISTERING)?,
            sender: AsyncSender::new(sender)?,
            replies: Mutex::new(replies),
        })
    }

    /// As [`Client::call`]. Returns the bytes of the reply.
    pub async fn call(&self, request: &[u8]) -> Result<Vec<u8>, CallError> {
        let mut call = self.ask(request).await?;
        loop {
            lock(&self.replies).receive();
            let mut readable = pin!(self.ready.readable());
            let event = poll_fn(|cx| match Pin::new(&mut call.outcome).poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Err(outcome)),
                Poll::Pending => readable.as_mut().poll(cx).map(Ok),
            });
            match event.await {
                // Cleared before the next attempt, so that no wake-up after a failed one is lost.
                Ok(ready) => ready
                    .map_err(|error| RecvError::from(SystemError::new(WAITING, error)))?
                    .clear_ready(),
                Err(outcome) => {
                    // The other half is used before it is dropped.
                    return outcome.unwrap_or(Err(RecvError::Destroyed.into()));
                }
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

    async fn ask(&self, request: &[u8]) -> Result<Call<'_>, CallError> {
        loop {
            let server = self.sender.take_turn().await?;
            // Before the request, whose reply may be received by another call.
            let call = Call::begin(&self.replies, server);
            match self.sender.send_tagged(server, call.tag, request).await {
                // It has ended since the turn.
                Err(SendError::UnknownSubscriber { .. }) => {}
                sent => return Ok(sent.map(|()| call)?),
            }
        }
    }
}

/// A call in progress. It ends with its drop.
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
        lock(self.replies).expected.remove(&self.tag);
    }
}

/// What the calls of a client share. Whichever of them is polled receives for all.
pub(super) struct Replies {
    subscriber: Subscriber,
    last_tag: u64,
    losses: Losses,
    expected: HashMap<u64, Expected>,
}

/// A reply that is not there yet.
struct Expected {
    server: u64,
    outcome: oneshot::Sender<Outcome>,
}

impl Replies {
    pub fn new(subscriber: Subscriber, last_tag: u64, losses: Losses) -> Self {
        Self {
            subscriber,
            last_tag,
            losses,
            expected: HashMap::new(),
        }
    }

    /// Returns the tag of a new request.
    fn expect(&mut self, server: u64, outcome: oneshot::Sender<Outcome>) -> u64 {
        self.last_tag += 1;
        self.expected
            .insert(self.last_tag, Expected { server, outcome });
        self.last_tag
    }

    /// Receives everything that there is. As for [`Client`], a request is given up only when no message is left.
    fn receive(&mut self) {
        let (mut ended, mut lost) = (BTreeSet::new(), 0);
        loop {
            let received = match self.subscriber.fill_next(Wait::Never) {
                Ok(()) => self.dispatch(&mut lost),
                Err(RecvError::Notice) => self.look(&mut ended, &mut lost),
                Err(error) => Err(error),
            };
            match received {
                Ok(()) => {}
                Err(RecvError::Empty) => break,
                Err(error) => return self.fail(|_| Some(same(&error).into())),
            }
        }
        self.fail(|server| match ended.contains(&server) {
            true => Some(CallError::ServerEnded { server }),
            false => reply_lost(lost),
        });
    }

    fn dispatch(&mut self, lost: &mut u64) -> Result<(), RecvError> {
        let message = self.subscriber.filled_message()?;
        *lost += self.losses.told_by(&message);
        let tag = message.tag;
        let server = self.expected.get(&tag).map(|expected| expected.server);
        let asked = server.map(|server| Asked { server, tag });
        if asked.is_some_and(|asked| asked.is_answered_by(&message)) {
            end(self.expected.remove(&tag), Ok(message.bytes().to_vec()));
        }
        Ok(())
    }

    /// After a notice.
    fn look(&mut self, ended: &mut BTreeSet<u64>, lost: &mut u64) -> Result<(), RecvError> {
        let endpoint = &self.subscriber.endpoint;
        let asked: BTreeSet<u64> = self.expected.values().map(|reply| reply.server).collect();
        for server in asked {
            if !endpoint.has_subscriber(server)? {
                ended.insert(server);
            }
        }
        *lost += self.losses.learn(endpoint.own_lost()?);
        Ok(())
    }

    /// Ends the calls for which there is an error.
    fn fail(&mut self, error_for: impl Fn(u64) -> Option<CallError>) {
        let errors = |(tag, reply): (&u64, &Expected)| Some((*tag, error_for(reply.server)?));
        let failed: Vec<_> = self.expected.iter().filter_map(errors).collect();
        for (tag, error) in failed {
            end(self.expected.remove(&tag), Err(error));
        }
    }
}

fn end(expected: Option<Expected>, outcome: Outcome) {
    if let Some(expected) = expected {
        // A call that was dropped meanwhile has no use for it.
        expected.outcome.send(outcome).ok();
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
/// ```no_run
/// use sluice::bus::AsyncServer;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut server = AsyncServer::new(sluice::Bus::named("sums").create(true).server()?)?;
/// loop {
///     let request = server.recv().await?;
///     tokio::spawn(async move {
///         let reply = format!("{} bytes", request.len);
///         request.reply(reply.as_bytes()).await
///     });
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct AsyncServer {
    sender: Arc<AsyncSender>,
    subscriber: AsyncSubscriber,
    reply_timeout: Duration,
}

impl AsyncServer {
    /// Needs a runtime with I/O enabled.
    pub fn new(server: Server) -> Result<Self, OpenError> {
        let (sender, subscriber) = server.into_parts()?;
        Ok(Self {
            sender: Arc::new(AsyncSender::new(sender)?),
            subscriber: AsyncSubscriber::new(subscriber)?,
            reply_timeout: REPLY_TIMEOUT,
        })
    }

    /// As [`Server::serve`]: one request after the other. To answer several at the same time, spawn tasks for what
    /// [`recv`](Self::recv) returns. Needs timers enabled.
    pub async fn serve<F, R>(
        &mut self,
        mut answer: impl FnMut(Header, Vec<u8>) -> F,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = R>,
        R: AsRef<[u8]>,
    {
        loop {
            let request = match self.recv().await {
                Err(RecvError::Destroyed) => return Ok(()),
                request => request?,
            };
            let (header, bytes) = request.into_parts();
            let reply = answer(header, bytes).await;
            let sent = self
                .sender
                .send_tagged(header.sender, header.tag, reply.as_ref());
            match time::timeout(self.reply_timeout, sent).await {
                Ok(Err(SendError::Destroyed)) => return Ok(()),
                Ok(Err(error)) if !is_of_client(&error) => return Err(error.into()),
                _ => {}
            }
        }
    }

    /// As [`Server::set_reply_timeout`].
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// As [`Server::recv`].
    pub async fn recv(&mut self) -> Result<AsyncRequest, RecvError> {
        let message = self.subscriber.recv().await?;
        Ok(Request::new(message, self.sender.clone()))
    }

    /// As [`Server::try_recv`].
    pub fn try_recv(&mut self) -> Result<AsyncRequest, RecvError> {
        let message = self.subscriber.try_recv()?;
        Ok(Request::new(message, self.sender.clone()))
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`]. Needs timers enabled.
    pub async fn recv_timeout(&mut self, timeout: Duration) -> Result<AsyncRequest, RecvError> {
        let received = time::timeout(timeout, self.recv()).await;
        received.unwrap_or(Err(RecvError::TimedOut(timeout)))
    }
}

/// A request that an [`AsyncServer`] has received, which any task may answer.
pub type AsyncRequest = Request<AsyncSender>;

impl AsyncRequest {
    /// As [`Request::reply`](Request::<Sender>::reply).
    pub async fn reply(self, bytes: &[u8]) -> Result<(), SendError> {
        let Header { sender, tag, .. } = self.header;
        self.endpoint.send_tagged(sender, tag, bytes).await
    }
}
