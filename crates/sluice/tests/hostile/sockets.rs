// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks through the socket, during the handshake and after it.

use std::fs::read_dir;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sluice::ring::{AsyncConsumer, AsyncProducer, RecvError, SetupError, Socket};
use sluice_hostile::{
    DATA, Hello, MaliciousConsumer, MaliciousProducer, POS, Peer, SEALS, WAIT_FLAGS, WAKE_SEQ,
    memfd, reply, seal,
};

use super::carrier::consumer;
use super::support::{
    CAPACITY, LONG, SHORT, assert_error, malicious_consumer, malicious_producer, run_against,
    small, within_timeout,
};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime")
        .block_on(future)
}

/// Sends a message until the socket is full. Returns how many were sent.
fn fill(peer: &Peer, message: &[u8], file: Option<&OwnedFd>) -> usize {
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut sent = 0;
    while peer.send(message, &files).is_ok() {
        sent += 1;
    }
    sent
}

/// The number of open files of this name in this process.
fn count_open_files(name: &str) -> usize {
    read_dir("/proc/self/fd")
        .expect("no /proc")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link.to_string_lossy().contains(name))
        .count()
}

fn named_memfd(name: &str) -> OwnedFd {
    rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("no memfd")
}

#[test]
fn a_flood_in_place_of_the_hello_is_refused() {
    let (peer, socket) = Peer::pair();
    assert!(fill(&peer, &[0; 64], None) > 1);
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn a_flood_in_place_of_the_reply_is_refused() {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    let hello = Hello::producer(CAPACITY).bytes();
    peer.send(&hello, &[file.as_fd()]).expect("not sent");
    assert!(fill(&peer, &hello, None) > 1);
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn a_flooded_socket_does_not_disturb_the_ring() {
    let (malicious, mut consumer) = malicious_producer();
    assert!(fill(&malicious.carrier.peer, &[0], None) > 1);
    let mut buffer = [0; 8];
    assert_error(consumer.recv_into_timeout(&mut buffer, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });
    malicious.send(0, b"record");
    assert_eq!(
        consumer.recv_into(&mut buffer).expect("not received"),
        Some(6)
    );
    drop(malicious);
    assert_error(consumer.recv_into_timeout(&mut buffer, LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
}

#[test]
fn unread_wake_ups_do_not_block_the_producer() {
    let (malicious, mut producer) = malicious_consumer();
    let wait_flags = malicious.memory.word(WAIT_FLAGS);
    let producer_memory = malicious.map_producer(CAPACITY);
    for wait_seq in 0..20_000 {
        wait_flags.store(wait_seq << 3 | 0x02, Ordering::Release);
        producer.send(b"12345678").expect("not sent");
        malicious.memory.long(POS).store(
            producer_memory.long(POS).load(Ordering::Acquire),
            Ordering::Release,
        );
    }
    // The socket is full, so most messages were dropped; each wake-up is counted.
    assert_eq!(
        producer_memory.word(WAKE_SEQ).load(Ordering::Relaxed),
        20_000
    );
    let mut messages = 0;
    while malicious.carrier.peer.receive().is_ok() {
        messages += 1;
    }
    assert!((1..20_000).contains(&messages), "{messages} messages");
}

#[test]
fn files_sent_with_wake_ups_are_never_open_here() {
    let (malicious, mut consumer) = malicious_producer();
    let file = named_memfd("sluice-blocking-flood");
    assert!(fill(&malicious.carrier.peer, &[0], Some(&file)) > 1);
    let mut buffer = [0; 8];
    assert_error(consumer.recv_into_timeout(&mut buffer, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });
    assert_eq!(
        count_open_files("sluice-blocking-flood"),
        1,
        "only the sent file is open"
    );
}

#[test]
fn files_sent_with_wake_ups_are_never_open_in_a_runtime() {
    let (malicious, consumer) = malicious_producer();
    let file = named_memfd("sluice-runtime-flood");
    let mut next = 0;
    run(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut buffer = [0; 8];
        for _ in 0..20 {
            assert!(fill(&malicious.carrier.peer, &[0], Some(&file)) > 0);
            let result = tokio::time::timeout(SHORT / 10, consumer.recv_into(&mut buffer)).await;
            assert!(result.is_err(), "{result:?}");
            next = malicious.send(next, b"record");
            assert_eq!(
                consumer.recv_into(&mut buffer).await.expect("not received"),
                Some(6)
            );
            assert_eq!(
                count_open_files("sluice-runtime-flood"),
                1,
                "only the sent file is open"
            );
        }
    });
}

#[test]
fn excess_files_of_a_hello_are_closed() {
    let file = named_memfd("sluice-hello-flood");
    for _ in 0..50 {
        let (peer, socket) = Peer::pair();
        let files = [file.as_fd(); 8];
        peer.send(&Hello::producer(CAPACITY).bytes(), &files)
            .expect("not sent");
        peer.send(&reply(0), &files).expect("not sent");
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
    assert_eq!(
        count_open_files("sluice-hello-flood"),
        1,
        "only the sent file is open"
    );
}

#[test]
fn a_flood_does_not_starve_the_timers_of_a_runtime() {
    let (malicious, consumer) = malicious_producer();
    let peer = &malicious.carrier.peer;
    run_against(
        |_| match peer.send(&[0], &[]) {
            // The consumer is closed before the attack ends.
            Ok(()) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => panic!("{errno}"),
        },
        || {
            run(async {
                let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
                let mut buffer = [0; 8];
                for _ in 0..10 {
                    let began = Instant::now();
                    let result = tokio::time::timeout(SHORT, consumer.recv_into(&mut buffer)).await;
                    assert!(result.is_err(), "{result:?}");
                    let elapsed = began.elapsed();
                    assert!(
                        elapsed < Duration::from_secs(5),
                        "{elapsed:?} instead of {SHORT:?}"
                    );
                }
            });
        },
    );
}

#[test]
fn unread_messages_hide_neither_records_nor_peer_death() {
    within_timeout(|| {
        let (malicious, socket) = MaliciousProducer::new(CAPACITY);
        let consumer = small()
            .consumer(Socket::from(socket))
            .expect("handshake failed");
        run(async {
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            let mut buffer = [0; 8];
            fill(&malicious.carrier.peer, &[0], None);
            malicious.send(0, b"record");
            assert_eq!(
                consumer.recv_into(&mut buffer).await.expect("not received"),
                Some(6)
            );
            fill(&malicious.carrier.peer, &[0], None);
            drop(malicious);
            let died = consumer.recv_into(&mut buffer).await;
            assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
        });
    });
}

#[test]
fn an_empty_message_is_not_a_hang_up() {
    let (malicious, consumer) = malicious_producer();
    run(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut buffer = [0; 8];
        malicious.carrier.peer.send(&[], &[]).expect("not sent");
        let result = tokio::time::timeout(SHORT, consumer.recv_into(&mut buffer)).await;
        assert!(result.is_err(), "{result:?}");
        malicious.send(0, b"record");
        assert_eq!(
            consumer.recv_into(&mut buffer).await.expect("not received"),
            Some(6)
        );
    });
    let (malicious, socket) = MaliciousConsumer::new();
    let producer = small()
        .producer(Socket::from(socket))
        .expect("handshake failed");
    run(async {
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        malicious.carrier.peer.send(&[], &[]).expect("not sent");
        for _ in 0..4 {
            producer.send(&[0; 900]).await.expect("not sent");
        }
        let result = tokio::time::timeout(SHORT, producer.send(&[0; 900])).await;
        assert!(result.is_err(), "{result:?}");
    });
}
