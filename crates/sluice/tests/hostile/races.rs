// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that changes while the library reads it. Each test races the two for a second, with many thousand reads.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice::ring::{ProtocolViolation, RecvError, SendError};
use sluice_hostile::{CLOSED, Memory, POS, WAIT_FLAGS, WAKE_SEQ, max_record_len};

use super::carrier::{CLOSES, FAILURES};
use super::support::{
    CAPACITY, LONG, RACE, SHORT, malicious_consumer, malicious_producer, run_against,
};

/// Reproducible pseudo-random numbers.
fn pseudo_random(round: u32) -> u64 {
    u64::from(round)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Whether the race continues: for RACE, and up to LONG until all outcomes have occurred.
fn continues(began: Instant, saw_all: bool) -> bool {
    let elapsed = began.elapsed();
    elapsed < RACE || (!saw_all && elapsed < LONG)
}

/// A value of `closed`, mostly 0.
fn changing_closed(round: u32) -> u32 {
    let mut values = CLOSES.iter().chain(&FAILURES).cycle();
    match round % 16 {
        0 => *values.nth(round as usize / 16 % 8).unwrap_or(&0),
        _ => 0,
    }
}

/// Changes what does not depend on the side.
fn change(memory: &Memory, round: u32) {
    let flags = pseudo_random(round) as u32;
    memory.word(WAIT_FLAGS).store(flags, Ordering::Relaxed);
    memory.word(WAKE_SEQ).store(round, Ordering::Relaxed);
    let closed = changing_closed(round);
    memory.word(CLOSED).store(closed, Ordering::Release);
}

#[test]
fn a_changing_length_is_either_valid_or_a_violation() {
    let max_len = max_record_len(CAPACITY);
    let lengths = [0, 8, 100, max_len, max_len + 1, 1 << 31, u32::MAX];
    let (mut valid, mut violations) = (HashSet::new(), 0);
    let mut buffer = vec![0; CAPACITY];
    let began = Instant::now();
    while continues(began, valid.len() > 1 && violations > 0) {
        // A ring is unusable after a violation.
        let (malicious, mut consumer) = malicious_producer();
        malicious.write_header(0, 0, 1);
        let target = malicious.memory.word(malicious.offset_of(0));
        let attack = |round: u32| {
            target.store(lengths[round as usize % lengths.len()], Ordering::Relaxed);
        };
        run_against(attack, || {
            loop {
                match consumer.try_recv() {
                    Ok(Some(record)) => {
                        let length = record.len();
                        assert!(lengths[..4].contains(&(length as u32)), "{length}");
                        assert_eq!(record.copy_to(0, &mut buffer), length);
                        assert_eq!(record.to_vec().len(), length);
                        valid.insert(length);
                        // The next call reads the same record.
                        record.keep();
                    }
                    Err(RecvError::ProtocolViolation(ProtocolViolation::Length {
                        len, ..
                    })) => {
                        assert!(lengths[4..].contains(&len), "{len}");
                        violations += 1;
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
    }
    assert!(
        valid.len() > 1 && violations > 0,
        "{valid:?}, {violations} violations"
    );
}

#[test]
fn a_changing_state_is_a_record_none_or_a_violation() {
    let states = [0, 1, 2, 0x8000_0001];
    let mut seen = [0_u64; 3];
    let began = Instant::now();
    while continues(began, seen.iter().all(|&count| count > 0)) {
        let (malicious, mut consumer) = malicious_producer();
        malicious.write_header(0, 8, 0);
        let target = malicious.memory.word(malicious.offset_of(0) + 4);
        let attack = |round: u32| {
            target.store(states[round as usize % states.len()], Ordering::Release);
        };
        run_against(attack, || {
            loop {
                match consumer.try_recv() {
                    Ok(Some(record)) => {
                        assert_eq!(record.len(), 8);
                        record.keep();
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
    assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
}

#[test]
fn a_copy_contains_only_bytes_of_the_record() {
    const LENGTH: usize = 2000;
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, &[0xaa; LENGTH]);
    // No copy may contain these bytes after the record.
    malicious.write_bytes(8 + LENGTH as u64, &[0xee; CAPACITY - 16 - LENGTH]);
    let attack = |round: u32| {
        let byte = [0xaa, 0xbb, 0xcc][round as usize % 3];
        malicious.write_bytes(8, &[byte; LENGTH]);
    };
    let mut torn = 0;
    run_against(attack, || {
        let began = Instant::now();
        while continues(began, torn > 0) {
            let record = consumer.try_recv().expect("failed").expect("end of stream");
            let mut buffer = [0xdd; LENGTH + 64];
            assert_eq!(record.copy_to(0, &mut buffer), LENGTH);
            let (copy, rest) = buffer.split_at(LENGTH);
            assert!(copy.iter().all(|byte| [0xaa, 0xbb, 0xcc].contains(byte)));
            assert!(rest.iter().all(|&byte| byte == 0xdd));
            torn += u64::from(copy.iter().any(|&byte| byte != copy[0]));
            record.keep();
        }
    });
    assert!(torn > 0, "no record changed while it was copied");
}

#[test]
fn all_memory_of_the_producer_changes_continuously() {
    let mut outcomes = HashSet::new();
    let began = Instant::now();
    while continues(began, outcomes.len() >= 4) {
        let (malicious, mut consumer) = malicious_producer();
        let attack = |round: u32| {
            let number = pseudo_random(round);
            let position = number >> 16 & (CAPACITY as u64 - 8);
            let length = [8, 0, 2040, 2041, u32::MAX][(number >> 8) as usize % 5];
            malicious.write_header(position, length, (number >> 40) as u32 % 8 / 3);
            malicious.memory.long(POS).store(number, Ordering::Relaxed);
            change(&malicious.memory, round);
        };
        run_against(attack, || {
            let mut buffer = vec![0; CAPACITY];
            for _ in 0..1000 {
                assert!(consumer.pending() <= CAPACITY as u64);
                let got = consumer.recv_into_timeout(&mut buffer, Duration::from_micros(200));
                outcomes.insert(match got {
                    Ok(Some(length)) => {
                        assert!(length <= max_record_len(CAPACITY) as usize);
                        "a record"
                    }
                    Ok(None) => "the end",
                    Err(RecvError::PeerDied | RecvError::Destroyed) if !FAILURES.is_empty() => {
                        "a failure"
                    }
                    Err(RecvError::TimedOut(_)) => "timeout",
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
fn all_memory_of_the_consumer_changes_continuously() {
    let mut outcomes = HashSet::new();
    let began = Instant::now();
    while continues(began, outcomes.len() >= 4) {
        let (malicious, mut producer) = malicious_consumer();
        let producer_memory = malicious.map_producer(CAPACITY);
        let attack = |round: u32| {
            let number = pseudo_random(round);
            let published = producer_memory.long(POS).load(Ordering::Relaxed);
            let pos = match number >> 60 {
                0 => number,
                1 => published + 8,
                2 => published.saturating_sub(4),
                _ => published,
            };
            malicious.memory.long(POS).store(pos, Ordering::Relaxed);
            change(&malicious.memory, round);
        };
        run_against(attack, || {
            for _ in 0..1000 {
                outcomes.insert(
                    match producer.send_timeout(&[7; 300], Duration::from_micros(200)) {
                        Ok(()) => "sent",
                        Err(SendError::Closed) => "closed",
                        Err(SendError::PeerDied | SendError::Destroyed) if !FAILURES.is_empty() => {
                            "a failure"
                        }
                        Err(SendError::TimedOut(_)) => "timeout",
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

/// The call waits for SHORT, however often wake_seq changes.
fn expect_timeouts(memory: &Memory, mut call: impl FnMut()) {
    let wake_seq = memory.word(WAKE_SEQ);
    run_against(
        |round| wake_seq.store(round, Ordering::Release),
        || {
            for _ in 0..10 {
                let began = Instant::now();
                call();
                assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
            }
        },
    );
}

#[test]
fn a_changing_wake_seq_does_not_extend_a_timeout() {
    let (malicious, mut consumer) = malicious_producer();
    expect_timeouts(&malicious.memory, || {
        let received = consumer.recv_into_timeout(&mut [0; 8], SHORT);
        assert!(
            matches!(received, Err(RecvError::TimedOut(_))),
            "{received:?}"
        );
    });
    let (malicious, mut producer) = malicious_consumer();
    while producer.try_send(&[0; 500]).is_ok() {}
    expect_timeouts(&malicious.memory, || {
        let sent = producer.send_timeout(&[0; 500], SHORT);
        assert!(matches!(sent, Err(SendError::TimedOut(_))), "{sent:?}");
    });
}
