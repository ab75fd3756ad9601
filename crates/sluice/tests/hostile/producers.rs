// SPDX-License-Identifier: MIT OR Apache-2.0
//! Producers that lie about what there is.

use std::sync::atomic::Ordering;
use std::time::Instant;

use sluice::ring::{AsyncConsumer, ProtocolViolation, RecvError};
use sluice_hostile::{CLOSED, LyingProducer, POSITION, longest};

use crate::support::{CAPACITY, LONG, SHORT, assert_error, lied_to};

#[test]
fn a_length_that_does_not_fit_is_named() {
    let most = longest(CAPACITY);
    for length in [most + 1, CAPACITY as u32, 1 << 31, u32::MAX - 7, u32::MAX] {
        let (liar, mut consumer) = lied_to();
        liar.header(0, length, 1);
        let is = |error: &RecvError| matches!(error, RecvError::ProtocolViolation(ProtocolViolation::Length { at: 0, len, max }) if (*len, *max) == (length, most));
        let mut room = vec![0; 2 * CAPACITY];
        assert_error(consumer.try_recv(&mut room), is);
        assert_error(consumer.recv(&mut room), is);
        assert_error(consumer.recv_timeout(&mut room, SHORT), is);
        assert_error(consumer.peek().map(drop), is);
        assert_error(consumer.batch().map(drop), is);
        // Whatever the producer says afterwards.
        for (length, state) in [(8, 1), (0, 0)] {
            liar.header(0, length, state);
            assert_error(consumer.try_recv(&mut room), is);
            assert_error(consumer.peek().map(drop), is);
        }
        liar.memory.word(CLOSED).store(1, Ordering::Release);
        assert_error(consumer.recv(&mut room), is);
    }
}

#[test]
fn the_longest_record_is_read_across_the_end_of_the_data() {
    let (liar, mut consumer) = lied_to();
    let most = longest(CAPACITY);
    let mut room = vec![0; CAPACITY];
    let mut next = 0;
    for number in 0..10_u8 {
        next = liar.send(next, &vec![number; most as usize - 8]);
        let got = consumer.recv(&mut room).expect("not there");
        assert_eq!(got, Some(most as usize - 8));
        assert!(room[..most as usize - 8].iter().all(|&byte| byte == number));
    }
}

#[test]
fn a_state_that_means_nothing_is_named() {
    for state in [2, 3, 0x8000_0001, 1 << 31, 0x100, u32::MAX] {
        let (liar, mut consumer) = lied_to();
        liar.header(0, 8, state);
        let is = |error: &RecvError| matches!(error, RecvError::ProtocolViolation(ProtocolViolation::State { at: 0, state: named }) if *named == state);
        assert_error(consumer.try_recv(&mut [0; 8]), is);
        assert_error(consumer.recv(&mut [0; 8]), is);
        assert_error(consumer.peek_timeout(SHORT).map(drop), is);
    }
}

#[test]
fn a_lie_behind_good_records_comes_after_them() {
    let (liar, mut consumer) = lied_to();
    let next = liar.send(0, b"good");
    liar.header(next, u32::MAX, 1);
    let mut room = [0; 8];
    let mut batch = consumer.batch().expect("broken").expect("no end");
    assert_eq!(batch.recv(&mut room).expect("broken"), Some(4));
    assert_error(batch.recv(&mut room), |error| {
        matches!(
            error,
            RecvError::ProtocolViolation(ProtocolViolation::Length { at: 16, .. })
        )
    });
    assert_error(batch.take().map(drop), |error| {
        matches!(error, RecvError::ProtocolViolation(_))
    });
}

#[test]
fn a_record_that_is_withdrawn_was_never_there() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"there");
    assert_eq!(consumer.peek().expect("broken").expect("no end").len(), 5);
    liar.header(0, 5, 0);
    assert_error(consumer.try_recv(&mut [0; 8]), |error| {
        matches!(error, RecvError::Empty)
    });
}

#[test]
fn a_record_keeps_the_length_that_was_judged() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"12345678");
    let record = consumer.peek().expect("broken").expect("no end");
    liar.header(0, u32::MAX, 1);
    assert_eq!(record.len(), 8);
    assert_eq!(record.to_vec(), b"12345678");
    record.release();
    let theirs = liar.theirs();
    assert_eq!(theirs.long(POSITION).load(Ordering::Acquire), 16);
}

#[test]
fn the_position_of_a_producer_is_believed_by_nobody() {
    let (liar, mut consumer) = lied_to();
    liar.send(0, b"12345678");
    for said in [0, 1, 8, 1 << 40, u64::MAX] {
        liar.memory.long(POSITION).store(said, Ordering::Release);
        assert!(consumer.pending() <= CAPACITY as u64);
        assert_eq!(consumer.peek().expect("broken").expect("no end").len(), 8);
    }
    assert_eq!(consumer.recv(&mut [0; 8]).expect("not there"), Some(8));
    liar.memory.long(POSITION).store(0, Ordering::Release);
    assert_eq!(consumer.pending(), 0, "what is behind is nothing");
}

/// Every word of the data says that a record without bytes begins there.
fn without_end() -> (LyingProducer, sluice::ring::Consumer) {
    let (liar, consumer) = lied_to();
    for position in (0..CAPACITY as u64).step_by(8) {
        liar.header(position, 0, 1);
    }
    (liar, consumer)
}

#[test]
fn records_without_end_are_received_one_at_a_time() {
    let (liar, mut consumer) = without_end();
    let theirs = liar.theirs();
    for number in 1..=10_000 {
        assert_eq!(consumer.recv(&mut []).expect("broken"), Some(0));
        let released = theirs.long(POSITION).load(Ordering::Acquire);
        assert_eq!(released, 8 * number, "each call makes progress");
    }
}

#[test]
fn a_batch_has_no_more_than_the_ring_holds() {
    let (_liar, mut consumer) = without_end();
    let mut batch = consumer.batch().expect("broken").expect("no end");
    let mut taken = 0;
    let end = loop {
        match batch.take() {
            Ok(Some(_)) => taken += 1,
            Ok(None) => panic!("it ends after {taken}"),
            Err(error) => break error,
        }
        assert!(taken < CAPACITY, "it never ends");
    };
    assert!(
        matches!(
            end,
            RecvError::ProtocolViolation(ProtocolViolation::TooMany { .. })
        ),
        "{end:?}"
    );
    // The state behind the last record has to fit too.
    assert_eq!(taken, CAPACITY / 8 - 1);
    assert_error(batch.recv(&mut []), |error| {
        matches!(
            error,
            RecvError::ProtocolViolation(ProtocolViolation::TooMany { .. })
        )
    });
}

#[test]
fn records_without_end_keep_no_runtime_from_its_timers() {
    let (_liar, consumer) = without_end();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime");
    runtime.block_on(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let began = Instant::now();
        let receiving = async {
            while began.elapsed() < LONG {
                assert_eq!(consumer.recv(&mut []).await.expect("broken"), Some(0));
            }
        };
        let ended = tokio::time::timeout(SHORT, receiving).await;
        assert!(ended.is_err(), "the timer came after all of it");
    });
}
