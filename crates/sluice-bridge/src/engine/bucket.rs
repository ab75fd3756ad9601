// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bridge needs of an engine that keeps keys and values between hosts. Each change of a bucket has a revision, which is greater
//! than that of all changes before.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use super::Failure;

/// Changes of a watch that wait in this process, at most.
pub const CHANGES_MAX: usize = 256;

#[derive(Clone, Copy, Debug)]
pub struct BucketOptions<'a> {
    pub name: &'a str,
    /// Entries with a time to live are put into the bucket, which has to permit them.
    pub puts_time_to_live: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub value: Bytes,
    /// The time to live that is left.
    pub time_to_live: Option<Duration>,
}

/// The last change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub key: String,
    pub revision: u64,
    /// None: it was deleted, or has expired.
    pub content: Option<Content>,
    /// The mark with which the change was put.
    pub origin: Option<String>,
}

/// A change of a key.
#[derive(Clone, Debug)]
pub struct Put {
    pub key: String,
    /// None: delete it.
    pub content: Option<Content>,
    /// The revision that the key must have; 0: none.
    pub expected: Option<u64>,
    /// A text that the bucket keeps with the change.
    pub origin: Option<String>,
}

pub trait Bucket {
    /// Resolves to the revision, or fails with [`FailureKind::Conflict`](super::FailureKind::Conflict) if another one is expected.
    type Receipt: Future<Output = Result<u64, Failure>> + Unpin;
    type Watch: Watch;

    /// A number that a bucket which is deleted and created again does not have again.
    fn identity(&self) -> u64;

    /// Changes take effect in the order of the calls.
    async fn put(&self, put: Put) -> Result<Self::Receipt, Failure>;

    /// None: the bucket knows nothing of the key.
    async fn get(&self, key: &str) -> Result<Option<Item>, Failure>;

    /// The last change of each key, and then each change from now on.
    async fn watch(&self) -> Result<Self::Watch, Failure>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    Item(Item),
    /// Follows once, when the state at the beginning of the watch was returned.
    Current,
}

pub trait Watch {
    /// Cancel safe. After a failure the watch has ended.
    async fn next(&mut self) -> Result<Update, Failure>;

    /// Instead of [`next`](Self::next): waits until the bucket may differ from what was put, without a change by another client. Cancel safe.
    async fn broken(&mut self) -> Failure;
}
