// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buckets of the engine NATS with a real server, which the client of NATS uses, too; tests/bridge runs this.

mod support;

use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::FutureExt as _;
use sluice_bridge::config::Config;
use sluice_bridge::engine::bucket::{
    Bucket, BucketOptions, CHANGES_MAX, Content, Item, Put, Update, Watch,
};
use sluice_bridge::engine::nats::NatsEngine;
use sluice_bridge::engine::{Engine, Failure, FailureKind};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

use support::{LIMIT, Server, create_bucket, create_stream, runtime};

type NatsBucket = <NatsEngine as Engine>::Bucket;

const MARKER: Option<Duration> = Some(Duration::from_secs(60));

struct Fixture {
    server: Server,
    engine: NatsEngine,
    store: kv::Store,
}

impl Fixture {
    async fn start(name: &str) -> Self {
        let server = Server::start(&format!("bucket-{name}"));
        let engine = connect(&server, &server.url()).await;
        let store = create_bucket(&server, "b", MARKER).await;
        Self {
            server,
            engine,
            store,
        }
    }

    async fn open(&self) -> NatsBucket {
        self.try_open("b").await.unwrap()
    }

    async fn try_open(&self, name: &str) -> Result<NatsBucket, Failure> {
        let options = BucketOptions {
            name,
            puts_time_to_live: true,
        };
        within(self.engine.bucket(options)).await
    }
}

async fn connect(server: &Server, url: &str) -> NatsEngine {
    let file = server.directory().join("bridge.toml");
    let text = format!("id = \"a\"\nserver = {{ urls = [\"{url}\"] }}\n");
    std::fs::write(&file, text).unwrap();
    let config = Config::read(&file).unwrap();
    let engine = NatsEngine::connect(&config.server, "a", CHANGES_MAX).await;
    let engine = engine.unwrap();
    within(engine.connected()).await;
    engine
}

/// The URL of a proxy of the server that reports another version.
async fn pretend_version(server: &Server, version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("nats://{}", listener.local_addr().unwrap());
    let real = server.url().replace("nats://", "");
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = BufReader::new(TcpStream::connect(&real).await.unwrap());
            let mut info = String::new();
            server.read_line(&mut info).await.unwrap();
            let (before, after) = info.split_once("\"version\":\"").unwrap();
            let (_, after) = after.split_once('"').unwrap();
            let info = format!("{before}\"version\":\"{version}\"{after}");
            client.write_all(info.as_bytes()).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    url
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future)
        .await
        .expect("the server answers in time")
}

fn put(key: &str, value: Option<&'static [u8]>) -> Put {
    Put {
        key: key.to_owned(),
        content: value.map(|value| Content {
            value: value.into(),
            time_to_live: None,
        }),
        expected: None,
        origin: None,
    }
}

async fn stored(bucket: &NatsBucket, put: Put) -> Result<u64, Failure> {
    within(within(bucket.put(put)).await?).await
}

async fn next(watch: &mut impl Watch) -> Item {
    match within(watch.next()).await.unwrap() {
        Update::Item(item) => item,
        Update::Current => panic!("the state at the beginning has ended"),
    }
}

async fn next_time_to_live(watch: &mut impl Watch) -> Duration {
    let item = next(watch).await;
    item.content.unwrap().time_to_live.unwrap()
}

fn value(item: &Item) -> Option<&[u8]> {
    item.content.as_ref().map(|content| &content.value[..])
}

#[test]
fn a_watch_returns_the_state_and_then_the_changes() {
    runtime().block_on(async {
        let fixture = Fixture::start("watch").await;
        let store = &fixture.store;
        for (key, value) in [("one", "1"), ("two", "2"), ("one", "3"), ("gone", "4")] {
            store.put(key, value.into()).await.unwrap();
        }
        store.delete("gone").await.unwrap();
        let bucket = fixture.open().await;
        let mut watch = bucket.watch().await.unwrap();
        for (key, expected, revision) in [
            ("two", Some("2"), 2),
            ("one", Some("3"), 3),
            ("gone", None, 5),
        ] {
            let item = next(&mut watch).await;
            assert_eq!((item.key.as_str(), item.revision), (key, revision));
            assert_eq!(value(&item), expected.map(str::as_bytes));
            assert_eq!(within(bucket.get(key)).await.unwrap(), Some(item));
        }
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
        store.put("a/b=.c", "5".into()).await.unwrap();
        store.purge("one").await.unwrap();
        assert_eq!(next(&mut watch).await.key, "a/b=.c");
        let item = next(&mut watch).await;
        assert_eq!(
            (item.key.as_str(), value(&item), item.revision),
            ("one", None, 7)
        );
        assert_eq!(within(bucket.get("none")).await.unwrap(), None);
        let more = timeout(Duration::from_millis(100), watch.next()).await;
        assert!(more.is_err());
    });
}

