// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

use super::error::CallError;
#[cfg(feature = "tokio")]
use super::tokio::Replies;
use super::{Asked, Losses};
use crate::bus::endpoint::common_calls;
use crate::bus::error::{RecvError, SendError};
use crate::bus::message::Message;
use crate::bus::sender::Sender;
use crate::bus::subscriber::Subscriber;
use crate::wait::Wait;

/// Sends requests to the servers of a bus, each to the next one, and waits for the reply.
///
/// A call ends with the reply, or at once when it is known that none comes: its server has closed the bus, was killed or evicted, or the
/// client has lost messages. It waits for a server that is slow, so give it a timeout.
///
/// ```no_run
/// use std::time::Duration;
///
/// let mut client = sluice::Bus::named("sums").client()?;
/// let reply = client.call_timeout(b"2 + 2", Duration::from_secs(1))?;
/// assert_eq!(reply.bytes(), b"4");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client takes no turn on the bus and receives nothing but replies. Several threads have a client each.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    subscriber: Subscriber,
    last_tag: u64,
    losses: Losses,
}

common_calls!(Client, sender.endpoint);

impl Client {
    pub(in crate::bus) fn new(sender: Sender, subscriber: Subscriber) -> Self {
        Self {
            sender,
            subscriber,
            last_tag: 0,
            losses: Losses::default(),
        }
    }

    #[cfg(feature = "tokio")]
    pub(super) fn into_parts(self) -> (Sender, Replies) {
        let replies = Replies::new(self.subscriber, self.last_tag, self.losses);
        (self.sender, replies)
    }

    /// Sends a request to the next server, and returns its reply, in a buffer of the client. Waits for it. A request is sent once: after
    /// an error other than [`CallError::NoServer`] and [`CallError::Send`] the server may have received it.
    pub fn call(&mut self, request: &[u8]) -> Result<Message<'_>, CallError> {
        self.call_within(request, Wait::Forever)
    }

    /// As [`call`](Self::call), but waits at most for `timeout`, then fails with [`CallError::TimedOut`]. A reply that arrives later is
    /// discarded.
    pub fn call_timeout(
        &mut self,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Message<'_>, CallError> {
        self.call_within(request, Wait::For(timeout))
            .map_err(|error| match error {
                CallError::Send(SendError::TimedOut(_))
                | CallError::Recv(RecvError::TimedOut(_)) => CallError::TimedOut(timeout),
                error => error,
            })
    }

    fn call_within(&mut self, request: &[u8], wait: Wait) -> Result<Message<'_>, CallError> {
        let began = Instant::now();
        let asked = self.ask(request, wait, began)?;
        self.fill_reply(asked, wait, began)?;
        Ok(self.subscriber.filled_message()?)
    }

    fn ask(&mut self, request: &[u8], wait: Wait, began: Instant) -> Result<Asked, CallError> {
        self.last_tag += 1;
        let tag = self.last_tag;
        loop {
            let server = self.sender.take_turn(wait.left(began))?;
            let left = wait.left(began);
            match self.sender.send_tagged(server, tag, request, left) {
                // It has ended since the turn.
                Err(SendError::UnknownSubscriber { .. }) if !left.is_over() => {}
                sent => return Ok(sent.map(|()| Asked { server, tag })?),
            }
        }
    }

    /// Fills the buffer with the reply. Once it is known that none comes, only the messages that are there can have it.
    fn fill_reply(&mut self, asked: Asked, wait: Wait, began: Instant) -> Result<(), CallError> {
        let mut hopeless = None;
        loop {
            let wait = match hopeless {
                None => wait.left(began),
                Some(_) => Wait::Never,
            };
            let why = match self.subscriber.fill_next(wait) {
                Ok(()) => {
                    let header = *self.subscriber.filled_message()?;
                    let lost = self.losses.told_by(&header);
                    if asked.is_answered_by(&header) {
                        return Ok(());
                    }
                    reply_lost(lost)
                }
                Err(RecvError::Notice) => self.look(asked)?,
                Err(error) => return Err(hopeless.unwrap_or(error.into())),
            };
            hopeless = hopeless.or(why);
        }
    }

    /// After a notice: why no reply comes.
    fn look(&mut self, asked: Asked) -> Result<Option<CallError>, RecvError> {
        let end = &self.sender.endpoint;
        if !end.has_subscriber(asked.server)? {
            return Ok(Some(CallError::ServerEnded {
                server: asked.server,
            }));
        }
        Ok(reply_lost(self.losses.learn(end.own_lost()?)))
    }
}

pub(super) fn reply_lost(count: u64) -> Option<CallError> {
    (count > 0).then_some(CallError::ReplyLost { count })
}
