// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setup of a ring over memfd: sockets, handshake and memory.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::SendFlags;
use sluice::Wait;
use sluice::ring::{AsyncListener, Listener, SetupError, Socket, SocketOptions};
use sluice_abi::ring::Reply;

use super::carrier::set_up;
use super::support::{LONG, SHORT, in_child, pattern, small};

#[test]
fn an_accept_and_a_connect_have_limits() {
    let path = std::env::temp_dir().join(format!("sluice-limits-{}", std::process::id()));
    let listener = Listener::bind(&path).expect("cannot listen");
    let is_over = |error: SetupError| error.raw_os_error() == Some(libc::EAGAIN);
    assert!(listener.accept_within(Wait::Never).is_err_and(is_over));
    let began = Instant::now();
    assert!(listener.accept_within(Wait::For(SHORT)).is_err_and(is_over));
    assert!(began.elapsed() >= SHORT);

    // One of the threads gets the connection; the other one waits on, up to its limit.
    thread::scope(|scope| {
        let accept = || listener.accept_within(Wait::For(10 * SHORT)).is_ok();
        let threads = [scope.spawn(accept), scope.spawn(accept)];
        let _connection = Socket::connect(&path).expect("cannot connect");
        let accepted = threads.map(|thread| thread.join().expect("panicked"));
        assert!(accepted == [true, false] || accepted == [false, true]);
    });

    let mut pending = Vec::new();
    let full = loop {
        match Socket::connect_within(&path, Wait::Never) {
            Ok(socket) => pending.push(socket),
            Err(error) => break error,
        }
    };
    assert!(is_over(full), "{} connections", pending.len());
    let began = Instant::now();
    assert!(Socket::connect_within(&path, Wait::For(SHORT)).is_err_and(is_over));
    assert!(began.elapsed() >= SHORT);
    drop(listener.accept().expect("no connection"));
    Socket::connect_within(&path, Wait::For(LONG)).expect("cannot connect");
}

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
                        let got = consumer.recv_into_timeout(&mut [0; 5], LONG);
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
                    let got = consumer.recv_into_timeout(&mut [0; 5], LONG);
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
            matches!(&refused, Err(SetupError::NotAllowedByPeer)),
            "{refused:?}"
        );
    }
}

/// The errno of a side whose peer replies with this number in place of a hello.
fn errno_of_reply(error: u32) -> Option<i32> {
    let (here, there) = Socket::pair().expect("no sockets");
    let reply = Reply {
        magic: sluice_abi::ring::MAGIC,
        error,
    };
    let there = OwnedFd::from(there);
    rustix::net::send(&there, &reply.to_bytes(), SendFlags::empty()).expect("not sent");
    let refused = small().producer(here).map(drop);
    refused.expect_err("set up").raw_os_error()
}

#[test]
fn a_reply_cannot_choose_the_result() {
    for errno in [
        libc::EPERM,
        libc::EPROTONOSUPPORT,
        libc::EALREADY,
        libc::EACCES,
        libc::EPROTO,
        libc::ERANGE,
        libc::ETIMEDOUT,
        libc::ECANCELED,
    ] {
        assert_eq!(errno_of_reply(errno as u32), Some(errno));
    }
    for other in [
        libc::EAGAIN as u32,
        libc::ENODATA as u32,
        4096,
        1 << 31,
        u32::MAX,
    ] {
        assert_eq!(errno_of_reply(other), Some(libc::ECONNREFUSED), "{other}");
    }
}

#[test]
fn invalid_capacities_are_rejected() {
    for wrong in [0, (256 << 20) + 1, u64::MAX] {
        let (here, _there) = Socket::pair().expect("no sockets");
        let made = SocketOptions::new()
            .capacity(wrong)
            .producer(here)
            .map(drop);
        assert!(
            matches!(made, Err(SetupError::InvalidCapacity(_))),
            "{made:?}"
        );
    }
}

/// The options of a producer whose consumer only reads.
fn unsealed() -> SocketOptions {
    // SAFETY: the consumer is in this process, and the library never writes.
    unsafe { small().unsealed(true) }
}

