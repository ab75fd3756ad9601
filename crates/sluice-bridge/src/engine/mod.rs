// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the bridge needs of an engine that carries messages between hosts. Only [`nats`] knows the engine that is used; tests use
//! [`memory`].

pub mod bucket;
#[cfg(test)]
pub mod memory;
pub mod nats;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use self::bucket::{Bucket, BucketOptions};

/// A message of the engine. Names of headers may occur several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub subject: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    /// Of a request: the subject of its reply.
    pub reply_to: Option<String>,
}

impl Message {
    /// The values of a header, whose name has any case.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = move |(other, value): &'a (&'static str, String)| {
            other.eq_ignore_ascii_case(name).then_some(value.as_str())
        };
        self.headers.iter().filter_map(named)
    }
}

/// How a message is stored, if it is of a stream.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The stream recognises a message that it has already by this id.
    pub id: String,
    /// The stream has stored a message of the subject lately.
    pub is_stream_known: bool,
}

/// Messages of a stream, from where the consumer of this name has ended.
#[derive(Clone, Debug)]
pub struct ConsumerOptions<'a> {
    pub stream: &'a str,
    pub name: String,
    pub subject: &'a str,
    /// At most these are delivered and not acknowledged.
    pub messages: u32,
    pub bytes: u64,
}

/// Why a call of the engine failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    /// What happened, and what to do.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Another attempt may succeed.
    Temporary,
    /// The message is longer than the engine permits.
    TooLong,
    /// Nobody answers the requests of a subject.
    NoResponder,
    /// A key of a bucket has another revision than the expected one.
    Conflict,
    /// The bucket does not take this change; it may take others.
    Refused,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub fn temporary(text: impl Into<String>) -> Self {
        Self {
            kind: FailureKind::Temporary,
            text: text.into(),
        }
    }
}

pub trait Engine: Clone + 'static {
    type Publisher: Publisher;
    type Subscription: Subscription;
    type Consumer: Subscription;
    type Bucket: Bucket;

    /// Waits until there is a connection: an attempt to publish without one would only occupy memory.
    async fn connected(&self);

    fn is_connected(&self) -> bool;

    /// Returns when the engine has failed for good.
    async fn failed(&self);

    /// A message of no stream. Returns when it has left this process.
    async fn publish(&self, message: Message) -> Result<(), Failure>;

    /// Returns when what was sent before has left this process.
    async fn flush(&self) -> Result<(), Failure>;

    /// For the messages of a subject. None: no stream stores them.
    fn publisher(&self, subject: &str, stream: Option<&str>) -> Self::Publisher;

    /// Messages that others publish from now on.
    async fn subscribe(&self, subject: &str) -> Result<Self::Subscription, Failure>;

    /// Messages that others publish from now on, of which each goes to one of those that share the subject.
    async fn share(&self, subject: &str) -> Result<Self::Subscription, Failure>;

    /// Sends a request, and returns its reply. Nothing of it is left if it is dropped.
    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, Failure>;

    async fn consume(&self, options: ConsumerOptions<'_>) -> Result<Self::Consumer, Failure>;

    /// Fails if there is no such bucket, or if it does not permit what the options say.
    async fn bucket(&self, options: BucketOptions<'_>) -> Result<Self::Bucket, Failure>;

    /// The longest message, headers included, in bytes. None: not known yet.
    fn message_max(&self) -> Option<usize>;
}

pub trait Publisher {
    /// Resolves when the message is stored; of a message of no stream, when it has left this process.
    type Receipt: Future<Output = Result<(), Failure>> + Unpin;

    /// Messages leave in the order of the calls. Waits while the engine has no room for another one. `sender` is the value of the header
    /// [`SENDER`](crate::headers::SENDER).
    async fn publish(
        &mut self,
        sender: &str,
        body: Bytes,
        stored: Stored,
    ) -> Result<Self::Receipt, Failure>;
}

pub trait Subscription {
    /// Whether the engine keeps a message until it is acknowledged.
    const KEEPS: bool;

    async fn next(&mut self) -> Result<Message, Failure>;

    /// The last message is not needed any more. The acknowledgement may be delayed by some milliseconds or some messages.
    async fn acknowledge(&mut self) -> Result<(), Failure>;

    /// Ends it: [`next`](Self::next) returns the messages that are on the way, and then fails.
    async fn drain(&mut self) -> Result<(), Failure>;

    /// The messages that were received and not acknowledged need more time.
    async fn extend(&mut self) -> Result<(), Failure>;
}

/// The headers of a reply that is an error, as services of NATS have them: a text, and a number of HTTP.
pub const ERROR: &str = "Nats-Service-Error";
pub const ERROR_CODE: &str = "Nats-Service-Error-Code";
/// The number of a service that does not answer.
pub const UNAVAILABLE: &str = "503";

/// After this time without [`Subscription::extend`] a message is delivered again.
pub const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(30);
