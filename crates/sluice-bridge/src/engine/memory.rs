// SPDX-License-Identifier: MIT OR Apache-2.0
//! An engine in the memory of a test: one stream, and subscriptions without wildcards. A test decides when a message is acknowledged.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::{ConsumerOptions, Engine, Failure, FailureKind, Message, Stored, Subscription};

#[derive(Clone, Default)]
pub struct MemoryEngine {
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    /// Published and neither acknowledged nor refused.
    pending: VecDeque<Pending>,
    /// Stored, each id once; messages without an id as often as they were published.
    stored: Vec<(Option<String>, Message)>,
    incoming: VecDeque<Message>,
    acknowledged: usize,
    waker: Option<Waker>,
}

struct Pending {
    id: Option<String>,
    message: Message,
    outcome: Rc<RefCell<Outcome>>,
}

#[derive(Default)]
struct Outcome {
    result: Option<Result<(), Failure>>,
    waker: Option<Waker>,
}

impl MemoryEngine {
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
        let pending = self.state.borrow_mut().pending.pop_front().unwrap();
        settle(&pending, Err(Failure::temporary("refused")));
    }

    pub fn stored(&self) -> Vec<Message> {
        let state = self.state.borrow();
        state
            .stored
            .iter()
            .map(|(_, message)| message.clone())
            .collect()
    }

    pub fn deliver(&self, message: Message) {
        let mut state = self.state.borrow_mut();
        state.incoming.push_back(message);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    pub fn acknowledged(&self) -> usize {
        self.state.borrow().acknowledged
    }

    fn store(&self) -> Pending {
        let mut state = self.state.borrow_mut();
        let pending = state.pending.pop_front().unwrap();
        let is_new = |id: &String| {
            !state
                .stored
                .iter()
                .any(|(stored, _)| stored.as_ref() == Some(id))
        };
        if pending.id.as_ref().is_none_or(is_new) {
            state
                .stored
                .push((pending.id.clone(), pending.message.clone()));
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
    type Receipt = MemoryReceipt;
    type Subscription = MemorySubscription<false>;
    type Consumer = MemorySubscription<true>;

    async fn connected(&self) {}

    fn is_connected(&self) -> bool {
        true
    }

    async fn publish(
        &self,
        message: Message,
        stored: Option<Stored<'_>>,
    ) -> Result<MemoryReceipt, Failure> {
        if message.body.len() > MESSAGE_MAX {
            return Err(Failure {
                kind: FailureKind::TooLong,
                text: "too long".to_owned(),
            });
        }
        let outcome = Rc::default();
        self.state.borrow_mut().pending.push_back(Pending {
            id: stored.map(|stored| stored.id),
            message,
            outcome: Rc::clone(&outcome),
        });
        Ok(MemoryReceipt(outcome))
    }

    async fn subscribe(&self, _: &str) -> Result<Self::Subscription, Failure> {
        Ok(MemorySubscription(self.clone()))
    }

    async fn consume(&self, _: ConsumerOptions<'_>) -> Result<Self::Consumer, Failure> {
        Ok(MemorySubscription(self.clone()))
    }

    fn message_max(&self) -> Option<usize> {
        Some(MESSAGE_MAX)
    }
}

pub const MESSAGE_MAX: usize = 1000;

pub struct MemorySubscription<const KEEPS: bool>(MemoryEngine);

impl<const KEEPS: bool> Subscription for MemorySubscription<KEEPS> {
    const KEEPS: bool = KEEPS;

    async fn next(&mut self) -> Result<Message, Failure> {
        poll_fn(|cx| {
            let mut state = self.0.state.borrow_mut();
            state.waker = Some(cx.waker().clone());
            state
                .incoming
                .pop_front()
                .map_or(Poll::Pending, |message| Poll::Ready(Ok(message)))
        })
        .await
    }

    async fn acknowledge(&mut self) -> Result<(), Failure> {
        self.0.state.borrow_mut().acknowledged += 1;
        Ok(())
    }

    async fn extend(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}
