// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of every length, many laps around the ring, in both directions, with each way to wait.

use std::time::Duration;

use sluice::ring::{AsyncConsumer, AsyncProducer, Consumer, Options, Producer};

use crate::python_peer::{LONG, PythonPeer, content, small};

/// Twice every length from 0 to the longest of a ring of 4096 bytes: a thousand laps.
const RECORDS: usize = 2 * 2041;

/// How the other side sleeps, whether it is registered with membarrier(2), and its batch size.
const WAITS: [&str; 6] = [
    "--how futex",
    "--how socket",
    "--how futex --unregistered",
    "--how socket --unregistered --spins 100",
    "--how futex --spins 100 --batch 2",
    "--how socket --batch 2",
];

/// With a spinning library, which never sleeps and only wakes the other side.
const SLEEPING_WAITS: [&str; 3] = [WAITS[0], WAITS[1], WAITS[3]];

fn sleeping() -> Options {
    small().spin(Duration::ZERO)
}

fn spinning() -> Options {
    small().spin(Duration::MAX)
}

fn receive(consumer: &mut Consumer, records: usize) {
    let longest = consumer.max_record_len();
    let mut room = vec![0; longest];
    for number in 0..records {
        let length = consumer
            .recv_timeout(&mut room, LONG)
            .expect("not received");
        let length = length.expect("it ended too early");
        assert!(
            room[..length] == *content(number, longest),
            "record {number}"
        );
    }
}

fn send(producer: &mut Producer, records: usize) {
    let longest = producer.max_record_len();
    for number in 0..records {
        producer
            .send_timeout(content(number, longest), LONG)
            .expect("not sent");
    }
}

fn receives_from_the_other(wait: &str, options: &Options) {
    let arguments = format!("send --records {RECORDS} {wait}");
    let Some((peer, socket)) = PythonPeer::start(&arguments) else {
        return;
    };
    let mut consumer = options.consumer(socket).expect("no ring");
    receive(&mut consumer, RECORDS);
    let end = consumer.recv_timeout(&mut [], LONG).expect("no end");
    assert_eq!(end, None, "{wait}");
    assert_eq!(peer.end(), Some(format!("sent {RECORDS}")));
}

fn sends_to_the_other(wait: &str, options: &Options) {
    let arguments = format!("receive --records {RECORDS} {wait}");
    let Some((peer, socket)) = PythonPeer::start(&arguments) else {
        return;
    };
    let mut producer = options.producer(socket).expect("no ring");
    send(&mut producer, RECORDS);
    drop(producer);
    assert_eq!(peer.end(), Some(format!("received {RECORDS}")), "{wait}");
}

#[test]
fn a_sleeping_library_receives_from_the_other() {
    for wait in WAITS {
        receives_from_the_other(wait, &sleeping());
    }
}

#[test]
fn a_spinning_library_receives_from_the_other() {
    for wait in SLEEPING_WAITS {
        receives_from_the_other(wait, &spinning());
    }
}

#[test]
fn a_sleeping_library_sends_to_the_other() {
    for wait in WAITS {
        sends_to_the_other(wait, &sleeping());
    }
}

#[test]
fn a_spinning_library_sends_to_the_other() {
    for wait in SLEEPING_WAITS {
        sends_to_the_other(wait, &spinning());
    }
}

#[test]
fn a_large_ring_works_both_ways() {
    let wait = "--capacity 65536 --batch 2";
    receives_from_the_other(wait, &Options::new().handshake_timeout(LONG));
    sends_to_the_other(wait, &small().capacity(65536));
}

#[test]
fn the_library_sends_batches_to_the_other() {
    let Some((peer, socket)) = PythonPeer::start(&format!("receive --records {RECORDS} --batch 3"))
    else {
        return;
    };
    let mut producer = sleeping().producer(socket).expect("no ring");
    let longest = producer.max_record_len();
    for first in (0..RECORDS).step_by(13) {
        let mut batch = producer.batch();
        for number in first..RECORDS.min(first + 13) {
            batch.send(content(number, longest)).expect("not sent");
        }
    }
    drop(producer);
    assert_eq!(peer.end(), Some(format!("received {RECORDS}")));
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime")
        .block_on(async { tokio::time::timeout(3 * LONG, future).await })
        .expect("it hangs")
}

#[test]
fn a_library_in_a_runtime_receives_from_the_other() {
    for wait in WAITS {
        let arguments = format!("send --records {RECORDS} {wait}");
        let Some((peer, socket)) = PythonPeer::start(&arguments) else {
            return;
        };
        let consumer = small().consumer(socket).expect("no ring");
        run(async {
            let longest = consumer.max_record_len();
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            let mut room = vec![0; longest];
            for number in 0..RECORDS {
                let length = consumer.recv(&mut room).await.expect("not received");
                let length = length.expect("it ended too early");
                assert!(
                    room[..length] == *content(number, longest),
                    "record {number}"
                );
            }
            assert_eq!(consumer.recv(&mut room).await.expect("no end"), None);
        });
        assert_eq!(peer.end(), Some(format!("sent {RECORDS}")));
    }
}

#[test]
fn a_library_in_a_runtime_sends_to_the_other() {
    for wait in WAITS {
        let arguments = format!("receive --records {RECORDS} {wait}");
        let Some((peer, socket)) = PythonPeer::start(&arguments) else {
            return;
        };
        let producer = small().producer(socket).expect("no ring");
        run(async {
            let longest = producer.max_record_len();
            let mut producer = AsyncProducer::new(producer).expect("no runtime");
            for number in 0..RECORDS {
                producer
                    .send(content(number, longest))
                    .await
                    .expect("not sent");
            }
        });
        assert_eq!(peer.end(), Some(format!("received {RECORDS}")));
    }
}
