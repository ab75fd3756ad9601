// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buckets of JetStream: a stream with a subject for each key, of which the last message is the value. The client's own buckets are not
//! used: they forget the time to live of a key that was deleted before, and they cannot put one that exists with another time.

use std::error::Error as _;
use std::future::IntoFuture as _;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{self, LastRawMessageErrorKind};
use async_nats::jetstream::{self, consumer};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::pull::{NatsConsumer, WAIT};
use super::time_to_live;
use super::{NatsEngine, chain, failure, missed, other, stored_failure};
use crate::engine::bucket::{
    Bucket, BucketOptions, CHANGES_MAX, Content, Item, Put, Update, Watch,
};
use crate::engine::{Failure, FailureKind};

const OPERATION: &str = "KV-Operation";
const ROLLUP: &str = "Nats-Rollup";
const TIME_TO_LIVE: &str = "Nats-TTL";
/// A header of the messages that the server itself writes when a key has expired.
const MARKER: &str = "Nats-Marker-Reason";
const ORIGIN: &str = "Sluice-Map-Version";
/// Bytes that the server sends at a time.
const BYTES: usize = 4 << 20;
/// The server removes the consumer of a watch after this time without a request.
const INACTIVE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct NatsBucket {
    engine: NatsEngine,
    stream: stream::Stream,
    /// The prefix of the subjects of keys.
    prefix: String,
    /// How long the bucket keeps the deletion of a key, if it ever forgets one.
    marker: Option<Duration>,
    /// How long it keeps an entry.
    age_max: Option<Duration>,
}

impl NatsBucket {
    pub async fn open(engine: &NatsEngine, options: BucketOptions<'_>) -> Result<Self, Failure> {
        let name = options.name;
        let opened = engine.context.get_stream(format!("KV_{name}")).await;
        let stream = opened.map_err(|error| {
            let text = chain(&error);
            Failure::temporary(format!(
                "bucket {name}: {text}; create it with 'nats kv add {name}', or check the permissions of the bridge"
            ))
        })?;
        let config = stream.cached_info().config.clone();
        let prefix = format!("$KV.{name}.");
        if config.subjects != [format!("{prefix}>")] {
            return Err(Failure::temporary(format!(
                "bucket {name} is no bucket, or the copy of another one; name the original"
            )));
        }
        if options.puts_time_to_live {
            check_time_to_live(engine, name, &config)?;
        }
        Ok(Self {
            engine: engine.clone(),
            stream,
            prefix,
            marker: config
                .subject_delete_marker_ttl
                .filter(|time| !time.is_zero()),
            age_max: (!config.max_age.is_zero()).then_some(config.max_age),
        })
    }

    fn item(&self, found: Found<'_>) -> Result<Item, Failure> {
        let key = found.subject.strip_prefix(&self.prefix);
        let key =
            key.ok_or_else(|| Failure::temporary("the bucket has other subjects; check it"))?;
        let header = |name: &str| found.headers.and_then(|headers| headers.get(name));
        let is_deleted = header(MARKER).is_some()
            || header(OPERATION).is_some_and(|operation| operation.as_str() != "PUT");
        let limit = match header(TIME_TO_LIVE) {
            // The server takes 0 for none.
            Some(text) if text.as_str() != "0" => time_to_live::parse(text.as_str()),
            _ => self.age_max,
        };
        let age = SystemTime::now()
            .duration_since(found.time)
            .unwrap_or_default();
        let left = limit.map(|limit| limit.saturating_sub(age));
        // An expired one may still be there for a moment.
        let is_over = left.is_some_and(|left| left.is_zero());
        let content = (!is_deleted && !is_over).then_some(Content {
            value: found.value,
            time_to_live: left,
        });
        Ok(Item {
            key: key.to_owned(),
            revision: found.revision,
            content,
            origin: header(ORIGIN).map(|origin| origin.as_str().to_owned()),
        })
    }

    fn headers(&self, put: &Put) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let time_to_live = match (&put.content, self.marker) {
            (Some(content), _) => content.time_to_live,
            (None, None) => {
                headers.insert(OPERATION, "DEL");
                None
            }
            // The values before go, too: they would be valid again when the deletion is forgotten.
            (None, Some(marker)) => {
                headers.insert(OPERATION, "PURGE");
                headers.insert(ROLLUP, "sub");
                Some(marker)
            }
        };
        if let Some(time) = time_to_live {
            headers.insert(TIME_TO_LIVE, time_to_live::header(time).as_str());
        }
        if let Some(origin) = &put.origin {
            headers.insert(ORIGIN, origin.as_str());
        }
        headers
    }
}

