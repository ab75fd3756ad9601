// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of every length, many laps around the ring, in both directions, with each way to wait.

use std::time::Duration;

use sluice::ring::{AsyncConsumer, AsyncProducer, Consumer, Producer};

use super::carrier::{Options, RECORDS, SLEEPING_WAITS, WAITS, small};
use super::python_peer::{LONG, PythonPeer, content};

fn sleeping() -> Options {
    small().spin_limit(Duration::ZERO)
}

fn spinning() -> Options {
    small().spin_limit(Duration::MAX)
}

fn receive(consumer: &mut Consumer, records: usize) {
    let longest = consumer.max_record_len();
    let mut room = vec![0; longest];
    for number in 0..records {
        let length = consumer
            .recv_into_timeout(&mut room, LONG)
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
    let Some((peer, end)) = PythonPeer::start(&arguments) else {
        return;
    };
    let mut consumer = end.consumer(options);
    receive(&mut consumer, RECORDS);
    let last = consumer.recv_into_timeout(&mut [], LONG).expect("no end");
    assert_eq!(last, None, "{wait}");
    assert_eq!(peer.end(), Some(format!("sent {RECORDS}")));
}

fn sends_to_the_other(wait: &str, options: &Options) {
    let arguments = format!("receive --records {RECORDS} {wait}");
    let Some((peer, end)) = PythonPeer::start(&arguments) else {
        return;
    };
    let mut producer = end.producer(options);
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
    let options = small().capacity(65536);
    receives_from_the_other(wait, &options);
    sends_to_the_other(wait, &options);
}

#[test]
fn the_library_sends_batches_to_the_other() {
    let Some((peer, end)) = PythonPeer::start(&format!("receive --records {RECORDS} --batch 3"))
    else {
        return;
    };
    let mut producer = end.producer(&sleeping());
    let longest = producer.max_record_len();
    for first in (0..RECORDS).step_by(13) {
        let mut batch = producer.send_batch();
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
        let Some((peer, end)) = PythonPeer::start(&arguments) else {
            return;
        };
        let consumer = end.consumer(&small());
        run(async {
            let longest = consumer.max_record_len();
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            let mut room = vec![0; longest];
            for number in 0..RECORDS {
                let length = consumer.recv_into(&mut room).await.expect("not received");
                let length = length.expect("it ended too early");
                assert!(
                    room[..length] == *content(number, longest),
                    "record {number}"
                );
            }
            assert_eq!(consumer.recv_into(&mut room).await.expect("no end"), None);
        });
        assert_eq!(peer.end(), Some(format!("sent {RECORDS}")));
    }
}

#[test]
fn a_library_in_a_runtime_sends_to_the_other() {
    for wait in WAITS {
        let arguments = format!("receive --records {RECORDS} {wait}");
        let Some((peer, end)) = PythonPeer::start(&arguments) else {
            return;
        };
        let producer = end.producer(&small());
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
