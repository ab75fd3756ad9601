// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine NATS with a real server; tests/bridge runs this.

mod support;

use std::time::Duration;

use async_nats::jetstream::{self, stream};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _};
use sluice_bridge::config::Config;
use sluice_bridge::engine::nats::NatsEngine;
use sluice_bridge::engine::{
    ConsumerOptions, Engine, FailureKind, Message, Publisher as _, Stored, Subscription as _,
};
use tokio::time::{Instant, sleep, timeout};

use support::{LIMIT, Server, create_stream, publish_malformed, runtime};

type Consumer = <NatsEngine as Engine>::Consumer;
type Publisher = <NatsEngine as Engine>::Publisher;

/// The value of the header.
const SENDER: &str = "bus=größe";

struct Fixture {
    server: Server,
    engine: NatsEngine,
    stream: stream::Stream,
}

impl Fixture {
    async fn start(name: &str) -> Self {
        let server = Server::start(name);
        let engine = connect(&server).await;
        let (stream, _) = create_stream(&server).await;
        Self {
            server,
            engine,
            stream,
        }
    }

    async fn messages(&self) -> u64 {
        self.stream.get_info().await.unwrap().state.messages
    }

    async fn store(&self, id: &str, body: &'static str) {
        let receipt = self
            .publisher()
            .publish(SENDER, body.into(), stored(id))
            .await;
        within(receipt.unwrap()).await.unwrap();
    }

    fn publisher(&self) -> Publisher {
        self.engine.publisher("orders.new", Some("ORDERS"))
    }

    async fn consume(&self) -> Consumer {
        self.consume_at_most(2, 1 << 20).await
    }

    async fn consume_at_most(&self, messages: u32, bytes: u64) -> Consumer {
        let options = ConsumerOptions {
            stream: "ORDERS",
            name: "sluice-a=orders".to_owned(),
            subject: "orders.*",
            messages,
            bytes,
        };
        // As the bridge does while the client connects again.
        within(async {
            loop {
                match self.engine.consume(options.clone()).await {
                    Ok(consumer) => return consumer,
                    Err(failure) => eprintln!("{failure:?}"),
                }
                sleep(Duration::from_millis(100)).await;
            }
        })
        .await
    }
}

async fn connect(server: &Server) -> NatsEngine {
    let file = server.directory().join("bridge.toml");
    let text = format!("id = \"a\"\nserver = {{ urls = [\"{}\"] }}\n", server.url());
    std::fs::write(&file, text).unwrap();
    let config = Config::read(&file).unwrap();
    NatsEngine::connect(&config.server, "a", 16).await.unwrap()
}

fn message(subject: &str, body: &'static str) -> Message {
    Message {
        subject: subject.to_owned(),
        headers: vec![("Sluice-Sender", SENDER.to_owned())],
        body: Bytes::from_static(body.as_bytes()),
        reply_to: None,
    }
}

fn stored(id: &str) -> Stored {
    Stored {
        id: id.to_owned(),
        is_stream_known: false,
    }
}

/// What `engine` has sent before is in force at the server, which answers in the order of a connection. A flush of the client only writes.
async fn settle(engine: &NatsEngine) {
    within(engine.connected()).await;
    let request = engine.request(message("nobody", ""), LIMIT);
    let failure = within(request).await.unwrap_err();
    assert_eq!(failure.kind, FailureKind::NoResponder, "{failure:?}");
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future)
        .await
        .expect("the server answers in time")
}

#[test]
fn a_message_with_the_same_id_is_stored_once() {
    runtime().block_on(async {
        let fixture = Fixture::start("once").await;
        for _ in 0..2 {
            fixture.store("a-1-0", "one").await;
        }
        fixture.store("a-1-1", "two").await;
        assert_eq!(fixture.messages().await, 2);
        let first = fixture.stream.get_raw_message(1).await.unwrap();
        assert_eq!(first.payload, "one");
        let sender = first.headers.get("Sluice-Sender").unwrap();
        assert_eq!(sender.as_str(), "bus=größe");
    });
}