#[test]
fn the_state_of_an_empty_bucket_is_known_at_once() {
    runtime().block_on(async {
        let fixture = Fixture::start("empty").await;
        let mut watch = fixture.open().await.watch().await.unwrap();
        let first = timeout(Duration::from_secs(2), watch.next()).await;
        assert_eq!(first.unwrap().unwrap(), Update::Current);
    });
}

#[test]
fn other_clients_see_what_was_put() {
    runtime().block_on(async {
        let fixture = Fixture::start("put").await;
        let bucket = fixture.open().await;
        let mut origin = put("key", Some(b"1"));
        origin.origin = Some("mark".to_owned());
        assert_eq!(stored(&bucket, origin).await.unwrap(), 1);
        let item = within(bucket.get("key")).await.unwrap().unwrap();
        assert_eq!(item.origin.as_deref(), Some("mark"));
        assert_eq!(fixture.store.get("key").await.unwrap().unwrap(), "1");
        assert_eq!(stored(&bucket, put("key", None)).await.unwrap(), 2);
        assert_eq!(fixture.store.get("key").await.unwrap(), None);
        fixture.store.create("key", "2".into()).await.unwrap();
        assert_eq!(
            value(&within(bucket.get("key")).await.unwrap().unwrap()),
            Some(&b"2"[..])
        );
    });
}

#[test]
fn a_put_with_another_revision_is_a_conflict() {
    runtime().block_on(async {
        let fixture = Fixture::start("conflict").await;
        let bucket = fixture.open().await;
        let expecting = |value, revision| Put {
            expected: Some(revision),
            ..put("key", value)
        };
        assert_eq!(stored(&bucket, expecting(Some(b"1"), 0)).await.unwrap(), 1);
        for (value, revision) in [(Some(&b"2"[..]), 0), (None, 0), (None, 7)] {
            let failure = stored(&bucket, expecting(value, revision))
                .await
                .unwrap_err();
            assert_eq!(failure.kind, FailureKind::Conflict, "{failure:?}");
        }
        assert_eq!(stored(&bucket, expecting(Some(b"2"), 1)).await.unwrap(), 2);
        assert_eq!(stored(&bucket, expecting(None, 2)).await.unwrap(), 3);
        assert_eq!(stored(&bucket, expecting(Some(b"3"), 3)).await.unwrap(), 4);
    });
}

#[test]
fn a_value_with_a_time_to_live_expires() {
    runtime().block_on(async {
        let fixture = Fixture::start("time").await;
        let bucket = fixture.open().await;
        let mut watch = bucket.watch().await.unwrap();
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
        let lease = |milliseconds| Put {
            content: Some(Content {
                value: "1".into(),
                time_to_live: Some(Duration::from_millis(milliseconds)),
            }),
            ..put("lease", None)
        };
        // The change of a time to live is a put.
        for (milliseconds, seconds) in [(60_000, 60), (1500, 2)] {
            stored(&bucket, lease(milliseconds)).await.unwrap();
            let left = next_time_to_live(&mut watch).await;
            let limit = Duration::from_secs(seconds);
            assert!(
                left <= limit && left + Duration::from_secs(1) > limit,
                "{left:?}"
            );
        }
        let item = next(&mut watch).await;
        assert_eq!((item.key.as_str(), value(&item)), ("lease", None));
        let by_client = fixture
            .store
            .create_with_ttl("other", "1".into(), Duration::from_secs(30));
        by_client.await.unwrap();
        let left = next_time_to_live(&mut watch).await;
        assert!(left <= Duration::from_secs(30) && left > Duration::from_secs(25));
    });
}

