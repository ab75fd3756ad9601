// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps with the module and a real server: tests/bridge runs this in the VM.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::TryStreamExt as _;
use sluice::Map;
use sluice::map::SetOptions;
use sluice_bridge::key;
use tokio::runtime::Runtime;

use support::daemon::{Bridge, metrics};
use support::{Server, create_bucket, runtime, until};

const MARKER: Option<Duration> = Some(Duration::from_secs(60));

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// A bucket, and a client of the server.
struct Bucket {
    runtime: Runtime,
    store: kv::Store,
}

impl Bucket {
    fn create(server: &Server, marker: Option<Duration>) -> Self {
        let runtime = runtime();
        let store = runtime.block_on(create_bucket(server, "b", marker));
        Self { runtime, store }
    }

    fn put(&self, key: &str, value: &str) {
        let put = self.store.put(key, value.to_owned().into());
        self.runtime.block_on(put).unwrap();
    }

    fn delete(&self, key: &str) {
        self.runtime.block_on(self.store.delete(key)).unwrap();
    }

    /// Whatever the server is doing.
    fn try_put(&self, key: &str, value: &str) {
        let put = self.store.put(key, value.to_owned().into());
        drop(self.runtime.block_on(put));
    }

    fn entries(&self) -> Option<Entries> {
        self.runtime.block_on(async {
            let keys: Vec<String> = self.store.keys().await.ok()?.try_collect().await.ok()?;
            let mut entries = Entries::new();
            for key in keys {
                if let Some(value) = self.store.get(&key).await.ok()? {
                    entries.insert(key::decode(&key)?, value.to_vec());
                }
            }
            Some(entries)
        })
    }
}

fn entries(map: &Map) -> Entries {
    let entries = map.entries().map(Result::unwrap);
    entries.map(|(key, entry)| (key, entry.value)).collect()
}

fn until_same(maps: &[&Map], bucket: &Bucket) -> Entries {
    let mut last = None;
    until("maps and bucket are the same", || {
        let of_bucket = bucket.entries();
        let are_same =
            of_bucket.is_some() && maps.iter().all(|map| Some(entries(map)) == of_bucket);
        // The same twice: nothing is on its way.
        let is_stable = are_same && last == of_bucket;
        last = of_bucket;
        if !is_stable {
            thread::sleep(Duration::from_millis(100));
        }
        is_stable
    });
    last.unwrap()
}

fn rule(name: &str, direction: &str, more: &str) -> String {
    format!("[[map]]\nname = \"{name}\"\nbucket = \"b\"\ndirection = \"{direction}\"\n{more}\n")
}

fn create(name: &str) -> Map {
    Map::named(name).create(true).open().unwrap()
}

/// Waits until the bridge has created it.
fn open(name: &str) -> Map {
    until("the bridge has created the map", || {
        Map::named(name).info().is_ok()
    });
    Map::named(name).open().unwrap()
}

fn expected(entries: &[(&[u8], &str)]) -> Entries {
    let owned = |(key, value): &(&[u8], &str)| (key.to_vec(), value.as_bytes().to_vec());
    entries.iter().map(owned).collect()
}

#[test]
fn a_bucket_follows_a_map_with_all_its_keys() {
    let server = Server::start("map-out");
    let bucket = Bucket::create(&server, MARKER);
    let map = create("map-out");
    map.set("one", "1").unwrap();
    map.set([0, 255, b'.'], "bytes").unwrap();
    bucket.put("foreign", "x");
    let socket = server.directory().join("metrics");
    let rules = format!(
        "metrics = \"{}\"\n{}",
        socket.display(),
        rule("map-out", "out", "")
    );
    let bridge = Bridge::start(&server, "a", &rules);
    until_same(&[&map], &bucket);
    map.set("two words", "2").unwrap();
    map.set("one", "3").unwrap();
    map.delete([0, 255, b'.']).unwrap();
    let entries = until_same(&[&map], &bucket);
    assert_eq!(entries, expected(&[(b"one", "3"), (b"two words", "2")]));
    // A slow machine has to put it in this time.
    let lease = SetOptions::new().time_to_live(Duration::from_secs(10));
    map.set_with("lease", "4", lease).unwrap();
    // 8 changes: 3 at the start, 3 afterwards, the lease and its end. The count is the only proof that the bridge has deleted the lease,
    // because the server ends it, too.
    until("the bridge has put the lease, and its end", || {
        metrics(&socket)
            .contains("sluice_bridge_map_changes_out_total{map=\"map-out\",scope=\"\"} 8\n")
    });
    assert_eq!(until_same(&[&map], &bucket).len(), 2);
    let log = bridge.stop();
    assert!(log.contains("map-out: 8 out, 0 in"), "{log}");
}