#[test]
fn a_message_of_no_stream_or_another_is_refused() {
    runtime().block_on(async {
        let fixture = Fixture::start("refused").await;
        for (subject, stream, is_known, words) in [
            ("prices", "ORDERS", false, "no stream stores"),
            ("orders.new", "PRICES", false, "PRICES"),
            ("orders.new", "PRICES", true, "ORDERS has stored it"),
        ] {
            let stored = Stored {
                id: "1".to_owned(),
                is_stream_known: is_known,
            };
            let mut publisher = fixture.engine.publisher(subject, Some(stream));
            let receipt = publisher.publish(SENDER, "a".into(), stored).await;
            let failure = within(receipt.unwrap()).await.unwrap_err();
            assert!(failure.text.contains(words), "{failure:?}");
            assert_eq!(failure.kind, FailureKind::Temporary);
            assert_eq!(fixture.messages().await, u64::from(is_known));
        }
    });
}

#[test]
fn a_long_message_is_refused_and_its_length_told() {
    runtime().block_on(async {
        let fixture = Fixture::start("long").await;
        fixture.store("1", "connected").await;
        assert_eq!(fixture.engine.message_max(), Some(65536));
        for stream in [None, Some("ORDERS")] {
            let mut publisher = fixture.engine.publisher("orders.new", stream);
            let long = vec![0; 65536].into();
            let receipt = publisher.publish(SENDER, long, stored("2")).await;
            let failure = receipt.err().unwrap();
            assert_eq!(failure.kind, FailureKind::TooLong, "{failure:?}");
            assert!(failure.text.contains("max_payload"), "{failure:?}");
        }
    });
}

#[test]
fn a_message_that_exceeds_the_limit_of_the_stream_is_too_long() {
    runtime().block_on(async {
        let fixture = Fixture::start("limit").await;
        let config = stream::Config {
            max_message_size: 100,
            ..fixture.stream.get_info().await.unwrap().config
        };
        let client = async_nats::connect(fixture.server.url()).await.unwrap();
        jetstream::new(client).update_stream(config).await.unwrap();
        let long = vec![b'x'; 101].into();
        let mut publisher = fixture.publisher();
        let receipt = publisher.publish(SENDER, long, stored("1")).await;
        let failure = within(receipt.unwrap()).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLong, "{failure:?}");
        assert!(failure.text.contains("max_msg_size"), "{failure:?}");
    });
}

#[test]
fn an_acknowledgement_is_missed_while_the_server_is_gone() {
    runtime().block_on(async {
        let mut fixture = Fixture::start("gone").await;
        fixture.store("1", "one").await;
        fixture.server.kill();
        let mut publisher = fixture.publisher();
        let receipt = publisher.publish(SENDER, "two".into(), stored("2")).await;
        let failure = within(receipt.unwrap()).await.unwrap_err();
        assert!(failure.text.contains("no acknowledgement"), "{failure:?}");
        fixture.server.restart();
        fixture.store("2", "two").await;
        assert_eq!(fixture.messages().await, 2);
    });
}

#[test]
fn each_message_has_its_own_acknowledgement() {
    runtime().block_on(async {
        let fixture = Fixture::start("own").await;
        let mut publisher = fixture.publisher();
        let mut receipts = Vec::new();
        for id in 0..5 {
            let receipt = publisher.publish(SENDER, "a".into(), stored(&id.to_string()));
            receipts.push(receipt.await.unwrap());
        }
        // A receipt that is dropped does not affect the others, in any order.
        for index in [4, 0, 1] {
            drop(receipts.remove(index));
        }
        for receipt in receipts.into_iter().rev() {
            within(receipt).await.unwrap();
        }
        assert_eq!(fixture.messages().await, 5);
        fixture.store("5", "b").await;
    });
}

#[test]
fn an_acknowledgement_that_does_not_come_is_missed_in_time() {
    runtime().block_on(async {
        let fixture = Fixture::start("late").await;
        let client = async_nats::connect(fixture.server.url()).await.unwrap();
        // With a subscriber, the server does not report that no stream stores the message.
        let _receiver = client.subscribe("prices.>").await.unwrap();
        client.request("nobody", Bytes::new()).await.unwrap_err();
        let mut publisher = fixture.engine.publisher("prices.a", Some("ORDERS"));
        let begun = Instant::now();
        let receipt = publisher.publish(SENDER, "a".into(), stored("1")).await;
        let failure = within(receipt.unwrap()).await.unwrap_err();
        assert!(failure.text.contains("no acknowledgement"), "{failure:?}");
        assert!(begun.elapsed() >= Duration::from_secs(5));
    });
}

