// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::ServeError;
use crate::bus::endpoint::common_calls;
#[cfg(feature = "tokio")]
use crate::bus::error::OpenError;
use crate::bus::error::{RecvError, SendError};
use crate::bus::message::Header;
use crate::bus::sender::Sender;
use crate::bus::subscriber::Subscriber;
use crate::wait::Wait;

/// How long a reply may wait for room by default.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// A reply that waits for room looks at the queue of requests at this interval.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// What a request counts at least, as in the ring.
const REQUEST_COST: u64 = 256;

/// Answers the requests of clients. The requests of a bus go to its servers in turn; one that has received a request and ends without a
/// reply fails the call of the client.
///
/// ```no_run
/// let mut server = sluice::Bus::named("upper").create(true).server()?;
/// server.serve(|request| request.bytes().to_ascii_uppercase())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Policy
/// A server has the policy [`Block`](crate::bus::Policy::Block), so that clients wait for it and no request is lost, or
/// [`Evict`](crate::bus::Policy::Evict) if the bus does not permit that. Its [`limit`](crate::bus::Options::limit) is by default a
/// sixteenth of the capacity, or with Evict half of it. A request that it has not received holds the ring from there on, for all: if
/// requests take long, receive in one thread and answer in others.
pub struct Server {
    shared: Arc<Shared>,
    reply_timeout: Duration,
}

common_calls!(Server, shared.sender.endpoint);

/// What a server and its requests have in common.
struct Shared {
    sender: Sender,
    queue: Mutex<Queue>,
}

/// The requests of a server.
pub(super) struct Queue {
    subscriber: Subscriber,
    /// Received early, to free the ring for a reply.
    received_ahead: VecDeque<(Header, Vec<u8>)>,
    /// Bytes that may still be received ahead.
    budget: u64,
}

impl Queue {
    pub fn next(&mut self, wait: Wait) -> Result<(Header, Vec<u8>), RecvError> {
        if let Some((header, bytes)) = self.received_ahead.pop_front() {
            self.budget += cost(&header);
            return Ok((header, bytes));
        }
        self.receive(wait)
    }

    fn receive(&mut self, wait: Wait) -> Result<(Header, Vec<u8>), RecvError> {
        self.subscriber.fill_next(wait)?;
        let message = self.subscriber.filled_message()?;
        Ok((*message, message.bytes().to_vec()))
    }

    /// Receives all requests that wait in the ring, to free their room. The next call repeats an error. Returns whether there were
    /// requests.
    pub fn receive_ahead(&mut self) -> bool {
        let before = self.received_ahead.len();
        while self.budget > 0 {
            let Ok(request) = self.receive(Wait::Never) else {
                break;
            };
            self.budget = self.budget.saturating_sub(cost(&request.0));
            self.received_ahead.push_back(request);
        }
        self.received_ahead.len() > before
    }
}

fn cost(header: &Header) -> u64 {
    REQUEST_COST.max(header.len as u64)
}

