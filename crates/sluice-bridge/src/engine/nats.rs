// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine NATS. Nothing else knows its client.

mod acknowledgements;
mod bucket;
mod publisher;
mod pull;
mod time_to_live;

use std::error::Error as StdError;
use std::fs;
use std::future::ready;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{ContextBuilder, ErrorCode, consumer};
use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, HeaderName, HeaderValue, Request, RequestError,
    RequestErrorKind, ServerAddr, Subject, jetstream,
};
use futures_util::StreamExt as _;
use nkeys::KeyPair;
use tokio::sync::watch;
use tokio::time::sleep;

use self::bucket::NatsBucket;
use self::publisher::NatsPublisher;
use self::pull::NatsConsumer;
use super::bucket::BucketOptions;
use super::{
    ACKNOWLEDGE_WITHIN, ConsumerOptions, ERROR, ERROR_CODE, Engine, Failure, FailureKind, Message,
    Subscription, UNAVAILABLE,
};
use crate::config::Server;
use crate::counters::Counter;
use crate::headers::SENDER;
use crate::log;

/// An acknowledgement that takes longer is taken for lost, and the message is published again.
const ACKNOWLEDGEMENT: Duration = Duration::from_secs(5);
/// Between looks at the state of the connection.
const POLL: Duration = Duration::from_millis(50);
/// Between attempts to connect: doubled from the first up to the last.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// More than the rules have in flight, so that the client does not bound them once more.
const ACKNOWLEDGEMENTS_MAX: usize = 1 << 20;
/// The queue group of bridges that share a subject.
const GROUP: &str = "sluice-bridge";

#[derive(Clone)]
pub struct NatsEngine {
    client: Client,
    context: jetstream::Context,
    /// Changes when a connection breaks, and closed when the client has ended.
    broken: watch::Receiver<()>,
}

impl NatsEngine {
    /// Whether the files that the configuration names can be used.
    pub fn check(server: &Server) -> Result<()> {
        authenticated(server).map(drop)
    }

    /// Returns at once, and connects in the background. `capacity`: messages of a subscription that wait in this process.
    pub async fn connect(server: &Server, name: &str, capacity: usize) -> Result<Self> {
        let (breaks, broken) = watch::channel(());
        let events = Mutex::new(Events::default());
        let options = authenticated(server)?
            .name(format!("sluice-bridge {name}"))
            .subscription_capacity(capacity)
            // The configuration has checked the subjects of rules, and the server the others.
            .skip_subject_validation(true)
            // A request of this host goes to another bridge of the group.
            .no_echo()
            .retry_on_initial_connect()
            .max_reconnects(None)
            .reconnect_delay_callback(delay)
            .event_callback(move |event| {
                events
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .note(&event);
                if matches!(event, Event::Disconnected) {
                    breaks.send_replace(());
                }
                ready(())
            });
        let urls: Vec<&str> = server.urls.get_ref().iter().map(String::as_str).collect();
        let client = options.connect(&urls[..]).await.with_context(|| {
            format!("cannot use the servers {urls:?}; check them and the files of [server]")
        })?;
        let context = ContextBuilder::new()
            .timeout(ACKNOWLEDGEMENT)
            .max_ack_inflight(ACKNOWLEDGEMENTS_MAX)
            .build(client.clone());
        Ok(Self {
            client,
            context,
            broken,
        })
    }
}

/// Whether the client takes this URL for a server.
pub fn is_server(url: &str) -> bool {
    url.parse::<ServerAddr>().is_ok()
}

