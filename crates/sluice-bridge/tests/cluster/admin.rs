// SPDX-License-Identifier: MIT OR Apache-2.0
//! The administrator of the servers: creates the stream, moves its leader, and reads all of it at the end.

use std::thread;
use std::time::Duration;

use async_nats::jetstream::{self, consumer, kv, stream};
use async_nats::{Client, ConnectOptions, HeaderMap};
use bytes::Bytes;
use futures_util::StreamExt as _;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::history::{Id, Origin, Stored};
use crate::maps::BUCKETS;
use crate::servers::{SERVERS, server_name};
use crate::support::{runtime, until};

pub const STREAM: &str = "ORDERS";
/// For an answer of the servers.
const ANSWER: Duration = Duration::from_secs(10);
/// Longer than the test, so that no message is stored twice for this reason.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(2 * 3600);

/// The lifetime of markers of expired entries, which rules of maps require.
const MARKER: Duration = Duration::from_secs(60);

pub struct Admin {
    runtime: Handle,
    client: Client,
    /// Of the account that the servers use themselves.
    system: Client,
    context: jetstream::Context,
}

impl Admin {
    pub fn connect(urls: &[String]) -> Self {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        // Connections answer the servers also while the test does something else.
        thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        let client = |user: &str| {
            let options = ConnectOptions::with_user_and_password(user.into(), user.into());
            let options = options.max_reconnects(None).retry_on_initial_connect();
            handle.block_on(options.connect(urls)).unwrap()
        };
        let (client, system) = (client("test"), client("sys"));
        let entered = handle.enter();
        let context = jetstream::new(client.clone());
        drop(entered);
        Self {
            runtime: handle,
            client,
            system,
            context,
        }
    }

    /// Waits until the servers have found each other.
    pub fn create_stream(&self) {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec!["orders.>".to_owned()],
            num_replicas: SERVERS,
            duplicate_window: DUPLICATE_WINDOW,
            ..stream::Config::default()
        };
        until("the servers create the stream", || {
            let created = self.context.create_stream(config.clone());
            let created = self.runtime.block_on(created);
            created
                .inspect_err(|_| thread::sleep(Duration::from_millis(500)))
                .is_ok()
        });
    }

    pub fn create_buckets(&self) {
        for bucket in BUCKETS {
            let config = || kv::Config {
                bucket: bucket.to_owned(),
                num_replicas: SERVERS,
                limit_markers: Some(MARKER),
                ..kv::Config::default()
            };
            until("the servers create the bucket", || {
                let created = self.context.create_key_value(config());
                self.runtime.block_on(created).is_ok()
            });
        }
    }

    fn ask(&self, client: &Client, subject: &str) -> Option<Value> {
        let request = client.request(subject.to_owned(), Bytes::new());
        let answer = self.runtime.block_on(async {
            // Without a server there is no answer.
            timeout(ANSWER, request).await.ok()?.ok()
        });
        serde_json::from_slice(&answer?.payload).ok()
    }

    pub fn stream_leader(&self) -> Option<usize> {
        let info = self.ask(&self.client, &format!("$JS.API.STREAM.INFO.{STREAM}"))?;
        index(&info["cluster"]["leader"])
    }

    pub fn meta_leader(&self) -> Option<usize> {
        let info = self.ask(&self.system, "$SYS.REQ.SERVER.PING.JSZ")?;
        index(&info["data"]["meta_cluster"]["leader"])
    }

    /// Whether a leader has resigned.
    pub fn move_stream(&self) -> bool {
        let subject = format!("$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}");
        is_success(self.ask(&self.client, &subject))
    }

    pub fn move_consumer(&self, consumer: &str) -> bool {
        let subject = format!("$JS.API.CONSUMER.LEADER.STEPDOWN.{STREAM}.{consumer}");
        is_success(self.ask(&self.client, &subject))
    }

    pub fn move_meta(&self) -> bool {
        is_success(self.ask(&self.system, "$JS.API.META.LEADER.STEPDOWN"))
    }

    /// All messages of the stream, in its order.
    pub fn read_stream(&self) -> Vec<Stored> {
        let mut stored = Vec::new();
        let (mut failures, mut is_complete) = (0, false);
        while !is_complete {
            let len = stored.len();
            // Whatever fails, the next attempt begins where this one has ended.
            is_complete = self.runtime.block_on(async {
                let read = timeout(ANSWER, self.read_more(&mut stored)).await;
                read.ok().flatten().is_some()
            });
            failures += usize::from(stored.len() == len && !is_complete);
            assert!(failures < 20, "the stream cannot be read");
        }
        stored
    }

    /// Some: there is no more.
    async fn read_more(&self, stored: &mut Vec<Stored>) -> Option<()> {
        let stream = self.context.get_stream(STREAM).await.ok()?;
        let state = &stream.cached_info().state;
        assert_eq!(
            state.messages, state.last_sequence,
            "the stream has lost messages"
        );
        let config = consumer::pull::Config {
            ack_policy: consumer::AckPolicy::None,
            memory_storage: true,
            deliver_policy: consumer::DeliverPolicy::ByStartSequence {
                start_sequence: stored.len() as u64 + 1,
            },
            ..consumer::pull::Config::default()
        };
        let consumer = stream.create_consumer(config).await.ok()?;
        let batch = consumer.fetch().max_messages(1000).messages();
        let mut batch = batch.await.ok()?;
        while let Some(Ok(message)) = batch.next().await {
            let sequence = message.info().ok()?.stream_sequence;
            assert_eq!(sequence, stored.len() as u64 + 1);
            let headers = message.headers.as_ref();
            stored.push(read(headers.unwrap_or(&HeaderMap::new()), &message.payload));
        }
        (stored.len() as u64 == state.last_sequence).then_some(())
    }
}

/// As docs/nats.md describes the header.
fn read(headers: &HeaderMap, body: &[u8]) -> Stored {
    let sender = headers
        .get("Sluice-Sender")
        .map_or("", |value| value.as_str());
    let text = |name: &str| {
        let mut fields = sender.split(' ').filter_map(|field| field.split_once('='));
        let value = fields.find(|(field, _)| *field == name);
        value.map_or(String::new(), |(_, value)| value.to_owned())
    };
    let number = |name: &str| text(name).parse().unwrap_or(u32::MAX);
    Stored {
        id: Id::of(body),
        sequence: text("sequence").parse().unwrap_or(u64::MAX),
        origin: Origin {
            bus: text("bus"),
            uid: number("uid"),
            gid: number("gid"),
            pid: number("pid"),
            bridge: text("bridge"),
        },
    }
}

fn is_success(answer: Option<Value>) -> bool {
    answer.is_some_and(|answer| answer["success"] == true)
}

fn index(name: &Value) -> Option<usize> {
    (0..SERVERS).find(|index| name.as_str() == Some(&server_name(*index)))
}
