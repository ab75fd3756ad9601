// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a forked child, which has copies of everything except the threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use sluice::ring::{Listener, RecvError, SendError, Socket};
use sluice_hostile::{MaliciousConsumer, MaliciousProducer};

use crate::support::{LONG, ring, small};

/// Runs `does` in a child. Fails if it returns false.
fn in_child(does: impl FnOnce() -> bool) {
    // SAFETY: the child only uses its own memory, and exits without the parent's exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = match catch_unwind(AssertUnwindSafe(does)) {
            Ok(true) => 0,
            Ok(false) => 1,
            Err(_) => 2,
        };
        // SAFETY: it exits this process immediately.
        unsafe { libc::_exit(status) };
    }
    assert!(child > 0, "no child");
    let mut status = 0;
    // SAFETY: the pointer to the status is valid.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "status of the child");
}

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
    assert_eq!(consumer.recv(&mut room).expect("not received"), Some(6));
    assert_eq!(consumer.recv(&mut room).expect("not received"), Some(5));
    drop(producer);
    assert_eq!(consumer.recv(&mut room).expect("no end"), None);
}

#[test]
fn a_child_cannot_wait_in_the_ring_of_its_parent() {
    let (mut producer, mut consumer) = ring(&small().spin(Duration::ZERO));
    in_child(|| matches!(consumer.recv(&mut []), Err(RecvError::Forked)));
    producer.send(b"parent's").expect("not sent");
    assert_eq!(consumer.recv(&mut [0; 8]).expect("not received"), Some(8));
}

#[test]
fn rings_of_a_child_detect_a_death() {
    // The parent has a ring, too.
    let _ring = ring(&small());
    in_child(|| {
        let (peer, socket) = MaliciousProducer::new(4096);
        let mut consumer = small().consumer(Socket::from(socket)).expect("no ring");
        drop(peer);
        let got = consumer.recv_timeout(&mut [0; 8], LONG);
        matches!(got, Err(RecvError::PeerDied))
    });
    in_child(|| {
        let (peer, socket) = MaliciousConsumer::new();
        let mut producer = small().producer(Socket::from(socket)).expect("no ring");
        drop(peer);
        let died = (0..100).find_map(|_| producer.send_timeout(&[0; 500], LONG).err());
        matches!(died, Some(SendError::PeerDied))
    });
}

#[test]
fn a_listener_dropped_in_a_child_still_listens() {
    let path = std::env::temp_dir().join(format!("sluice-forking-{}", std::process::id()));
    let mut listener = Listener::bind(&path).expect("cannot listen");
    let copy = &raw mut listener;
    in_child(|| {
        // SAFETY: the child exits before it could be dropped again.
        unsafe { copy.drop_in_place() };
        true
    });
    Socket::connect(&path).expect("cannot connect");
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