fn check_time_to_live(
    engine: &NatsEngine,
    name: &str,
    config: &stream::Config,
) -> Result<(), Failure> {
    let without = "or write ttl = false in the rule";
    if !engine.client.is_server_compatible(2, 11, 0) {
        let version = engine.client.server_info().version;
        return Err(Failure::temporary(format!(
            "bucket {name}: the server has version {version}, and times to live need 2.11; update it, {without}"
        )));
    }
    // The marker tells a watch that one has expired, and that the value before is not valid again.
    if !config.allow_message_ttl || config.subject_delete_marker_ttl.is_none() {
        return Err(Failure::temporary(format!(
            "bucket {name} permits no times to live; create it with 'nats kv add {name} --marker-ttl 1m', {without}"
        )));
    }
    Ok(())
}

/// A message of the stream.
struct Found<'a> {
    subject: &'a str,
    revision: u64,
    headers: Option<&'a HeaderMap>,
    time: SystemTime,
    value: Bytes,
}

type Receipt = Pin<Box<dyn Future<Output = Result<u64, Failure>>>>;

impl Bucket for NatsBucket {
    type Receipt = Receipt;
    type Watch = NatsWatch;

    fn identity(&self) -> u64 {
        self.stream.cached_info().created.unix_timestamp_nanos() as u64
    }

    async fn put(&self, put: Put) -> Result<Receipt, Failure> {
        let headers = self.headers(&put);
        let stream = &self.stream.cached_info().config.name;
        let value = put.content.map(|content| content.value).unwrap_or_default();
        let mut publish = PublishMessage::build()
            .payload(value)
            .headers(headers)
            .expected_stream(stream);
        if let Some(revision) = put.expected {
            publish = publish.expected_last_subject_sequence(revision);
        }
        let context = format!("bucket {}, key {}", &stream["KV_".len()..], put.key);
        let subject = format!("{}{}", self.prefix, put.key);
        let mut broken = self.engine.broken.clone();
        broken.mark_unchanged();
        let sent = self.engine.context.send_publish(subject, publish).await;
        let acknowledged = sent.map_err(|error| put_failure(&context, error))?;
        Ok(Box::pin(receipt(acknowledged, broken, context)))
    }

    async fn get(&self, key: &str) -> Result<Option<Item>, Failure> {
        let subject = format!("{}{key}", self.prefix);
        // Asks the leader, who knows the last revision.
        let message = match self.stream.get_last_raw_message_by_subject(&subject).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => {
                return Ok(None);
            }
            Err(error) => return Err(failure(error)),
        };
        let item = self.item(Found {
            subject: &message.subject,
            revision: message.sequence,
            headers: Some(&message.headers),
            time: message.time.into(),
            value: message.payload,
        })?;
        Ok(Some(item))
    }

    async fn watch(&self) -> Result<NatsWatch, Failure> {
        let mut broken = self.engine.broken.clone();
        broken.mark_unchanged();
        let info = self.stream.get_info().await.map_err(failure)?;
        let config = consumer::pull::Config {
            description: Some("sluice-bridge".to_owned()),
            deliver_policy: consumer::DeliverPolicy::LastPerSubject,
            ack_policy: consumer::AckPolicy::None,
            filter_subject: format!("{}>", self.prefix),
            inactive_threshold: INACTIVE,
            memory_storage: true,
            num_replicas: 1,
            ..consumer::pull::Config::default()
        };
        let created = self.stream.create_consumer(config).await.map_err(failure)?;
        let is_current = created.cached_info().num_pending == 0;
        let consumer = NatsConsumer::new(&self.engine, created, CHANGES_MAX, BYTES, 0);
        Ok(NatsWatch {
            bucket: self.clone(),
            is_current,
            is_told: false,
            begin: info.state.last_sequence,
            consumer: consumer.await?,
            broken,
            checked: Instant::now(),
        })
    }
}

