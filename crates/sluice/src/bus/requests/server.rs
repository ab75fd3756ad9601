// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::error::ServeError;
use crate::bus::endpoint::common_calls;
#[cfg(feature = "tokio")]
use crate::bus::error::OpenError;
use crate::bus::error::{RecvError, SendError};
use crate::bus::message::{Header, Message};
use crate::bus::sender::Sender;
use crate::bus::subscriber::Subscriber;
use crate::wait::Wait;

/// How long a reply may wait for room by default.
pub(super) const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

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
/// [`Evict`](crate::bus::Policy::Evict) if the bus does not permit that. It is full with unread requests of a sixteenth of the capacity,
/// unless [`limit`](crate::bus::Options::limit) says otherwise: replies need room, too, so the limits of all servers should be at most
/// half of the capacity.
pub struct Server {
    sender: Arc<Sender>,
    subscriber: Subscriber,
    reply_timeout: Duration,
}

common_calls!(Server, subscriber.endpoint);

impl Server {
    pub(in crate::bus) fn new(sender: Sender, subscriber: Subscriber) -> Self {
        Self {
            sender: Arc::new(sender),
            subscriber,
            reply_timeout: REPLY_TIMEOUT,
        }
    }

    /// Requests that are not answered yet keep the other sender.
    #[cfg(feature = "tokio")]
    pub(super) fn into_parts(self) -> Result<(Sender, Subscriber), OpenError> {
        let endpoint = self.sender.endpoint.try_clone()?;
        Ok((Sender { endpoint }, self.subscriber))
    }

    /// Answers each request with what `answer` returns, one after the other, until the bus is destroyed. A reply that nobody awaits any
    /// more, or that has no room within [a second](Self::set_reply_timeout), is dropped. To answer several requests at the same time,
    /// use several servers, or [`recv`](Self::recv).
    pub fn serve<R: AsRef<[u8]>>(
        &mut self,
        mut answer: impl FnMut(Message<'_>) -> R,
    ) -> Result<(), ServeError> {
        loop {
            let request = match self.subscriber.recv() {
                Err(RecvError::Destroyed) => return Ok(()),
                request => request?,
            };
            let header = *request;
            let reply = answer(request);
            let wait = Wait::For(self.reply_timeout);
            let sent = self
                .sender
                .send_tagged(header.sender, header.tag, reply.as_ref(), wait);
            match sent {
                Ok(()) => {}
                Err(error) if is_of_client(&error) => {}
                Err(SendError::Destroyed) => return Ok(()),
                Err(error) => return Err(error.into()),
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

    fn recv_within(&mut self, wait: Wait) -> Result<Request, RecvError> {
        self.subscriber.fill_next(wait)?;
        let message = self.subscriber.filled_message()?;
        Ok(Request::new(message, self.sender.clone()))
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// Whether a reply was not sent because of its client: the client has ended, or does not receive.
pub(super) fn is_of_client(error: &SendError) -> bool {
    matches!(
        error,
        SendError::UnknownSubscriber { .. } | SendError::TimedOut(_)
    )
}

/// A request that a [`Server`] has received. Dereferences to its header. The client of one that is dropped without a reply waits on.
#[must_use = "its client waits for a reply"]
pub struct Request<S = Sender> {
    pub(super) header: Header,
    bytes: Vec<u8>,
    pub(super) endpoint: Arc<S>,
}

impl<S> Request<S> {
    pub(super) fn new(message: Message<'_>, endpoint: Arc<S>) -> Self {
        Self {
            header: *message,
            bytes: message.bytes().to_vec(),
            endpoint,
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn into_parts(self) -> (Header, Vec<u8>) {
        (self.header, self.bytes)
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Request {
    /// Sends the reply. Waits for room. Fails with [`SendError::UnknownSubscriber`] if the client has ended.
    pub fn reply(self, bytes: &[u8]) -> Result<(), SendError> {
        self.reply_within(bytes, Wait::Forever)
    }

    /// As [`reply`](Self::reply), but waits at most for `timeout`, then fails with [`SendError::TimedOut`].
    pub fn reply_timeout(self, bytes: &[u8], timeout: Duration) -> Result<(), SendError> {
        self.reply_within(bytes, Wait::For(timeout))
    }

    fn reply_within(self, bytes: &[u8], wait: Wait) -> Result<(), SendError> {
        let Header { sender, tag, .. } = self.header;
        self.endpoint.send_tagged(sender, tag, bytes, wait)
    }
}

impl<S> Deref for Request<S> {
    type Target = Header;

    fn deref(&self) -> &Header {
        &self.header
    }
}

impl<S> fmt::Debug for Request<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}
