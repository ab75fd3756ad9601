// SPDX-License-Identifier: MIT OR Apache-2.0
//! A map in the memory of a test.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use tokio::sync::Notify;
use tokio::task::yield_now;

use super::*;

/// Of the log.
const EVENTS: usize = 8;
pub const VALUE_MAX: usize = 500;

/// A map in the memory of a test.
#[derive(Default)]
pub struct TestMap {
    state: RefCell<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Vec<u8>, Entry>,
    sequence: u64,
    events: VecDeque<Event>,
    is_watched: bool,
    is_full: bool,
    deletions: u64,
    /// A change that another program makes right before that of the bridge.
    before: Option<(Vec<u8>, Vec<u8>)>,
    is_ended: bool,
}

impl TestMap {
    /// What a local program does.
    pub fn change(&self, key: &[u8], value: Option<&[u8]>) {
        let content = value.map(|value| Content {
            value: value.to_vec().into(),
            time_to_live: None,
        });
        self.store(key, content, false);
    }

    pub fn set_with(&self, key: &[u8], value: &[u8], time: Duration) {
        let content = Content {
            value: value.to_vec().into(),
            time_to_live: Some(time),
        };
        self.store(key, Some(content), false);
    }

    pub fn expire(&self, key: &[u8]) {
        self.store(key, None, true);
    }

    pub fn values(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let entries = &self.state.borrow().entries;
        let value = |(key, entry): (&Vec<u8>, &Entry)| (key.clone(), entry.content.value.to_vec());
        entries.iter().map(value).collect()
    }

    pub fn sequence(&self) -> u64 {
        self.state.borrow().sequence
    }

    pub fn deletions(&self) -> u64 {
        self.state.borrow().deletions
    }

    pub fn change_before(&self, key: &[u8], value: &[u8]) {
        self.state.borrow_mut().before = Some((key.to_vec(), value.to_vec()));
    }

    fn change_now(&self) {
        let before = self.state.borrow_mut().before.take();
        if let Some((key, value)) = before {
            self.change(&key, Some(&value));
        }
    }

    pub fn set_full(&self, is_full: bool) {
        self.state.borrow_mut().is_full = is_full;
    }

    pub fn end(&self) {
        self.state.borrow_mut().is_ended = true;
        self.changed.notify_waiters();
    }

    fn store(&self, key: &[u8], content: Option<Content>, is_expiry: bool) -> u64 {
        let mut state = self.state.borrow_mut();
        let before = state.entries.get(key).map(|entry| entry.version);
        if before.is_none() && content.is_none() {
            return 0;
        }
        state.sequence += 1;
        state.deletions += u64::from(content.is_none());
        let sequence = state.sequence;
        let version = if content.is_some() {
            sequence
        } else {
            before.unwrap_or(0)
        };
        match content {
            Some(content) => state
                .entries
                .insert(key.to_vec(), Entry { version, content }),
            None => state.entries.remove(key),
        };
        if state.is_watched {
            let is_after_loss = state.events.len() >= EVENTS;
            if is_after_loss {
                state.events.pop_front();
                state
                    .events
                    .iter_mut()
                    .take(1)
                    .for_each(|event| event.is_after_loss = true);
            }
            state.events.push_back(Event {
                key: key.to_vec(),
                version,
                is_expiry,
                is_after_loss: false,
            });
        }
        self.changed.notify_waiters();
        sequence
    }

    fn check(&self, key: &[u8], required: Option<u64>) -> Result<(), MapError> {
        let state = self.state.borrow();
        let version = state.entries.get(key).map_or(0, |entry| entry.version);
        match required {
            _ if state.is_ended => Err(MapError::Ended),
            Some(required) if required != version => Err(MapError::Conflict),
            _ => Ok(()),
        }
    }
}

impl LocalMap for TestMap {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>, MapError> {
        self.check(key, None)?;
        Ok(self.state.borrow().entries.get(key).cloned())
    }

    fn contains(&self, key: &[u8]) -> Result<bool, MapError> {
        Ok(self.get(key)?.is_some())
    }

    async fn set(
        &self,
        key: &[u8],
        content: &Content,
        required: Option<u64>,
    ) -> Result<u64, MapError> {
        yield_now().await;
        self.change_now();
        self.check(key, required)?;
        if content.value.len() > VALUE_MAX {
            return Err(MapError::TooLong("too long".to_owned()));
        }
        if self.state.borrow().is_full {
            return Err(MapError::Other("full".to_owned()));
        }
        let version = self.store(key, Some(content.clone()), false);
        // A kill may be here.
        yield_now().await;
        Ok(version)
    }

    async fn delete(&self, key: &[u8], required: Option<u64>) -> Result<(), MapError> {
        yield_now().await;
        self.change_now();
        self.check(key, required)?;
        self.store(key, None, false);
        yield_now().await;
        Ok(())
    }

    fn keys(&self) -> impl Iterator<Item = Result<(Vec<u8>, u64), MapError>> {
        let entries = &self.state.borrow().entries;
        let keys = entries
            .iter()
            .map(|(key, entry)| Ok((key.clone(), entry.version)));
        keys.collect::<Vec<_>>().into_iter()
    }

    async fn watch(&self) -> Result<(), MapError> {
        self.check(b"", None)?;
        let mut state = self.state.borrow_mut();
        state.is_watched = true;
        state.events.clear();
        Ok(())
    }

    async fn event(&self) -> Result<Event, MapError> {
        loop {
            let changed = self.changed.notified();
            self.check(b"", None)?;
            if let Some(event) = self.state.borrow_mut().events.pop_front() {
                return Ok(event);
            }
            changed.await;
        }
    }
}

#[test]
fn times_to_live_are_the_same_within_a_tolerance() {
    let content = |milliseconds: Option<u64>| Content {
        value: "a".into(),
        time_to_live: milliseconds.map(Duration::from_millis),
    };
    assert!(is_same(&content(None), &content(None)));
    assert!(is_same(&content(Some(5000)), &content(Some(3500))));
    assert!(!is_same(&content(Some(5000)), &content(Some(2500))));
    assert!(!is_same(&content(Some(5000)), &content(None)));
    let other = Content {
        value: "b".into(),
        time_to_live: None,
    };
    assert!(!is_same(&content(None), &other));
}
