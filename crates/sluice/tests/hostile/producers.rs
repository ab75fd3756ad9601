// SPDX-License-Identifier: MIT OR Apache-2.0
//! Malicious producers: invalid headers, invalid positions, endless records.

use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice::ring::{AsyncConsumer, ProtocolViolation, RecvError};
use sluice_hostile::{CLOSED, POS, max_record_len};

use super::support::{CAPACITY, LONG, MaliciousProducer, SHORT, assert_error, malicious_producer};

#[test]
fn an_invalid_length_is_reported() {
    let max_len = max_record_len(CAPACITY);
    for length in [
        max_len + 1,
        CAPACITY as u32,
        1 << 31,
        u32::MAX - 7,
        u32::MAX,
    ] {
        let (malicious, mut consumer) = malicious_producer();
        malicious.write_header(0, length, 1);
        let is = |error: &RecvError| matches!(error, RecvError::ProtocolViolation(ProtocolViolation::Length { at: 0, len, max }) if (*len, *max) == (length, max_len));
        let mut buffer = vec![0; 2 * CAPACITY];
        assert_error(consumer.try_recv_into(&mut buffer), is);
        assert_error(consumer.recv_into(&mut buffer), is);
        assert_error(consumer.recv_into_timeout(&mut buffer, SHORT), is);
        assert_error(consumer.recv().map(drop), is);
        assert_error(consumer.recv_batch().map(drop), is);
        // Later changes of the header do not matter.
        for (length, state) in [(8, 1), (0, 0)] {
            malicious.write_header(0, length, state);
            assert_error(consumer.try_recv_into(&mut buffer), is);
            assert_error(consumer.recv().map(drop), is);
        }
        malicious.memory.word(CLOSED).store(1, Ordering::Release);
        assert_error(consumer.recv_into(&mut buffer), is);
    }
}

#[test]
fn long_records_are_read_across_the_wrap() {
    let (malicious, mut consumer) = malicious_producer();
    let max_len = max_record_len(CAPACITY);
    let mut buffer = vec![0; CAPACITY];
    let mut next = 0;
    for number in 0..10_u8 {
        next = malicious.send(next, &vec![number; max_len as usize - 8]);
        let got = consumer.recv_into(&mut buffer).expect("not received");
        assert_eq!(got, Some(max_len as usize - 8));
        assert!(
            buffer[..max_len as usize - 8]
                .iter()
                .all(|&byte| byte == number)
        );
    }
}

#[test]
fn an_undefined_state_is_reported() {
    for state in [2, 3, 0x8000_0001, 1 << 31, 0x100, u32::MAX] {
        let (malicious, mut consumer) = malicious_producer();
        malicious.write_header(0, 8, state);
        let is = |error: &RecvError| matches!(error, RecvError::ProtocolViolation(ProtocolViolation::State { at: 0, state: reported }) if *reported == state);
        assert_error(consumer.try_recv_into(&mut [0; 8]), is);
        assert_error(consumer.recv_into(&mut [0; 8]), is);
        assert_error(consumer.recv_timeout(SHORT).map(drop), is);
    }
}

#[test]
fn valid_records_before_a_violation_are_received() {
    let (malicious, mut consumer) = malicious_producer();
    let next = malicious.send(0, b"data");
    malicious.write_header(next, u32::MAX, 1);
    let mut buffer = [0; 8];
    let mut batch = consumer
        .recv_batch()
        .expect("failed")
        .expect("end of stream");
    assert_eq!(batch.recv_into(&mut buffer).expect("failed"), Some(4));
    assert_error(batch.recv_into(&mut buffer), |error| {
        matches!(
            error,
            RecvError::ProtocolViolation(ProtocolViolation::Length { at: 16, .. })
        )
    });
    assert_error(batch.recv().map(drop), |error| {
        matches!(error, RecvError::ProtocolViolation(_))
    });
}

#[test]
fn a_withdrawn_record_is_not_received() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"there");
    let record = consumer.recv().expect("failed").expect("end of stream");
    assert_eq!(record.len(), 5);
    record.keep();
    malicious.write_header(0, 5, 0);
    assert_error(consumer.try_recv_into(&mut [0; 8]), |error| {
        matches!(error, RecvError::Empty)
    });
}

#[test]
fn a_record_keeps_its_validated_length() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"12345678");
    let record = consumer.recv().expect("failed").expect("end of stream");
    malicious.write_header(0, u32::MAX, 1);
    assert_eq!(record.len(), 8);
    assert_eq!(record.to_vec(), b"12345678");
    drop(record);
    let consumer_memory = malicious.map_consumer();
    assert_eq!(consumer_memory.long(POS).load(Ordering::Acquire), 16);
}

#[test]
fn the_producers_position_is_not_relied_upon() {
    let (malicious, mut consumer) = malicious_producer();
    malicious.send(0, b"12345678");
    for pos in [0, 1, 8, 1 << 40, u64::MAX] {
        malicious.memory.long(POS).store(pos, Ordering::Release);
        assert!(consumer.pending() <= CAPACITY as u64);
        let record = consumer.recv().expect("failed").expect("end of stream");
        assert_eq!(record.len(), 8);
        record.keep();
    }
    assert_eq!(
        consumer.recv_into(&mut [0; 8]).expect("not received"),
        Some(8)
    );
    malicious.memory.long(POS).store(0, Ordering::Release);
    assert_eq!(consumer.pending(), 0, "position behind the consumer");
}

/// Every 8 bytes of the data are the header of an empty record.
fn endless_records() -> (MaliciousProducer, sluice::ring::Consumer) {
    let (malicious, consumer) = malicious_producer();
    for position in (0..CAPACITY as u64).step_by(8) {
        malicious.write_header(position, 0, 1);
    }
    (malicious, consumer)
}

#[test]
fn endless_records_are_received_one_per_call() {
    let (malicious, mut consumer) = endless_records();
    let consumer_memory = malicious.map_consumer();
    for number in 1..=10_000 {
        assert_eq!(consumer.recv_into(&mut []).expect("failed"), Some(0));
        let released = consumer_memory.long(POS).load(Ordering::Acquire);
        assert_eq!(released, 8 * number, "a call releases one record");
    }
}

#[test]
fn a_batch_is_limited_to_the_capacity() {
    let (_malicious, mut consumer) = endless_records();
    let mut batch = consumer
        .recv_batch()
        .expect("failed")
        .expect("end of stream");
    let mut taken = 0;
    let end = loop {
        match batch.recv() {
            Ok(Some(_)) => taken += 1,
            Ok(None) => panic!("end of the batch after {taken} records"),
            Err(error) => break error,
        }
        assert!(taken < CAPACITY, "more records than fit");
    };
    assert!(
        matches!(
            end,
            RecvError::ProtocolViolation(ProtocolViolation::TooMany { .. })
        ),
        "{end:?}"
    );
    // The state after the last record has to fit, too.
    assert_eq!(taken, CAPACITY / 8 - 1);
    assert_error(batch.recv_into(&mut []), |error| {
        matches!(
            error,
            RecvError::ProtocolViolation(ProtocolViolation::TooMany { .. })
        )
    });
}

#[test]
fn endless_records_do_not_starve_the_timers_of_a_runtime() {
    let (_malicious, consumer) = endless_records();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime");
    runtime.block_on(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let began = Instant::now();
        let receiving = async {
            while began.elapsed() < LONG {
                assert_eq!(consumer.recv_into(&mut []).await.expect("failed"), Some(0));
            }
        };
        let ended = tokio::time::timeout(SHORT, receiving).await;
        assert!(ended.is_err(), "the timer expired after the last receive");
    });
}
