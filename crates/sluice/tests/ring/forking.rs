// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a forked child, which has copies of everything except the threads.

use std::time::Duration;

use sluice::ring::{RecvError, SendError};

use super::carrier;
use super::support::{LONG, in_child, ring, small};

#[test]
fn a_drop_in_a_child_does_not_affect_the_parent() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"before").expect("not sent");
    let (producer_copy, consumer_copy) = (&raw mut producer, &raw mut consumer);
    in_child(|| {
        // SAFETY: the child exits before they could be dropped again.
        unsafe {
            producer_copy.drop_in_place();
            consumer_copy.drop_in_place();
        }
        true
    });
    producer.send(b"after").expect("not sent");
    let mut room = [0; 8];
    assert_eq!(
        consumer.recv_into(&mut room).expect("not received"),
        Some(6)
    );
    assert_eq!(
        consumer.recv_into(&mut room).expect("not received"),
        Some(5)
    );
    drop(producer);
    assert_eq!(consumer.recv_into(&mut room).expect("no end"), None);
}

#[test]
fn what_a_child_inherits_is_neither_sent_nor_released_by_it() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"first").expect("not sent");
    let record = consumer.recv().expect("not received").expect("the end");
    let mut room = producer.reserve(6).expect("no room");
    room.copy_from_slice(b"second");
    let (record_copy, room_copy) = (&raw const record, &raw const room);
    in_child(|| {
        // SAFETY: the child exits before they could be dropped again.
        unsafe {
            drop(record_copy.read());
            room_copy.read().commit();
        }
        true
    });
    record.keep();
    drop(room);
    assert_eq!(producer.pending().expect("not pending"), 16);
    in_child(|| matches!(producer.try_send(b"child's"), Err(SendError::Forked)));
    in_child(|| matches!(consumer.try_recv(), Err(RecvError::Forked)));
    in_child(|| {
        consumer.finish_wait();
        producer.finish_wait();
        matches!(producer.flush_timeout(LONG), Err(SendError::Forked))
    });
    let mut into = [0; 8];
    assert_eq!(consumer.try_recv_into(&mut into).expect("gone"), Some(5));
    let empty = consumer.try_recv_into(&mut into);
    assert!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
}

#[test]
fn a_child_neither_releases_nor_commits_what_its_parent_holds() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"first").expect("not sent");
    consumer.recv().expect("no record").expect("no end").hold();
    let mut batch = producer.send_batch();
    batch.send(b"second").expect("not sent");
    batch.reserve(5).expect("no room").copy_from_slice(b"third");
    std::mem::forget(batch);
    in_child(|| {
        consumer.release_held();
        let received = consumer.try_recv().is_err();
        let committed = producer.send_batch().commit_dropped(5);
        received && !consumer.is_holding() && matches!(committed, Err(SendError::Forked))
    });
    assert!(consumer.is_holding());
    assert_eq!(producer.pending().expect("not pending"), 16);
    consumer.release_held();
    producer.send_batch().publish();
    let mut into = [0; 8];
    assert_eq!(consumer.try_recv_into(&mut into).expect("gone"), Some(6));
    let empty = consumer.try_recv_into(&mut into);
    assert!(matches!(empty, Err(RecvError::Empty)), "{empty:?}");
}

#[test]
fn a_child_cannot_wait_in_the_ring_of_its_parent() {
    let (mut producer, mut consumer) = ring(&small().spin_limit(Duration::ZERO));
    in_child(|| matches!(consumer.recv_into(&mut []), Err(RecvError::Forked)));
    producer.send(b"parent's").expect("not sent");
    assert_eq!(
        consumer.recv_into(&mut [0; 8]).expect("not received"),
        Some(8)
    );
}

#[test]
fn rings_of_a_child_detect_a_death() {
    // The parent has a ring, too.
    let _ring = ring(&small());
    in_child(|| {
        let (peer, mut consumer) = carrier::mortal_producer(&small());
        drop(peer);
        let got = consumer.recv_into_timeout(&mut [0; 8], LONG);
        matches!(got, Err(RecvError::PeerDied))
    });
    in_child(|| {
        let (peer, mut producer) = carrier::mortal_consumer(&small());
        drop(peer);
        let died = (0..100).find_map(|_| producer.send_timeout(&[0; 500], LONG).err());
        matches!(died, Some(SendError::PeerDied))
    });
}

#[test]
fn a_ring_needs_no_thread() {
    let _ring = ring(&small());
    let threads = std::fs::read_dir("/proc/self/task").expect("no /proc");
    for thread in threads {
        let path = thread.expect("no thread").path().join("comm");
        // A thread that has exited meanwhile has no name.
        let name = std::fs::read_to_string(path).unwrap_or_default();
        assert!(!name.starts_with("sluice-ring"), "{name}");
    }
}