#[test]
fn a_consumer_goes_on_where_it_was_acknowledged() {
    runtime().block_on(async {
        let fixture = Fixture::start("consumer").await;
        for (id, body) in [("1", "one"), ("2", "two"), ("3", "three")] {
            fixture.store(id, body).await;
        }
        let mut consumer = fixture.consume().await;
        let one = within(consumer.next()).await.unwrap();
        assert_eq!(
            (one.subject.as_str(), &one.body[..]),
            ("orders.new", &b"one"[..])
        );
        assert!(one.values("sluice-sender").eq(["bus=größe"]));
        consumer.acknowledge().await.unwrap();
        let two = within(consumer.next()).await.unwrap();
        assert_eq!(two.body, "two");
        consumer.extend().await.unwrap();
        consumer.acknowledge().await.unwrap();
        // The server has the acknowledgements before what follows on the same connection.
        fixture.store("4", "four").await;
        drop(consumer);
        let mut consumer = fixture.consume().await;
        for body in ["three", "four"] {
            assert_eq!(within(consumer.next()).await.unwrap().body, body);
            consumer.acknowledge().await.unwrap();
        }
    });
}

#[test]
fn what_was_not_acknowledged_comes_again_before_others() {
    runtime().block_on(async {
        let mut fixture = Fixture::start("again").await;
        for (id, body) in [("1", "one"), ("2", "two"), ("3", "three"), ("4", "four")] {
            fixture.store(id, body).await;
        }
        let mut consumer = fixture.consume().await;
        assert_eq!(within(consumer.next()).await.unwrap().body, "one");
        consumer.acknowledge().await.unwrap();
        // The second message was delivered with the first one.
        drop(consumer);
        let mut consumer = fixture.consume().await;
        assert_eq!(within(consumer.next()).await.unwrap().body, "two");
        // Two deliveries for another process, which this consumer does not see.
        let mut other = fixture.consume().await;
        within(other.next()).await.unwrap();
        drop(other);
        fixture.server.kill();
        fixture.server.restart();
        let mut received = Vec::new();
        let mut consumer = fixture.consume().await;
        while received.len() < 3 {
            received.push(within(consumer.next()).await.unwrap().body);
            consumer.acknowledge().await.unwrap();
        }
        assert_eq!(received, ["two", "three", "four"]);
    });
}

#[test]
fn a_batch_ends_before_its_bytes_are_exceeded() {
    runtime().block_on(async {
        let fixture = Fixture::start("bytes").await;
        let body: &'static str = "x".repeat(40_000).leak();
        for id in ["1", "2", "3"] {
            fixture.store(id, body).await;
        }
        let mut consumer = fixture.consume_at_most(16, 64 << 10).await;
        for _ in 0..3 {
            assert_eq!(within(consumer.next()).await.unwrap().body.len(), 40_000);
            consumer.acknowledge().await.unwrap();
        }
        drop(consumer);
        fixture.store("4", body).await;
        let mut consumer = fixture.consume_at_most(16, 1000).await;
        // A longer one comes alone.
        fixture.store("5", body).await;
        for _ in 0..2 {
            assert_eq!(within(consumer.next()).await.unwrap().body.len(), 40_000);
            consumer.acknowledge().await.unwrap();
        }
    });
}

#[test]
fn a_batch_outlives_a_slow_bus() {
    runtime().block_on(async {
        let fixture = Fixture::start("slow").await;
        for (id, body) in [("1", "one"), ("2", "two"), ("3", "three")] {
            fixture.store(id, body).await;
        }
        let mut consumer = fixture.consume_at_most(4, 1 << 20).await;
        assert_eq!(within(consumer.next()).await.unwrap().body, "one");
        consumer.acknowledge().await.unwrap();
        sleep(Duration::from_millis(200)).await;
        assert_eq!(within(consumer.next()).await.unwrap().body, "two");
        // The client drops the batch after 10 s.
        sleep(Duration::from_secs(11)).await;
        consumer.acknowledge().await.unwrap();
        assert_eq!(within(consumer.next()).await.unwrap().body, "three");
    });
}

