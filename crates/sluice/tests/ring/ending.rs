// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a stream, and the death of a process.

use std::os::fd::OwnedFd;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use sluice::ring::{RecvError, SendError};

use super::carrier::{self, Options};
use super::support::{LONG, SHORT, peer_arguments, ring, small, start_peer};

#[test]
fn what_was_sent_before_the_end_is_received_before_the_end() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"one").expect("not sent");
    producer.send(b"two").expect("not sent");
    drop(producer);
    let mut room = [0; 3];
    assert_eq!(
        consumer.recv_into(&mut room).expect("not received"),
        Some(3)
    );
    assert_eq!(
        consumer.try_recv_into(&mut room).expect("not received"),
        Some(3)
    );
    assert_eq!(&room, b"two");
    for _ in 0..2 {
        assert_eq!(consumer.recv_into(&mut room).expect("no end"), None);
        assert_eq!(consumer.try_recv_into(&mut room).expect("no end"), None);
    }
}

#[test]
fn the_end_wakes_a_waiting_receiver() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (producer, mut consumer) = ring(&small().spin_limit(spin));
        let receiver = thread::spawn(move || consumer.recv_into_timeout(&mut [0; 8], LONG));
        thread::sleep(SHORT);
        drop(producer);
        let got = receiver.join().expect("panicked").expect("no end");
        assert_eq!(got, None);
    }
}

#[test]
fn without_a_receiver_sending_fails() {
    let (mut producer, consumer) = ring(&small());
    producer.send(b"heard").expect("not sent");
    drop(consumer);
    let sent = producer.send(b"unheard");
    assert!(matches!(sent, Err(SendError::Closed)), "{sent:?}");
    let room = producer.try_reserve(1).map(drop);
    assert!(matches!(room, Err(SendError::Closed)), "{room:?}");
}

#[test]
fn a_waiting_sender_learns_that_the_receiver_is_gone() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (mut producer, consumer) = ring(&small().spin_limit(spin));
        while producer.try_send(&[0; 500]).is_ok() {}
        let sender = thread::spawn(move || producer.send_timeout(&[0; 500], LONG));
        thread::sleep(SHORT);
        drop(consumer);
        let sent = sender.join().expect("panicked");
        assert!(matches!(sent, Err(SendError::Closed)), "{sent:?}");
    }
}

#[test]
fn a_flush_waits_until_all_is_released() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (mut producer, mut consumer) = ring(&small().spin_limit(spin));
        producer.flush().expect("nothing to wait for");
        producer.send(b"one").expect("not sent");
        producer.send(b"two").expect("not sent");
        let late = producer.flush_timeout(SHORT);
        assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
        let flushing = thread::spawn(move || (producer.flush(), producer));
        thread::sleep(4 * SHORT);
        consumer.recv_into(&mut [0; 3]).expect("not received");
        assert!(!flushing.is_finished());
        consumer.recv_into(&mut [0; 3]).expect("not received");
        let (flushed, mut producer) = flushing.join().expect("panicked");
        flushed.expect("not flushed");
        producer.send(b"never taken").expect("not sent");
        drop(consumer);
        let flushed = producer.flush();
        assert!(matches!(flushed, Err(SendError::Closed)), "{flushed:?}");
    }
}

/// A process that sets up one side of a ring and then sleeps until it is killed.
pub fn idle_peer(role: &str, end: OwnedFd) -> Child {
    start_peer(module_path!(), "idle_peer_process", role, end)
}

/// The process of idle_peer(). As a test it does nothing.
#[test]
pub fn idle_peer_process() {
    let Some((role, end)) = peer_arguments() else {
        return;
    };
    if role == "producer" {
        let mut producer = carrier::producer(&small(), end).expect("no ring");
        producer.send(b"before").expect("not sent");
        producer.reserve(100).expect("no room").fill(1);
        thread::sleep(Duration::MAX);
    } else {
        let mut consumer = carrier::consumer(&small(), end).expect("no ring");
        consumer.recv_into(&mut [0; 8]).expect("not received");
        thread::sleep(Duration::MAX);
    }
}

#[test]
fn a_receiver_learns_at_once_that_the_sender_was_killed() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (there, here) = carrier::ends();
        let mut child = idle_peer("producer", there);
        let mut consumer = carrier::consumer(&small().spin_limit(spin), here).expect("no ring");
        let mut room = [0; 100];
        let got = consumer.recv_into_timeout(&mut room, LONG);
        assert_eq!(got.expect("not received"), Some(6));
        let receiver = thread::spawn(move || {
            let got = consumer.recv_into_timeout(&mut room, LONG);
            (got, Instant::now())
        });
        thread::sleep(SHORT);
        child.kill().expect("not killed");
        child.wait().expect("not waited for");
        let gone = Instant::now();
        let (got, learned) = receiver.join().expect("panicked");
        assert!(matches!(got, Err(RecvError::PeerDied)), "{got:?}");
        let late = learned.saturating_duration_since(gone);
        assert!(late < Duration::from_secs(1), "{late:?}");
    }
}

#[test]
fn a_sender_learns_at_once_that_the_receiver_was_killed() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (here, there) = carrier::ends();
        let mut child = idle_peer("consumer", there);
        let mut producer = carrier::producer(&small().spin_limit(spin), here).expect("no ring");
        producer.send(b"before").expect("not sent");
        // On a device ring only this shows that the consumer has come.
        producer.flush_timeout(LONG).expect("not received");
        while producer.try_send(&[0; 500]).is_ok() {}
        let sender = thread::spawn(move || producer.send_timeout(&[0; 500], LONG));
        thread::sleep(SHORT);
        child.kill().expect("not killed");
        child.wait().expect("not waited for");
        let sent = sender.join().expect("panicked");
        assert!(matches!(sent, Err(SendError::PeerDied)), "{sent:?}");
    }
}

#[test]
fn nothing_is_left_of_a_ring() {
    const CAPACITY: u64 = 32 << 20;
    let count = || {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("no /proc");
        // Concurrent tests have rings, too, of other sizes.
        let data = maps.lines().filter(|line| {
            line.contains("sluice-ring") && spans(line, 2 * CAPACITY / carrier::DATA_MAPPINGS)
        });
        data.count() as u64
    };
    for _ in 0..20 {
        let (mut producer, _consumer) = ring(&Options::new().capacity(CAPACITY));
        producer.send(b"something").expect("not sent");
        assert_eq!(count(), 2 * carrier::DATA_MAPPINGS);
    }
    assert_eq!(count(), 0, "mappings are left");
}

/// Whether a line of /proc/PID/maps is a mapping of this size.
fn spans(line: &str, bytes: u64) -> bool {
    let range = line.split(' ').next().unwrap_or_default();
    let mut ends = range.split('-').map(|end| u64::from_str_radix(end, 16));
    match (ends.next(), ends.next()) {
        (Some(Ok(from)), Some(Ok(to))) => to - from == bytes,
        _ => false,
    }
}
