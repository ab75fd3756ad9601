// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a stream, for which the bridge asks the server.
//!
//! A replicated consumer sends a message when its replicas know that, and the status of a request at once: the statuses "Batch Completed" and
//! "Message Size Exceeds MaxBytes" arrive before messages of the request. A batch of the client ends with them, and would lose these
//! messages each time. Here a status only says how many messages do not come.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::{Client, Message as NatsMessage, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::{NatsEngine, failure, publish_failure, received};
use crate::engine::{Failure, Message, Subscription};

/// For how long a request for messages waits at the server.
pub const WAIT: Duration = Duration::from_secs(5);
/// If a request has not ended after this time, its server is taken for dead.
const GONE: Duration = Duration::from_secs(10);
/// The most messages per acknowledgement. A quarter of those that the server delivers without an acknowledgement is another limit.
const ACKNOWLEDGED_MAX: usize = 64;
/// The longest delay of an acknowledgement. Because of it, the program that receives a message from the bus does not wait until the bridge
/// and the server have processed the acknowledgement.
const TELL_WITHIN: Duration = Duration::from_millis(10);
const PROGRESS: &str = "+WPI";

pub struct NatsConsumer {
    pub consumer: PullConsumer,
    client: Client,
    /// Where requests go, and where messages arrive.
    subject: String,
    inbox: String,
    subscriber: Subscriber,
    /// Limits of a request, so that the server never sends more than this process has room for.
    messages: usize,
    bytes: usize,
    /// Messages of the last request that may still arrive, until this time.
    pending: usize,
    end: Instant,
    /// The number of the last delivery of the consumer, and of the last one before the request.
    pub delivered: u64,
    delivered_before: u64,
    received: VecDeque<NatsMessage>,
    /// Where the last message is acknowledged.
    current: Option<Subject>,
    /// Where the last message is acknowledged that is not needed any more; how many of these messages are not acknowledged yet, and until
    /// when they have to be.
    done: Option<Subject>,
    untold: usize,
    tell_at: Instant,
    /// The next message exceeds the bytes of a request: it is requested alone, and without this limit.
    is_long: bool,
}

impl Subscription for NatsConsumer {
    const KEEPS: bool = true;

    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.delivery().await? {
                let (message, reply) = received(message);
                self.current = reply;
                return Ok(message);
            }
        }
    }

    async fn acknowledge(&mut self) -> Result<(), Failure> {
        self.done = self.current.take();
        if self.untold == 0 {
            self.tell_at = Instant::now() + TELL_WITHIN;
        }
        self.untold += 1;
        match self.untold < ACKNOWLEDGED_MAX.min(self.messages / 4) {
            true => Ok(()),
            false => self.tell().await,
        }
    }

    /// The server keeps its messages.
    async fn drain(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn extend(&mut self) -> Result<(), Failure> {
        self.tell().await?;
        // Also what the server has delivered since.
        self.take_delivered()?;
        let received = self.received.iter().filter_map(|one| one.reply.as_ref());
        for reply in self.current.iter().chain(received) {
            let publish = self.client.publish(reply.clone(), PROGRESS.into());
            publish.await.map_err(publish_failure)?;
        }
        Ok(())
    }
}

impl Drop for NatsConsumer {
    fn drop(&mut self) {
        // What is not told is delivered again.
        let _ = self.tell().now_or_never();
    }
}

impl NatsConsumer {
    /// `delivered`: the deliveries so far.
    pub async fn new(
        engine: &NatsEngine,
        consumer: PullConsumer,
        messages: usize,
        bytes: usize,
        delivered: u64,
    ) -> Result<Self, Failure> {
        let inbox = engine.client.new_inbox();
        let subscriber = engine.client.subscribe(inbox.clone()).await;
        let info = consumer.cached_info();
        let (stream, name) = (&info.stream_name, &info.name);
        Ok(Self {
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"),
            consumer,
            client: engine.client.clone(),
            inbox,
            subscriber: subscriber.map_err(failure)?,
            messages,
            bytes,
            pending: 0,
            end: Instant::now(),
            delivered,
            delivered_before: delivered,
            received: VecDeque::new(),
            current: None,
            done: None,
            untold: 0,
            tell_at: Instant::now(),
            is_long: false,
        })
    }

    /// Acknowledges the last message that is not needed any more, and with it all before.
    async fn tell(&mut self) -> Result<(), Failure> {
        self.untold = 0;
        let Some(reply) = self.done.take() else {
            return Ok(());
        };
        let publish = self.client.publish(reply, Bytes::new());
        publish.await.map_err(publish_failure)
    }

