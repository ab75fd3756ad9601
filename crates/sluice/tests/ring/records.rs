// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records arrive as they were sent.

use std::thread;
use std::time::Duration;

use sluice::ring::{RecvError, SendError};

use super::carrier::Options;
use super::support::{pattern, ring, small};

#[test]
fn records_of_every_length_arrive_as_they_were_sent() {
    let (mut producer, mut consumer) = ring(&small());
    let mut room = vec![0; consumer.max_record_len()];
    for length in 0..=producer.max_record_len() {
        producer.send(&pattern(length, length)).expect("not sent");
        let got = consumer.recv_into(&mut room).expect("not received");
        assert_eq!(got, Some(length));
        assert_eq!(room[..length], pattern(length, length));
    }
}

#[test]
fn records_stay_in_order_around_the_ring() {
    let (mut producer, mut consumer) = ring(&small());
    let mut room = [0; 256];
    let mut taken = 0;
    for number in 0..10_000 {
        let length = number % 200;
        while let Err(error) = producer.try_send(&pattern(number, length)) {
            assert!(matches!(error, SendError::Full), "{error}");
            let got = consumer
                .try_recv_into(&mut room)
                .expect("nothing in a full ring");
            assert_eq!(got, Some(taken % 200));
            assert_eq!(room[..taken % 200], pattern(taken, taken % 200));
            taken += 1;
        }
    }
    while let Ok(Some(length)) = consumer.try_recv_into(&mut room) {
        assert_eq!(room[..length], pattern(taken, taken % 200));
        taken += 1;
    }
    assert_eq!(taken, 10_000);
}

#[test]
fn a_stream_arrives_in_order_whether_its_sides_spin_or_sleep() {
    const RECORDS: usize = 20_000;
    for spin in [Duration::ZERO, Duration::MAX] {
        let (mut producer, mut consumer) = ring(&small().spin_limit(spin));
        let sender = thread::spawn(move || {
            (0..RECORDS).try_for_each(|number| producer.send(&pattern(number, number % 200)))
        });
        let mut room = [0; 256];
        for number in 0..RECORDS {
            let got = consumer.recv_into(&mut room).expect("not received");
            assert_eq!(got, Some(number % 200));
            assert_eq!(room[..number % 200], pattern(number, number % 200));
        }
        assert_eq!(consumer.recv_into(&mut room).expect("no end"), None);
        sender
            .join()
            .expect("the sender panicked")
            .expect("not sent");
    }
}

#[test]
fn a_record_that_looks_like_headers_is_none() {
    let (mut producer, mut consumer) = ring(&small());
    // Every word of it has the value of a record's state, at every position in the ring.
    let lure = [1, 0, 0, 0].repeat(25);
    let mut room = [0; 100];
    for _ in 0..1000 {
        producer.send(&lure).expect("not sent");
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(100)
        );
        assert_eq!(room[..], lure);
        assert!(matches!(
            consumer.try_recv_into(&mut room),
            Err(RecvError::Empty)
        ));
    }
}

#[test]
fn what_is_filled_in_place_and_cut_is_sent_cut() {
    let (mut producer, mut consumer) = ring(&small());
    for number in 0..1000 {
        let mut room = producer.reserve(500).expect("no room");
        room.fill(1);
        let length = number % 501;
        room[..length].copy_from_slice(&pattern(number, length));
        room.commit_len(length);
        let record = consumer.recv().expect("no record").expect("no end");
        assert_eq!(record.to_vec(), pattern(number, length));
        drop(record);
        assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
    }
}

#[test]
fn what_is_filled_and_not_committed_was_never_there() {
    let (mut producer, mut consumer) = ring(&small());
    let mut room = [0; 8];
    for _ in 0..1000 {
        producer.reserve(300).expect("no room").fill(1);
        assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
        producer.send(b"sent").expect("not sent");
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(4)
        );
        assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
    }
}

#[test]
fn a_record_that_is_kept_is_the_next_one_again() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"first").expect("not sent");
    producer.send(b"second").expect("not sent");
    for _ in 0..2 {
        let record = consumer.recv().expect("no record").expect("no end");
        assert_eq!(record.to_vec(), b"first");
        record.keep();
    }
    drop(consumer.recv().expect("no record").expect("no end"));
    let record = consumer.recv().expect("no record").expect("no end");
    assert_eq!(record.to_vec(), b"second");
}

#[test]
fn held_records_stay_in_place_until_they_are_released() {
    let (mut producer, mut consumer) = ring(&small());
    for number in 0..4 {
        producer.send(&pattern(number, 64)).expect("not sent");
    }
    let unreleased = producer.pending().expect("not pending");
    assert!(!consumer.is_holding());
    let record = consumer.recv().expect("no record").expect("no end");
    let start = record.as_ptr();
    record.hold();
    assert!(consumer.is_holding());
    assert_eq!(producer.pending().expect("not pending"), unreleased);

    consumer.keep_held();
    assert!(!consumer.is_holding());
    let record = consumer.recv().expect("no record").expect("no end");
    assert_eq!(record.as_ptr(), start);
    record.hold();
    consumer.release_held();
    assert!(!consumer.is_holding());
    assert_eq!(producer.pending().expect("not pending"), unreleased / 4 * 3);

    let mut batch = consumer.recv_batch().expect("no batch").expect("no end");
    for number in 1..3 {
        let record = batch.recv().expect("no record").expect("too few");
        assert_eq!(record.to_vec(), pattern(number, 64));
    }
    batch.hold();
    assert_eq!(producer.pending().expect("not pending"), unreleased / 4 * 3);
    consumer.release_held();
    assert_eq!(producer.pending().expect("not pending"), unreleased / 4);
    let record = consumer.recv().expect("no record").expect("no end");
    assert_eq!(record.to_vec(), pattern(3, 64));
}