/// Nothing panics while it is locked.
pub(super) fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(in crate::bus) fn new(sender: Sender, subscriber: Subscriber, capacity: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                sender,
                queue: Mutex::new(Queue {
                    subscriber,
                    received_ahead: VecDeque::new(),
                    budget: capacity,
                }),
            }),
            reply_timeout: REPLY_TIMEOUT,
        }
    }

    /// Requests that are not answered yet keep the endpoint, too.
    #[cfg(feature = "tokio")]
    pub(super) fn into_parts(self) -> Result<(Sender, Queue, Duration), OpenError> {
        let endpoint = self.shared.sender.endpoint.try_clone()?;
        let subscriber = Subscriber::attach(endpoint.try_clone()?.fd)?;
        let mut old = lock(&self.shared.queue);
        let queue = Queue {
            subscriber,
            received_ahead: std::mem::take(&mut old.received_ahead),
            // Open requests share the old queue: their replies must not receive requests of the asynchronous server.
            budget: std::mem::take(&mut old.budget),
        };
        Ok((Sender { endpoint }, queue, self.reply_timeout))
    }

    /// Answers each request with what `answer` returns, one after the other, until the bus is destroyed. What concerns one client does not
    /// end it: a reply is dropped if the client has ended, if it is longer than [`message_max`](Self::message_max), and if it has no room
    /// within [a second](Self::set_reply_timeout) because the client does not receive; the next replies to such a client do not wait. To
    /// answer several requests at the same time, use several servers, or [`recv`](Self::recv).
    pub fn serve<R: AsRef<[u8]>>(
        &mut self,
        mut answer: impl FnMut(&Request) -> R,
    ) -> Result<(), ServeError> {
        let mut clients = SlowClients::new(self.reply_timeout);
        loop {
            let request = match self.recv() {
                Err(RecvError::Destroyed) => return Ok(()),
                request => request?,
            };
            let client = request.sender;
            let reply = answer(&request);
            let sent = request.reply_within(reply.as_ref(), Wait::For(clients.timeout_for(client)));
            if clients.record(client, sent)?.is_break() {
                return Ok(());
            }
        }
    }

    /// Sets how long a reply of [`serve`](Self::serve) waits for room before it is dropped.
    pub fn set_reply_timeout(&mut self, timeout: Duration) {
        self.reply_timeout = timeout;
    }

    /// Returns the next request, which any thread may answer. Waits for one.
    pub fn recv(&mut self) -> Result<Request, RecvError> {
        self.recv_within(Wait::Forever)
    }

    /// As [`recv`](Self::recv), but fails with [`RecvError::Empty`] instead of waiting.
    pub fn try_recv(&mut self) -> Result<Request, RecvError> {
        self.recv_within(Wait::Never)
    }

    /// As [`recv`](Self::recv), but waits at most for `timeout`, then fails with [`RecvError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<Request, RecvError> {
        self.recv_within(Wait::For(timeout))
    }

    /// As [`recv`](Self::recv), but waits for the given time.
    pub fn recv_within(&mut self, wait: impl Into<Wait>) -> Result<Request, RecvError> {
        // A reply that finds it locked need not receive.
        let (header, bytes) = lock(&self.shared.queue).next(wait.into())?;
        Ok(Request {
            header,
            bytes,
            shared: self.shared.clone(),
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// The clients that have not received a reply in time: each costs a server, which answers one request after the other, that time once.
pub(super) struct SlowClients {
    timeout: Duration,
    ids: BTreeSet<u64>,
}

impl SlowClients {
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            ids: BTreeSet::new(),
        }
    }

    pub fn timeout_for(&self, client: u64) -> Duration {
        match self.ids.contains(&client) {
            true => Duration::ZERO,
            false => self.timeout,
        }
    }

    /// Breaks at the end of the bus. Fails if the server cannot go on.
    pub fn record(
        &mut self,
        client: u64,
        sent: Result<(), SendError>,
    ) -> Result<ControlFlow<()>, SendError> {
        match sent {
            Err(SendError::TimedOut(_)) => {
                self.ids.insert(client);
                return Ok(ControlFlow::Continue(()));
            }
            Err(SendError::Destroyed) => return Ok(ControlFlow::Break(())),
            Ok(()) | Err(SendError::UnknownSubscriber { .. }) => {
                self.ids.remove(&client);
            }
            Err(SendError::MessageTooLong { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// The calls of a request, synchronous or not.
macro_rules! request_calls {
    ($request:ident) => {
        impl $request {
            pub fn header(&self) -> &Header {
                &self.header
            }

            pub fn bytes(&self) -> &[u8] {
                &self.bytes
            }
        }

        impl Deref for $request {
            type Target = Header;

            fn deref(&self) -> &Header {
                &self.header
            }
        }

        impl fmt::Debug for $request {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($request))
                    .field("header", &self.header)
                    .finish_non_exhaustive()
            }
        }
    };
}
#[cfg(feature = "tokio")]
pub(super) use request_calls;

/// A request that a [`Server`] has received, which any thread may answer. Dereferences to its header. If one is dropped
/// without a reply, its client keeps waiting. A server remains in turn until its last request is dropped.
#[must_use = "its client waits for a reply"]
pub struct Request {
    header: Header,
    bytes: Vec<u8>,
    shared: Arc<Shared>,
}

impl Request {
    /// Sends the reply. Waits for room; meanwhile it receives the requests ahead that hold it. Fails with
    /// [`SendError::UnknownSubscriber`] if the client has ended.
    pub fn reply(self, bytes: &[u8]) -> Result<(), SendError> {
        self.reply_within(bytes, Wait::Forever)
    }

    /// As [`reply`](Self::reply), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn reply_timeout(self, bytes: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.reply_within(bytes, Wait::For(timeout))
    }

    /// As [`reply`](Self::reply), but waits for the given time. [`Wait::Never`] is a timeout of zero.
    pub fn reply_within(self, bytes: &[u8], wait: impl Into<Wait>) -> Result<(), SendError> {
        let wait = wait.into();
        let Header { sender, tag, .. } = self.header;
        let began = Instant::now();
        let mut part = Wait::For(Duration::ZERO);
        loop {
            match self.shared.sender.send_tagged(sender, tag, bytes, part) {
                Err(SendError::TimedOut(_)) if !wait.left(began).is_over() => {}
                Err(SendError::TimedOut(part)) => {
                    return Err(SendError::TimedOut(wait.limit().unwrap_or(part)));
                }
                sent => return sent,
            }
            // If it is locked, another thread receives.
            if let Ok(mut queue) = self.shared.queue.try_lock() {
                queue.receive_ahead();
            }
            part = Wait::For(match wait.left(began) {
                Wait::For(left) => left.min(LOOK_INTERVAL),
                _ => LOOK_INTERVAL,
            });
        }
    }
}

request_calls!(Request);
