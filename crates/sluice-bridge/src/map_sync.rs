// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps a map and a bucket the same: compares all entries once, then follows the changes. Whatever fails, the next comparison repairs.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::decision::{Action, Pair, Sides, decide};
use crate::engine::bucket::{Bucket, Content, Item, Update, Watch};
use crate::engine::{Failure, FailureKind};
use crate::key;
use crate::local_map::{Entry, Event, LocalMap, MapError, is_same};
use crate::map_counters::MapCounters;
use crate::map_out::Puts;
use crate::map_rule::{Direction, MapRule};
use crate::pairs::Pairs;

/// The delay of the next comparison after a change that one side refused. After a long comparison it is 4 times its duration, so that
/// comparisons take at most a fifth of the time.
pub const PAUSE: Duration = Duration::from_secs(30);

/// Why map and bucket are not kept the same any more.
#[derive(Debug)]
pub enum Ended {
    /// The map was destroyed.
    Map,
    /// One side has not taken all changes, and it is time to compare both again.
    Incomplete,
    /// Another attempt may succeed.
    Failed(String),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.text)
    }
}

impl From<MapError> for Ended {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Ended => Self::Map,
            MapError::Conflict => Self::Failed("an entry changes all the time".to_owned()),
            MapError::TooLong(text) | MapError::Other(text) => Self::Failed(text),
        }
    }
}

/// Ends with the connection to the server.
pub struct MapSync<'a, M, B: Bucket> {
    pub rule: &'a MapRule,
    pub counters: &'a MapCounters,
    pub map: &'a M,
    pub bucket: &'a B,
    pub pairs: &'a mut Pairs,
    /// Locked while a change of the map lacks its pair.
    pub changing: &'a Mutex<()>,
    /// On their way to the bucket.
    pub puts: Puts<B::Receipt>,
    /// When another comparison is necessary, because one side did not take a change.
    pub compare_at: Option<Instant>,
    /// Between two such comparisons.
    pub pause: Duration,
}

