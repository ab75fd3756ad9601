// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of all lengths, single and in batches, around rings of all capacities.

use std::thread;

use sluice_ring::{Capacity, Memory, record_stride};

use crate::memory::{View, content, publish, ring, some, take, write};

fn capacities() -> impl Iterator<Item = u64> {
    let largest = if cfg!(miri) { 12 } else { 17 };
    (12..=largest).map(|power| 1 << power)
}

#[test]
fn every_length_goes_around_the_ring() {
    let (mut producer, mut consumer) = ring(4096);
    let longest = producer.memory().capacity().max_record_len();
    for length in some((0..=longest).chain((0..=longest).rev()), 229) {
        assert_eq!(producer.has_room(length), Ok(true));
        write(&mut producer, length, length);
        assert_eq!(consumer.peek(), Ok(None), "it is not published");
        publish(&mut producer);
        take(&mut consumer, length, length);
        assert_eq!(consumer.peek(), Ok(None), "there is one only");
        assert!(consumer.has_unreleased());
        consumer.release();
        assert!(!consumer.has_unreleased());
    }
}

#[test]
fn the_longest_record_fits_while_the_one_before_is_unread() {
    for bytes in capacities() {
        let (mut producer, mut consumer) = ring(bytes);
        let longest = producer.memory().capacity().max_record_len();
        for number in 0..8 {
            assert_eq!(producer.has_room(longest), Ok(true));
            write(&mut producer, number, longest);
            publish(&mut producer);
            // With its header it occupies half of the ring, and the state after it needs eight bytes.
            assert_eq!(producer.has_room(longest - 8), Ok(true));
            assert_eq!(producer.has_room(longest), Ok(false));
            take(&mut consumer, number, longest);
            assert_eq!(producer.has_room(longest), Ok(false), "it is not released");
            consumer.release();
        }
    }
}

/// A ring that is always full, so that everything zeroed ahead precedes unreleased records.
fn keep_full(bytes: u64, length: u32) {
    let (mut producer, mut consumer) = ring(bytes);
    let rounds = 3 * bytes / record_stride(length);
    let mut oldest = 0;
    for number in 0..rounds as u32 {
        while producer.has_room(length) == Ok(false) {
            take(&mut consumer, oldest, length);
            consumer.release();
            oldest += 1;
        }
        write(&mut producer, number, length);
        publish(&mut producer);
    }
    for number in oldest..rounds as u32 {
        take(&mut consumer, number, length);
    }
    assert_eq!(consumer.peek(), Ok(None));
}

#[test]
fn prezeroing_changes_no_record_and_leaves_no_stale_byte() {
    for bytes in capacities() {
        // Around a header, a cache line, the window of 256 bytes, and the longest.
        let longest = (bytes / 2 - 8) as u32;
        let lengths = [191, 0, 4, 8, 40, 56, 57, 64, 240, 248, 256, 1000, longest];
        for length in some(lengths.into_iter(), 12) {
            keep_full(bytes, length);
        }
    }
}

#[test]
fn the_memory_after_a_short_record_is_zeroed_early() {
    for bytes in capacities() {
        let (mut producer, mut consumer) = ring(bytes);
        let longest = producer.memory().capacity().max_record_len();
        for number in 0..5 {
            write(&mut producer, number, longest);
            publish(&mut producer);
            take(&mut consumer, number, longest);
            consumer.release();
            assert_eq!(producer.pending(), Ok(0));
            write(&mut producer, number, 8);
            publish(&mut producer);
            take(&mut consumer, number, 8);
            // From the state of the next record on.
            let state = producer.reserve(0) - 4;
            let window = (state..state + 192).step_by(4);
            assert!(
                window
                    .map(|at| producer.memory().get(at))
                    .all(|word| word == 0)
            );
            consumer.release();
        }
    }
}

