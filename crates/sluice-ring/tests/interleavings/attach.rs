// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sides of a device ring that attach at any time, registered with membarrier(2) or not. A notifier issues full barriers
//! until it loads the announcement of its peer.

use loom::thread;

use super::kernel::Sleep;
use super::memory::View;
use super::sides::{Receiver, Sender};
use super::{SMALL, explore_with_sleepers};

/// The producer attaches during the run. Its first record has a full barrier, so that the second one may have none.
fn a_late_producer_wakes(sleep: Sleep, sender_registered: bool, receiver_registered: bool) {
    explore_with_sleepers(move || {
        let view = View::new(SMALL);
        let mut receiver = Receiver::attach(&view, sleep, receiver_registered);
        let sending = thread::spawn(move || {
            let mut sender = Sender::attach(&view, sleep, sender_registered);
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}

/// The consumer attaches during the run: its announcement appears between two records, or later.
fn a_late_consumer_is_woken(sleep: Sleep, sender_registered: bool, receiver_registered: bool) {
    explore_with_sleepers(move || {
        let view = View::new(SMALL);
        let mut sender = Sender::attach(&view, sleep, sender_registered);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        let mut receiver = Receiver::attach(&view, sleep, receiver_registered);
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}

#[test]
fn a_producer_that_attaches_late_wakes_a_consumer_in_wait() {
    a_late_producer_wakes(Sleep::Wait, true, true);
}

#[test]
fn a_producer_that_attaches_late_wakes_a_consumer_in_poll() {
    a_late_producer_wakes(Sleep::Poll, true, true);
}

#[test]
fn a_late_producer_that_is_not_registered_wakes() {
    a_late_producer_wakes(Sleep::Wait, false, true);
}

#[test]
fn a_consumer_that_attaches_late_and_waits_is_woken() {
    a_late_consumer_is_woken(Sleep::Wait, true, true);
}

#[test]
fn a_consumer_that_attaches_late_and_polls_is_woken() {
    a_late_consumer_is_woken(Sleep::Poll, true, true);
}

#[test]
fn a_late_consumer_that_is_not_registered_is_woken() {
    a_late_consumer_is_woken(Sleep::Wait, true, false);
}
