// SPDX-License-Identifier: MIT OR Apache-2.0
//! An engine in the memory of a test: one stream, and subscriptions without wildcards. A test decides when a message is acknowledged.

mod bucket;

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::yield_now;

pub use self::bucket::MemoryBucket;
use super::bucket::BucketOptions;
use super::{
    ConsumerOptions, Engine, Failure, FailureKind, Message, Publisher, Stored, Subscription,
};
use crate::headers::SENDER;

#[derive(Clone, Default)]
pub struct MemoryEngine {
    state: Rc<RefCell<State>>,
    /// The only one.
    pub bucket: MemoryBucket,
}

#[derive(Default)]
struct State {
    /// Published and neither acknowledged nor refused.
    pending: VecDeque<Pending>,
    stored: Vec<Message>,
    /// Of no stream.
    published: Vec<Message>,
    /// Of the messages that were stored in the duplicate window, which a test ends.
    ids: BTreeSet<String>,
    /// Whether the stream was known, of each message that was published.
    known: Vec<bool>,
    incoming: VecDeque<Message>,
    acknowledged: usize,
    extended: usize,
    /// Replies to the next requests.
    replies: VecDeque<Result<Message, Failure>>,
    requests: Vec<Message>,
    has_ended: bool,
    waker: Option<Waker>,
    is_disconnected: bool,
}

struct Pending {
    id: String,
    message: Message,
    outcome: Rc<RefCell<Outcome>>,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<(), Failure>>,
    waker: Option<Waker>,
}

impl MemoryEngine {
    pub fn disconnect(&self) {
        self.state.borrow_mut().is_disconnected = true;
    }

    pub fn connect(&self) {
        self.state.borrow_mut().is_disconnected = false;
    }

    pub fn pending(&self) -> usize {
        self.state.borrow().pending.len()
    }

    /// Stores the oldest message that is pending, and acknowledges it.
    pub fn acknowledge(&self) {
        let pending = self.store();
        settle(&pending, Ok(()));
    }

    /// Stores the oldest message, and the acknowledgement is lost.
    pub fn lose_acknowledgement(&self) {
        let pending = self.store();
        settle(&pending, Err(Failure::temporary("no acknowledgement")));
    }

    /// The oldest message is not stored.
    pub fn refuse(&self) {
        self.refuse_with(Failure::temporary("refused"));
    }

    /// The stream does not permit the oldest message.
    pub fn refuse_as_too_long(&self) {
        self.refuse_with(too_long());
    }

    fn refuse_with(&self, failure: Failure) {
        let pending = self.state.borrow_mut().pending.pop_front().unwrap();
        settle(&pending, Err(failure));
    }

    /// The two oldest messages have their fates in the other order.
    pub fn swap(&self) {
        self.state.borrow_mut().pending.swap(0, 1);
    }

    /// The duplicate window of the stream ends.
    pub fn forget_ids(&self) {
        self.state.borrow_mut().ids.clear();
    }

    pub fn known(&self) -> Vec<bool> {
        self.state.borrow().known.clone()
    }

    pub fn stored(&self) -> Vec<Message> {
        self.state.borrow().stored.clone()
    }