fn authenticated(server: &Server) -> Result<ConnectOptions> {
    let mut options = ConnectOptions::new().require_tls(server.uses_tls());
    if let Some(path) = &server.ca {
        read_pem("ca", path)?;
        options = options.add_root_certificates(path.clone());
    }
    if let (Some(certificate), Some(key)) = (&server.certificate, &server.key) {
        read_pem("certificate", certificate)?;
        read_pem("key", key)?;
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    if let Some(path) = &server.credentials {
        let credentials = options.credentials(&read("credentials", path)?);
        options = credentials.context(
            "the file of server.credentials has none; give a file of 'nsc generate creds'",
        )?;
    }
    if let Some(path) = &server.nkey {
        let seed = read("nkey", path)?.trim().to_owned();
        KeyPair::from_seed(&seed).context(
            "the file of server.nkey has no seed; give a file with what 'nk -gen user' prints",
        )?;
        options = options.nkey(seed);
    }
    if let (Some(user), Some(path)) = (&server.user, &server.password) {
        let password = read("password", path)?.trim().to_owned();
        options = options.user_and_password(user.clone(), password);
    }
    Ok(options)
}

/// An error names the key of the configuration and not the path, in whose place somebody may have written the secret.
fn read(key: &str, path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read the file of server.{key}; write its path, and give the bridge access to it"
        )
    })
}

/// The client reads the file at each connection; this finds its errors at the start.
fn read_pem(key: &str, path: &Path) -> Result<()> {
    ensure!(
        read(key, path)?.contains("-----BEGIN "),
        "the file of server.{key} has nothing in the format PEM; give such a file"
    );
    Ok(())
}

fn delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts)
        .unwrap_or(u32::MAX)
        .saturating_sub(1)
        .min(16);
    RECONNECT.1.min(RECONNECT.0 * 2_u32.pow(doublings))
}

/// What others can cause as often as they like is logged rarely.
#[derive(Default)]
struct Events {
    lost: Counter,
    server_errors: Counter,
    client_errors: Counter,
}

impl Events {
    fn note(&self, event: &Event) {
        match event {
            // The delay between attempts bounds these.
            Event::Connected => log::line(format_args!("connected to the server")),
            Event::Disconnected => log::line(format_args!("the server is gone; connecting again")),
            Event::SlowConsumer(_) => self.lost.report(1, |new| format!(
                "{new} messages of subjects were lost, because a bus does not accept messages as fast; use a stream"
            )),
            Event::ServerError(error) => self.server_errors.report(1, |new| format!("the server reports: {error} ({new} errors)")),
            Event::ClientError(error) => self.client_errors.report(1, |new| format!("the client reports: {error} ({new} errors)")),
            _ => {}
        }
    }
}

impl NatsEngine {
    /// Messages that were delivered and not acknowledged come again before others, and at once. Returns the number of deliveries so far.
    async fn deliver_again(&self, consumer: &mut consumer::PullConsumer) -> Result<u64, Failure> {
        let info = consumer.cached_info();
        if info.num_ack_pending == 0 {
            return Ok(info.delivered.consumer_sequence);
        }
        if !self.client.is_server_compatible(2, 14, 0) {
            let stream = &info.stream_name;
            log::line(format_args!(
                "stream {stream}: the server delivers again within {} s what was not acknowledged, after later messages; for the order of the stream use version 2.14 or newer",
                ACKNOWLEDGE_WITHIN.as_secs()
            ));
            return Ok(info.delivered.consumer_sequence);
        }
        let reset = consumer.reset(None).await.map_err(failure)?;
        Ok(reset.info.delivered.consumer_sequence)
    }
}

impl Engine for NatsEngine {
    type Publisher = NatsPublisher;
    type Subscription = NatsSubscription;
    type Consumer = NatsConsumer;
    type Bucket = NatsBucket;

    async fn connected(&self) {
        while !self.is_connected() {
            sleep(POLL).await;
        }
    }

    fn is_connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// The task of the client panics when it receives a header with a carriage return, for example.
    async fn failed(&self) {
        let mut broken = self.broken.clone();
        while broken.changed().await.is_ok() {}
    }

    async fn publish(&self, message: Message) -> Result<(), Failure> {
        let headers = header_map(&message.headers)?;
        let client = &self.client;
        let publish = client.publish_with_headers(message.subject, headers, message.body);
        publish.await.map_err(publish_failure)?;
        self.flush().await
    }

    async fn flush(&self) -> Result<(), Failure> {
        self.client.flush().await.map_err(failure)
    }

    fn publisher(&self, subject: &str, stream: Option<&str>) -> NatsPublisher {
        NatsPublisher::new(self.clone(), subject, stream)
    }

