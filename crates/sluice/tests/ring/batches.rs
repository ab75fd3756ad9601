// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several records at once.

use std::thread;

use sluice::ring::{RecvError, SendError};

use super::support::{pattern, ring, small};

#[test]
fn a_batch_is_seen_when_it_is_whole() {
    let (mut producer, mut consumer) = ring(&small());
    let mut batch = producer.send_batch();
    for number in 0..5 {
        batch.send(&pattern(number, 20)).expect("not sent");
        assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
    }
    batch.publish();
    let mut room = [0; 20];
    for number in 0..5 {
        assert_eq!(
            consumer.try_recv_into(&mut room).expect("not there"),
            Some(20)
        );
        assert_eq!(room[..], pattern(number, 20));
    }
    assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
}

#[test]
fn a_batch_filled_in_place_is_seen_when_it_is_whole() {
    let (mut producer, mut consumer) = ring(&small());
    let mut batch = producer.send_batch();
    for number in 0..3 {
        let mut room = batch.reserve(30).expect("no room");
        room.copy_from_slice(&pattern(number, 30));
        room.commit();
        // A reservation without a commit has no effect.
        batch.reserve(100).expect("no room").fill(1);
    }
    assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
    drop(batch);
    let mut taken = consumer.recv_batch().expect("broken").expect("no end");
    for number in 0..3 {
        let record = taken.recv().expect("broken").expect("not there");
        assert_eq!(record.to_vec(), pattern(number, 30));
    }
    assert!(taken.recv().expect("broken").is_none());
}

#[test]
fn a_batch_larger_than_the_ring_never_strands_a_record() {
    let (mut producer, mut consumer) = ring(&small());
    let sender = thread::spawn(move || {
        let mut batch = producer.send_batch();
        for number in 0..1000 {
            batch.send(&pattern(number, 100)).expect("not sent");
        }
    });
    let mut number = 0;
    while let Some(mut batch) = consumer.recv_batch().expect("broken") {
        while let Some(record) = batch.recv().expect("broken") {
            assert_eq!(record.to_vec(), pattern(number, 100));
            number += 1;
        }
    }
    sender.join().expect("the sender panicked");
    assert_eq!(number, 1000);
}

#[test]
fn a_record_that_does_not_fit_into_a_batch_is_an_error_and_the_others_are_sent() {
    let (mut producer, mut consumer) = ring(&small());
    let mut batch = producer.send_batch();
    let mut sent = 0;
    while batch.try_send(&[7; 1000]).is_ok() {
        sent += 1;
    }
    assert!(matches!(batch.try_send(&[7; 1000]), Err(SendError::Full)));
    // The batch was sent when the ring was full; otherwise it would wait for itself.
    let mut room = [0; 1000];
    for _ in 0..sent {
        assert_eq!(
            consumer.try_recv_into(&mut room).expect("not there"),
            Some(1000)
        );
    }
    drop(batch);
    assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
}

#[test]
fn the_room_of_a_received_batch_comes_back_at_once() {
    let (mut producer, mut consumer) = ring(&small());
    for _ in 0..4 {
        producer.send(&[0; 900]).expect("not sent");
    }
    assert!(matches!(producer.try_send(&[0; 900]), Err(SendError::Full)));
    let mut batch = consumer.recv_batch().expect("broken").expect("no end");
    let mut room = [0; 900];
    for _ in 0..4 {
        assert_eq!(batch.recv_into(&mut room).expect("broken"), Some(900));
    }
    assert_eq!(batch.recv_into(&mut room).expect("broken"), None);
    assert!(matches!(producer.try_send(&[0; 900]), Err(SendError::Full)));
    drop(batch);
    producer.try_send(&[0; 900]).expect("no room");
}

#[test]
fn a_rewound_batch_is_received_again_and_the_producer_learns_what_was_not() {
    let (mut producer, mut consumer) = ring(&small());
    for number in 0..3 {
        producer.send(&[number; 10]).expect("not sent");
    }
    let mut room = [0; 10];
    let mut batch = consumer.recv_batch().expect("broken").expect("no end");
    for number in 0..2 {
        assert_eq!(batch.recv_into(&mut room).expect("broken"), Some(10));
        assert_eq!(room, [number; 10]);
    }
    batch.rewind();
    assert_eq!(consumer.recv_into(&mut room).expect("broken"), Some(10));
    assert_eq!(room, [0; 10]);
    drop(consumer);
    assert!(matches!(producer.flush(), Err(SendError::Closed)));
}
