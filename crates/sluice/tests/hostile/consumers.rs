// SPDX-License-Identifier: MIT OR Apache-2.0
//! Consumers that lie about what they took, or take nothing.

use std::sync::atomic::Ordering;

use sluice::ring::{ProtocolViolation, SendError};
use sluice_hostile::{CLOSED, LyingConsumer, POSITION, WAITING};

use crate::support::{CAPACITY, SHORT, assert_error, lied_back};

/// Fills the ring, so that the next record needs what the consumer says it has released.
fn filled() -> (LyingConsumer, sluice::ring::Producer) {
    let (liar, mut producer) = lied_back();
    while producer.try_send(&[0; 500]).is_ok() {}
    (liar, producer)
}

#[test]
fn a_position_that_cannot_be_is_named() {
    let absurd = [
        1,
        4,
        7,
        511,
        CAPACITY as u64,
        1 << 20,
        1 << 32,
        u64::MAX - 7,
        u64::MAX,
    ];
    for said in absurd {
        let (liar, mut producer) = filled();
        liar.memory.long(POSITION).store(said, Ordering::Release);
        let is = |error: &SendError| matches!(error, SendError::ProtocolViolation(ProtocolViolation::Released { pos, .. }) if *pos == said);
        assert_error(producer.try_send(&[0; 500]), is);
        assert_error(producer.send(&[0; 500]), is);
        assert_error(producer.send_timeout(&[0; 500], SHORT), is);
        assert_error(producer.reserve(500).map(drop), is);
        assert_error(producer.pending(), is);
        let mut batch = producer.batch();
        assert_error(batch.send(&[0; 500]), is);
    }
}

#[test]
fn one_byte_more_than_was_sent_is_too_much() {
    let (liar, mut producer) = lied_back();
    producer.send(&[0; 8]).expect("not sent");
    let position = liar.memory.long(POSITION);
    position.store(24, Ordering::Release);
    assert_error(producer.pending(), |error| {
        matches!(
            error,
            SendError::ProtocolViolation(ProtocolViolation::Released {
                pos: 24,
                min: 0,
                max: 16
            })
        )
    });
    // Everything after that is refused, whatever the consumer says, and whatever there is room for.
    position.store(16, Ordering::Release);
    let is = |error: &SendError| {
        matches!(
            error,
            SendError::ProtocolViolation(ProtocolViolation::Released { pos: 24, .. })
        )
    };
    assert_error(producer.pending(), is);
    assert_error(producer.try_send(&[0; 8]), is);
    assert_error(producer.batch().reserve(8).map(drop), is);
    liar.memory.word(CLOSED).store(1, Ordering::Release);
    assert_error(producer.send(&[0; 8]), is);
}

#[test]
fn what_was_released_cannot_be_taken_back() {
    let (liar, mut producer) = lied_back();
    producer.send(&[0; 8]).expect("not sent");
    producer.send(&[0; 8]).expect("not sent");
    let position = liar.memory.long(POSITION);
    position.store(16, Ordering::Release);
    assert_eq!(producer.pending().expect("broken"), 16);
    for back in [0, 8] {
        position.store(back, Ordering::Release);
        assert_error(producer.pending(), |error| {
            matches!(
                error,
                SendError::ProtocolViolation(ProtocolViolation::Released { min: 16, .. })
            )
        });
    }
}

#[test]
fn a_record_that_was_never_released_is_never_overwritten() {
    let (liar, mut producer) = lied_back();
    let theirs = liar.theirs(CAPACITY);
    let mut sent = 0_u8;
    while producer.try_send(&[sent + 1; 504]).is_ok() {
        sent += 1;
    }
    for said in [4, 512 * u64::from(sent) + 8, u64::MAX] {
        liar.memory.long(POSITION).store(said, Ordering::Release);
        assert_error(producer.try_send(&[0xff; 504]), |error| {
            matches!(error, SendError::ProtocolViolation(_))
        });
        for number in 0..usize::from(sent) {
            let at = sluice_hostile::DATA + 512 * number;
            let there: Vec<u8> = (at + 8..at + 512)
                .map(|at| theirs.byte(at).load(Ordering::Relaxed))
                .collect();
            assert_eq!(there, [number as u8 + 1; 504]);
        }
    }
}

#[test]
fn one_that_takes_nothing_is_waited_for_as_long_as_was_asked() {
    let (_liar, mut producer) = filled();
    assert_error(producer.try_send(&[0; 500]), |error| {
        matches!(error, SendError::Full)
    });
    assert_error(producer.send_timeout(&[0; 500], SHORT), |error| {
        matches!(error, SendError::TimedOut(_))
    });
}

#[test]
fn bits_in_waiting_that_mean_nothing_mean_nothing() {
    let (liar, mut producer) = lied_back();
    let theirs = liar.theirs(CAPACITY);
    let waiting = liar.memory.word(WAITING);
    let position = liar.memory.long(POSITION);
    for value in (0..256).chain([u32::MAX, u32::MAX - 3, 1 << 31, (1 << 31) | 4]) {
        waiting.store(value, Ordering::Release);
        producer.send(b"12345678").expect("not sent");
        position.store(
            theirs.long(POSITION).load(Ordering::Acquire),
            Ordering::Release,
        );
    }
}
