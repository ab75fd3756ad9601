// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer that stops somewhere, silently or by hanging up.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice::ring::{Listener, RecvError, SendError, SetupError, Socket};
use sluice_hostile::{
    BELL, CLOSED, DATA, Hello, LyingConsumer, LyingProducer, POSITION, Peer, SEALS, SIDE, memfd,
    seal, verdict,
};

use crate::support::{
    CAPACITY, LONG, SHORT, assert_error, consumer, in_time, lied_back, lied_to, producer, small,
};

/// What a producer says, one message after the other, until it stops.
fn say_some(messages: usize) -> (Peer, std::os::fd::OwnedFd) {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    let hello = Hello::producer(CAPACITY).bytes();
    if messages > 0 {
        peer.say(&hello, &[file.as_fd()]).expect("not said");
    }
    if messages > 1 {
        peer.say(&verdict(0), &[]).expect("not said");
    }
    (peer, socket)
}

#[test]
fn silence_at_any_point_of_the_greeting_is_given_up() {
    for messages in 0..2 {
        let (_peer, socket) = say_some(messages);
        let began = Instant::now();
        assert_error(
            consumer(socket),
            |error| matches!(error, SetupError::HandshakeTimeout(patience) if *patience == SHORT),
        );
        assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
    }
}

#[test]
fn hanging_up_at_any_point_of_the_greeting_is_told() {
    for messages in 0..2 {
        let (peer, socket) = say_some(messages);
        drop(peer);
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::HandshakeAborted)
        });

        let (peer, socket) = say_some(messages);
        peer.says_no_more();
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::HandshakeAborted)
        });
    }
    let (peer, socket) = Peer::pair();
    let file = memfd(SIDE as u64);
    seal(&file, SEALS);
    peer.say(&Hello::consumer().bytes(), &[file.as_fd()])
        .expect("not said");
    drop(peer);
    assert_error(producer(socket), |error| {
        matches!(error, SetupError::HandshakeAborted)
    });
}

#[test]
fn one_that_dies_right_after_the_greeting_has_died() {
    let (liar, mut consumer) = lied_to();
    drop(liar);
    assert_error(consumer.recv_timeout(&mut [0; 8], LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
    let (liar, mut producer) = lied_back();
    drop(liar);
    let died = in_time(move || {
        loop {
            if let Err(error) = producer.send_timeout(&[0; 8], LONG) {
                break error;
            }
        }
    });
    assert!(matches!(died, SendError::PeerDied), "{died:?}");
}

#[test]
fn one_that_dies_between_two_records_leaves_the_first() {
    let (liar, mut consumer) = lied_to();
    let next = liar.send(0, b"whole");
    liar.bytes(next + 8, b"never sent");
    liar.header(next, 10, 0);
    drop(liar);
    let mut room = [0; 16];
    assert_eq!(
        consumer.recv_timeout(&mut room, LONG).expect("not there"),
        Some(5)
    );
    for _ in 0..2 {
        assert_error(consumer.recv_timeout(&mut room, LONG), |error| {
            matches!(error, RecvError::PeerDied)
        });
    }
}

#[test]
fn one_that_says_no_more_has_died_though_it_lives() {
    let (liar, mut consumer) = lied_to();
    liar.peer.says_no_more();
    assert_error(consumer.recv_timeout(&mut [0; 8], LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
}

#[test]
fn one_that_closes_and_goes_on_ends_nothing_but_its_own_ring() {
    let (liar, mut consumer) = lied_to();
    let closed = liar.memory.word(CLOSED);
    let mut room = [0; 8];
    for value in [1, 2, u32::MAX] {
        closed.store(value, Ordering::Release);
        assert_eq!(consumer.recv(&mut room).expect("no end"), None);
    }
    liar.send(0, b"more");
    assert_eq!(consumer.recv(&mut room).expect("not there"), Some(4));
    assert_eq!(consumer.recv(&mut room).expect("no end"), None);
    closed.store(0, Ordering::Release);
    assert_error(consumer.try_recv(&mut room), |error| {
        matches!(error, RecvError::Empty)
    });
    assert_error(consumer.recv_timeout(&mut room, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });

    let (liar, mut producer) = lied_back();
    liar.memory.word(CLOSED).store(1, Ordering::Release);
    assert_error(producer.send(b"to whom"), |error| {
        matches!(error, SendError::Closed)
    });
    liar.memory.word(CLOSED).store(0, Ordering::Release);
    producer.send(b"to you").expect("not sent");
}

#[test]
fn a_sleeper_hears_the_end_from_one_that_never_rings() {
    // Neither a bell nor a message: the socket alone tells.
    let (liar, socket) = LyingProducer::new(CAPACITY);
    let options = small().spin(std::time::Duration::ZERO);
    let mut consumer = options.consumer(Socket::from(socket)).expect("no ring");
    let (asleep, sleeping) = std::sync::mpsc::channel();
    let sleeper = std::thread::spawn(move || {
        asleep.send(()).expect("nobody waits");
        consumer.recv_timeout(&mut [0; 8], LONG)
    });
    sleeping.recv().expect("it panicked");
    std::thread::sleep(SHORT);
    assert_eq!(liar.memory.word(BELL).load(Ordering::Relaxed), 0);
    let began = Instant::now();
    drop(liar);
    let died = sleeper.join().expect("panicked");
    assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
    assert!(began.elapsed() < LONG / 2);
}

#[test]
fn a_thousand_that_connect_and_say_nothing_leave_nothing() {
    let path = std::env::temp_dir().join(format!("sluice-thousand-{}", std::process::id()));
    let listener = Listener::bind(&path).expect("cannot listen");
    let hasty = small().handshake_timeout(std::time::Duration::from_millis(1));
    for _ in 0..1000 {
        let _silent = Socket::connect(&path).expect("cannot connect");
        let socket = listener.accept().expect("nobody came");
        assert_error(hasty.consumer(socket).map(drop), |error| {
            matches!(error, SetupError::HandshakeTimeout(_))
        });
    }
    // And an honest one is served as if they had never been.
    let (liar, socket) = LyingConsumer::new();
    let mut producer = small().producer(Socket::from(socket)).expect("no ring");
    producer.send(b"hello").expect("not sent");
    let theirs = liar.theirs(CAPACITY);
    assert_eq!(theirs.long(POSITION).load(Ordering::Acquire), 16);
}