#[test]
fn a_bucket_that_cannot_be_used_is_named_with_what_to_do() {
    runtime().block_on(async {
        let fixture = Fixture::start("unusable").await;
        create_bucket(&fixture.server, "timeless", None).await;
        let (_, context) = create_stream(&fixture.server).await;
        let other = async_nats::jetstream::stream::Config {
            name: "KV_other".to_owned(),
            subjects: vec!["other.>".to_owned()],
            ..Default::default()
        };
        context.create_stream(other).await.unwrap();
        for (name, words) in [
            ("none", "nats kv add none"),
            ("timeless", "--marker-ttl 1m', or write ttl = false"),
            ("other", "is no bucket"),
        ] {
            let failure = fixture.try_open(name).await.err().unwrap();
            assert!(failure.text.contains(words), "{failure:?}");
            assert!(
                failure.text.contains(&format!("bucket {name}")),
                "{failure:?}"
            );
        }
        let options = BucketOptions {
            name: "timeless",
            puts_time_to_live: false,
        };
        assert!(fixture.engine.bucket(options).await.is_ok());
    });
}

#[test]
fn times_to_live_need_a_server_that_has_them() {
    runtime().block_on(async {
        let fixture = Fixture::start("version").await;
        for (version, is_permitted) in [("2.10.29", false), ("2.11.0", true)] {
            let url = pretend_version(&fixture.server, version).await;
            let engine = connect(&fixture.server, &url).await;
            for puts_time_to_live in [true, false] {
                let options = BucketOptions {
                    name: "b",
                    puts_time_to_live,
                };
                let failure = within(engine.bucket(options)).await.err();
                let is_refused = failure.is_some_and(|failure| {
                    let words =
                        format!("the server has version {version}, and times to live need 2.11");
                    assert!(failure.text.contains(&words), "{failure:?}");
                    true
                });
                assert_eq!(is_refused, puts_time_to_live && !is_permitted, "{version}");
            }
        }
    });
}

#[test]
fn a_watch_ends_with_the_connection_whether_it_is_polled_or_not() {
    runtime().block_on(async {
        let mut fixture = Fixture::start("broken").await;
        let bucket = fixture.open().await;
        for is_polled in [true, false] {
            let mut watch = bucket.watch().await.unwrap();
            assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
            if is_polled {
                assert!(watch.next().now_or_never().is_none());
            }
            fixture.server.kill();
            fixture.server.restart();
            // Of those that poll, the connection; of the others the server has forgotten the watch.
            within(async {
                while fixture.engine.message_max().is_none() || !fixture.engine.is_connected() {
                    sleep(Duration::from_millis(10)).await
                }
            })
            .await;
            within(watch.next()).await.unwrap_err();
        }
        within(async {
            while bucket.watch().await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
    });
}

#[test]
fn a_watch_that_was_not_polled_loses_nothing() {
    runtime().block_on(async {
        let fixture = Fixture::start("unpolled").await;
        let bucket = fixture.open().await;
        let mut watch = bucket.watch().await.unwrap();
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
        let more = timeout(Duration::from_millis(200), watch.next()).await;
        assert!(more.is_err());
        stored(&bucket, put("key", Some(b"1"))).await.unwrap();
        // A batch of the client would drop after 10 s what it has received.
        sleep(Duration::from_secs(12)).await;
        assert_eq!(next(&mut watch).await.key, "key");
    });
}

/// Of a rule that only puts.
#[test]
fn a_break_and_another_bucket_of_the_name_are_noticed_without_a_change() {
    runtime().block_on(async {
        let mut fixture = Fixture::start("same-name").await;
        let mut watch = fixture.open().await.watch().await.unwrap();
        fixture.server.kill();
        fixture.server.restart();
        within(watch.broken()).await;
        within(async {
            while fixture.try_open("b").await.is_err() {
                sleep(Duration::from_millis(50)).await;
            }
        })
        .await;
        let mut watch = fixture.open().await.watch().await.unwrap();
        let context =
            async_nats::jetstream::new(async_nats::connect(fixture.server.url()).await.unwrap());
        context.delete_key_value("b").await.unwrap();
        create_bucket(&fixture.server, "b", MARKER).await;
        let failure = within(watch.broken()).await;
        assert!(failure.text.contains("created again"), "{failure:?}");
    });
}

#[test]
fn a_watch_that_the_server_has_removed_ends() {
    runtime().block_on(async {
        let fixture = Fixture::start("removed").await;
        let mut watch = fixture.open().await.watch().await.unwrap();
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
        let names: Vec<String> = {
            use futures_util::TryStreamExt as _;
            fixture
                .store
                .stream
                .consumer_names()
                .try_collect()
                .await
                .unwrap()
        };
        assert_eq!(names.len(), 1);
        fixture
            .store
            .stream
            .delete_consumer(&names[0])
            .await
            .unwrap();
        within(watch.next()).await.unwrap_err();
    });
}

#[test]
fn a_long_value_is_refused_and_the_limit_named() {
    runtime().block_on(async {
        let fixture = Fixture::start("long").await;
        let bucket = fixture.open().await;
        let long: &'static [u8] = vec![0; 65536].leak();
        let failure = stored(&bucket, put("key", Some(long))).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLong);
        assert!(
            failure.text.contains("key") && failure.text.contains("max_payload"),
            "{failure:?}"
        );
        let config = async_nats::jetstream::stream::Config {
            max_message_size: 100,
            ..fixture.store.stream.get_info().await.unwrap().config
        };
        let client = async_nats::connect(fixture.server.url()).await.unwrap();
        async_nats::jetstream::new(client)
            .update_stream(config)
            .await
            .unwrap();
        let failure = stored(&bucket, put("key", Some(&long[..200])))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLong);
        assert!(failure.text.contains("bucket b, key key"), "{failure:?}");
    });
}

