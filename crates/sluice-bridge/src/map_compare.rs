// SPDX-License-Identifier: MIT OR Apache-2.0
//! The comparison of all entries of a map with those of a bucket.

use std::collections::HashSet;

use tokio::task::yield_now;

use crate::engine::bucket::{Bucket, Item, Update, Watch};
use crate::key;
use crate::local_map::LocalMap;
use crate::map_rule::Direction;
use crate::map_sync::{Ended, MapSync};

/// Keys that are compared before other tasks may run.
const YIELD: usize = 256;

impl<M: LocalMap, B: Bucket> MapSync<'_, M, B> {
    /// Makes both sides the same, as they are now.
    pub async fn compare(&mut self, watch: &mut B::Watch) -> Result<(), Ended> {
        self.counters.compared.add(1);
        let result = self.pairs.begin(self.bucket.identity());
        self.report_pair(result);
        let mut listed = HashSet::new();
        while let Update::Item(item) = watch.next().await? {
            let Some(key) = self.take_item(&item).await? else {
                continue;
            };
            // Of other keys nothing has to be remembered: the memory of the map limits that of the bridge.
            if self.map.contains(&key)? {
                listed.insert(key);
            }
        }
        let map = self.map;
        for (count, key) in map.keys().enumerate() {
            let (key, _) = key?;
            if !listed.contains(&key) {
                self.take_absent(&key).await?;
            }
            if count % YIELD == 0 {
                yield_now().await;
            }
        }
        self.forget_ended(&listed).await
    }

    /// The bucket has not listed the key.
    async fn take_absent(&mut self, key: &[u8]) -> Result<(), Ended> {
        let is_asked = match self.rule.direction() {
            Direction::Out => false,
            // It is not deleted because it was changed while the bucket listed its keys.
            Direction::In => true,
            Direction::Both => self.pairs.get(key).is_some(),
        };
        match key::encode(key) {
            Some(encoded) if is_asked => self.take_asked(key, encoded).await,
            Some(encoded) => self.take(key, &absent(encoded)).await,
            None if self.rule.is_out() => {
                self.report_key(key);
                Ok(())
            }
            None => self.take(key, &absent(String::new())).await,
        }
    }

    pub async fn take_key_asked(&mut self, key: &[u8]) -> Result<(), Ended> {
        match key::encode(key) {
            Some(encoded) => self.take_asked(key, encoded).await,
            None => self.take(key, &absent(String::new())).await,
        }
    }

    pub async fn take_asked(&mut self, key: &[u8], encoded: String) -> Result<(), Ended> {
        let item = self.bucket.get(&encoded).await?;
        let item = item.unwrap_or_else(|| absent(encoded));
        self.take(key, &item).await
    }

    /// Removes the pairs of entries that neither side has.
    async fn forget_ended(&mut self, listed: &HashSet<Vec<u8>>) -> Result<(), Ended> {
        let is_ended = |key: &&Vec<u8>| !listed.contains(*key);
        let candidates: Vec<Vec<u8>> = self.pairs.keys().filter(is_ended).cloned().collect();
        for (count, key) in candidates.iter().enumerate() {
            if !self.map.contains(key)? && !self.puts.contains(key) {
                self.forget(key);
            }
            if count % YIELD == 0 {
                yield_now().await;
            }
        }
        Ok(())
    }

    /// After a loss of events: the bucket need not be read, because its changes are known.
    pub async fn compare_versions(&mut self) -> Result<(), Ended> {
        self.counters.compared.add(1);
        let map = self.map;
        for (count, key) in map.keys().enumerate() {
            let (key, version) = key?;
            if self.pairs.get(&key).unwrap_or_default().version != version {
                self.take_key(&key).await?;
            }
            if count % YIELD == 0 {
                yield_now().await;
            }
        }
        let keys: Vec<Vec<u8>> = self.pairs.keys().cloned().collect();
        for (count, key) in keys.iter().enumerate() {
            if !self.map.contains(key)? {
                self.take_key(key).await?;
            }
            if count % YIELD == 0 {
                yield_now().await;
            }
        }
        Ok(())
    }
}

/// The bucket knows nothing of the key.
fn absent(key: String) -> Item {
    Item {
        key,
        revision: 0,
        content: None,
        origin: None,
    }
}
