// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that changes while the honest side looks at it. Each of these lasts a second, in which it is looked at many thousand times.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice::ring::{ProtocolViolation, RecvError, SendError};
use sluice_hostile::{BELL, CLOSED, POSITION, WAITING, longest};

use crate::support::{CAPACITY, LONG, RACE, SHORT, against, lied_back, lied_to};

/// Numbers that look arbitrary, the same each time.
fn arbitrary(round: u32) -> u64 {
    u64::from(round)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether to look again: for a second, and for longer on a machine on which not all of it was seen by then.
fn goes_on(began: Instant, seen_all: bool) -> bool {
    let lasted = began.elapsed();
    lasted < RACE || (!seen_all && lasted < LONG)
}

#[test]
fn a_length_that_changes_is_either_good_or_refused() {
    let most = longest(CAPACITY);
    let lengths = [0, 8, 100, most, most + 1, 1 << 31, u32::MAX];
    let (mut good, mut refused) = (HashSet::new(), 0);
    let mut room = vec![0; CAPACITY];
    let began = Instant::now();
    while goes_on(began, good.len() > 1 && refused > 0) {
        // A violation is the end of a ring.
        let (liar, mut consumer) = lied_to();
        liar.header(0, 0, 1);
        let place = liar.memory.word(liar.at(0));
        let harm = |round: u32| {
            place.store(lengths[round as usize % lengths.len()], Ordering::Relaxed);
        };
        against(harm, || {
            loop {
                match consumer.try_peek() {
                    // It is not released, so that the next look is at the same place.
                    Ok(Some(record)) => {
                        let length = record.len();
                        assert!(lengths[..4].contains(&(length as u32)), "{length}");
                        assert_eq!(record.copy_to(0, &mut room), length);
                        assert_eq!(record.to_vec().len(), length);
                        good.insert(length);
                    }
                    Err(RecvError::ProtocolViolation(ProtocolViolation::Length {
                        len, ..
                    })) => {
                        assert!(lengths[4..].contains(&len), "{len}");
                        refused += 1;
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    assert!(good.len() > 1 && refused > 0, "{good:?}, {refused} refused");
}

#[test]
fn a_state_that_changes_is_a_record_or_none_or_refused() {
    let states = [0, 1, 2, 0x8000_0001];
    let mut seen = [0_u64; 3];
    let began = Instant::now();
    while goes_on(began, seen.iter().all(|&times| times > 0)) {
        let (liar, mut consumer) = lied_to();
        liar.header(0, 8, 0);
        let place = liar.memory.word(liar.at(0) + 4);
        let harm = |round: u32| {
            place.store(states[round as usize % states.len()], Ordering::Release);
        };
        against(harm, || {
            loop {
                match consumer.try_peek() {
                    Ok(Some(record)) => {
                        assert_eq!(record.len(), 8);
                        seen[0] += 1;
                    }
                    Err(RecvError::Empty) => seen[1] += 1,
                    Err(RecvError::ProtocolViolation(ProtocolViolation::State {
                        state, ..
                    })) => {
                        assert!(states[2..].contains(&state), "{state:#x}");
                        seen[2] += 1;
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
}

#[test]
fn a_copy_has_only_bytes_that_were_there() {
    const LENGTH: usize = 2000;
    let (liar, mut consumer) = lied_to();
    liar.send(0, &[0xaa; LENGTH]);
    // What belongs to nobody: no copy may reach it.
    liar.bytes(8 + LENGTH as u64, &[0xee; CAPACITY - 16 - LENGTH]);
    let harm = |round: u32| {
        let byte = [0xaa, 0xbb, 0xcc][round as usize % 3];
        liar.bytes(8, &[byte; LENGTH]);
    };
    let mut torn = 0;
    against(harm, || {
        let began = Instant::now();
        while goes_on(began, torn > 0) {
            let record = consumer.try_peek().expect("broken").expect("no end");
            let mut room = [0xdd; LENGTH + 64];
            assert_eq!(record.copy_to(0, &mut room), LENGTH);
            let (copy, rest) = room.split_at(LENGTH);
            assert!(copy.iter().all(|byte| [0xaa, 0xbb, 0xcc].contains(byte)));
            assert!(rest.iter().all(|&byte| byte == 0xdd));
            torn += u64::from(copy.iter().any(|&byte| byte != copy[0]));
        }
    });
    assert!(torn > 0, "nothing was rewritten while it was copied");
}

#[test]
fn all_that_a_producer_owns_changes_all_the_time() {
    let mut outcomes = HashSet::new();
    let began = Instant::now();
    while goes_on(began, outcomes.len() >= 4) {
        let (liar, mut consumer) = lied_to();
        let harm = |round: u32| {
            let number = arbitrary(round);
            let position = number >> 16 & (CAPACITY as u64 - 8);
            let length = [8, 0, 2040, 2041, u32::MAX][(number >> 8) as usize % 5];
            liar.header(position, length, (number >> 40) as u32 % 8 / 3);
            liar.memory.long(POSITION).store(number, Ordering::Relaxed);
            liar.memory
                .word(WAITING)
                .store(number as u32, Ordering::Relaxed);
            liar.memory.word(BELL).store(round, Ordering::Relaxed);
            let closed = u32::from(round % 16 == 0);
            liar.memory.word(CLOSED).store(closed, Ordering::Release);
        };
        against(harm, || {
            let mut room = vec![0; CAPACITY];
            for _ in 0..1000 {
                assert!(consumer.pending() <= CAPACITY as u64);
                let got = consumer.recv_timeout(&mut room, Duration::from_micros(200));
                outcomes.insert(match got {
                    Ok(Some(length)) => {
                        assert!(length <= longest(CAPACITY) as usize);
                        "a record"
                    }
                    Ok(None) => "the end",
                    Err(RecvError::TimedOut(_)) => "too late",
                    Err(RecvError::ProtocolViolation(_)) => {
                        outcomes.insert("a violation");
                        break;
                    }
                    other => panic!("{other:?}"),
                });
            }
        });
    }
    assert!(outcomes.len() >= 3, "{outcomes:?}");
}

#[test]
fn all_that_a_consumer_owns_changes_all_the_time() {
    let mut outcomes = HashSet::new();
    let began = Instant::now();
    while goes_on(began, outcomes.len() >= 4) {
        let (liar, mut producer) = lied_back();
        let theirs = liar.theirs(CAPACITY);
        let harm = |round: u32| {
            let number = arbitrary(round);
            let published = theirs.long(POSITION).load(Ordering::Relaxed);
            let said = match number >> 60 {
                0 => number,
                1 => published + 8,
                2 => published.saturating_sub(4),
                _ => published,
            };
            liar.memory.long(POSITION).store(said, Ordering::Relaxed);
            liar.memory
                .word(WAITING)
                .store(number as u32, Ordering::Relaxed);
            liar.memory.word(BELL).store(round, Ordering::Relaxed);
            let closed = u32::from(round % 16 == 0);
            liar.memory.word(CLOSED).store(closed, Ordering::Release);
        };
        against(harm, || {
            for _ in 0..1000 {
                outcomes.insert(
                    match producer.send_timeout(&[7; 300], Duration::from_micros(200)) {
                        Ok(()) => "sent",
                        Err(SendError::Closed) => "closed",
                        Err(SendError::TimedOut(_)) => "too late",
                        Err(SendError::ProtocolViolation(_)) => {
                            outcomes.insert("a violation");
                            break;
                        }
                        other => panic!("{other:?}"),
                    },
                );
            }
        });
    }
    assert!(outcomes.len() >= 3, "{outcomes:?}");
}

#[test]
fn a_bell_that_never_rests_moves_no_timeout() {
    let (liar, mut consumer) = lied_to();
    let bell = liar.memory.word(BELL);
    against(
        |round| bell.store(round, Ordering::Release),
        || {
            for _ in 0..10 {
                let began = Instant::now();
                let late = consumer.recv_timeout(&mut [0; 8], SHORT);
                assert!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
                assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
            }
        },
    );
    let (liar, mut producer) = lied_back();
    while producer.try_send(&[0; 500]).is_ok() {}
    let bell = liar.memory.word(BELL);
    against(
        |round| bell.store(round, Ordering::Release),
        || {
            for _ in 0..10 {
                let began = Instant::now();
                let late = producer.send_timeout(&[0; 500], SHORT);
                assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
                assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
            }
        },
    );
}
