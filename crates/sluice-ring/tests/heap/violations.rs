// SPDX-License-Identifier: MIT OR Apache-2.0
//! Invalid values of the peer: each is reported as an error, never a panic, and never causes an access outside the ring.

use fastrand::Rng;
use sluice_ring::sync::Ordering;
use sluice_ring::{Consumer, Memory, Producer, ProtocolViolation, record_stride};

use crate::memory::{View, publish, ring, some, state_of, take, write};

/// A ring of 4096 bytes with 128 published bytes, of which 64 are known to be released, and 32 more written ones.
fn in_use() -> (Producer<View>, Consumer<View>) {
    let (mut producer, mut consumer) = ring(4096);
    for number in 0..2 {
        write(&mut producer, number, 56);
        publish(&mut producer);
    }
    take(&mut consumer, 0, 56);
    consumer.release();
    assert_eq!(producer.pending(), Ok(64));
    write(&mut producer, 2, 24);
    (producer, consumer)
}

#[test]
fn a_producer_rejects_every_invalid_release() {
    let unaligned = [65, 68, 71, 127];
    let withdrawn = [0, 8, 56];
    let not_sent = [136, 160, 4096, 1 << 63, u64::MAX - 7, u64::MAX];
    let invalid = [&unaligned[..], &withdrawn, &not_sent].concat();
    for stored in some(invalid.into_iter(), 5) {
        let (mut producer, consumer) = in_use();
        let position = &consumer.memory().consumer().pos;
        position.store(stored, Ordering::Relaxed);
        let violation = ProtocolViolation::Released {
            pos: stored,
            min: 64,
            max: 128,
        };
        assert_eq!(producer.pending(), Err(violation));
        // From then on every call fails, whatever the consumer stores.
        position.store(128, Ordering::Relaxed);
        for len in [0, 8, 2040] {
            assert_eq!(producer.has_room(len), Err(violation));
        }
        assert_eq!(producer.pending(), Err(violation));
    }
}

#[test]
fn a_producer_accepts_every_valid_release() {
    for stored in some((64..=128).step_by(8), 4) {
        let (mut producer, consumer) = in_use();
        let position = &consumer.memory().consumer().pos;
        position.store(stored, Ordering::Relaxed);
        assert_eq!(producer.pending(), Ok(128 - stored));
        let withdrawn = stored - 8;
        position.store(withdrawn, Ordering::Relaxed);
        let violation = ProtocolViolation::Released {
            pos: withdrawn,
            min: stored,
            max: 128,
        };
        assert_eq!(producer.pending(), Err(violation));
    }
}

#[test]
fn a_consumer_accepts_two_states() {
    for state in some([2, 3, 0x100, 0x0100_0000, 1 << 31, u32::MAX].into_iter(), 3) {
        let (producer, mut consumer) = in_use();
        let at = consumer.bytes();
        producer.memory().set(state_of(at), state);
        let violation = ProtocolViolation::State { at: at - 8, state };
        for later in [state, 0, 1] {
            producer.memory().set(state_of(at), later);
            assert_eq!(consumer.peek(), Err(violation), "the first one remains");
            assert_eq!(consumer.peek_more(), Err(violation));
        }
    }
}

#[test]
fn a_consumer_rejects_every_length_that_does_not_fit() {
    for length in some(
        [2041, 2048, 4096, 1 << 31, u32::MAX - 7, u32::MAX].into_iter(),
        3,
    ) {
        let (producer, mut consumer) = in_use();
        let at = consumer.bytes() - 8;
        let (len, max) = (length, 2040);
        let violation = ProtocolViolation::Length { at, len, max };
        for later in [len, 0, 24, max] {
            producer.memory().set(at, later);
            assert_eq!(consumer.peek(), Err(violation), "the first one remains");
        }
    }
}

#[test]
fn a_length_that_changes_after_it_was_read_has_no_effect() {
    let (producer, mut consumer) = in_use();
    let at = consumer.bytes();
    let length = consumer.peek().expect("no violation").expect("no record");
    producer.memory().set(at - 8, u32::MAX);
    consumer.advance(length);
    assert_eq!(consumer.bytes(), at + record_stride(length));
}

#[test]
fn pending_is_limited_to_the_capacity() {
    let (producer, consumer) = in_use();
    let position = &producer.memory().producer().pos;
    for (stored, expected) in [(0, 0), (63, 0), (64, 0), (72, 8), (u64::MAX, 4096)] {
        position.store(stored, Ordering::Relaxed);
        assert_eq!(consumer.pending(), expected);
    }
}

#[test]
fn a_consumer_of_arbitrary_memory_stays_within_the_ring() {
    let mut random = Rng::with_seed(7);
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let (producer, mut consumer) = ring(4096);
        for at in (0..4096).step_by(4) {
            // Mostly values of a valid header.
            let word = match random.u64(..4) {
                0 => 0,
                1 => 1,
                2 => random.u32(..2100),
                _ => random.u32(..),
            };
            producer.memory().set(at, word);
        }
        for _ in 0..100 {
            match consumer.peek() {
                Ok(Some(length)) => {
                    assert!(length <= 2040);
                    consumer.advance(length);
                    consumer.release();
                }
                Ok(None) => break,
                Err(ProtocolViolation::State { at, state }) => {
                    assert!(at + 8 == consumer.bytes() && state > 1);
                    break;
                }
                Err(ProtocolViolation::Length { len, max, .. }) => {
                    assert!(max == 2040 && len > max);
                    break;
                }
                Err(violation) => panic!("{violation}"),
            }
        }
    }
}

#[test]
fn a_producer_never_overwrites_unreleased_bytes_whatever_the_consumer_stores() {
    let mut random = Rng::with_seed(11);
    for _ in 0..if cfg!(miri) { 2 } else { 3000 } {
        let (mut producer, consumer) = ring(4096);
        let mut released = 0;
        for number in 0..50 {
            let stored = match random.u64(..8) {
                0 => random.u64(..),
                _ => released + random.u64(..75) * 8,
            };
            let position = &consumer.memory().consumer().pos;
            position.store(stored, Ordering::Relaxed);
            let length = random.u64(..2041) as u32;
            let sent = producer.reserve(0) - 8;
            let end = sent + record_stride(length) + 8;
            let looks = end > released + 4096;
            let credible = stored % 8 == 0 && stored >= released && stored <= sent;
            if looks && !credible {
                let (pos, min, max) = (stored, released, sent);
                let violation = ProtocolViolation::Released { pos, min, max };
                assert_eq!(producer.has_room(length), Err(violation));
                break;
            }
            if looks {
                released = stored;
            }
            let room = end <= released + 4096;
            assert_eq!(producer.has_room(length), Ok(room));
            if room {
                write(&mut producer, number, length);
                publish(&mut producer);
            }
        }
    }
}
