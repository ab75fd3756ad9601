// SPDX-License-Identifier: MIT OR Apache-2.0
//! Peers that fall silent or hang up their socket.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice::ring::{Listener, RecvError, SetupError, Socket};
use sluice_hostile::{CTRL_SIZE, DATA, Hello, MaliciousConsumer, POS, Peer, SEALS, memfd, seal};

use super::carrier::{consumer, producer};
use super::support::{CAPACITY, LONG, SHORT, assert_error, malicious_producer, small};

/// A peer that has a file of this length for its hello, and may have sent both.
fn partial_handshake(
    hello: &Hello,
    length: usize,
    sends_hello: bool,
) -> (Peer, std::os::fd::OwnedFd) {
    let (peer, socket) = Peer::pair();
    let file = memfd(length as u64);
    seal(&file, SEALS);
    if sends_hello {
        peer.send(&hello.bytes(), &[file.as_fd()])
            .expect("not sent");
    }
    (peer, socket)
}

/// Tries both roles with a peer that stops before and after its hello, and then does this.
fn stops_at_any_point(then: impl Fn(Peer) -> Option<Peer>, expected: impl Fn(&SetupError) -> bool) {
    let producers = (Hello::producer(CAPACITY), DATA + CAPACITY);
    let consumers = (Hello::consumer(), CTRL_SIZE);
    for sends_hello in [false, true] {
        let (peer, socket) = partial_handshake(&producers.0, producers.1, sends_hello);
        let _peer = then(peer);
        assert_error(consumer(socket), &expected);

        let (peer, socket) = partial_handshake(&consumers.0, consumers.1, sends_hello);
        let _peer = then(peer);
        assert_error(producer(socket), &expected);
    }
}

#[test]
fn a_silent_peer_times_out_at_any_point_of_the_handshake() {
    let began = Instant::now();
    stops_at_any_point(
        Some,
        |error| matches!(error, SetupError::HandshakeTimeout(timeout) if *timeout == SHORT),
    );
    assert!(began.elapsed() >= 4 * SHORT && began.elapsed() < LONG);
}

#[test]
fn a_hang_up_at_any_point_of_the_handshake_is_reported() {
    let is_reported = |error: &SetupError| matches!(error, SetupError::HandshakeAborted);
    stops_at_any_point(|_| None, is_reported);
    stops_at_any_point(
        |peer| {
            peer.shutdown();
            Some(peer)
        },
        is_reported,
    );
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
    let (other, other_socket) = MaliciousConsumer::new();
    let mut in_use = small()
        .producer(Socket::from(other_socket))
        .expect("handshake failed");
    let options = small().handshake_timeout(Duration::from_millis(1));
    for _ in 0..1000 {
        let _silent = Socket::connect(&path).expect("cannot connect");
        let socket = listener.accept().expect("no connection");
        assert_error(options.consumer(socket).map(drop), |error| {
            matches!(error, SetupError::HandshakeTimeout(_))
        });
    }
    // A peer of the same listener that completes its handshake is served as before, and so is the other ring.
    let mut served = std::thread::scope(|scope| {
        let peer =
            scope.spawn(|| small().consumer(Socket::connect(&path).expect("cannot connect")));
        let socket = listener.accept().expect("no connection");
        let mut producer = small().producer(socket).expect("handshake failed");
        producer.send(b"hello").expect("not sent");
        peer.join().expect("a panic").expect("handshake failed")
    });
    let mut record = [0; 8];
    let length = served.recv_into(&mut record).expect("not received");
    assert_eq!(length, Some(5));
    assert_eq!(record[..5], *b"hello");
    in_use.send(b"hello").expect("not sent");
    let memory = other.map_producer(CAPACITY);
    assert_eq!(memory.long(POS).load(Ordering::Acquire), 16);
}
