// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bucket in the memory of a test, which can lose puts and their acknowledgements at random.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::sleep;

use super::{MESSAGE_MAX, too_long};
use crate::engine::bucket::{Bucket, Content, Item, Put, Update, Watch};
use crate::engine::{Failure, FailureKind};

const ACKNOWLEDGEMENT: Duration = Duration::from_secs(5);

#[derive(Clone, Default)]
pub struct MemoryBucket {
    state: Rc<RefCell<State>>,
    changed: Rc<Notify>,
}

#[derive(Default)]
struct State {
    last: BTreeMap<String, Item>,
    /// All changes; the first has revision 1.
    log: Vec<Item>,
    identity: u64,
    /// Watches return nothing.
    is_held: bool,
    /// How often the connection has broken.
    breaks: u64,
    /// How long a read of one key takes.
    latency: Duration,
    /// Puts of this key are refused.
    refused: Option<String>,
    /// Puts are not acknowledged.
    is_silent: bool,
    /// Watches begin so many changes in the past, as at a replica that lags behind.
    lag: usize,
    /// Of 100 calls these fail.
    failures: u32,
    random: Option<fastrand::Rng>,
}

impl MemoryBucket {
    pub fn fail(&self, failures: u32, seed: u64) {
        let mut state = self.state.borrow_mut();
        state.failures = failures;
        state.random = Some(fastrand::Rng::with_seed(seed));
    }

    /// Whether changes arrive at watches.
    pub fn hold(&self, is_held: bool) {
        self.state.borrow_mut().is_held = is_held;
        self.changed.notify_waiters();
    }

    pub fn refuse(&self, key: Option<&str>) {
        self.state.borrow_mut().refused = key.map(str::to_owned);
    }

    pub fn set_lag(&self, lag: usize) {
        self.state.borrow_mut().lag = lag;
    }

    pub fn silence(&self) {
        self.state.borrow_mut().is_silent = true;
    }

    pub fn set_latency(&self, latency: Duration) {
        self.state.borrow_mut().latency = latency;
    }

    /// The watches so far end.
    pub fn break_connection(&self) {
        self.state.borrow_mut().breaks += 1;
        self.changed.notify_waiters();
    }

    /// What another client puts or deletes.
    pub fn change(&self, key: &str, value: Option<&'static [u8]>) -> u64 {
        let content = value.map(|value| Content {
            value: Bytes::from_static(value),
            time_to_live: None,
        });
        self.store(Put {
            key: key.to_owned(),
            content,
            expected: None,
            origin: None,
        })
    }

    pub fn change_with_origin(&self, key: &str, value: &'static [u8], origin: &str) {
        self.store(Put {
            key: key.to_owned(),
            content: Some(Content {
                value: Bytes::from_static(value),
                time_to_live: None,
            }),
            expected: None,
            origin: Some(origin.to_owned()),
        });
    }

    /// It forgets deletions, as a bucket with a marker TTL.
    pub fn forget_deletions(&self) {
        let last = &mut self.state.borrow_mut().last;
        last.retain(|_, item| item.content.is_some());
    }

    /// The last changes are lost, also of what was acknowledged.
    pub fn lose(&self, changes: usize) {
        let mut state = self.state.borrow_mut();
        let len = state.log.len() - changes;
        state.log.truncate(len);
        let items = state.log.iter().cloned();
        state.last = items.map(|item| (item.key.clone(), item)).collect();
    }

    /// It is deleted and created again.
    pub fn recreate(&self) {
        let len = self.state.borrow().log.len();
        self.lose(len);
        self.state.borrow_mut().identity += 1;
    }

    pub fn values(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.state.borrow();
        let value = |item: &Item| item.content.as_ref().map(|content| content.value.to_vec());
        let values = state.last.iter();
        values
            .filter_map(|(key, item)| Some((key.clone(), value(item)?)))
            .collect()
    }

    pub fn content(&self, key: &str) -> Option<Content> {
        self.state.borrow().last.get(key)?.content.clone()
    }

    pub fn revision(&self) -> u64 {
        self.state.borrow().log.len() as u64
    }

    fn store(&self, put: Put) -> u64 {
        let mut state = self.state.borrow_mut();
        let item = Item {
            key: put.key,
            revision: state.log.len() as u64 + 1,
            content: put.content,
            origin: put.origin,
        };
        let revision = item.revision;
        state.log.push(item.clone());
        state.last.insert(item.key.clone(), item);
        self.changed.notify_waiters();
        revision
    }

