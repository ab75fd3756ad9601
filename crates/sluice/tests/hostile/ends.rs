// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that close, die, or go on after their end.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sluice::ring::{RecvError, SendError};
use sluice_hostile::{CLOSED, WAKE_SEQ};

use super::carrier::CLOSES;
use super::support::{
    LONG, SHORT, assert_error, malicious_consumer, malicious_producer, malicious_producer_with,
    small, within_timeout,
};

#[test]
fn the_death_of_a_peer_that_has_done_nothing_is_reported() {
    let (malicious, mut consumer) = malicious_producer();
    drop(malicious);
    assert_error(consumer.recv_into_timeout(&mut [0; 8], LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
    let (malicious, mut producer) = malicious_consumer();
    drop(malicious);
    let died = within_timeout(move || {
        loop {
            if let Err(error) = producer.send_timeout(&[0; 8], LONG) {
                break error;
            }
        }
    });
    assert!(matches!(died, SendError::PeerDied), "{died:?}");
}

#[test]
fn published_records_survive_peer_death() {
    let (malicious, mut consumer) = malicious_producer();
    let next = malicious.send(0, b"whole");
    malicious.write_bytes(next + 8, b"never sent");
    malicious.write_header(next, 10, 0);
    drop(malicious);
    let mut buffer = [0; 16];
    assert_eq!(
        consumer
            .recv_into_timeout(&mut buffer, LONG)
            .expect("not received"),
        Some(5)
    );
    for _ in 0..2 {
        assert_error(consumer.recv_into_timeout(&mut buffer, LONG), |error| {
            matches!(error, RecvError::PeerDied)
        });
    }
}

#[test]
fn writes_after_closing_affect_only_that_ring() {
    let (malicious, mut consumer) = malicious_producer();
    let closed = malicious.memory.word(CLOSED);
    let mut buffer = [0; 8];
    for value in CLOSES {
        closed.store(value, Ordering::Release);
        assert_eq!(consumer.recv_into(&mut buffer).expect("not received"), None);
    }
    malicious.send(0, b"more");
    assert_eq!(
        consumer.recv_into(&mut buffer).expect("not received"),
        Some(4)
    );
    assert_eq!(consumer.recv_into(&mut buffer).expect("not received"), None);
    closed.store(0, Ordering::Release);
    assert_error(consumer.try_recv_into(&mut buffer), |error| {
        matches!(error, RecvError::Empty)
    });
    assert_error(consumer.recv_into_timeout(&mut buffer, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });

    let (malicious, mut producer) = malicious_consumer();
    malicious.memory.word(CLOSED).store(1, Ordering::Release);
    assert_error(producer.send(b"refused"), |error| {
        matches!(error, SendError::Closed)
    });
    malicious.memory.word(CLOSED).store(0, Ordering::Release);
    producer.send(b"accepted").expect("not sent");
}

#[test]
fn a_blocked_consumer_learns_of_peer_death_without_a_wake_up() {
    // The malicious producer neither changes its wake_seq nor wakes.
    let (malicious, mut consumer) = malicious_producer_with(&small().spin_limit(Duration::ZERO));
    let (started_sender, started) = mpsc::channel();
    let blocked = thread::spawn(move || {
        started_sender.send(()).expect("no receiver");
        consumer.recv_into_timeout(&mut [0; 8], LONG)
    });
    started.recv().expect("panicked");
    thread::sleep(SHORT);
    assert_eq!(malicious.memory.word(WAKE_SEQ).load(Ordering::Relaxed), 0);
    let began = Instant::now();
    drop(malicious);
    let died = blocked.join().expect("panicked");
    assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
    assert!(began.elapsed() < LONG / 2);
}