    async fn subscribe(&self, subject: &str) -> Result<NatsSubscription, Failure> {
        let subscription = self.client.subscribe(subject.to_owned()).await;
        Ok(NatsSubscription(subscription.map_err(failure)?))
    }

    async fn share(&self, subject: &str) -> Result<NatsSubscription, Failure> {
        let subscribe = self
            .client
            .queue_subscribe(subject.to_owned(), GROUP.to_owned());
        Ok(NatsSubscription(subscribe.await.map_err(failure)?))
    }

    /// Each request has a subscription of its own: with that of the client, one without reply would occupy memory for ever.
    async fn request(&self, message: Message, timeout: Duration) -> Result<Message, Failure> {
        let request = Request::new()
            .payload(message.body)
            .headers(header_map(&message.headers)?)
            .inbox(self.client.new_inbox())
            .timeout(Some(timeout));
        let subject = message.subject;
        let reply = self.client.send_request(subject.clone(), request).await;
        let reply = reply.map_err(|error| request_failure(&subject, &error))?;
        let (reply, _) = received(reply);
        let Some(text) = reply.values(ERROR).next() else {
            return Ok(reply);
        };
        let kind = match reply.values(ERROR_CODE).next() {
            Some(UNAVAILABLE) => FailureKind::NoResponder,
            _ => FailureKind::Temporary,
        };
        let text = format!("the service of {subject} replies: {text}");
        Err(Failure { kind, text })
    }

    async fn consume(&self, options: ConsumerOptions<'_>) -> Result<NatsConsumer, Failure> {
        let config = consumer::pull::Config {
            durable_name: Some(options.name.clone()),
            description: Some("sluice-bridge".to_owned()),
            // An acknowledgement is of all messages before, too.
            ack_policy: consumer::AckPolicy::All,
            ack_wait: ACKNOWLEDGE_WITHIN,
            filter_subject: options.subject.to_owned(),
            max_ack_pending: options.messages.into(),
            ..consumer::pull::Config::default()
        };
        let consumer = self
            .context
            .create_consumer_on_stream(config, options.stream);
        let mut consumer: consumer::PullConsumer = consumer.await.map_err(|error| {
            let text = format!(
                "stream {}: {}; create the stream, or check the permissions of the bridge",
                options.stream,
                chain(&error)
            );
            Failure::temporary(text)
        })?;
        let delivered = self.deliver_again(&mut consumer).await?;
        let bytes = usize::try_from(options.bytes).unwrap_or(usize::MAX);
        NatsConsumer::new(self, consumer, options.messages as usize, bytes, delivered).await
    }

    async fn bucket(&self, options: BucketOptions<'_>) -> Result<NatsBucket, Failure> {
        NatsBucket::open(self, options).await
    }

    fn message_max(&self) -> Option<usize> {
        self.client.try_server_info().map(|info| info.max_payload)
    }
}

pub struct NatsSubscription(async_nats::Subscriber);

impl Subscription for NatsSubscription {
    const KEEPS: bool = false;

    async fn next(&mut self) -> Result<Message, Failure> {
        match self.0.next().await {
            Some(message) => Ok(received_request(message)),
            None => Err(Failure::temporary("the subscription has ended")),
        }
    }

