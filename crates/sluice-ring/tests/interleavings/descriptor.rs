// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep on a descriptor of the module: in SLUICE_RING_WAIT, and in poll(2) with an acknowledgement.

use loom::thread;

use super::kernel::Sleep;
use super::sides::sides;
use super::{SMALL, TINY, explore, explore_with_sleepers};

pub fn a_consumer_is_woken(sleep: Sleep, registered: bool) {
    explore_with_sleepers(move || {
        let (mut sender, mut receiver) = sides(SMALL, sleep, registered);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}

pub fn a_producer_is_woken(sleep: Sleep, registered: bool) {
    explore_with_sleepers(move || {
        let (mut sender, mut receiver) = sides(TINY, sleep, registered);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        // Its processor becomes idle.
        receiver.connection.system.own().processor.set_idle();
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

pub fn both_sides_may_sleep(sleep: Sleep) {
    explore_with_sleepers(move || {
        let (mut sender, mut receiver) = sides(TINY, sleep, false);
        let sending = thread::spawn(move || {
            for number in [1, 2] {
                sender.send(number);
            }
        });
        for number in [1, 2] {
            assert_eq!(receiver.receive(), Ok(number));
        }
        sending.join().unwrap();
    });
}

#[test]
fn a_consumer_in_wait_is_woken() {
    a_consumer_is_woken(Sleep::Wait, false);
}

#[test]
fn a_consumer_in_poll_is_woken() {
    a_consumer_is_woken(Sleep::Poll, false);
}

#[test]
fn a_producer_in_wait_is_woken() {
    a_producer_is_woken(Sleep::Wait, false);
}

#[test]
fn a_producer_in_poll_is_woken() {
    a_producer_is_woken(Sleep::Poll, false);
}

#[test]
fn both_sides_may_wait_at_the_same_time() {
    both_sides_may_sleep(Sleep::Wait);
}

#[test]
fn both_sides_may_poll_at_the_same_time() {
    both_sides_may_sleep(Sleep::Poll);
}

#[test]
fn a_consumer_in_wait_is_woken_without_barriers() {
    a_consumer_is_woken(Sleep::Wait, true);
}

#[test]
fn a_consumer_in_poll_is_woken_without_barriers() {
    a_consumer_is_woken(Sleep::Poll, true);
}

#[test]
fn a_producer_in_wait_is_woken_without_barriers() {
    a_producer_is_woken(Sleep::Wait, true);
}

/// A poll that ends for another reason acknowledges a wake-up that it did not see.
#[test]
fn a_poll_that_ends_early_loses_no_wake_up() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Poll, false);
        let sending = thread::spawn(move || sender.send(1));
        receiver.connection.prepare_park();
        receiver.connection.finish_park();
        assert_eq!(receiver.receive(), Ok(1));
        sending.join().unwrap();
    });
}

#[test]
fn a_record_is_visible_after_its_wake_up_is_acknowledged() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Poll, false);
        let sending = thread::spawn(move || sender.send(1));
        let seq = receiver.connection.prepare_park();
        receiver.connection.finish_park();
        if receiver.connection.acknowledged() != seq {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}