#[test]
fn core_messages_arrive_without_a_stream() {
    runtime().block_on(async {
        let fixture = Fixture::start("core").await;
        let mut subscription = fixture.engine.subscribe("prices.>").await.unwrap();
        settle(&fixture.engine).await;
        let other = connect(&fixture.server).await;
        // A client is not sent what it has published itself.
        for (engine, body) in [(&fixture.engine, "0"), (&other, "17")] {
            within(engine.connected()).await;
            let mut publisher = engine.publisher("prices.a", None);
            let receipt = publisher.publish(SENDER, body.into(), stored("1")).await;
            within(receipt.unwrap()).await.unwrap();
        }
        let received = within(subscription.next()).await.unwrap();
        assert_eq!(
            (received.subject.as_str(), &received.body[..]),
            ("prices.a", &b"17"[..])
        );
        let more = timeout(Duration::from_millis(100), subscription.next()).await;
        assert!(more.is_err());
    });
}

#[test]
fn a_request_has_the_reply_of_one_of_those_that_share_the_subject() {
    runtime().block_on(async {
        let fixture = Fixture::start("requests").await;
        let others = [
            connect(&fixture.server).await,
            connect(&fixture.server).await,
        ];
        let mut shared = Vec::new();
        for engine in others.iter().chain([&fixture.engine]) {
            shared.push(engine.share("sums").await.unwrap());
            settle(engine).await;
        }
        let [first, second, own] = &mut shared[..] else {
            unreachable!();
        };
        for _ in 0..20 {
            let answer = async {
                let (request, engine) = tokio::select! {
                    request = first.next() => (request.unwrap(), &others[0]),
                    request = second.next() => (request.unwrap(), &others[1]),
                    _ = own.next() => panic!("a request comes back"),
                };
                assert_eq!(
                    (&request.body[..], request.subject),
                    (&b"1 + 1"[..], "sums".to_owned())
                );
                let reply = message(&request.reply_to.unwrap(), "2");
                engine.publish(reply).await
            };
            let request = fixture.engine.request(message("sums", "1 + 1"), LIMIT);
            let (reply, answered) = within(async { tokio::join!(request, answer) }).await;
            answered.unwrap();
            assert_eq!(reply.unwrap().body, "2");
        }
    });
}

#[test]
fn a_request_without_a_reply_says_why() {
    runtime().block_on(async {
        let fixture = Fixture::start("no-reply").await;
        let client = async_nats::connect(fixture.server.url()).await.unwrap();
        within(fixture.engine.connected()).await;
        let request = |limit| fixture.engine.request(message("sums", "1 + 1"), limit);
        let failure = within(request(LIMIT)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoResponder, "{failure:?}");
        let mut service = client.subscribe("sums").await.unwrap();
        // As settle() does.
        client.request("nobody", Bytes::new()).await.unwrap_err();
        let failure = within(request(Duration::from_millis(200)))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Temporary);
        assert!(
            failure.text.contains("no reply of sums in time"),
            "{failure:?}"
        );
        // The first request is still there.
        within(service.next()).await.unwrap();
        let answer = async {
            let request = service.next().await.unwrap();
            let mut headers = async_nats::HeaderMap::new();
            headers.insert("Nats-Service-Error", "no such sum");
            let reply = client.publish_with_headers(request.reply.unwrap(), headers, Bytes::new());
            reply.await.unwrap();
        };
        let (failure, ()) = within(async { tokio::join!(request(LIMIT), answer) }).await;
        let failure = failure.unwrap_err();
        assert!(failure.text.contains("no such sum"), "{failure:?}");
        let long = Message {
            body: vec![0; 65536].into(),
            ..message("sums", "")
        };
        let failure = within(fixture.engine.request(long, LIMIT))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLong, "{failure:?}");
    });
}

#[test]
fn a_malformed_header_is_told_as_a_failure() {
    runtime().block_on(async {
        let fixture = Fixture::start("malformed").await;
        let _subscription = within(fixture.engine.subscribe("prices")).await.unwrap();
        settle(&fixture.engine).await;
        assert!(fixture.engine.failed().now_or_never().is_none());
        publish_malformed(&fixture.server, "prices");
        within(fixture.engine.failed()).await;
    });
}
