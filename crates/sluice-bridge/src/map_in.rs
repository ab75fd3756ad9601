// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a bucket to a map.

use crate::engine::bucket::{Bucket, Item};
use crate::local_map::{LocalMap, MapError};
use crate::map_rule::Direction;
use crate::map_sync::{Ended, MapSync};

impl<M: LocalMap, B: Bucket> MapSync<'_, M, B> {
    /// Returns false if the entry has another version by now, which has to be looked at.
    pub async fn change_map(
        &mut self,
        key: &[u8],
        item: &Item,
        version: u64,
    ) -> Result<bool, Ended> {
        let required = (self.rule.direction() == Direction::Both).then_some(version);
        let _changing = self.changing.lock().await;
        let changed = match &item.content {
            Some(content) => self.map.set(key, content, required).await,
            None => self.map.delete(key, required).await.map(|()| 0),
        };
        match changed {
            Ok(version) => {
                self.counters.incoming.add(1);
                match version {
                    0 => self.forget(key),
                    _ => self.pair(key, version, item.revision),
                }
            }
            Err(MapError::Conflict) => return Ok(false),
            Err(MapError::Ended) => return Err(Ended::Map),
            Err(MapError::TooLong(text)) => {
                let (map, bucket) = (self.rule.channel(), self.rule.bucket());
                self.counters.too_long.report(1, |new| {
                    format!("{map}: {new} values of the bucket {bucket} are too long for the map, which keeps the ones before, the last of the key {}: {text}", item.key)
                });
            }
            Err(MapError::Other(text)) => {
                self.compare_later();
                let map = self.rule.channel();
                self.counters.failed.report(1, |new| {
                    format!(
                        "{map}: {new} changes failed, the last of the key {}: {text}; trying again",
                        item.key
                    )
                });
            }
        }
        Ok(true)
    }
}