#[test]
fn a_map_follows_a_bucket_with_times_to_live() {
    let server = Server::start("map-in");
    let bucket = Bucket::create(&server, MARKER);
    bucket.put("one", "1");
    let bridge = Bridge::start(
        &server,
        "a",
        &rule(
            "map-in",
            "in",
            "create = { capacity = 1048576, permissions = \"644\" }",
        ),
    );
    let map = open("map-in");
    until_same(&[&map], &bucket);
    bucket.put("=two=20words", "2");
    bucket.put("three", "3");
    bucket.delete("one");
    let entries = until_same(&[&map], &bucket);
    assert_eq!(entries, expected(&[(b"three", "3"), (b"two words", "2")]));
    let time = Duration::from_secs(3);
    let lease = bucket.store.create_with_ttl("lease", "4".into(), time);
    bucket.runtime.block_on(lease).unwrap();
    until("the map has the lease", || {
        map.get("lease").unwrap().is_some()
    });
    let left = map
        .get("lease")
        .unwrap()
        .and_then(|entry| entry.time_to_live);
    assert!(left.is_some_and(|left| left <= time), "{left:?}");
    until("the lease has expired", || {
        map.get("lease").unwrap().is_none()
    });
    assert!(bridge.stop().contains("map-in: 0 out, "));
}

#[test]
fn two_maps_and_a_bucket_are_the_same() {
    let server = Server::start("map-both");
    let bucket = Bucket::create(&server, MARKER);
    let maps = [create("map-both-1"), create("map-both-2")];
    maps[0].set("first", "1").unwrap();
    maps[1].set("second", "2").unwrap();
    bucket.put("third", "3");
    let one = Bridge::start(&server, "a", &rule("map-both-1", "both", ""));
    let two = Bridge::start(&server, "b", &rule("map-both-2", "both", ""));
    assert_eq!(until_same(&[&maps[0], &maps[1]], &bucket).len(), 3);
    maps[0].delete("first").unwrap();
    maps[1].set("third", "4").unwrap();
    bucket.delete("second");
    let entries = until_same(&[&maps[0], &maps[1]], &bucket);
    assert_eq!(entries, expected(&[(b"third", "4")]));
    // At the same time.
    for round in 0..200_u32 {
        let key = (round % 7).to_string();
        for (number, map) in maps.iter().enumerate() {
            match round % 11 {
                0 => map.delete(&key).map(drop).unwrap(),
                _ => map
                    .set(&key, format!("{number} {round}"))
                    .map(drop)
                    .unwrap(),
            }
        }
    }
    until_same(&[&maps[0], &maps[1]], &bucket);
    for (bridge, name) in [(one, "map-both-1"), (two, "map-both-2")] {
        assert!(bridge.stop().contains(&format!("{name}: ")));
    }
}

#[test]
fn what_was_changed_and_deleted_without_the_bridge_is_followed() {
    let server = Server::start("map-away");
    let bucket = Bucket::create(&server, MARKER);
    let map = create("map-away");
    for number in 0..9 {
        map.set(number.to_string(), "0").unwrap();
    }
    let mut bridge = Bridge::start(&server, "a", &rule("map-away", "both", ""));
    until_same(&[&map], &bucket);
    bridge.kill();
    map.set("0", "map").unwrap();
    map.delete("1").unwrap();
    bucket.put("2", "bucket");
    bucket.delete("3");
    map.set("4", "map").unwrap();
    bucket.put("4", "bucket");
    map.set("5", "map").unwrap();
    bucket.delete("5");
    bridge.restart();
    let entries = until_same(&[&map], &bucket);
    let left: [(&[u8], &str); 7] = [
        (b"0", "map"),
        (b"2", "bucket"),
        (b"4", "bucket"),
        (b"5", "map"),
        (b"6", "0"),
        (b"7", "0"),
        (b"8", "0"),
    ];
    assert_eq!(entries, expected(&left));
    // The same by a reload, with nobody else who has the map open.
    drop(map);
    bridge.reload();
    bucket.delete("6");
    let map = Map::named("map-away").open().unwrap();
    assert_eq!(until_same(&[&map], &bucket).len(), 6);
    let log = bridge.stop();
    assert!(!log.contains("is not used"), "{log}");
}

