// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious consumers: invalid positions, no releases, undefined wait flags.

use std::sync::atomic::Ordering;

use sluice::ring::{ProtocolViolation, SendError};
use sluice_hostile::{CLOSED, POS, WAIT_FLAGS};

use super::support::{CAPACITY, MaliciousConsumer, SHORT, assert_error, malicious_consumer};

/// A full ring: the next send has to load the consumer's position.
fn full_ring() -> (MaliciousConsumer, sluice::ring::Producer) {
    let (malicious, mut producer) = malicious_consumer();
    while producer.try_send(&[0; 500]).is_ok() {}
    (malicious, producer)
}

#[test]
fn an_invalid_position_is_reported() {
    let invalid = [
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
    for pos in invalid {
        let (malicious, mut producer) = full_ring();
        malicious.memory.long(POS).store(pos, Ordering::Release);
        let is = |error: &SendError| matches!(error, SendError::ProtocolViolation(ProtocolViolation::Released { pos: reported, .. }) if *reported == pos);
        assert_error(producer.try_send(&[0; 500]), is);
        assert_error(producer.send(&[0; 500]), is);
        assert_error(producer.send_timeout(&[0; 500], SHORT), is);
        assert_error(producer.reserve(500).map(drop), is);
        assert_error(producer.pending(), is);
        let mut batch = producer.send_batch();
        assert_error(batch.send(&[0; 500]), is);
    }
}

#[test]
fn a_position_beyond_the_published_one_is_a_violation() {
    let (malicious, mut producer) = malicious_consumer();
    producer.send(&[0; 8]).expect("not sent");
    let position = malicious.memory.long(POS);
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
    // Every later call reports the violation, even if the position is valid and the ring has space.
    position.store(16, Ordering::Release);
    let is = |error: &SendError| {
        matches!(
            error,
            SendError::ProtocolViolation(ProtocolViolation::Released { pos: 24, .. })
        )
    };
    assert_error(producer.pending(), is);
    assert_error(producer.try_send(&[0; 8]), is);
    assert_error(producer.send_batch().reserve(8).map(drop), is);
    malicious.memory.word(CLOSED).store(1, Ordering::Release);
    assert_error(producer.send(&[0; 8]), is);
}

#[test]
fn a_decreasing_position_is_a_violation() {
    let (malicious, mut producer) = malicious_consumer();
    producer.send(&[0; 8]).expect("not sent");
    producer.send(&[0; 8]).expect("not sent");
    let position = malicious.memory.long(POS);
    position.store(16, Ordering::Release);
    assert_eq!(producer.pending().expect("failed"), 16);
    for smaller in [0, 8] {
        position.store(smaller, Ordering::Release);
        assert_error(producer.pending(), |error| {
            matches!(
                error,
                SendError::ProtocolViolation(ProtocolViolation::Released { min: 16, .. })
            )
        });
    }
}

#[test]
fn unreleased_records_are_not_overwritten() {
    let (malicious, mut producer) = malicious_consumer();
    let producer_memory = malicious.map_producer(CAPACITY);
    let mut sent = 0_u8;
    while producer.try_send(&[sent + 1; 504]).is_ok() {
        sent += 1;
    }
    for pos in [4, 512 * u64::from(sent) + 8, u64::MAX] {
        malicious.memory.long(POS).store(pos, Ordering::Release);
        assert_error(producer.try_send(&[0xff; 504]), |error| {
            matches!(error, SendError::ProtocolViolation(_))
        });
        for number in 0..usize::from(sent) {
            let at = sluice_hostile::DATA + 512 * number;
            let stored: Vec<u8> = (at + 8..at + 512)
                .map(|at| producer_memory.byte(at).load(Ordering::Relaxed))
                .collect();
            assert_eq!(stored, [number as u8 + 1; 504]);
        }
    }
}

#[test]
fn a_send_to_a_full_ring_respects_its_timeout() {
    let (_malicious, mut producer) = full_ring();
    assert_error(producer.try_send(&[0; 500]), |error| {
        matches!(error, SendError::Full)
    });
    assert_error(producer.send_timeout(&[0; 500], SHORT), |error| {
        matches!(error, SendError::TimedOut(_))
    });
}

#[test]
fn undefined_wait_flags_are_ignored() {
    let (malicious, mut producer) = malicious_consumer();
    let producer_memory = malicious.map_producer(CAPACITY);
    let wait_flags = malicious.memory.word(WAIT_FLAGS);
    let position = malicious.memory.long(POS);
    for value in (0..256).chain([u32::MAX, u32::MAX - 3, 1 << 31, (1 << 31) | 4]) {
        wait_flags.store(value, Ordering::Release);
        producer.send(b"12345678").expect("not sent");
        position.store(
            producer_memory.long(POS).load(Ordering::Acquire),
            Ordering::Release,
        );
    }
}