#[test]
fn a_batch_is_seen_at_once() {
    let (mut producer, mut consumer) = ring(4096);
    let lengths = [0, 1, 7, 8, 9, 300, 0, 64];
    for round in some(0..40, 5) {
        assert!(!producer.has_batch());
        for (number, length) in (round..).zip(lengths) {
            assert_eq!(producer.has_room(length), Ok(true));
            write(&mut producer, number, length);
            assert!(producer.has_batch());
            assert_eq!(consumer.peek(), Ok(None));
        }
        publish(&mut producer);
        let all: u64 = lengths.into_iter().map(record_stride).sum();
        assert_eq!((producer.pending(), consumer.pending()), (Ok(all), all));
        for (number, length) in (round..).zip(lengths) {
            take(&mut consumer, number, length);
        }
        assert_eq!(consumer.peek(), Ok(None));
        assert_eq!((producer.pending(), consumer.pending()), (Ok(all), 0));
        consumer.release();
        assert_eq!(producer.pending(), Ok(0));
    }
}

#[test]
fn publishing_nothing_shows_nothing() {
    let (mut producer, mut consumer) = ring(4096);
    let at = producer.reserve(100);
    producer.memory().fill(at, 100);
    publish(&mut producer);
    assert_eq!(consumer.peek(), Ok(None));
    assert_eq!(consumer.pending(), 0);
}

/// Stores filler in `asked` reserved bytes, and makes a record of the first `kept` of them, or first drops the reservation.
fn cut(bytes: u64, asked: u32, kept: u32, given_up: bool) {
    let (mut producer, mut consumer) = ring(bytes);
    for number in 0..(4 * bytes / record_stride(asked)) as u32 {
        assert_eq!(producer.has_room(asked), Ok(true));
        let at = producer.reserve(asked);
        producer.memory().fill(at, asked);
        if given_up {
            assert_eq!(producer.reserve(kept), at);
        }
        producer.memory().put(at, &content(number, kept));
        producer.write(kept);
        publish(&mut producer);
        take(&mut consumer, number, kept);
        assert_eq!(consumer.peek(), Ok(None), "{kept} of {asked} bytes");
        consumer.release();
    }
}

#[test]
fn the_rest_of_a_reservation_is_no_record() {
    for asked in some([257, 1, 8, 9, 64, 255, 256, 1000, 2040].into_iter(), 9) {
        for kept in some([0, 1, 8, 9, 60, 200, 500, asked].into_iter(), 3) {
            for given_up in [false, true] {
                cut(4096, asked, kept.min(asked), given_up);
            }
        }
    }
}

#[test]
fn a_record_that_was_cut_is_followed_by_others_in_its_batch() {
    let (mut producer, mut consumer) = ring(4096);
    for number in some(0..60, 5) {
        let at = producer.reserve(1000);
        producer.memory().fill(at, 1000);
        producer.memory().put(at, &content(number, 16));
        producer.write(16);
        write(&mut producer, number, 40);
        let at = producer.reserve(500);
        producer.memory().fill(at, 500);
        publish(&mut producer);
        take(&mut consumer, number, 16);
        take(&mut consumer, number, 40);
        assert_eq!(consumer.peek(), Ok(None));
        consumer.release();
        assert_eq!(producer.pending(), Ok(0));
    }
}

#[test]
fn two_threads_pass_records() {
    let view = View::new(Capacity::MIN.bytes());
    let mut producer = sluice_ring::Producer::new(view.clone());
    let mut consumer = sluice_ring::Consumer::new(view);
    let records = if cfg!(miri) { 60 } else { 20_000 };
    let length = |number: u32| number * 7919 % 400;
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..records {
                while producer.has_room(length(number)) == Ok(false) {
                    thread::yield_now();
                }
                write(&mut producer, number, length(number));
                if number % 3 == 0 || number + 1 == records {
                    publish(&mut producer);
                } else if producer.has_room(400) != Ok(true) {
                    // The unpublished batch may occupy the missing room.
                    publish(&mut producer);
                }
            }
        });
        for number in 0..records {
            while consumer.peek() == Ok(None) {
                thread::yield_now();
            }
            take(&mut consumer, number, length(number));
            consumer.release();
        }
    });
}
