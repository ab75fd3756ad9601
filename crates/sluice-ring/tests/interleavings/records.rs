// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records, their memory and positions.

use loom::thread;
use sluice_ring::HEADER;

use super::kernel::Sleep;
use super::sides::sides;
use super::{FILLER, LENGTH, SMALL, TINY, explore};

#[test]
fn received_records_are_complete_and_in_order() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            sender.send(10);
            sender.send(11);
        });
        let seen: Vec<u32> = (0..3).filter_map(|_| receiver.try_receive()).collect();
        assert!([&[][..], &[10], &[10, 11]].contains(&&seen[..]), "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn a_batch_is_received_as_a_whole() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            for number in [10, 11, 12] {
                assert!(sender.core.has_room(LENGTH).unwrap());
                sender.write(number);
            }
            sender.publish();
        });
        let mut seen = Vec::new();
        while let Some(number) = receiver.take() {
            seen.push(number);
        }
        assert!(seen.is_empty() || seen == [10, 11, 12], "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn stale_bytes_are_never_taken_for_a_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(TINY, Sleep::Futex, false);
        // One lap, so that there are stale bytes at the positions of the next records.
        for number in 0..2 {
            sender.send(number);
            assert_eq!(receiver.try_receive(), Some(number));
        }
        let sending = thread::spawn(move || sender.send(2));
        let seen: Vec<u32> = (0..2).filter_map(|_| receiver.try_receive()).collect();
        assert!(seen.is_empty() || seen == [2], "{seen:?}");
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), seen.is_empty().then_some(2));
        assert_eq!(receiver.try_receive(), None);
    });
}

#[test]
fn reserved_bytes_are_never_taken_for_a_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        let sending = thread::spawn(move || {
            // Reserves a longer record, and sends only its first bytes.
            let long = 3 * LENGTH;
            assert!(sender.core.has_room(long).unwrap());
            let at = sender.core.reserve(long);
            for offset in (0..u64::from(long)).step_by(4) {
                sender.core.memory().fill(at + offset, FILLER);
            }
            sender.core.write(LENGTH);
            sender.publish();
        });
        let seen: Vec<u32> = (0..2).filter_map(|_| receiver.try_receive()).collect();
        assert!(seen.is_empty() || seen == [FILLER], "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn nothing_is_overwritten_before_it_is_released() {
    explore(|| {
        let (mut sender, mut receiver) = sides(TINY, Sleep::Futex, false);
        sender.send(1);
        let sending = thread::spawn(move || {
            // The second record occupies the place of the unreleased one.
            for number in [2, 3] {
                if sender.core.has_room(LENGTH).unwrap() {
                    sender.write(number);
                    sender.core.publish();
                }
            }
        });
        for _ in 0..2 {
            if receiver.take().is_some() {
                receiver.core.release();
            }
        }
        sending.join().unwrap();
    });
}

#[test]
fn positions_show_the_bytes_in_transit() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, Sleep::Futex, false);
        sender.send(1);
        sender.send(2);
        let taking = thread::spawn(move || {
            assert_eq!(receiver.try_receive(), Some(1));
        });
        let stride = HEADER + u64::from(LENGTH);
        let pending = sender.core.pending().unwrap();
        assert!([stride, 2 * stride].contains(&pending), "{pending}");
        taking.join().unwrap();
        assert_eq!(sender.core.pending().unwrap(), stride);
    });
}