#[test]
fn a_reservation_that_was_dropped_is_committed() {
    let (mut producer, mut consumer) = ring(&small());
    for number in 0..1000 {
        let length = number % 300;
        let room = &mut producer.reserve(300).expect("no room");
        room[..length].copy_from_slice(&pattern(number, length));
        match number % 2 {
            0 => producer.commit_dropped(length),
            _ => producer.send_batch().commit_dropped(length),
        }
        .expect("not committed");
        let record = consumer.recv().expect("no record").expect("no end");
        assert_eq!(record.to_vec(), pattern(number, length));
        drop(record);
        assert!(matches!(consumer.try_recv(), Err(RecvError::Empty)));
    }
}

#[test]
#[should_panic(expected = "9 bytes of a reservation of Some(8)")]
fn no_more_is_committed_than_was_reserved() {
    let (mut producer, _consumer) = ring(&small());
    drop(producer.reserve(8).expect("no room"));
    let _ = producer.commit_dropped(9);
}

#[test]
#[should_panic(expected = "0 bytes of a reservation of None")]
fn nothing_is_committed_twice() {
    let (mut producer, _consumer) = ring(&small());
    drop(producer.reserve(8).expect("no room"));
    producer.commit_dropped(8).expect("not committed");
    let _ = producer.commit_dropped(0);
}

#[test]
fn a_record_may_take_half_of_the_ring_and_no_more() {
    let (mut producer, mut consumer) = ring(&small());
    assert_eq!(producer.max_record_len(), 2048 - 8);
    let too_long = producer.send(&[0; 2048 - 7]);
    assert!(
        matches!(
            too_long,
            Err(SendError::RecordTooLong {
                len: 2041,
                max: 2040
            })
        ),
        "{too_long:?}"
    );
    assert!(matches!(
        producer.try_reserve(usize::MAX),
        Err(SendError::RecordTooLong { .. })
    ));
    for number in 0..10 {
        producer.send(&pattern(number, 2040)).expect("not sent");
        let record = consumer.recv().expect("no record").expect("no end");
        assert_eq!(record.to_vec(), pattern(number, 2040));
        drop(record);
    }
}

#[test]
fn a_record_longer_than_the_receivers_room_stays() {
    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"longer").expect("not sent");
    let too_little = consumer.recv_into(&mut [0; 5]);
    assert!(
        matches!(
            too_little,
            Err(RecvError::BufferTooSmall { len: 6, room: 5 })
        ),
        "{too_little:?}"
    );
    let mut room = [0; 6];
    assert_eq!(
        consumer.recv_into(&mut room).expect("not received"),
        Some(6)
    );
    assert_eq!(&room, b"longer");
}

#[test]
fn both_sides_know_how_much_is_on_the_way() {
    let (mut producer, mut consumer) = ring(&small());
    assert_eq!(
        (producer.pending().expect("broken"), consumer.pending()),
        (0, 0)
    );
    producer.send(&[0; 8]).expect("not sent");
    producer.send(&[0; 9]).expect("not sent");
    assert_eq!(
        (producer.pending().expect("broken"), consumer.pending()),
        (40, 40)
    );
    drop(consumer.recv().expect("no record").expect("no end"));
    assert_eq!(
        (producer.pending().expect("broken"), consumer.pending()),
        (24, 24)
    );
}

#[test]
fn the_capacity_is_what_was_asked_for_or_the_next_power_of_two() {
    for (asked, got) in [(1, 4096), (4096, 4096), (4097, 8192), (1 << 20, 1 << 20)] {
        let (producer, consumer) = ring(&Options::new().capacity(asked));
        assert_eq!((producer.capacity(), consumer.capacity()), (got, got));
    }
}

#[test]
fn the_largest_ring_carries_the_longest_record() {
    let (mut producer, mut consumer) = ring(&Options::new().capacity(256 << 20));
    let longest = producer.max_record_len();
    assert_eq!(longest, (128 << 20) - 8);
    for number in 0..3 {
        let mut room = producer.reserve(longest).expect("no room");
        room[0] = number;
        room[longest - 1] = number;
        room.commit();
        let record = consumer.recv().expect("no record").expect("no end");
        let mut ends = [0xff; 2];
        assert_eq!(record.copy_to(0, &mut ends[..1]), 1);
        assert_eq!(record.copy_to(longest - 1, &mut ends[1..]), 1);
        assert_eq!(ends, [number; 2]);
        drop(record);
    }
}
