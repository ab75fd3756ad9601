// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parking with failing system calls, acknowledgements, ends, and stores of the peer to reserved bytes.

use std::cell::Cell;
use std::ptr;

use sluice_abi::ring::{CLOSED, DESTROYED, DIED, NEED_FENCE};
use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{Ctrl, End, Notifier, Parker, PeerState, WakeMethod, Waker, stored_peer_state};

/// A system whose calls fail as configured.
#[derive(Default)]
struct System {
    wakes: Cell<u32>,
    light_barriers: Cell<u32>,
    heavy_barriers: Cell<u32>,
    delivers: Cell<bool>,
    has_membarrier: bool,
}

impl Waker for System {
    fn light_barrier(&self) {
        self.light_barriers.set(self.light_barriers.get() + 1);
    }

    fn heavy_barrier(&self) -> bool {
        self.heavy_barriers.set(self.heavy_barriers.get() + 1);
        self.has_membarrier
    }

    fn wake(&self, _method: WakeMethod, _wake_seq: &AtomicU32) -> bool {
        self.wakes.set(self.wakes.get() + 1);
        self.delivers.get()
    }
}

#[test]
fn a_wake_up_that_was_not_delivered_is_tried_again() {
    let (sleeping, awake) = (Ctrl::default(), Ctrl::default());
    let system = System::default();
    let mut parker = Parker::new(false);
    let mut notifier = Notifier::new(false);
    let seq = parker.prepare_park(&sleeping, &awake, WakeMethod::Descriptor, &system);
    notifier.notify(&awake, &sleeping, &system);
    assert_eq!(system.wakes.get(), 1);
    assert_ne!(awake.wake_seq.load(Ordering::Relaxed), seq);
    system.delivers.set(true);
    notifier.notify(&awake, &sleeping, &system);
    assert_eq!(system.wakes.get(), 2, "the first was lost");
    notifier.notify(&awake, &sleeping, &system);
    assert_eq!(system.wakes.get(), 2, "one delivered wake-up suffices");
}

/// A wake-up is a number that differs from the one before.
#[test]
fn wake_ups_are_counted_around_the_end_of_their_word() {
    let (sleeping, awake) = (Ctrl::default(), Ctrl::default());
    let system = System::default();
    system.delivers.set(true);
    let (mut parker, mut notifier) = (Parker::acknowledging(false), Notifier::new(false));
    awake.wake_seq.store(u32::MAX - 1, Ordering::Relaxed);
    for expected in [u32::MAX - 1, u32::MAX, 0, 1] {
        let seq = parker.prepare_park(&sleeping, &awake, WakeMethod::Descriptor, &system);
        assert_eq!(seq, expected);
        assert_eq!(sleeping.wake_ack.load(Ordering::Relaxed), seq);
        notifier.notify(&awake, &sleeping, &system);
        let woken = awake.wake_seq.load(Ordering::Relaxed);
        assert_eq!(woken, expected.wrapping_add(1));
        assert_ne!(sleeping.wake_ack.load(Ordering::Relaxed), woken);
        parker.acknowledge(&sleeping, &awake);
        parker.finish_park(&sleeping);
        assert_eq!(sleeping.wake_ack.load(Ordering::Relaxed), woken);
    }
}

#[test]
fn a_parker_requests_barriers_only_while_it_parks() {
    let (own, peer) = (Ctrl::default(), Ctrl::default());
    let system = System {
        has_membarrier: true,
        ..System::default()
    };
    let mut parker = Parker::new(true);
    for round in 1..4 {
        for _ in 0..3 {
            parker.prepare_park(&own, &peer, WakeMethod::Futex, &system);
            parker.finish_park(&own);
        }
        assert_eq!(system.heavy_barriers.get(), round);
        assert_eq!(own.wait_flags.load(Ordering::Relaxed), NEED_FENCE);
        for _ in 0..1000 {
            parker.note_spin_success(&own);
        }
        assert_eq!(own.wait_flags.load(Ordering::Relaxed), 0);
    }
}

