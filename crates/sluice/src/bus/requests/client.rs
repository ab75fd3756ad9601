// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::{Duration, Instant};

use super::error::CallError;
#[cfg(feature = "tokio")]
use super::tokio::Replies;
use super::{Asked, Losses, most_messages};
use crate::bus::endpoint::common_calls;
use crate::bus::error::{RecvError, SendError};
use crate::bus::message::Message;
use crate::bus::sender::Sender;
use crate::bus::subscriber::Subscriber;
use crate::wait::Wait;

/// How many old messages a call discards before it sends: senders could go on for ever.
const DISCARDED_MAX: usize = 10_000;

/// Sends requests to the servers of a bus, each to the next one, and waits for the reply.
///
/// A call ends with the reply, or at once when it is known that none comes: its server has closed the bus, was killed or evicted, or the
/// client has lost messages. It waits for a server that is slow, so give it a timeout:
///
/// ```no_run
/// use std::time::Duration;
/// use sluice::bus::CallError;
///
/// let mut client = sluice::Bus::named("sums").client()?;
/// match client.call_timeout(b"2 + 2", Duration::from_secs(1)) {
///     Ok(reply) => println!("{}", String::from_utf8_lossy(reply.bytes())),
///     Err(CallError::NoServer) => println!("the bus is there, but no server"),
///     Err(CallError::ServerEnded { server }) => println!("server {server} has ended; it may have done it"),
///     Err(CallError::TimedOut(limit)) => println!("nothing within {limit:?}; the server goes on"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A client takes no turn on the bus, and discards every message that is not the reply to its request. Use one client per thread. Its policy is
/// [`Drop`](crate::bus::Policy::Drop) unless the bus does not permit it, so that a client which does not call holds up nobody.
#[derive(Debug)]
pub struct Client {
    sender: Sender,
    subscriber: Subscriber,
    last_tag: u64,
    losses: Losses,
    /// The last call has received its reply, so nothing of earlier calls is left.
    settled: bool,
}

common_calls!(Client, sender.endpoint);

/// Why the call fails, unless its reply is one of the next messages.
struct PendingFailure {
    why: CallError,
    next: u64,
}

impl Client {
    pub(in crate::bus) fn new(sender: Sender, subscriber: Subscriber) -> Self {
        Self {
            sender,
            subscriber,
            last_tag: 0,
            losses: Losses::default(),
            settled: true,
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

    /// As [`call`](Self::call), but waits at most for `timeout`, then fails with [`CallError::TimedOut`]. The server is not told: it goes
    /// on with the request, and a reply that arrives later is discarded.
    pub fn call_timeout(
        &mut self,
        request: &[u8],
        timeout: Duration,
    ) -> Result<Message<'_>, CallError> {
        self.call_within(request, Wait::For(timeout))
    }

    /// As [`call`](Self::call), but waits for the given time. [`Wait::Never`] is a timeout of zero.
    pub fn call_within(
        &mut self,
        request: &[u8],
        wait: impl Into<Wait>,
    ) -> Result<Message<'_>, CallError> {
        match wait.into().limit() {
            None => self.exchange(request, Wait::Forever),
            Some(limit) => self
                .exchange(request, Wait::For(limit))
                .map_err(|error| error.of_call(limit)),
        }
    }

    fn exchange(&mut self, request: &[u8], wait: Wait) -> Result<Message<'_>, CallError> {
        let began = Instant::now();
        self.discard_old_messages()?;
        let asked = self.ask(request, wait, began)?;
        self.fill_reply(asked, wait, began)?;
        self.settled = true;
        Ok(self.subscriber.filled_message()?)
    }

    /// Discards what is left of earlier calls: it could hold the room of the request, and its losses are not those of this call.
    fn discard_old_messages(&mut self) -> Result<(), RecvError> {
        if std::mem::take(&mut self.settled) {
            return Ok(());
        }
        for _ in 0..DISCARDED_MAX {
            match self.subscriber.fill_next(Wait::Never) {
                Ok(()) => {
                    let header = *self.subscriber.filled_message()?;
                    self.losses.add_frame(&header);
                }
                Err(RecvError::Notice) => {
                    self.losses
                        .set_total(self.sender.endpoint.raw_info()?.own_lost);
                }
                Err(RecvError::Empty) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn ask(&mut self, request: &[u8], wait: Wait, began: Instant) -> Result<Asked, CallError> {
        self.last_tag += 1;
        let tag = self.last_tag;
        loop {
            let server = self.sender.take_turn(wait.left(began))?;
            let left = wait.left(began);
            match self.sender.send_tagged(server, tag, request, left) {
                // It has ended since the turn.
                Err(SendError::UnknownSubscriber { .. }) if left.is_over() => {
                    return Err(CallError::TimedOut(Duration::ZERO));
                }
                Err(SendError::UnknownSubscriber { .. }) => {}
                sent => return Ok(sent.map(|()| Asked { server, tag })?),
            }
        }
    }

    /// Fills the buffer with the reply. Once it is known that none comes, only the messages that are there can have it.
    fn fill_reply(&mut self, asked: Asked, wait: Wait, began: Instant) -> Result<(), CallError> {
        let mut failure: Option<PendingFailure> = None;
        loop {
            let left = match &failure {
                None => wait.left(began),
                Some(_) => Wait::Never,
            };
            let lost = match self.subscriber.fill_next(left) {
                Ok(()) => {
                    let header = *self.subscriber.filled_message()?;
                    let lost = self.losses.add_frame(&header);
                    if asked.is_answered_by(&header) {
                        return Ok(());
                    }
                    failure = match failure {
                        Some(PendingFailure { why, next: 0 }) => return Err(why),
                        Some(PendingFailure { why, next }) => Some(PendingFailure {
                            why,
                            next: next - 1,
                        }),
                        // Others could send to this client for ever.
                        None if left.is_over() => return Err(CallError::TimedOut(Duration::ZERO)),
                        None => None,
                    };
                    if lost == 0 {
                        continue;
                    }
                    lost
                }
                Err(RecvError::Notice) => 0,
                Err(error) => return Err(failure.map_or(error.into(), |failure| failure.why)),
            };
            failure = failure.or(self.look(asked, lost)?);
        }
    }

    /// After a notice or losses that a frame has told.
    fn look(&mut self, asked: Asked, lost: u64) -> Result<Option<PendingFailure>, RecvError> {
        let ended = !self.sender.endpoint.has_subscriber(asked.server)?;
        let seen = self.sender.endpoint.raw_info()?;
        let why = match ended {
            true => Some(CallError::ServerEnded {
                server: asked.server,
            }),
            false => reply_lost(lost + self.losses.set_total(seen.own_lost)),
        };
        Ok(why.map(|why| PendingFailure {
            why,
            next: most_messages(&seen),
        }))
    }
}

pub(super) fn reply_lost(count: u64) -> Option<CallError> {
    (count > 0).then_some(CallError::ReplyLost { count })
}