/// Changes entries until it is told to stop.
fn change(map: Map, seed: u32, stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut number = seed;
        while !stop.load(Ordering::SeqCst) {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = format!("key {}", (number >> 16) % 200);
            match (number >> 8) % 5 {
                0 => map.delete(&key).map(drop).unwrap(),
                _ => map.set(&key, number.to_string()).map(drop).unwrap(),
            }
            if number.is_multiple_of(16) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

/// Kills the bridges and the server in turn.
fn disturb(server: &mut Server, bridges: &mut [Bridge; 2]) {
    for round in 0..8 {
        thread::sleep(Duration::from_millis(700));
        match round % 4 {
            0 => {
                bridges[0].kill();
                bridges[0].restart();
            }
            1 => {
                server.kill();
                server.restart();
            }
            2 => {
                bridges[1].kill();
                thread::sleep(Duration::from_millis(300));
                bridges[1].restart();
            }
            _ => {
                server.kill();
                bridges[0].kill();
                bridges[0].restart();
                server.restart();
            }
        }
    }
}

#[test]
fn maps_of_two_writers_converge_when_bridges_and_server_are_killed() {
    let mut server = Server::start("map-load");
    let bucket = Bucket::create(&server, MARKER);
    let maps = [create("map-load-1"), create("map-load-2")];
    let start = |server: &Server, id, name| Bridge::start(server, id, &rule(name, "both", ""));
    let mut bridges = [
        start(&server, "a", "map-load-1"),
        start(&server, "b", "map-load-2"),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    let changing = [
        change(create("map-load-1"), 1, &stop),
        change(create("map-load-2"), 2, &stop),
    ];
    disturb(&mut server, &mut bridges);
    stop.store(true, Ordering::SeqCst);
    for thread in changing {
        thread.join().unwrap();
    }
    bucket.try_put("last", "1");
    until("the server is back", || bucket.entries().is_some());
    assert!(until_same(&[&maps[0], &maps[1]], &bucket).len() > 50);
    for bridge in bridges {
        bridge.stop();
    }
}

#[test]
fn a_copy_converges_when_bridges_and_server_are_killed() {
    let mut server = Server::start("map-copy");
    let bucket = Bucket::create(&server, MARKER);
    let create = "create = { permissions = \"600\" }";
    let mut bridges = [
        Bridge::start(&server, "a", &rule("map-copy-1", "out", create)),
        Bridge::start(&server, "b", &rule("map-copy-2", "in", create)),
    ];
    let maps = [open("map-copy-1"), open("map-copy-2")];
    let stop = Arc::new(AtomicBool::new(false));
    let changing = change(open("map-copy-1"), 3, &stop);
    disturb(&mut server, &mut bridges);
    stop.store(true, Ordering::SeqCst);
    changing.join().unwrap();
    // What the writer has is right.
    let written = entries(&maps[0]);
    assert_eq!(until_same(&[&maps[0], &maps[1]], &bucket), written);
    for bridge in bridges {
        bridge.stop();
    }
}

#[test]
fn a_map_that_is_destroyed_and_created_again_does_not_empty_the_bucket() {
    let server = Server::start("map-destroyed");
    let bucket = Bucket::create(&server, MARKER);
    let map = create("map-destroyed");
    map.set("one", "1").unwrap();
    let bridge = Bridge::start(&server, "a", &rule("map-destroyed", "both", ""));
    until_same(&[&map], &bucket);
    Map::named("map-destroyed").destroy().unwrap();
    let map = create("map-destroyed");
    map.set("two", "2").unwrap();
    assert_eq!(until_same(&[&map], &bucket).len(), 2);
    assert!(bridge.stop().contains("the map has ended"));
}

#[test]
fn a_map_that_has_the_name_of_a_removed_one_is_bridged() {
    let server = Server::start("map-name");
    let bucket = Bucket::create(&server, MARKER);
    let old = create("map-name");
    old.set("one", "1").unwrap();
    let bridge = Bridge::start(&server, "a", &rule("map-name", "both", ""));
    until_same(&[&old], &bucket);
    Map::named("map-name").unlink().unwrap();
    let map = create("map-name");
    map.set("two", "2").unwrap();
    map.set("three", "3").unwrap();
    assert_eq!(until_same(&[&map], &bucket).len(), 3);
    assert_eq!(old.info().unwrap().entries, 1);
    assert!(bridge.stop().contains("its name was removed"));
}

#[test]
fn what_cannot_be_done_is_told_and_tried_again() {
    let server = Server::start("map-wrong");
    let map = create("map-wrong");
    map.set("one", "1").unwrap();
    let bridge = Bridge::start(&server, "a", &rule("map-wrong", "out", ""));
    until("the bridge tells what is missing", || {
        bridge.log().contains("nats kv add b")
    });
    let bucket = Bucket::create(&server, None);
    until("the bridge tells what is not permitted", || {
        bridge.log().contains("--marker-ttl")
    });
    bridge.configure(&rule("map-wrong", "out", "ttl = false"));
    bridge.reload();
    until_same(&[&map], &bucket);
    // Longer than max_payload of the server.
    map.set("long.value", vec![b'x'; 70_000]).unwrap();
    map.set("two", "2").unwrap();
    let lease = SetOptions::new().time_to_live(Duration::from_secs(2));
    map.set_with("lease", "3", lease).unwrap();
    until("the bucket has the others", || {
        bucket
            .entries()
            .is_some_and(|entries| entries.contains_key(&b"two"[..]))
    });
    map.delete("long.value").unwrap();
    until("the lease has expired", || {
        map.get("lease").unwrap().is_none()
    });
    assert_eq!(until_same(&[&map], &bucket).len(), 2);
    let log = bridge.stop();
    assert!(
        log.contains("key long.value: ") && log.contains("max_payload"),
        "{log}"
    );
    assert!(log.contains("1 too long"), "{log}");
}