    async fn acknowledge(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn drain(&mut self) -> Result<(), Failure> {
        self.0.drain().await.map_err(failure)
    }

    async fn extend(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// With the headers that the bridge reads; and where the message is answered or acknowledged.
fn received(message: async_nats::Message) -> (Message, Option<Subject>) {
    let mut headers = Vec::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let read = [SENDER, ERROR, ERROR_CODE];
        let mut read = read.into_iter();
        if let Some(name) = read.find(|read| read.eq_ignore_ascii_case(name.as_ref())) {
            headers.extend(values.iter().map(|value| (name, value.as_str().to_owned())));
        }
    }
    let received = Message {
        subject: message.subject.as_str().to_owned(),
        headers,
        body: message.payload,
        reply_to: None,
    };
    (received, message.reply)
}

/// With the subject of the reply.
fn received_request(message: async_nats::Message) -> Message {
    let (message, reply) = received(message);
    Message {
        reply_to: reply.map(|reply| reply.as_str().to_owned()),
        ..message
    }
}

fn header_map(headers: &[(&'static str, String)]) -> Result<HeaderMap, Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), header_value(value)?);
    }
    Ok(map)
}

fn header_value(text: &str) -> Result<HeaderValue, Failure> {
    let invalid = |_| Failure::temporary(format!("'{text}' is no value of a header"));
    text.parse().map_err(invalid)
}

fn publish_failure(error: async_nats::PublishError) -> Failure {
    match error.kind() {
        async_nats::client::PublishErrorKind::MaxPayloadExceeded => too_long(&error),
        _ => failure(error),
    }
}

fn request_failure(subject: &str, error: &RequestError) -> Failure {
    match error.kind() {
        RequestErrorKind::NoResponders => Failure {
            kind: FailureKind::NoResponder,
            text: format!("nobody has subscribed to {subject}; start a service"),
        },
        RequestErrorKind::TimedOut => {
            Failure::temporary(format!("no reply of {subject} in time; check its service"))
        }
        RequestErrorKind::MaxPayloadExceeded => too_long(error),
        _ => Failure::temporary(format!("{subject}: {}", chain(error))),
    }
}

fn stored_failure(context: &str, error: PublishError) -> Failure {
    let source = error.source().and_then(|source| source.downcast_ref());
    let code = source.map(|source: &jetstream::Error| source.error_code());
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => too_long(&error),
        PublishErrorKind::StreamNotFound => no_stream(context),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => missed(context),
        _ => refused(context, code.unwrap_or_default(), &error),
    }
}

/// The stream does not store a message.
fn refused(context: &str, code: ErrorCode, error: &(dyn StdError + 'static)) -> Failure {
    let error = chain(error);
    match code {
        // Another attempt would fail, too.
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            Failure {
                kind: FailureKind::TooLong,
                text: format!("{context}: {error}; raise max_msg_size of the stream"),
            }
        }
        _ => Failure::temporary(format!("{context}: {error}; check the stream")),
    }
}

fn no_stream(context: &str) -> Failure {
    Failure::temporary(format!(
        "{context}: no stream stores this subject; create one, or change the subject"
    ))
}

fn missed(context: &str) -> Failure {
    Failure::temporary(format!("{context}: no acknowledgement; check the servers"))
}

fn too_long(error: &(dyn StdError + 'static)) -> Failure {
    Failure {
        kind: FailureKind::TooLong,
        text: format!("{}; raise max_payload of the server", chain(error)),
    }
}

fn failure(error: impl StdError + 'static) -> Failure {
    Failure::temporary(chain(&error))
}

fn other(error: async_nats::Error) -> Failure {
    Failure::temporary(error.to_string())
}

fn chain(error: &(dyn StdError + 'static)) -> String {
    sluice::explain(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_doubled_up_to_a_maximum() {
        assert_eq!(delay(1), Duration::from_millis(100));
        assert_eq!(delay(2), Duration::from_millis(200));
        assert_eq!(delay(8), Duration::from_secs(10));
        assert_eq!(delay(usize::MAX), Duration::from_secs(10));
    }

    #[test]
    fn what_others_cause_is_logged_rarely() {
        let events = Events::default();
        for id in 0..1000 {
            events.note(&Event::SlowConsumer(id));
            events.note(&Event::ServerError(async_nats::ServerError::Other(
                "x".into(),
            )));
        }
        for counter in [&events.lost, &events.server_errors] {
            assert_eq!((counter.get(), counter.told()), (1000, 1));
        }
    }

    #[test]
    fn headers_are_text() {
        let header = |value: &str| header_map(&[(SENDER, value.to_owned())]);
        assert_eq!(
            header("größe")
                .unwrap()
                .get("Sluice-Sender")
                .unwrap()
                .as_str(),
            "größe"
        );
        assert!(header("a\r\nb: c").is_err());
    }
}
