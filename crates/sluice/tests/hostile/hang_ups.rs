// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that fall silent, hang up, close or die.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice::ring::{Listener, RecvError, SendError, SetupError, Socket};
use sluice_hostile::{
    CLOSED, CTRL_SIZE, DATA, Hello, MaliciousConsumer, MaliciousProducer, POS, Peer, SEALS,
    WAKE_SEQ, memfd, reply, seal,
};

use crate::support::{
    CAPACITY, LONG, SHORT, assert_error, consumer, malicious_consumer, malicious_producer,
    producer, small, within_timeout,
};

/// A producer that has sent the first messages of its handshake.
fn partial_handshake(messages: usize) -> (Peer, std::os::fd::OwnedFd) {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    let hello = Hello::producer(CAPACITY).bytes();
    if messages > 0 {
        peer.send(&hello, &[file.as_fd()]).expect("not sent");
    }
    if messages > 1 {
        peer.send(&reply(0), &[]).expect("not sent");
    }
    (peer, socket)
}

#[test]
fn a_silent_peer_times_out_at_any_point_of_the_handshake() {
    for messages in 0..2 {
        let (_peer, socket) = partial_handshake(messages);
        let began = Instant::now();
        assert_error(
            consumer(socket),
            |error| matches!(error, SetupError::HandshakeTimeout(timeout) if *timeout == SHORT),
        );
        assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
    }
}

#[test]
fn a_hang_up_at_any_point_of_the_handshake_is_reported() {
    for messages in 0..2 {
        let (peer, socket) = partial_handshake(messages);
        drop(peer);
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::HandshakeAborted)
        });

        let (peer, socket) = partial_handshake(messages);
        peer.shutdown();
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::HandshakeAborted)
        });
    }
    let (peer, socket) = Peer::pair();
    let file = memfd(CTRL_SIZE as u64);
    seal(&file, SEALS);
    peer.send(&Hello::consumer().bytes(), &[file.as_fd()])
        .expect("not sent");
    drop(peer);
    assert_error(producer(socket), |error| {
        matches!(error, SetupError::HandshakeAborted)
    });
}

#[test]
fn peer_death_right_after_the_handshake_is_reported() {
    let (malicious, mut consumer) = malicious_producer();
    drop(malicious);
    assert_error(consumer.recv_timeout(&mut [0; 8], LONG), |error| {
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
            .recv_timeout(&mut buffer, LONG)
            .expect("not received"),
        Some(5)
    );
    for _ in 0..2 {
        assert_error(consumer.recv_timeout(&mut buffer, LONG), |error| {
            matches!(error, RecvError::PeerDied)
        });
    }
}

#[test]
fn a_shutdown_of_the_socket_counts_as_peer_death() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.peer.shutdown();
    assert_error(consumer.recv_timeout(&mut [0; 8], LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
}

#[test]
fn writes_after_closing_affect_only_that_ring() {
    let (malicious, mut consumer) = malicious_producer();
    let closed = malicious.memory.word(CLOSED);
    let mut buffer = [0; 8];
    for value in [1, 2, u32::MAX] {
        closed.store(value, Ordering::Release);
        assert_eq!(consumer.recv(&mut buffer).expect("not received"), None);
    }
    malicious.send(0, b"more");
    assert_eq!(consumer.recv(&mut buffer).expect("not received"), Some(4));
    assert_eq!(consumer.recv(&mut buffer).expect("not received"), None);
    closed.store(0, Ordering::Release);
    assert_error(consumer.try_recv(&mut buffer), |error| {
        matches!(error, RecvError::Empty)
    });
    assert_error(consumer.recv_timeout(&mut buffer, SHORT), |error| {
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
    // The malicious producer neither changes its wake_seq nor sends a message.
    let (malicious, socket) = MaliciousProducer::new(CAPACITY);
    let options = small().spin(std::time::Duration::ZERO);
    let mut consumer = options
        .consumer(Socket::from(socket))
        .expect("handshake failed");
    let (started_sender, started) = std::sync::mpsc::channel();
    let blocked = std::thread::spawn(move || {
        started_sender.send(()).expect("no receiver");
        consumer.recv_timeout(&mut [0; 8], LONG)
    });
    started.recv().expect("panicked");
    std::thread::sleep(SHORT);
    assert_eq!(malicious.memory.word(WAKE_SEQ).load(Ordering::Relaxed), 0);
    let began = Instant::now();
    drop(malicious);
    let died = blocked.join().expect("panicked");
    assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
    assert!(began.elapsed() < LONG / 2);
}

#[test]
fn a_thousand_silent_connections_leave_no_state() {
    let path = std::env::temp_dir().join(format!("sluice-thousand-{}", std::process::id()));
    let listener = Listener::bind(&path).expect("cannot listen");
    let options = small().handshake_timeout(std::time::Duration::from_millis(1));
    for _ in 0..1000 {
        let _silent = Socket::connect(&path).expect("cannot connect");
        let socket = listener.accept().expect("no connection");
        assert_error(options.consumer(socket).map(drop), |error| {
            matches!(error, SetupError::HandshakeTimeout(_))
        });
    }
    // A peer that completes its handshake is served as before.
    let (malicious, socket) = MaliciousConsumer::new();
    let mut producer = small()
        .producer(Socket::from(socket))
        .expect("handshake failed");
    producer.send(b"hello").expect("not sent");
    let producer_memory = malicious.map_producer(CAPACITY);
    assert_eq!(producer_memory.long(POS).load(Ordering::Acquire), 16);
}
