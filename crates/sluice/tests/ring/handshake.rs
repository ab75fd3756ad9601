// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setup of a ring: options, handshake and memory.

use std::fs;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use sluice::ring::{Listener, Options, SetupError, Socket};
use sluice_abi::ring::Reply;

use crate::support::{LONG, SHORT, pattern, ring, set_up, small};

#[test]
fn either_side_may_connect() {
    let path = std::env::temp_dir().join(format!("sluice-handshake-{}", std::process::id()));
    let listener = Listener::bind(&path).expect("cannot listen");
    for connects_to_send in [true, false] {
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let socket = Socket::connect(&path).expect("cannot connect");
                match connects_to_send {
                    true => {
                        let mut producer = small().producer(socket).expect("no ring");
                        producer.send(b"hello").expect("not sent");
                    }
                    false => {
                        let mut consumer = small().consumer(socket).expect("no ring");
                        let got = consumer.recv_timeout(&mut [0; 5], LONG);
                        assert_eq!(got.expect("not received"), Some(5));
                    }
                }
            });
            let socket = listener.accept().expect("no connection");
            assert_eq!(
                socket.peer_user().expect("no peer user"),
                rustix::process::getuid().as_raw()
            );
            match connects_to_send {
                true => {
                    let mut consumer = small().consumer(socket).expect("no ring");
                    let got = consumer.recv_timeout(&mut [0; 5], LONG);
                    assert_eq!(got.expect("not received"), Some(5));
                }
                false => {
                    let mut producer = small().producer(socket).expect("no ring");
                    producer.send(b"hello").expect("not sent");
                    other.join().expect("panicked");
                    return;
                }
            }
            other.join().expect("panicked");
        });
    }
}

#[test]
fn two_producers_reject_each_other() {
    let (here, there) = Socket::pair().expect("no sockets");
    let (one, other) = thread::scope(|scope| {
        let one = scope.spawn(|| small().producer(here).map(drop));
        let other = small().producer(there).map(drop);
        (one.join().expect("panicked"), other)
    });
    for side in [one, other] {
        assert!(
            matches!(side, Err(SetupError::RoleConflict { role: "producer" })),
            "{side:?}"
        );
    }
}