#[test]
fn an_unsealed_ring_carries_the_same_records() {
    let (producer, consumer) = set_up(&unsealed(), &small().allow_unsealed(true));
    let mut producer = producer.expect("no ring");
    let mut consumer = consumer.expect("no ring");
    let mut room = [0; 100];
    for number in 0..1000 {
        producer.send(&pattern(number, 100)).expect("not sent");
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(100)
        );
        assert_eq!(room[..], pattern(number, 100));
    }
}

#[test]
fn an_unsealed_producer_is_rejected_by_default() {
    let (producer, consumer) = set_up(&unsealed(), &small());
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
    let locked = small().mlock(true);
    match set_up(&locked, &small()) {
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
    let huge = small().huge_pages(true).handshake_timeout(SHORT);
    match set_up(&huge, &small().handshake_timeout(LONG)) {
        (Ok(mut producer), Ok(mut consumer)) => {
            assert_eq!(producer.capacity(), 2 << 20);
            producer.send(b"huge").expect("not sent");
            assert_eq!(
                consumer.recv_into(&mut [0; 4]).expect("not received"),
                Some(4)
            );
        }
        (Err(SetupError::NoHugePages(_)), Err(SetupError::HandshakeAborted)) => {}
        (producer, consumer) => panic!("{producer:?} {consumer:?}"),
    }
}

#[test]
fn memory_cannot_be_bound_to_a_node_that_does_not_exist() {
    let (here, _there) = Socket::pair().expect("no sockets");
    let nowhere = small().numa_node(1023).producer(here).map(drop);
    assert!(
        matches!(nowhere, Err(SetupError::System { .. })),
        "{nowhere:?}"
    );
}

#[test]
fn a_producer_learns_that_its_capacity_is_too_large() {
    let (sending, _) = set_up(&small().capacity(8192), &small().max_capacity(4096));
    assert!(
        matches!(sending, Err(SetupError::Refused(_))),
        "{sending:?}"
    );
}

#[test]
fn a_socket_without_a_listener_is_replaced() {
    let path = std::env::temp_dir().join(format!("sluice-stale-{}", std::process::id()));
    drop(UnixListener::bind(&path).expect("cannot listen"));
    assert!(path.exists(), "a killed process leaves its socket");
    drop(Listener::bind(&path).expect("the stale socket is in the way"));
    assert!(!path.exists());
    fs::write(&path, "precious").expect("cannot write");
    let refused = Listener::bind(&path);
    assert!(
        matches!(refused, Err(SetupError::Listen { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&path).expect("it is gone"), b"precious");
    fs::remove_file(&path).expect("cannot remove it");
}

#[test]
fn a_listener_leaves_no_socket_behind() {
    let path = std::env::temp_dir().join(format!("sluice-ring-{}", std::process::id()));
    let listener = Listener::bind(&path).expect("cannot listen");
    let again = Listener::bind(&path);
    assert!(matches!(again, Err(SetupError::Listen { .. })), "{again:?}");
    assert!(path.exists());
    drop(listener);
    assert!(!path.exists());
    let refused = Socket::connect(&path);
    assert!(
        matches!(refused, Err(SetupError::Connect { .. })),
        "{refused:?}"
    );
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
fn sides_are_accepted_and_set_up_in_a_runtime() {
    let path = std::env::temp_dir().join(format!("sluice-runtime-{}", std::process::id()));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime");
    runtime.block_on(async {
        let listener = AsyncListener::bind(&path).expect("cannot listen");
        let connecting = async {
            let socket = Socket::connect(&path).expect("cannot connect");
            small().async_producer(socket).await.expect("no ring")
        };
        let accepting = async {
            let socket = listener.accept().await.expect("no connection");
            small().async_consumer(socket).await.expect("no ring")
        };
        let (mut producer, mut consumer) = tokio::join!(connecting, accepting);
        producer.send(b"hello").await.expect("not sent");
        let got = consumer.recv_into(&mut [0; 8]).await;
        assert_eq!(got.expect("not received"), Some(5));
    });
}