    fn fails(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let failures = state.failures;
        let random = state.random.as_mut();
        random.is_some_and(|random| random.u32(..100) < failures)
    }

    fn attempt(&self, put: Put) -> Result<u64, Failure> {
        if self.state.borrow().refused.as_ref() == Some(&put.key) {
            return Err(Failure {
                kind: FailureKind::Refused,
                text: "refused".to_owned(),
            });
        }
        let lost = || Failure::temporary("lost");
        if self.fails() {
            return Err(lost());
        }
        let last = self
            .state
            .borrow()
            .last
            .get(&put.key)
            .map(|item| item.revision);
        if put
            .expected
            .is_some_and(|expected| expected != last.unwrap_or(0))
        {
            return Err(Failure {
                kind: FailureKind::Conflict,
                text: "conflict".to_owned(),
            });
        }
        let revision = self.store(put);
        // The acknowledgement is lost.
        if self.fails() {
            Err(lost())
        } else {
            Ok(revision)
        }
    }
}

impl Bucket for MemoryBucket {
    type Receipt = Pin<Box<dyn Future<Output = Result<u64, Failure>>>>;
    type Watch = MemoryWatch;

    fn identity(&self) -> u64 {
        self.state.borrow().identity
    }

    async fn put(&self, put: Put) -> Result<Self::Receipt, Failure> {
        if put
            .content
            .as_ref()
            .is_some_and(|content| content.value.len() > MESSAGE_MAX)
        {
            return Err(too_long());
        }
        let is_silent = self.state.borrow().is_silent;
        let result = self.attempt(put);
        Ok(Box::pin(async move {
            if is_silent {
                sleep(ACKNOWLEDGEMENT).await;
                return Err(Failure::temporary("no acknowledgement"));
            }
            for _ in 0..3 {
                yield_now().await;
            }
            result
        }))
    }

    async fn get(&self, key: &str) -> Result<Option<Item>, Failure> {
        let latency = self.state.borrow().latency;
        sleep(latency).await;
        Ok(self.state.borrow().last.get(key).cloned())
    }

    async fn watch(&self) -> Result<MemoryWatch, Failure> {
        let state = self.state.borrow();
        let position = state.log.len().saturating_sub(state.lag);
        let past = state.log[..position].iter();
        let last = match state.lag {
            0 => state.last.clone(),
            _ => past.map(|item| (item.key.clone(), item.clone())).collect(),
        };
        let mut items: Vec<Item> = last.into_values().collect();
        items.sort_by_key(|item| item.revision);
        let mut updates: VecDeque<Update> = items.into_iter().map(Update::Item).collect();
        updates.push_back(Update::Current);
        Ok(MemoryWatch {
            bucket: self.clone(),
            updates,
            position,
            breaks: state.breaks,
        })
    }
}

pub struct MemoryWatch {
    bucket: MemoryBucket,
    updates: VecDeque<Update>,
    /// In the log.
    position: usize,
    /// When it began.
    breaks: u64,
}

impl Watch for MemoryWatch {
    async fn next(&mut self) -> Result<Update, Failure> {
        yield_now().await;
        loop {
            let changes = Rc::clone(&self.bucket.changed);
            let changed = changes.notified();
            if self.is_broken() {
                return Err(Failure::temporary("the connection is broken"));
            }
            if let Some(update) = self.take() {
                return match self.bucket.fails() {
                    true => Err(Failure::temporary("the watch has ended")),
                    false => Ok(update),
                };
            }
            changed.await;
        }
    }

    async fn broken(&mut self) -> Failure {
        let changes = Rc::clone(&self.bucket.changed);
        loop {
            let changed = changes.notified();
            if self.is_broken() {
                return Failure::temporary("the connection is broken");
            }
            changed.await;
        }
    }
}

impl MemoryWatch {
    fn is_broken(&self) -> bool {
        self.bucket.state.borrow().breaks != self.breaks
    }

    fn take(&mut self) -> Option<Update> {
        let state = self.bucket.state.borrow();
        if state.is_held {
            return None;
        }
        // What has been changed since comes with the changes.
        let is_last = |update: &Update| match update {
            Update::Item(item) => state.lag > 0 || state.last.get(&item.key) == Some(item),
            Update::Current => true,
        };
        while let Some(update) = self.updates.pop_front() {
            if is_last(&update) {
                return Some(update);
            }
        }
        let item = state.log.get(self.position)?;
        self.position += 1;
        Some(Update::Item(item.clone()))
    }
}
