// SPDX-License-Identifier: MIT OR Apache-2.0
//! Close, death and destruction.

use loom::sync::Arc;
use loom::thread;
use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{Memory, PeerState, peer_state};

use super::kernel::{Sleep, destroy};
use super::sides::{Sender, sides};
use super::{SMALL, explore, explore_with_sleepers};

#[test]
fn a_close_wakes_and_follows_all_records() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.close();
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Err(PeerState::Closed));
        sending.join().unwrap();
    });
}

#[test]
fn a_close_is_visible_after_all_records() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            sender.write(1);
            // Without notify(), whose barrier would order the two by itself.
            sender.core.publish();
            sender.core.memory().producer().close();
        });
        if receiver.core.memory().producer().is_closed() {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

/// The socket hangs up after the peer's process has closed it or exited.
#[test]
fn a_close_is_not_a_death_and_hides_no_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let socket = Arc::new(AtomicU32::new(0));
        let hung_up = Arc::clone(&socket);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            sender.core.memory().producer().close();
            // Stores before a system call are visible when its effect is.
            hung_up.store(1, Ordering::Release);
        });
        let peer = &receiver.connection.system.peer().ctrl;
        let state = peer_state(peer, || socket.load(Ordering::Relaxed) == 1);
        assert_ne!(state, PeerState::Dead, "it closed first");
        if state == PeerState::Closed {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

#[test]
fn records_sent_before_a_death_are_received() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let socket = Arc::new(AtomicU32::new(0));
        let hung_up = Arc::clone(&socket);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            hung_up.store(1, Ordering::Release);
        });
        let peer = &receiver.connection.system.peer().ctrl;
        if peer_state(peer, || socket.load(Ordering::Relaxed) == 1) == PeerState::Dead {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

/// The consumer sleeps in the kernel, and the producer ends by `end` after one record.
fn an_end_wakes(sleep: Sleep, end: fn(Sender), expected: PeerState) {
    explore_with_sleepers(move || {
        let (mut sender, mut receiver) = sides(SMALL, sleep, false);
        let sending = thread::spawn(move || {
            sender.send(1);
            end(sender);
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Err(expected));
        sending.join().unwrap();
    });
}

#[test]
fn a_close_ends_a_wait() {
    an_end_wakes(Sleep::Wait, Sender::close, PeerState::Closed);
}

#[test]
fn a_close_ends_a_poll() {
    an_end_wakes(Sleep::Poll, Sender::close, PeerState::Closed);
}

#[test]
fn a_death_ends_a_wait() {
    an_end_wakes(Sleep::Wait, Sender::die, PeerState::Dead);
}

#[test]
fn a_death_ends_a_poll() {
    an_end_wakes(Sleep::Poll, Sender::die, PeerState::Dead);
}

#[test]
fn a_destruction_ends_a_wait_and_is_not_a_close() {
    explore_with_sleepers(|| {
        let (sender, mut receiver) = sides(SMALL, Sleep::Wait, false);
        let destroying = thread::spawn(move || {
            destroy(&sender.connection.system.ring);
            sender.close();
        });
        assert_eq!(receiver.receive(), Err(PeerState::Destroyed));
        destroying.join().unwrap();
    });
}

#[test]
fn records_sent_before_a_stored_death_are_received() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Wait, false);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            sender.die();
        });
        if receiver.connection.peer_state() == PeerState::Dead {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}
