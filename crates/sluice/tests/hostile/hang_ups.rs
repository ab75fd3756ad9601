// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that fall silent or hang up their socket.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice::ring::{Listener, RecvError, SetupError, Socket};
use sluice_hostile::{
    CTRL_SIZE, DATA, Hello, MaliciousConsumer, POS, Peer, SEALS, memfd, reply, seal,
};

use super::carrier::{consumer, producer};
use super::support::{CAPACITY, LONG, SHORT, assert_error, malicious_producer, small};

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
fn a_shutdown_of_the_socket_counts_as_peer_death() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.carrier.peer.shutdown();
    assert_error(consumer.recv_into_timeout(&mut [0; 8], LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
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