    pub fn deliver(&self, message: Message) {
        let mut state = self.state.borrow_mut();
        state.incoming.push_back(message);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub fn reply(&self, reply: Result<Message, Failure>) {
        self.state.borrow_mut().replies.push_back(reply);
    }

    pub fn requests(&self) -> Vec<Message> {
        self.state.borrow().requests.clone()
    }

    pub fn published(&self) -> Vec<Message> {
        self.state.borrow().published.clone()
    }

    /// Of the subscriptions.
    fn end(&self) {
        self.state.borrow_mut().has_ended = true;
    }

    pub fn acknowledged(&self) -> usize {
        self.state.borrow().acknowledged
    }

    pub fn extended(&self) -> usize {
        self.state.borrow().extended
    }

    fn store(&self) -> Pending {
        let mut state = self.state.borrow_mut();
        let pending = state.pending.pop_front().unwrap();
        if state.ids.insert(pending.id.clone()) {
            state.stored.push(pending.message.clone());
        }
        pending
    }
}

fn settle(pending: &Pending, result: Result<(), Failure>) {
    let mut outcome = pending.outcome.borrow_mut();
    outcome.result = Some(result);
    if let Some(waker) = outcome.waker.take() {
        waker.wake();
    }
}

fn too_long() -> Failure {
    Failure {
        kind: FailureKind::TooLong,
        text: "too long".to_owned(),
    }
}

pub struct MemoryReceipt(Rc<RefCell<Outcome>>);

impl Future for MemoryReceipt {
    type Output = Result<(), Failure>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut outcome = self.0.borrow_mut();
        outcome.waker = Some(cx.waker().clone());
        outcome.result.clone().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Engine for MemoryEngine {
    type Publisher = MemoryPublisher;
    type Subscription = MemorySubscription<false>;
    type Consumer = MemorySubscription<true>;
    type Bucket = MemoryBucket;

    async fn connected(&self) {
        while !self.is_connected() {
            yield_now().await;
        }
    }

    fn is_connected(&self) -> bool {
        !self.state.borrow().is_disconnected
    }

    async fn failed(&self) {
        pending().await
    }

    async fn publish(&self, message: Message) -> Result<(), Failure> {
        if message.body.len() > MESSAGE_MAX {
            return Err(too_long());
        }
        self.state.borrow_mut().published.push(message);
        Ok(())
    }

    async fn flush(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn publisher(&self, subject: &str, _: Option<&str>) -> MemoryPublisher {
        MemoryPublisher {
            engine: self.clone(),
            subject: subject.to_owned(),
        }
    }

    async fn subscribe(&self, _: &str) -> Result<Self::Subscription, Failure> {
        Ok(MemorySubscription(self.clone()))
    }

    async fn share(&self, _: &str) -> Result<Self::Subscription, Failure> {
        Ok(MemorySubscription(self.clone()))
    }

    async fn request(&self, message: Message, _: Duration) -> Result<Message, Failure> {
        let mut state = self.state.borrow_mut();
        state.requests.push(message);
        let none = || Err(Failure::temporary("no reply"));
        state.replies.pop_front().unwrap_or_else(none)
    }

    async fn consume(&self, _: ConsumerOptions<'_>) -> Result<Self::Consumer, Failure> {
        Ok(MemorySubscription(self.clone()))
    }

    async fn bucket(&self, _: BucketOptions<'_>) -> Result<MemoryBucket, Failure> {
        Ok(self.bucket.clone())
    }

    fn message_max(&self) -> Option<usize> {
        self.is_connected().then_some(MESSAGE_MAX + HEADERS)
    }
}

pub struct MemoryPublisher {
    engine: MemoryEngine,
    subject: String,
}

impl Publisher for MemoryPublisher {
    type Receipt = MemoryReceipt;

    async fn publish(
        &mut self,
        sender: &str,
        body: Bytes,
        stored: Stored,
    ) -> Result<MemoryReceipt, Failure> {
        if body.len() > MESSAGE_MAX {
            return Err(too_long());
        }
        let outcome = Rc::<RefCell<Outcome>>::default();
        let mut state = self.engine.state.borrow_mut();
        state.known.push(stored.is_stream_known);
        state.pending.push_back(Pending {
            id: stored.id,
            message: Message {
                subject: self.subject.clone(),
                headers: vec![(SENDER, sender.to_owned())],
                body,
                reply_to: None,
            },
            outcome: Rc::clone(&outcome),
        });
        Ok(MemoryReceipt(outcome))
    }
}

/// Of the body.
pub const MESSAGE_MAX: usize = 1000;
const HEADERS: usize = 1024;

pub struct MemorySubscription<const KEEPS: bool>(MemoryEngine);

impl<const KEEPS: bool> Subscription for MemorySubscription<KEEPS> {
    const KEEPS: bool = KEEPS;

    async fn next(&mut self) -> Result<Message, Failure> {
        poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            state.waker = Some(cx.waker().clone());
            match state.incoming.pop_front() {
                Some(message) => Poll::Ready(Ok(message)),
                None if state.has_ended => Poll::Ready(Err(Failure::temporary("ended"))),
                None => Poll::Pending,
            }
        })
        .await
    }

    async fn acknowledge(&mut self) -> Result<(), Failure> {
        self.0.state.borrow_mut().acknowledged += 1;
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        self.0.end();
        Ok(())
    }

    async fn extend(&mut self) -> Result<(), Failure> {
        self.0.state.borrow_mut().extended += 1;
        Ok(())
    }
}
