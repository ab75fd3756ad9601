// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages of a stream, for which the bridge asks the server.
//!
//! A replicated consumer sends a message when its replicas know that, and the status of a request at once: the statuses "Batch Completed" and
//! "Message Size Exceeds MaxBytes" arrive before messages of the request. A batch of the client ends with them, and would lose these
//! messages each time. Here a status only says how many messages do not come.

use std::collections::VecDeque;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::{self, AckKind};
use async_nats::{Client, StatusCode, Subscriber};
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::{NatsEngine, failure, other, received};
use crate::engine::{Failure, Message, Subscription};

/// For how long a request for messages waits at the server.
pub const WAIT: Duration = Duration::from_secs(5);
/// If a request has not ended after this time, its server is taken for dead.
const GONE: Duration = Duration::from_secs(10);
/// Messages that are acknowledged at once, at most.
const ACKNOWLEDGED_MAX: usize = 64;

pub struct NatsConsumer {
    pub consumer: PullConsumer,
    client: Client,
    context: jetstream::Context,
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
    received: VecDeque<jetstream::Message>,
    current: Option<jetstream::Message>,
    /// The last message that is not needed any more, and how many of them the server has not been told.
    done: Option<jetstream::Message>,
    untold: usize,
    /// The next message exceeds the bytes of a request: it is requested alone, and without this limit.
    is_long: bool,
}

impl Subscription for NatsConsumer {
    const KEEPS: bool = true;

    async fn next(&mut self) -> Result<Message, Failure> {
        loop {
            if let Some(message) = self.delivery().await? {
                let copy = received(&message.message);
                self.current = Some(message);
                return Ok(copy);
            }
        }
    }

    async fn acknowledge(&mut self) -> Result<(), Failure> {
        self.done = self.current.take();
        self.untold += 1;
        match self.untold < ACKNOWLEDGED_MAX {
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
        for message in self.current.iter().chain(&self.received) {
            message.ack_with(AckKind::Progress).await.map_err(other)?;
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
            context: engine.context.clone(),
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
            is_long: false,
        })
    }

    /// Acknowledges the last message that is not needed any more, and with it all before.
    async fn tell(&mut self) -> Result<(), Failure> {
        self.untold = 0;
        match self.done.take() {
            Some(message) => message.ack().await.map_err(other),
            None => Ok(()),
        }
    }

    /// The next message. None: there was none for the time of a request. A call that is dropped loses nothing.
    pub async fn delivery(&mut self) -> Result<Option<jetstream::Message>, Failure> {
        loop {
            self.take_delivered()?;
            if let Some(message) = self.received.pop_front() {
                return Ok(Some(message));
            }
            self.tell().await?;
            if self.pending == 0 {
                self.request().await?;
            }
            match timeout_at(self.end, self.subscriber.next()).await {
                Ok(Some(message)) => self.add(message)?,
                Ok(None) => return Err(Failure::temporary("the subscription has ended")),
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

    pub fn take_delivered(&mut self) -> Result<(), Failure> {
        while let Some(message) = self.subscriber.next().now_or_never().flatten() {
            self.add(message)?;
        }
        Ok(())
    }

    fn add(&mut self, message: async_nats::Message) -> Result<(), Failure> {
        if let Some(status) = message.status.filter(|status| *status != StatusCode::OK) {
            return self.note(status, &message);
        }
        let context = self.context.clone();
        let message = jetstream::Message { message, context };
        let number = message.info().map_err(other)?.consumer_sequence;
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
    fn note(&mut self, status: StatusCode, message: &async_nats::Message) -> Result<(), Failure> {
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