impl<M: LocalMap, B: Bucket> MapSync<'_, M, B> {
    /// Returns only if it fails. `compared` is called when both sides are the same.
    pub async fn run(&mut self, compared: impl FnOnce()) -> Ended {
        match self.follow(compared).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn follow(&mut self, compared: impl FnOnce()) -> Result<Infallible, Ended> {
        self.map.watch().await?;
        let mut watch = self.bucket.watch().await?;
        let started = Instant::now();
        self.compare(&mut watch).await?;
        while !self.puts.is_empty() {
            self.settle().await?;
        }
        self.pause = PAUSE.max(4 * started.elapsed());
        match self.compare_at.take() {
            Some(_) => self.compare_later(),
            None => compared(),
        }
        loop {
            let (map, is_in, compare_at) = (self.map, self.rule.is_in(), self.compare_at);
            let updated = async {
                match is_in {
                    true => watch.next().await,
                    false => Err(watch.broken().await),
                }
            };
            tokio::select! {
                update = updated => if let Update::Item(item) = update? {
                    self.take_item(&item).await?;
                },
                event = map.event() => self.take_event(event?).await?,
                () = self.puts.ready() => self.settle().await?,
                () = until(compare_at) => return Err(Ended::Incomplete),
            }
        }
    }

    /// Plans a comparison, because one side refused a change. Other changes go on meanwhile.
    pub fn compare_later(&mut self) {
        let pause = self.pause;
        self.compare_at
            .get_or_insert_with(|| Instant::now() + pause);
    }

    /// Returns the key, if it is one of a map.
    pub async fn take_item(&mut self, item: &Item) -> Result<Option<Vec<u8>>, Ended> {
        let Some(key) = key::decode(&item.key) else {
            let (map, bucket) = (self.rule.channel(), self.rule.bucket());
            self.counters.unknown_keys.report(1, |new| {
                format!("{map}: {new} changes of keys like {:?} of the bucket {bucket} did not come in; a key does not begin with '=' or '_kv'", item.key)
            });
            return Ok(None);
        };
        let pair = self.pairs.get(&key);
        let is_old = pair.is_some_and(|pair| pair.revision > item.revision);
        match is_old && !self.pairs.is_newer(&key, item.revision) {
            // A replica that lags behind may have listed it; the leader knows.
            true => self.take_asked(&key, item.key.clone()).await?,
            false => self.take(&key, item).await?,
        }
        Ok(Some(key))
    }

    pub async fn take(&mut self, key: &[u8], item: &Item) -> Result<(), Ended> {
        while self.puts.contains(key) {
            self.settle().await?;
        }
        self.adopt(key, item);
        loop {
            let pair = self.pairs.get(key);
            if item.revision != 0 && self.pairs.is_newer(key, item.revision) {
                return Ok(());
            }
            let entry = self.map.get(key)?;
            let sides = Sides {
                version: entry.as_ref().map_or(0, |entry| entry.version),
                revision: item.revision,
                is_in_bucket: item.content.is_some(),
            };
            let (mut action, is_conflict) = decide(self.rule.direction(), pair, sides);
            if action == Action::Nothing {
                action = self.repair(entry.as_ref(), item);
            }
            if action != Action::Nothing && self.is_same(entry.as_ref(), item) {
                self.pair(key, sides.version, item.revision);
                return Ok(());
            }
            match action {
                Action::Nothing if sides.version == 0 && !sides.is_in_bucket => {
                    self.forget(key);
                    return Ok(());
                }
                Action::Nothing => return Ok(()),
                Action::Out => self.put(key, entry, item.revision).await?,
                // It has another version by now.
                Action::In if !self.change_map(key, item, sides.version).await? => continue,
                Action::In => {}
            }
            self.counters.conflicts.add(u64::from(is_conflict));
            return Ok(());
        }
    }

    /// The change of the bucket may be one that this bridge, or the process before, has made and does not know to be stored.
    fn adopt(&mut self, key: &[u8], item: &Item) {
        let origin = item.origin.as_deref();
        let Some(version) = origin.and_then(|origin| self.pairs.own_version(origin)) else {
            return;
        };
        // Of a deletion nothing has to be known: a value in the map stays.
        let is_later = |pair: Pair| version > pair.version && item.revision > pair.revision;
        if item.content.is_some() && self.pairs.get(key).is_none_or(is_later) {
            self.pair(key, version, item.revision);
        }
    }

    /// What both sides have, although neither seems to be changed since they were the same.
    fn repair(&self, entry: Option<&Entry>, item: &Item) -> Action {
        let (Some(entry), Some(content)) = (entry, &item.content) else {
            return Action::Nothing;
        };
        let (is_out, keeps) = (self.rule.is_out(), self.rule.keeps_time_to_live());
        match entry.content.value == content.value {
            // The server has lost changes, and given their revisions to others.
            false if self.rule.is_in() => Action::In,
            false => Action::Out,
            // The rule had ttl = false.
            true if is_out
                && keeps
                && entry.content.time_to_live.is_some()
                && content.time_to_live.is_none() =>
            {
                Action::Out
            }
            true => Action::Nothing,
        }
    }

    fn is_same(&self, entry: Option<&Entry>, item: &Item) -> bool {
        let (Some(entry), Some(content)) = (entry, &item.content) else {
            return false;
        };
        match self.rule.keeps_time_to_live() {
            true => is_same(&entry.content, content),
            false => entry.content.value == content.value,
        }
    }

    pub async fn take_event(&mut self, event: Event) -> Result<(), Ended> {
        if event.is_after_loss {
            self.compare_versions().await?;
        }
        let pair = self.pairs.get(&event.key);
        let is_of_pair = pair.is_some_and(|pair| pair.version == event.version);
        // The bucket has the same time to live, or a new one.
        let expires_there = self.rule.is_in() && self.rule.keeps_time_to_live();
        match event.is_expiry && is_of_pair && expires_there {
            true => Ok(()),
            false => self.take_key(&event.key).await,
        }
    }

    /// The map may have changed the entry.
    pub async fn take_key(&mut self, key: &[u8]) -> Result<(), Ended> {
        while self.puts.contains(key) {
            self.settle().await?;
        }
        let entry = self.map.get(key)?;
        let version = entry.as_ref().map_or(0, |entry| entry.version);
        let pair = self.pairs.get(key).unwrap_or_default();
        match version == pair.version {
            true => Ok(()),
            false if self.rule.is_out() => self.put(key, entry, pair.revision).await,
            // Others must not write to a copy.
            false => self.take_key_asked(key).await,
        }
    }

    /// Takes the result of the oldest change on its way to the bucket, and counts it.
    pub async fn settle(&mut self) -> Result<(), Ended> {
        let Some((put, result)) = self.puts.next().await else {
            return Ok(());
        };
        match result {
            Ok(revision) => {
                self.counters.out.add(1);
                match put.version == 0 && self.rule.direction() == Direction::Out {
                    true => self.forget(&put.key),
                    false => self.pair(&put.key, put.version, revision),
                }
                Ok(())
            }
            Err(failure) => self.put_failed(&put.key, failure).await,
        }
    }

    pub async fn put_failed(&mut self, key: &[u8], failure: Failure) -> Result<(), Ended> {
        match failure.kind {
            FailureKind::Temporary | FailureKind::NoResponder => Err(failure.into()),
            FailureKind::Refused => {
                self.compare_later();
                let map = self.rule.channel();
                self.counters.failed.report(1, |new| {
                    format!(
                        "{map}: {new} changes were refused, the last: {}; trying again",
                        failure.text
                    )
                });
                Ok(())
            }
            FailureKind::TooLong => {
                let (map, bucket) = (self.rule.channel(), self.rule.bucket());
                self.counters.too_long.report(1, |new| {
                    format!("{map}: {new} values are too long for the bucket {bucket}, which keeps the ones before: {}", failure.text)
                });
                Ok(())
            }
            FailureKind::Conflict => Box::pin(self.take_key_asked(key)).await,
        }
    }

    pub fn pair(&mut self, key: &[u8], version: u64, revision: u64) {
        let pair = Pair { version, revision };
        let result = self.pairs.set(key, pair);
        self.report_pair(result);
    }

    pub fn forget(&mut self, key: &[u8]) {
        let result = self.pairs.remove(key);
        self.report_pair(result);
    }

    pub fn report_pair(&self, result: anyhow::Result<()>) {
        if let Err(error) = result {
            let (map, text) = (self.rule.channel(), sluice::explain(error.as_ref()));
            self.counters.failed.report(1, |_| {
                format!("{map}: the next process will not know what was compared: {text}")
            });
        }
    }

    pub fn report_key(&self, key: &[u8]) {
        let (map, bucket, len) = (self.rule.channel(), self.rule.bucket(), key.len());
        let begin = String::from_utf8_lossy(&key[..len.min(32)]).into_owned();
        self.counters.too_long.report(1, |new| {
            format!("{map}: {new} keys are too long for the bucket {bucket}, the last with {len} bytes, which begin with {begin:?}")
        });
    }

    /// The content that the bucket should have.
    pub fn content(&self, entry: Entry) -> Content {
        let keeps = self.rule.keeps_time_to_live();
        Content {
            time_to_live: entry.content.time_to_live.filter(|_| keeps),
            ..entry.content
        }
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
