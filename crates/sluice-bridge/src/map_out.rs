// SPDX-License-Identifier: MIT OR Apache-2.0
//! From a map to a bucket: what is on its way there, which is bounded.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::pin::Pin;

use crate::engine::Failure;
use crate::engine::bucket::{Bucket, Put};
use crate::key;
use crate::local_map::{Entry, LocalMap};
use crate::map_rule::Direction;
use crate::map_sync::{Ended, MapSync};

/// The most changes, and bytes of their keys and values, on their way; a longer change goes alone.
const PUTS: usize = 64;
const BYTES: usize = 4 << 20;

/// A change that the bucket has not acknowledged.
pub struct Sent {
    pub key: Vec<u8>,
    /// The version of the entry when it was sent.
    pub version: u64,
    bytes: usize,
}

pub struct Puts<R> {
    sent: VecDeque<(Sent, R)>,
    bytes: usize,
    /// The result of the oldest change.
    result: Option<Result<u64, Failure>>,
}

impl<R> Default for Puts<R> {
    fn default() -> Self {
        Self {
            sent: VecDeque::new(),
            bytes: 0,
            result: None,
        }
    }
}

impl<R: Future<Output = Result<u64, Failure>> + Unpin> Puts<R> {
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        self.sent.iter().any(|(sent, _)| sent.key == key)
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.sent.len() >= PUTS || (!self.sent.is_empty() && self.bytes + bytes > BYTES)
    }

    fn push(&mut self, sent: Sent, receipt: R) {
        self.bytes += sent.bytes;
        self.sent.push_back((sent, receipt));
    }

    /// Until there is a result. Cancel safe.
    pub async fn ready(&mut self) {
        if self.result.is_some() {
            return;
        }
        let Some((_, receipt)) = self.sent.front_mut() else {
            return pending().await;
        };
        let mut receipt = Pin::new(receipt);
        self.result = Some(poll_fn(|cx| receipt.as_mut().poll(cx)).await);
    }

    /// The oldest change with its result. None: there is none.
    pub async fn next(&mut self) -> Option<(Sent, Result<u64, Failure>)> {
        if self.sent.is_empty() {
            return None;
        }
        self.ready().await;
        let (result, (sent, _)) = (self.result.take()?, self.sent.pop_front()?);
        self.bytes -= sent.bytes;
        Some((sent, result))
    }
}

impl<M: LocalMap, B: Bucket> MapSync<'_, M, B> {
    /// Sends what the map has, which may be nothing. `revision` is that of the key in the bucket, as far as is known.
    pub async fn put(
        &mut self,
        key: &[u8],
        entry: Option<Entry>,
        revision: u64,
    ) -> Result<(), Ended> {
        let Some(encoded) = key::encode(key) else {
            self.report_key(key);
            return Ok(());
        };
        let version = entry.as_ref().map_or(0, |entry| entry.version);
        let content = entry.map(|entry| self.content(entry));
        let bytes = key.len() + content.as_ref().map_or(0, |content| content.value.len());
        while self.puts.is_full(bytes) {
            Box::pin(self.settle()).await?;
        }
        let is_conditional = self.rule.direction() == Direction::Both;
        let put = Put {
            key: encoded,
            content,
            expected: is_conditional.then_some(revision),
            origin: is_conditional.then(|| self.pairs.origin(version)),
        };
        let sent = Sent {
            key: key.to_vec(),
            version,
            bytes,
        };
        match self.bucket.put(put).await {
            Ok(receipt) => {
                self.puts.push(sent, receipt);
                Ok(())
            }
            Err(failure) => Box::pin(self.put_failed(key, failure)).await,
        }
    }
}