/// As with a system call filter that was installed after the registration.
#[test]
fn after_a_failed_heavy_barrier_need_fence_stays_set() {
    let (own, peer) = (Ctrl::default(), Ctrl::default());
    let system = System::default();
    let mut parker = Parker::new(true);
    for _ in 0..3 {
        parker.prepare_park(&own, &peer, WakeMethod::Futex, &system);
        parker.finish_park(&own);
        for _ in 0..1000 {
            parker.note_spin_success(&own);
        }
        assert_eq!(own.wait_flags.load(Ordering::Relaxed), NEED_FENCE);
        assert_eq!(system.heavy_barriers.get(), 1);
    }
}

#[test]
fn a_wake_up_makes_the_descriptor_readable_until_it_is_acknowledged() {
    let (sleeping, awake) = (Ctrl::default(), Ctrl::default());
    let system = System::default();
    system.delivers.set(true);
    let mut parker = Parker::acknowledging(false);
    let mut notifier = Notifier::new(false);
    let is_readable = || {
        let acknowledged = sleeping.wake_ack.load(Ordering::Relaxed);
        awake.wake_seq.load(Ordering::Relaxed) != acknowledged
    };
    for _ in 0..3 {
        parker.prepare_park(&sleeping, &awake, WakeMethod::Descriptor, &system);
        assert!(!is_readable());
        notifier.notify(&awake, &sleeping, &system);
        assert!(is_readable());
        parker.finish_park(&sleeping);
        parker.acknowledge(&sleeping, &awake);
        assert!(!is_readable());
        // Not acknowledged by a wait in another way; the next one begins without it.
        parker.prepare_park(&sleeping, &awake, WakeMethod::Descriptor, &system);
        notifier.notify(&awake, &sleeping, &system);
        parker.finish_park(&sleeping);
    }
}

#[test]
fn over_memfd_nothing_is_acknowledged() {
    let (own, peer) = (Ctrl::default(), Ctrl::default());
    peer.wake_seq.store(7, Ordering::Relaxed);
    let mut parker = Parker::new(false);
    parker.prepare_park(&own, &peer, WakeMethod::Descriptor, &System::default());
    parker.acknowledge(&own, &peer);
    assert_eq!(own.wake_ack.load(Ordering::Relaxed), 0);
}

#[test]
fn barriers_are_light_once_both_sides_are_registered() {
    for (registered, announced, light) in [
        (true, true, 2),
        (true, false, 0),
        (false, true, 0),
        (false, false, 0),
    ] {
        let (own, peer) = (Ctrl::default(), Ctrl::default());
        let system = System::default();
        let mut notifier = Notifier::expecting_announcement(registered);
        notifier.notify(&own, &peer, &system);
        assert_eq!(system.light_barriers.get(), 0, "no announcement yet");
        if announced {
            peer.announce_membarrier();
        }
        for _ in 0..3 {
            notifier.notify(&own, &peer, &system);
        }
        assert_eq!(system.light_barriers.get(), light);
    }
}

#[test]
fn the_end_of_a_side_is_final_and_has_a_reason() {
    for (closed, end, state) in [
        (CLOSED, End::Closed, PeerState::Closed),
        (DIED, End::Died, PeerState::Dead),
        (DESTROYED, End::Destroyed, PeerState::Destroyed),
        (77, End::Closed, PeerState::Closed),
    ] {
        let ctrl = Ctrl::default();
        assert!(ctrl.is_new());
        assert_eq!(ctrl.end(), None);
        assert_eq!(stored_peer_state(&ctrl), PeerState::Active);
        ctrl.closed.store(closed, Ordering::Relaxed);
        ctrl.close();
        assert!(!ctrl.is_new());
        assert_eq!(ctrl.end(), Some(end));
        assert_eq!(stored_peer_state(&ctrl), state);
    }
}

/// For Miri: a reference to a Ctrl asserts nothing about the stability of its bytes.
#[test]
fn the_peer_may_write_to_every_byte() {
    let memory = Box::into_raw(Box::new(Ctrl::default()));
    // SAFETY: it exists until the end of this test.
    let ctrl = unsafe { &*memory };
    for at in 0..size_of::<Ctrl>() {
        // SAFETY: within it, and every byte is part of an atomic.
        unsafe { ptr::write_volatile(memory.cast::<u8>().add(at), 1) };
        assert_eq!(ctrl.is_closed(), at >= 136);
    }
    // SAFETY: the reference is not used any more.
    drop(unsafe { Box::from_raw(memory) });
}