async fn receipt(
    acknowledged: PublishAckFuture,
    mut broken: watch::Receiver<()>,
    context: String,
) -> Result<u64, Failure> {
    tokio::select! {
        // An acknowledgement that has arrived counts, also if the connection has broken since.
        biased;
        acknowledged = acknowledged.into_future() => match acknowledged {
            Ok(acknowledgement) => Ok(acknowledgement.sequence),
            Err(error) => Err(put_failure(&context, error)),
        },
        // The acknowledgement was sent on this connection, if at all.
        _ = broken.changed() => Err(missed(&context)),
    }
}

fn put_failure(context: &str, error: PublishError) -> Failure {
    // Servers of a cluster answer with another code while the change before is on its way.
    let is_conflict = error.kind() == PublishErrorKind::WrongLastSequence
        || chain(&error).contains("wrong last sequence");
    if is_conflict {
        return Failure {
            kind: FailureKind::Conflict,
            text: format!("{context}: it has another revision"),
        };
    }
    // An answer of the server, and no timeout.
    let is_refused = error
        .source()
        .is_some_and(|source| source.is::<jetstream::Error>());
    let mut failure = stored_failure(context, error);
    if is_refused && failure.kind == FailureKind::Temporary {
        failure.kind = FailureKind::Refused;
    }
    match failure.text.starts_with(context) {
        true => failure,
        false => Failure {
            text: format!("{context}: {}", failure.text),
            ..failure
        },
    }
}

/// A consumer of the stream, which the server forgets when it restarts. It ends when the connection breaks.
pub struct NatsWatch {
    bucket: NatsBucket,
    consumer: NatsConsumer,
    /// The last change before the watch.
    begin: u64,
    /// The state at the beginning was returned.
    is_current: bool,
    is_told: bool,
    broken: watch::Receiver<()>,
    /// When the bucket was last compared with the one that was opened.
    checked: Instant,
}

impl Watch for NatsWatch {
    async fn next(&mut self) -> Result<Update, Failure> {
        loop {
            if self.is_current && !self.is_told {
                self.is_told = true;
                return Ok(Update::Current);
            }
            let delivery = tokio::select! {
                delivery = self.consumer.delivery() => delivery?,
                _ = self.broken.changed() => return Err(Failure::temporary("the connection is broken")),
            };
            match delivery {
                Some(message) => {
                    let context = self.bucket.engine.context.clone();
                    let message = jetstream::Message { message, context };
                    return self.item(&message).map(Update::Item);
                }
                None => self.check().await?,
            }
        }
    }

    async fn broken(&mut self) -> Failure {
        loop {
            tokio::select! {
                _ = self.broken.changed() => return Failure::temporary("the connection is broken"),
                () = sleep_until(self.checked + WAIT) => {
                    // First, because events of the map end this future.
                    self.checked = Instant::now();
                    if let Err(failure) = self.check_created().await {
                        return failure;
                    }
                }
            }
        }
    }
}

impl NatsWatch {
    fn item(&mut self, message: &jetstream::Message) -> Result<Item, Failure> {
        let info = message.info().map_err(other)?;
        self.is_current |= info.pending == 0 || info.stream_sequence >= self.begin;
        self.bucket.item(Found {
            subject: &message.subject,
            revision: info.stream_sequence,
            headers: message.headers.as_ref(),
            time: info.published.into(),
            value: message.payload.clone(),
        })
    }

    /// Without messages: whether the server still has the consumer, whether the client has dropped what it has delivered, and whether
    /// what was to come has expired.
    async fn check(&mut self) -> Result<(), Failure> {
        let info = self.consumer.consumer.get_info().await;
        let info = info.map_err(|error| {
            Failure::temporary(format!("the watch has ended: {}", chain(&error)))
        })?;
        if info.delivered.consumer_sequence != self.consumer.delivered {
            return Err(Failure::temporary("changes were lost on the way"));
        }
        self.is_current |= info.num_pending == 0;
        Ok(())
    }

    /// The stream may have been deleted and created again while the connection lasts.
    async fn check_created(&self) -> Result<(), Failure> {
        let stream = &self.bucket.stream;
        let info = stream.get_info().await.map_err(failure)?;
        match info.created == stream.cached_info().created {
            true => Ok(()),
            false => Err(Failure::temporary("the bucket was created again")),
        }
    }
}