#[test]
fn a_bucket_that_is_full_refuses() {
    runtime().block_on(async {
        let fixture = Fixture::start("full").await;
        let bucket = fixture.open().await;
        let config = async_nats::jetstream::stream::Config {
            max_bytes: 500,
            ..fixture.store.stream.get_info().await.unwrap().config
        };
        let client = async_nats::connect(fixture.server.url()).await.unwrap();
        let context = async_nats::jetstream::new(client);
        context.update_stream(config).await.unwrap();
        let failure = stored(&bucket, put("key", Some(&[0; 600])))
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Refused, "{failure:?}");
        assert!(failure.text.contains("bucket b, key key"), "{failure:?}");
        stored(&bucket, put("short", Some(b"1"))).await.unwrap();
    });
}

#[test]
fn the_longest_keys_pass_the_server() {
    runtime().block_on(async {
        let fixture = Fixture::start("keys").await;
        let name = "n".repeat(200);
        create_bucket(&fixture.server, &name, MARKER).await;
        let bucket = fixture.try_open(&name).await.unwrap();
        let mut dots = "a.".repeat(1535);
        dots.push_str("bb");
        let mut watch = bucket.watch().await.unwrap();
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
        for key in ["k".repeat(3072), dots] {
            assert_eq!(key.len(), 3072);
            let expecting = Put {
                expected: Some(0),
                origin: Some("x".repeat(40)),
                ..put(&key, Some(b"1"))
            };
            stored(&bucket, expecting).await.unwrap();
            assert_eq!(next(&mut watch).await.key, key);
            assert!(within(bucket.get(&key)).await.unwrap().is_some());
        }
    });
}

#[test]
fn a_large_bucket_arrives_in_parts() {
    runtime().block_on(async {
        let fixture = Fixture::start("large").await;
        let bucket = fixture.open().await;
        let long: &'static [u8] = vec![b'x'; 60_000].leak();
        for number in 0..400 {
            stored(&bucket, put(&number.to_string(), Some(long)))
                .await
                .unwrap();
        }
        let mut watch = bucket.watch().await.unwrap();
        for number in 0..400 {
            assert_eq!(next(&mut watch).await.key, number.to_string());
        }
        assert_eq!(within(watch.next()).await.unwrap(), Update::Current);
    });
}
