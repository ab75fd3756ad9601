// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions around 2^31, 2^32 and 2^63, and just below 2^64, where a ring ends: at 10 GB/s after 58 years.

use std::ptr;
use std::sync::atomic::Ordering;

use sluice_ring::{Consumer, Memory, Producer, ProtocolViolation};

use crate::memory::{View, publish, ring, take, write};

const CAPACITY: u64 = 4096;

/// Both sides of a ring that has been in use up to this position. The fields are those that functions of the C library use.
fn ring_at(position: u64) -> (Producer<View>, Consumer<View>) {
    let (mut producer, mut consumer) = ring(CAPACITY);
    let fields: *mut u64 = ptr::from_mut(&mut producer).cast();
    for (field, value) in [
        (0, position),            // published
        (1, position),            // written
        (2, position + CAPACITY), // limit
        (5, position + CAPACITY), // zeroed_to
    ] {
        // SAFETY: the layout is part of the interface of the C library.
        unsafe { fields.add(field).write(value) };
    }
    let fields: *mut u64 = ptr::from_mut(&mut consumer).cast();
    for field in [0, 1] {
        // SAFETY: position and released; as above.
        unsafe { fields.add(field).write(position) };
    }
    let memory = producer.memory();
    memory.producer().pos.store(position, Ordering::Relaxed);
    memory.consumer().pos.store(position, Ordering::Relaxed);
    (producer, consumer)
}

#[test]
fn records_go_across_the_ends_of_words() {
    for end in [1 << 31, 1 << 32, 1 << 33, 1 << 63] {
        let begin = end - 2 * CAPACITY - 8;
        let (mut producer, mut consumer) = ring_at(begin);
        let mut oldest = 0;
        let mut number = 0;
        while consumer.bytes() < end + 2 * CAPACITY {
            let length = number * 7 % 300;
            while producer.has_room(length) == Ok(false) {
                take(&mut consumer, oldest, oldest * 7 % 300);
                consumer.release();
                oldest += 1;
            }
            write(&mut producer, number, length);
            publish(&mut producer);
            number += 1;
        }
        assert!(number > 20, "{number} records");
        let pending = consumer.pending();
        assert!(pending > 0 && pending <= CAPACITY, "{pending} bytes");
    }
}

/// One more record would need a limit that has no representation.
#[test]
fn records_go_up_to_a_capacity_before_the_last_position() {
    let last = u64::MAX - 7;
    let (mut producer, mut consumer) = ring_at(last - 3 * CAPACITY);
    let mut number = 0;
    while producer.bytes() < last - CAPACITY - 200 {
        assert_eq!(producer.has_room(100), Ok(true));
        write(&mut producer, number, 100);
        publish(&mut producer);
        take(&mut consumer, number, 100);
        consumer.release();
        number += 1;
    }
    assert!(number > 10, "{number} records");
    assert_eq!(consumer.peek(), Ok(None));
}

/// A position of the peer is compared with what it may be, near the ends of words, too.
#[test]
fn a_released_position_beyond_its_bounds_is_a_violation() {
    for position in [1 << 31, 1 << 32, 1 << 63, u64::MAX - 7 - 2 * CAPACITY] {
        for released in [
            position + 8,
            position - 8,
            0,
            u64::MAX - 7,
            position - (1 << 30),
        ] {
            let (mut producer, _) = ring_at(position);
            let longest = producer.memory().capacity().max_record_len();
            for number in 0..2 {
                // The second one has no room by what is known.
                let length = longest - 8 * number;
                if producer.has_known_room(length) {
                    write(&mut producer, number, length);
                }
            }
            let memory = producer.memory().clone();
            memory.consumer().pos.store(released, Ordering::Relaxed);
            let found = producer.has_room(longest);
            assert!(
                matches!(found, Err(ProtocolViolation::Released { pos, .. }) if pos == released),
                "{found:?} at {position} for {released}"
            );
        }
    }
}
