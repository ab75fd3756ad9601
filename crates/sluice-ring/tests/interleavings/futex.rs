// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep on a futex, with full and with asymmetric barriers.

use loom::thread;

use super::kernel::Sleep;
use super::sides::sides;
use super::{SMALL, TINY, explore_with_sleepers};

#[test]
fn a_sleeping_consumer_is_woken() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}

#[test]
fn a_sleeping_producer_is_woken() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(TINY, Sleep::Futex, false);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

#[test]
fn both_sides_may_sleep_at_the_same_time() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(TINY, Sleep::Futex, false);
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

/// A registered producer omits its barrier, until the consumer requests it with a barrier on the producer's processor.
#[test]
fn a_sleeping_consumer_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, true);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive(), Ok(1));
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}

#[test]
fn a_sleeping_producer_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(TINY, Sleep::Futex, true);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        // Its processor becomes idle.
        receiver.connection.system.own().processor.set_idle();
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

/// The consumer requests barriers, withdraws the request, and requests them again.
#[test]
fn a_consumer_that_sleeps_after_spinning_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, true);
        // It has slept before, so NEED_FENCE is set.
        sender.connection.system.own().processor.set_idle();
        receiver.connection.prepare_park();
        receiver.connection.finish_park();
        sender.connection.system.own().processor.set_running();
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive_awake(), 1);
        assert_eq!(receiver.receive(), Ok(2));
        sending.join().unwrap();
    });
}
