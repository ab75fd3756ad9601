// SPDX-License-Identifier: MIT OR Apache-2.0
//! The acknowledgements of a stream for messages that a rule has published and waits for.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write as _;
use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_nats::{StatusCode, Subscriber, jetstream};
use futures_util::StreamExt as _;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{ACKNOWLEDGEMENT, NatsEngine, failure, missed, no_stream, refused};
use crate::engine::Failure;

/// The unit of the timeout of an acknowledgement: one timer for all messages, and no clock reading per message.
const TICK: Duration = Duration::from_secs(1);
/// One more, because the current tick has begun before the message.
const TICKS: u64 = ACKNOWLEDGEMENT.as_secs() + 1;

pub struct Acknowledgements {
    subscriber: Subscriber,
    /// The subject of an acknowledgement without the number of its message.
    inbox: String,
    stream: String,
    /// The beginning of the text of a failure.
    context: String,
    /// The number of the first message in `fates`.
    first: u64,
    fates: VecDeque<Fate>,
    clock: Interval,
    ticks: u64,
    /// Resolves when the connection breaks.
    breaks: Pin<Box<dyn Future<Output = watch::Receiver<()>>>>,
    /// The number of the connection.
    connection: u64,
}

enum Fate {
    /// Published in this tick, on this connection.
    Awaited {
        tick: u64,
        connection: u64,
    },
    Known(Result<(), Failure>),
    /// The receipt was dropped.
    Forgotten,
}

/// The answer of the server.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow, default)]
    stream: Cow<'a, str>,
    error: Option<jetstream::Error>,
}

impl Acknowledgements {
    pub async fn new(engine: &NatsEngine, subject: &str, stream: &str) -> Result<Self, Failure> {
        let inbox = format!("{}.", engine.client.new_inbox());
        let subscriber = engine.client.subscribe(format!("{inbox}*")).await;
        let mut clock = interval(TICK);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut broken = engine.broken.clone();
        broken.mark_unchanged();
        Ok(Self {
            subscriber: subscriber.map_err(failure)?,
            inbox,
            stream: stream.to_owned(),
            context: format!("subject {subject}, stream {stream}"),
            first: 0,
            fates: VecDeque::new(),
            clock,
            ticks: 0,
            breaks: Box::pin(until_broken(broken)),
            connection: 0,
        })
    }

    /// The next message: its number, and the subject of its acknowledgement.
    pub fn expect(&mut self) -> (u64, String) {
        let number = self.first + self.fates.len() as u64;
        self.fates.push_back(Fate::Awaited {
            tick: self.ticks,
            connection: self.connection,
        });
        let mut subject = String::with_capacity(self.inbox.len() + 20);
        // Writing to a String cannot fail.
        let _ = write!(subject, "{}{number}", self.inbox);
        (number, subject)
    }

    /// The receipt of the message was dropped.
    pub fn forget(&mut self, number: u64) {
        if let Some(fate) = self.fate(number) {
            *fate = Fate::Forgotten;
        }
        while let Some(Fate::Forgotten) = self.fates.front() {
            self.fates.pop_front();
            self.first += 1;
        }
    }

    pub fn poll(&mut self, number: u64, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if self.is_awaited(number) {
            // An acknowledgement that has arrived counts, also if the connection has broken since.
            self.receive(cx);
            self.note_time(cx);
        }
        let missed = || Err(missed(&self.context));
        match self.index(number).and_then(|index| self.fates.get(index)) {
            Some(Fate::Known(result)) => Poll::Ready(result.clone()),
            Some(Fate::Awaited { tick, connection }) => {
                // The server acknowledges on the connection of the message only.
                let is_missed = *connection != self.connection || self.ticks >= tick + TICKS;
                if is_missed {
                    return Poll::Ready(missed());
                }
                Poll::Pending
            }
            Some(Fate::Forgotten) | None => Poll::Ready(missed()),
        }
    }

    fn is_awaited(&mut self, number: u64) -> bool {
        matches!(self.fate(number), Some(Fate::Awaited { .. }))
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    fn fate(&mut self, number: u64) -> Option<&mut Fate> {
        let index = self.index(number)?;
        self.fates.get_mut(index)
    }

    fn receive(&mut self, cx: &mut Context<'_>) {
        while let Poll::Ready(Some(message)) = self.subscriber.poll_next_unpin(cx) {
            let number = message.subject.strip_prefix(&self.inbox);
            let Some(number) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            // The receipts of other messages were dropped, or have their result.
            if self.is_awaited(number) {
                let result = self.result(&message);
                if let Some(fate) = self.fate(number) {
                    *fate = Fate::Known(result);
                }
            }
        }
    }

    fn note_time(&mut self, cx: &mut Context<'_>) {
        while self.clock.poll_tick(cx).is_ready() {
            self.ticks += 1;
        }
        while let Poll::Ready(broken) = self.breaks.as_mut().poll(cx) {
            self.connection += 1;
            self.breaks = Box::pin(until_broken(broken));
        }
    }

    fn result(&self, message: &async_nats::Message) -> Result<(), Failure> {
        let context = &self.context;
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(no_stream(context));
        }
        let answer: Answer<'_> = serde_json::from_slice(&message.payload)
            .map_err(|error| Failure::temporary(format!("{context}: {error}")))?;
        match answer.error {
            Some(error) => Err(refused(context, error.error_code(), &error as &dyn Error)),
            None if answer.stream == self.stream => Ok(()),
            None => Err(Failure::temporary(format!(
                "{context}: the stream {} has stored it; check the subjects of both",
                answer.stream
            ))),
        }
    }
}

async fn until_broken(mut broken: watch::Receiver<()>) -> watch::Receiver<()> {
    match broken.changed().await {
        Ok(()) => broken,
        // The client has ended.
        Err(_) => pending().await,
    }
}
