// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a peer can do with the socket, before the ring is set up and after.

use std::fs::read_dir;
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use sluice::ring::{AsyncConsumer, AsyncProducer, RecvError, SetupError, Socket};
use sluice_hostile::{
    BELL, DATA, Hello, LyingConsumer, LyingProducer, POSITION, Peer, SEALS, WAITING, memfd, seal,
    verdict,
};

use crate::support::{
    CAPACITY, LONG, SHORT, against, assert_error, consumer, in_time, lied_back, lied_to, small,
};

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime")
        .block_on(future)
}

/// Says it until nothing more fits.
fn fill(peer: &Peer, message: &[u8], file: Option<&OwnedFd>) -> usize {
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    let mut said = 0;
    while peer.say(message, &files).is_ok() {
        said += 1;
    }
    said
}

/// How many files of this name this process has open.
fn open_files(name: &str) -> usize {
    read_dir("/proc/self/fd")
        .expect("no /proc")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|link| link.to_string_lossy().contains(name))
        .count()
}

fn named(name: &str) -> OwnedFd {
    rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).expect("no memfd")
}

#[test]
fn a_flood_in_place_of_a_greeting_is_no_greeting() {
    let (peer, socket) = Peer::pair();
    assert!(fill(&peer, &[0; 64], None) > 1);
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn a_flood_behind_the_greeting_is_no_verdict() {
    let (peer, socket) = Peer::pair();
    let file = memfd((DATA + CAPACITY) as u64);
    seal(&file, SEALS);
    let hello = Hello::producer(CAPACITY).bytes();
    peer.say(&hello, &[file.as_fd()]).expect("not said");
    assert!(fill(&peer, &hello, None) > 1);
    assert_error(consumer(socket), |error| {
        matches!(error, SetupError::ProtocolMismatch(_))
    });
}

#[test]
fn what_floods_the_socket_of_a_ring_is_not_in_its_way() {
    let (liar, mut consumer) = lied_to();
    assert!(fill(&liar.peer, &[0], None) > 1);
    let mut room = [0; 8];
    assert_error(consumer.recv_timeout(&mut room, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });
    liar.send(0, b"record");
    assert_eq!(consumer.recv(&mut room).expect("not there"), Some(6));
    drop(liar);
    assert_error(consumer.recv_timeout(&mut room, LONG), |error| {
        matches!(error, RecvError::PeerDied)
    });
}

#[test]
fn wake_ups_that_nobody_reads_keep_nobody() {
    let (liar, mut producer) = lied_back();
    let waiting = liar.memory.word(WAITING);
    let theirs = liar.theirs(CAPACITY);
    for turn in 0..20_000 {
        waiting.store(turn << 3 | 0x02, Ordering::Release);
        producer.send(b"12345678").expect("not sent");
        let released = liar.memory.long(POSITION);
        released.store(
            theirs.long(POSITION).load(Ordering::Acquire),
            Ordering::Release,
        );
    }
    // The socket is full, so that most of them went nowhere; each was rung for.
    assert_eq!(theirs.word(BELL).load(Ordering::Relaxed), 20_000);
    let mut messages = 0;
    while liar.peer.hear().is_ok() {
        messages += 1;
    }
    assert!((1..20_000).contains(&messages), "{messages} messages");
}

#[test]
fn files_with_wake_ups_are_never_open_here() {
    let (liar, mut consumer) = lied_to();
    let sent = named("sluice-blocking-flood");
    let said = fill(&liar.peer, &[0], Some(&sent));
    assert!(said > 1);
    let mut room = [0; 8];
    assert_error(consumer.recv_timeout(&mut room, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });
    assert_eq!(open_files("sluice-blocking-flood"), 1, "the liar's own");
}

#[test]
fn files_with_wake_ups_are_never_open_in_a_runtime() {
    let (liar, consumer) = lied_to();
    let sent = named("sluice-runtime-flood");
    let mut next = 0;
    run(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut room = [0; 8];
        for _ in 0..20 {
            assert!(fill(&liar.peer, &[0], Some(&sent)) > 0);
            let waited = tokio::time::timeout(SHORT / 10, consumer.recv(&mut room)).await;
            assert!(waited.is_err(), "{waited:?}");
            next = liar.send(next, b"record");
            assert_eq!(consumer.recv(&mut room).await.expect("not there"), Some(6));
            assert_eq!(open_files("sluice-runtime-flood"), 1, "the liar's own");
        }
    });
}

#[test]
fn more_files_than_a_greeting_may_have_are_closed() {
    let sent = named("sluice-greeting-flood");
    for _ in 0..50 {
        let (peer, socket) = Peer::pair();
        let files = [sent.as_fd(); 8];
        peer.say(&Hello::producer(CAPACITY).bytes(), &files)
            .expect("not said");
        peer.say(&verdict(0), &files).expect("not said");
        assert_error(consumer(socket), |error| {
            matches!(error, SetupError::ProtocolMismatch(_))
        });
    }
    assert_eq!(open_files("sluice-greeting-flood"), 1, "the liar's own");
}

#[test]
fn a_flood_keeps_no_runtime_from_its_timers() {
    let (liar, consumer) = lied_to();
    let peer = &liar.peer;
    against(
        |_| match peer.say(&[0], &[]) {
            // It is gone when all was seen.
            Ok(()) | Err(Errno::AGAIN | Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => panic!("{errno}"),
        },
        || {
            run(async {
                let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
                let mut room = [0; 8];
                for _ in 0..10 {
                    let began = Instant::now();
                    let waited = tokio::time::timeout(SHORT, consumer.recv(&mut room)).await;
                    assert!(waited.is_err(), "{waited:?}");
                    let took = began.elapsed();
                    assert!(
                        took < Duration::from_secs(5),
                        "{took:?} instead of {SHORT:?}"
                    );
                }
            });
        },
    );
}

#[test]
fn what_lies_in_the_socket_hides_neither_records_nor_the_end() {
    in_time(|| {
        let (liar, socket) = LyingProducer::new(CAPACITY);
        let consumer = small().consumer(Socket::from(socket)).expect("no ring");
        run(async {
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            let mut room = [0; 8];
            fill(&liar.peer, &[0], None);
            liar.send(0, b"record");
            assert_eq!(consumer.recv(&mut room).await.expect("not there"), Some(6));
            fill(&liar.peer, &[0], None);
            drop(liar);
            let died = consumer.recv(&mut room).await;
            assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");
        });
    });
}

#[test]
fn a_message_without_bytes_is_no_death() {
    let (liar, consumer) = lied_to();
    run(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut room = [0; 8];
        liar.peer.say(&[], &[]).expect("not said");
        let waited = tokio::time::timeout(SHORT, consumer.recv(&mut room)).await;
        assert!(waited.is_err(), "{waited:?}");
        liar.send(0, b"record");
        assert_eq!(consumer.recv(&mut room).await.expect("not there"), Some(6));
    });
    let (liar, socket) = LyingConsumer::new();
    let producer = small().producer(Socket::from(socket)).expect("no ring");
    run(async {
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        liar.peer.say(&[], &[]).expect("not said");
        for _ in 0..4 {
            producer.send(&[0; 900]).await.expect("not sent");
        }
        let waited = tokio::time::timeout(SHORT, producer.send(&[0; 900])).await;
        assert!(waited.is_err(), "{waited:?}");
    });
}
