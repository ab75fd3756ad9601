// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine NATS. Nothing else knows its client.

mod bucket;
mod pull;
mod time_to_live;

use std::error::Error as StdError;
use std::fs;
use std::future::{IntoFuture as _, ready};
use std::path::Path;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::{ContextBuilder, ErrorCode, consumer, message::PublishMessage};
use async_nats::{
    Client, ConnectOptions, Event, HeaderMap, HeaderName, HeaderValue, Request, RequestError,
    RequestErrorKind, ServerAddr, jetstream,
};
use futures_util::StreamExt as _;
use nkeys::KeyPair;
use tokio::sync::watch;
use tokio::time::sleep;

use self::bucket::NatsBucket;
use self::pull::NatsConsumer;
use super::bucket::BucketOptions;
use super::{
    ACKNOWLEDGE_WITHIN, ConsumerOptions, ERROR, ERROR_CODE, Engine, Failure, FailureKind, Message,
    Stored, Subscription, UNAVAILABLE,
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
    /// Changes when a connection breaks.
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
        read_pem(path)?;
        options = options.add_root_certificates(path.clone());
    }
    if let (Some(certificate), Some(key)) = (&server.certificate, &server.key) {
        read_pem(certificate)?;
        read_pem(key)?;
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    if let Some(path) = &server.credentials {
        let invalid = || {
            let path = path.display();
            format!("{path} has no credentials; give a file of 'nsc generate creds'")
        };
        options = options.credentials(&read(path)?).with_context(invalid)?;
    }
    if let Some(path) = &server.nkey {
        let seed = read(path)?.trim().to_owned();
        KeyPair::from_seed(&seed).with_context(|| {
            let path = path.display();
            format!("{path} has no seed; give a file with what 'nk -gen user' prints")
        })?;
        options = options.nkey(seed);
    }
    if let (Some(user), Some(path)) = (&server.user, &server.password) {
        options = options.user_and_password(user.clone(), read(path)?.trim().to_owned());
    }
    Ok(options)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {}; give the bridge access to it",
            path.display()
        )
    })
}

/// The client reads the file at each connection; this finds its errors at the start.
fn read_pem(path: &Path) -> Result<()> {
    ensure!(
        read(path)?.contains("-----BEGIN "),
        "{} has nothing in the format PEM; give such a file",
        path.display()
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

type Receipt = Pin<Box<dyn Future<Output = Result<(), Failure>>>>;

impl Engine for NatsEngine {
    type Receipt = Receipt;
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

    async fn publish(
        &self,
        message: Message,
        stored: Option<Stored<'_>>,
    ) -> Result<Receipt, Failure> {
        let subject = message.subject;
        let headers = header_map(&message.headers)?;
        let Some(stored) = stored else {
            let publish = self
                .client
                .publish_with_headers(subject, headers, message.body);
            publish.await.map_err(publish_failure)?;
            let client = self.client.clone();
            return Ok(Box::pin(
                async move { client.flush().await.map_err(failure) },
            ));
        };
        let mut publish = PublishMessage::build()
            .payload(message.body)
            .headers(headers)
            .message_id(stored.id);
        if !stored.is_known {
            publish = publish.expected_stream(stored.stream);
        }
        let stream = stored.stream.to_owned();
        let context = format!("subject {subject}, stream {}", stored.stream);
        let acknowledged = self.context.send_publish(subject, publish).await;
        let acknowledged = acknowledged.map_err(|error| stored_failure(&context, error))?;
        let mut broken = self.broken.clone();
        broken.mark_unchanged();
        Ok(Box::pin(async move {
            tokio::select! {
                // An acknowledgement that has arrived counts, also if the connection has broken since.
                biased;
                acknowledged = acknowledged.into_future() => match acknowledged {
                    Ok(stored) if stored.stream == stream => Ok(()),
                    Ok(stored) => Err(Failure::temporary(format!(
                        "{context}: the stream {} has stored it; check the subjects of both",
                        stored.stream
                    ))),
                    Err(error) => Err(stored_failure(&context, error)),
                },
                // The acknowledgement was sent on this connection, if at all.
                _ = broken.changed() => Err(missed(&context)),
            }
        }))
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
        let reply = received(&reply);
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
            Some(message) => Ok(received(&message)),
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

/// With the headers that the bridge reads.
fn received(message: &async_nats::Message) -> Message {
    let mut headers = Vec::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        let name: &str = name.as_ref();
        let is_read = |read: &&str| read.eq_ignore_ascii_case(name);
        if [SENDER, ERROR, ERROR_CODE].iter().any(is_read) {
            headers.extend(
                values
                    .iter()
                    .map(|value| (name.to_owned(), value.to_string())),
            );
        }
    }
    Message {
        subject: message.subject.to_string(),
        headers,
        body: message.payload.clone(),
        reply_to: message.reply.as_ref().map(ToString::to_string),
    }
}

fn header_map(headers: &[(String, String)]) -> Result<HeaderMap, Failure> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let invalid = || Failure::temporary(format!("'{value}' is no value of the header {name}"));
        let name: HeaderName = name.parse().map_err(|_| invalid())?;
        let value: HeaderValue = value.parse().map_err(|_| invalid())?;
        map.append(name, value);
    }
    Ok(map)
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
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => too_long(&error),
        _ if exceeds_stream(&error) => Failure {
            kind: FailureKind::TooLong,
            text: format!(
                "{context}: {}; raise max_msg_size of the stream",
                chain(&error)
            ),
        },
        PublishErrorKind::StreamNotFound => Failure::temporary(format!(
            "{context}: no stream stores this subject; create one, or change the subject"
        )),
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => missed(context),
        _ => Failure::temporary(format!("{context}: {}; check the stream", chain(&error))),
    }
}

/// Another attempt would fail, too.
fn exceeds_stream(error: &PublishError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref());
    let code = source.map(|source: &jetstream::Error| source.error_code());
    matches!(
        code,
        Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM)
    )
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
        let header = |value: &str| header_map(&[("Sluice-Sender".to_owned(), value.to_owned())]);
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
