// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the other side may have written, and what becomes of it: an error that says what it was, never a panic, and never a
//! byte outside of the ring.

use sluice_ring::sync::Ordering;
use sluice_ring::{Consumer, Lie, Memory, Producer, step};

use crate::memory::{View, publish, ring, some, state_of, take, write};
use crate::model::Random;

/// A ring of 4096 bytes where 128 bytes were sent, of which 64 are known to be released, and 32 more are written.
fn under_way() -> (Producer<View>, Consumer<View>) {
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
fn a_producer_believes_no_release_that_cannot_be() {
    let unaligned = [65, 68, 71, 127];
    let withdrawn = [0, 8, 56];
    let not_sent = [136, 160, 4096, 1 << 63, u64::MAX - 7, u64::MAX];
    let lies = [&unaligned[..], &withdrawn, &not_sent].concat();
    for said in some(lies.into_iter(), 5) {
        let (mut producer, consumer) = under_way();
        let position = &consumer.memory().consumer().position;
        position.store(said, Ordering::Relaxed);
        let lie = Lie::Released {
            said,
            least: 64,
            most: 128,
        };
        assert_eq!(producer.pending(), Err(lie));
        // What is known suffices for a short record, for a long one it has to look.
        assert_eq!(producer.has_room(8), Ok(true));
        let fits_no_more = (4096 + 64 - 160 - 8) as u32;
        assert_eq!(producer.has_room(fits_no_more), Err(lie));
        assert_eq!(producer.has_room(fits_no_more), Err(lie), "it remains one");
    }
}

#[test]
fn a_producer_believes_every_release_that_can_be() {
    for said in some((64..=128).step_by(8), 4) {
        let (mut producer, consumer) = under_way();
        let position = &consumer.memory().consumer().position;
        position.store(said, Ordering::Relaxed);
        assert_eq!(producer.pending(), Ok(128 - said));
        let withdrawn = said - 8;
        position.store(withdrawn, Ordering::Relaxed);
        let lie = Lie::Released {
            said: withdrawn,
            least: said,
            most: 128,
        };
        assert_eq!(producer.pending(), Err(lie));
    }
}

#[test]
fn a_consumer_believes_no_state_but_two() {
    for state in some([2, 3, 0x100, 0x0100_0000, 1 << 31, u32::MAX].into_iter(), 3) {
        let (producer, consumer) = under_way();
        let at = consumer.bytes();
        producer.memory().set(state_of(at), state);
        assert_eq!(consumer.peek(), Err(Lie::State { at: at - 8, state }));
    }
}

#[test]
fn a_consumer_believes_no_length_that_does_not_fit() {
    for length in some(
        [2041, 2048, 4096, 1 << 31, u32::MAX - 7, u32::MAX].into_iter(),
        3,
    ) {
        let (producer, consumer) = under_way();
        let at = consumer.bytes() - 8;
        producer.memory().set(at, length);
        let most = 2040;
        assert_eq!(consumer.peek(), Err(Lie::Length { at, length, most }));
        producer.memory().set(at, most);
        assert_eq!(consumer.peek(), Ok(Some(most)));
    }
}

#[test]
fn a_length_that_changes_after_it_was_read_leads_nowhere() {
    let (producer, mut consumer) = under_way();
    let at = consumer.bytes();
    let length = consumer.peek().expect("no lie").expect("no record");
    producer.memory().set(at - 8, u32::MAX);
    consumer.take(length);
    assert_eq!(consumer.bytes(), at + step(length));
}

#[test]
fn what_a_producer_says_of_its_position_is_cut_to_what_can_be() {
    let (producer, consumer) = under_way();
    let position = &producer.memory().producer().position;
    for (said, told) in [(0, 0), (63, 0), (64, 0), (72, 8), (u64::MAX, 4096)] {
        position.store(said, Ordering::Relaxed);
        assert_eq!(consumer.pending(), told);
    }
}

#[test]
fn a_consumer_of_anything_at_all_stays_within_the_ring() {
    let mut random = Random::new(7);
    for _ in 0..if cfg!(miri) { 2 } else { 300 } {
        let (producer, mut consumer) = ring(4096);
        for at in (0..4096).step_by(4) {
            // Mostly what a header could have.
            let word = match random.below(4) {
                0 => 0,
                1 => 1,
                2 => random.below(2100) as u32,
                _ => random.next() as u32,
            };
            producer.memory().set(at, word);
        }
        for _ in 0..100 {
            match consumer.peek() {
                Ok(Some(length)) => {
                    assert!(length <= 2040);
                    consumer.take(length);
                    consumer.release();
                }
                Ok(None) => break,
                Err(Lie::State { at, state }) => {
                    assert!(at + 8 == consumer.bytes() && state > 1);
                    break;
                }
                Err(Lie::Length { length, most, .. }) => {
                    assert!(most == 2040 && length > most);
                    break;
                }
                Err(lie) => panic!("{lie}"),
            }
        }
    }
}

#[test]
fn a_producer_whose_consumer_says_anything_at_all_writes_no_more_than_there_is() {
    let mut random = Random::new(11);
    for _ in 0..if cfg!(miri) { 2 } else { 3000 } {
        let (mut producer, consumer) = ring(4096);
        let mut released = 0;
        for number in 0..50 {
            let said = match random.below(8) {
                0 => random.next(),
                _ => released + random.below(75) * 8,
            };
            let position = &consumer.memory().consumer().position;
            position.store(said, Ordering::Relaxed);
            let length = random.below(2041) as u32;
            let sent = producer.bytes_for(0) - 8;
            let end = sent + step(length) + 8;
            let looks = end > released + 4096;
            let credible = said % 8 == 0 && said >= released && said <= sent;
            if looks && !credible {
                let (least, most) = (released, sent);
                let lie = Lie::Released { said, least, most };
                assert_eq!(producer.has_room(length), Err(lie));
                break;
            }
            if looks {
                released = said;
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