    /// The next message. None: there was none for the time of a request. A call that is dropped loses nothing.
    pub async fn delivery(&mut self) -> Result<Option<NatsMessage>, Failure> {
        loop {
            self.take_delivered()?;
            if let Some(message) = self.received.pop_front() {
                return Ok(Some(message));
            }
            if self.pending == 0 {
                self.tell().await?;
                self.request().await?;
            }
            let until = match self.done {
                Some(_) => self.end.min(self.tell_at),
                None => self.end,
            };
            match timeout_at(until, self.subscriber.next()).await {
                Ok(Some(message)) => self.add(message)?,
                Ok(None) => return Err(Failure::temporary("the subscription has ended")),
                Err(_) if self.done.is_some() => {
                    self.tell().await?;
                    continue;
                }
                Err(_) => self.pending = 0,
            }
            if self.pending == 0 && self.delivered == self.delivered_before {
                return Ok(None);
            }
        }
    }

    async fn request(&mut self) -> Result<(), Failure> {
        let (messages, limit) = match self.is_long {
            true => (1, String::new()),
            false => (self.messages, format!(",\"max_bytes\":{}", self.bytes)),
        };
        let expires = WAIT.as_nanos();
        let request = format!("{{\"batch\":{messages},\"expires\":{expires}{limit}}}");
        let (subject, inbox) = (self.subject.clone(), self.inbox.clone());
        let published = self
            .client
            .publish_with_reply(subject, inbox, request.into());
        published.await.map_err(failure)?;
        self.pending = messages;
        self.end = Instant::now() + GONE;
        self.delivered_before = self.delivered;
        self.is_long = false;
        Ok(())
    }

    fn take_delivered(&mut self) -> Result<(), Failure> {
        while let Some(message) = self.subscriber.next().now_or_never().flatten() {
            self.add(message)?;
        }
        Ok(())
    }

    fn add(&mut self, message: NatsMessage) -> Result<(), Failure> {
        if let Some(status) = message.status.filter(|status| *status != StatusCode::OK) {
            return self.note(status, &message);
        }
        let number = message.reply.as_deref().and_then(delivery_number);
        let number =
            number.ok_or_else(|| Failure::temporary("a message of the consumer has no number"))?;
        if number != self.delivered + 1 {
            return Err(Failure::temporary(
                "messages of the server were lost on the way; they are delivered again",
            ));
        }
        self.delivered = number;
        self.pending = self.pending.saturating_sub(1);
        self.received.push_back(message);
        Ok(())
    }

    /// The request has ended at the server.
    fn note(&mut self, status: StatusCode, message: &NatsMessage) -> Result<(), Failure> {
        let text = message.description.as_deref().unwrap_or_default();
        let ends_early = text == "Message Size Exceeds MaxBytes";
        if status != StatusCode::TIMEOUT && !ends_early && text != "Batch Completed" {
            let text = format!("the server ends a request: {status} {text}; check the stream");
            return Err(Failure::temporary(text));
        }
        let headers = message.headers.as_ref();
        let missing = headers.and_then(|headers| headers.get("Nats-Pending-Messages"));
        let missing = missing.and_then(|count| count.as_str().parse().ok());
        let missing = missing.unwrap_or(self.pending);
        // The first message of the request.
        self.is_long = ends_early && missing >= self.messages;
        self.pending = self.pending.saturating_sub(missing);
        Ok(())
    }
}

/// The number of the delivery in the subject of an acknowledgement, which has 9 tokens, or more if it names a domain and an account.
fn delivery_number(subject: &str) -> Option<u64> {
    let tokens = subject.strip_prefix("$JS.ACK.")?.as_bytes();
    let index = match tokens.iter().filter(|byte| **byte == b'.').count() {
        6 => 4,
        8.. => 6,
        _ => return None,
    };
    let number = tokens.split(|byte| *byte == b'.').nth(index)?;
    str::from_utf8(number).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_a_delivery_is_in_both_formats() {
        for (subject, number) in [
            (
                "$JS.ACK.ORDERS.sluice-a=b.1.20.17.1764500000000000000.5",
                Some(17),
            ),
            (
                "$JS.ACK.hub.hash.ORDERS.sluice-a=b.1.20.17.1764500000000000000.5.random",
                Some(17),
            ),
            (
                "$JS.ACK.hub.hash.ORDERS.sluice-a=b.1.20.17.1764500000000000000.5",
                Some(17),
            ),
            ("$JS.ACK.ORDERS.sluice-a=b.1.20.17", None),
            ("_INBOX.1.2.3.4.5.6.7.8", None),
        ] {
            assert_eq!(delivery_number(subject), number, "{subject}");
        }
    }
}
