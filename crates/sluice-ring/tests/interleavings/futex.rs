// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep on a futex, with full and with asymmetric barriers.

use loom::thread;

use super::descriptor::{a_consumer_is_woken, a_producer_is_woken, both_sides_may_sleep};
use super::kernel::Sleep;
use super::sides::sides;
use super::{SMALL, TINY, explore_with_sleepers};

#[test]
fn a_sleeping_consumer_is_woken() {
    a_consumer_is_woken(Sleep::Futex, false);
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
    both_sides_may_sleep(Sleep::Futex);
}

/// A registered producer omits its barrier, until the consumer requests it with a barrier on the producer's processor.
#[test]
fn a_sleeping_consumer_is_woken_without_barriers() {
    a_consumer_is_woken(Sleep::Futex, true);
}

#[test]
fn a_sleeping_producer_is_woken_without_barriers() {
    a_producer_is_woken(Sleep::Futex, true);
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