#[test]
fn a_silent_peer_times_out() {
    let (here, _there) = Socket::pair().expect("no sockets");
    let began = Instant::now();
    let silent = small().handshake_timeout(SHORT).consumer(here).map(drop);
    assert!(
        matches!(silent, Err(SetupError::HandshakeTimeout(time)) if time == SHORT),
        "{silent:?}"
    );
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_hang_up_aborts_the_handshake() {
    let (here, there) = Socket::pair().expect("no sockets");
    drop(there);
    let gone = small().consumer(here).map(drop);
    assert!(
        matches!(gone, Err(SetupError::HandshakeAborted)),
        "{gone:?}"
    );
}

/// The peer replies before it has received the hello, and after. In the first case the kernel first reports that the peer
/// left messages unread.
#[test]
fn a_reply_in_place_of_a_hello_is_reported() {
    for pause in [Duration::ZERO, SHORT] {
        let (here, there) = Socket::pair().expect("no sockets");
        let refused = thread::scope(|scope| {
            let refused = scope.spawn(|| {
                thread::sleep(SHORT - pause);
                small().consumer(here).map(drop)
            });
            thread::sleep(pause * 2);
            let reply = Reply {
                magic: sluice_abi::ring::MAGIC,
                error: libc::EPERM as u32,
            };
            let there = OwnedFd::from(there);
            rustix::net::send(&there, &reply.to_bytes(), SendFlags::empty()).expect("not sent");
            drop(there);
            refused.join().expect("panicked")
        });
        assert!(
            matches!(&refused, Err(SetupError::Refused(why)) if why.contains("this user")),
            "{refused:?}"
        );
    }
}

#[test]
fn invalid_capacities_are_rejected() {
    for wrong in [0, (256 << 20) + 1, u64::MAX] {
        let (here, _there) = Socket::pair().expect("no sockets");
        let made = Options::new().capacity(wrong).producer(here).map(drop);
        assert!(
            matches!(made, Err(SetupError::InvalidCapacity(_))),
            "{made:?}"
        );
    }
}

#[test]
fn each_side_has_its_own_options() {
    let (here, there) = Socket::pair().expect("no sockets");
    let spins = Options::new().capacity(8192).spin(Duration::from_millis(1));
    let sleeps = Options::new().capacity(1 << 20).spin(Duration::ZERO);
    let (producer, consumer) = set_up(&spins, &sleeps, here, there);
    assert_eq!(producer.expect("no ring").capacity(), 8192);
    assert_eq!(
        consumer.expect("no ring").capacity(),
        8192,
        "the producer decides"
    );
}

#[test]
fn the_memory_of_the_peer_is_mapped_read_only() {
    let (producer, consumer) = ring(&small());
    let maps = fs::read_to_string("/proc/self/maps").expect("no /proc");
    let ours: Vec<&str> = maps
        .lines()
        .filter(|line| line.contains("sluice-ring"))
        .collect();
    // Both sides are in this process: each maps its own memory for writing, and that of the peer read-only.
    assert!(ours.iter().any(|line| line.contains(" rw-s ")), "{ours:?}");
    assert!(ours.iter().any(|line| line.contains(" r--s ")), "{ours:?}");
    drop((producer, consumer));
}

/// The options of a producer whose consumer only reads.
fn unsealed() -> Options {
    // SAFETY: the consumer is in this process, and the library never writes.
    unsafe { small().unsealed(true) }
}

#[test]
fn an_unsealed_ring_carries_the_same_records() {
    let (here, there) = Socket::pair().expect("no sockets");
    let (producer, consumer) = set_up(&unsealed(), &small().allow_unsealed(true), here, there);
    let mut producer = producer.expect("no ring");
    let mut consumer = consumer.expect("no ring");
    let mut room = [0; 100];
    for number in 0..1000 {
        producer.send(&pattern(number, 100)).expect("not sent");
        assert_eq!(consumer.recv(&mut room).expect("not received"), Some(100));
        assert_eq!(room[..], pattern(number, 100));
    }
}

#[test]
fn an_unsealed_producer_is_rejected_by_default() {
    let (here, there) = Socket::pair().expect("no sockets");
    let (producer, consumer) = set_up(&unsealed(), &small(), here, there);
    assert!(
        matches!(producer, Err(SetupError::Refused(_))),
        "{producer:?}"
    );
    assert!(
        matches!(consumer, Err(SetupError::InvalidMemfd(_))),
        "{consumer:?}"
    );
}

#[test]
fn huge_pages_are_never_left_unsealed() {
    let (here, _there) = Socket::pair().expect("no sockets");
    let made = unsealed().huge_pages(true).producer(here).map(drop);
    assert!(
        matches!(made, Err(SetupError::UnsealedHugePages)),
        "{made:?}"
    );
}

#[test]
fn locked_memory_is_locked_or_the_limit_is_reported() {
    let (here, there) = Socket::pair().expect("no sockets");
    let locked = small().mlock(true);
    match set_up(&locked, &small(), here, there) {
        (Ok(_producer), Ok(_consumer)) => {
            let smaps = fs::read_to_string("/proc/self/smaps").expect("no /proc");
            let locked = smaps
                .split("sluice-ring")
                .skip(1)
                .filter(|mapping| !mapping.contains("Locked:                0 kB"));
            assert!(locked.count() > 0, "nothing is locked");
        }
        (Err(SetupError::NotLocked(..)), _) => {}
        (producer, consumer) => panic!("{producer:?} {consumer:?}"),
    }
}

#[test]
fn huge_pages_are_used_or_their_lack_is_reported() {
    let (here, there) = Socket::pair().expect("no sockets");
    let huge = small().huge_pages(true).handshake_timeout(SHORT);
    match set_up(&huge, &small().handshake_timeout(LONG), here, there) {
        (Ok(mut producer), Ok(mut consumer)) => {
            assert_eq!(producer.capacity(), 2 << 20);
            producer.send(b"huge").expect("not sent");
            assert_eq!(consumer.recv(&mut [0; 4]).expect("not received"), Some(4));
        }
        (Err(SetupError::NoHugePages(_)), Err(SetupError::HandshakeAborted)) => {}
        (producer, consumer) => panic!("{producer:?} {consumer:?}"),
    }
}

#[test]
fn memory_can_be_bound_to_a_node() {
    let (here, there) = Socket::pair().expect("no sockets");
    let (producer, consumer) = set_up(&small().numa_node(0), &small().numa_node(0), here, there);
    producer.expect("no ring").send(b"near").expect("not sent");
    let mut consumer = consumer.expect("no ring");
    assert_eq!(consumer.recv(&mut [0; 4]).expect("not received"), Some(4));

    let (here, _there) = Socket::pair().expect("no sockets");
    let nowhere = small().numa_node(1023).producer(here).map(drop);
    assert!(
        matches!(nowhere, Err(SetupError::System { .. })),
        "{nowhere:?}"
    );
}
