// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits, spinning and asleep.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use sluice::ring::{RecvError, SendError};

use super::carrier::Options;
use super::support::{LONG, SHORT, pattern, ring, small};

/// Never spins, always spins, and the default.
fn spin_options() -> [Options; 3] {
    [
        small().spin_limit(Duration::ZERO),
        small().spin_limit(Duration::MAX),
        small(),
    ]
}

#[test]
fn a_waiting_receiver_gets_what_is_sent() {
    for options in spin_options() {
        let (mut producer, mut consumer) = ring(&options);
        let receiver = thread::spawn(move || {
            let mut room = [0; 8];
            consumer
                .recv_into_timeout(&mut room, LONG)
                .map(|got| (got, room))
        });
        thread::sleep(SHORT);
        producer.send(b"awaited!").expect("not sent");
        let (got, room) = receiver.join().expect("panicked").expect("not received");
        assert_eq!((got, &room), (Some(8), b"awaited!"));
    }
}

#[test]
fn a_waiting_sender_goes_on_when_there_is_room() {
    for options in spin_options() {
        let (mut producer, mut consumer) = ring(&options);
        while producer.try_send(&[0; 500]).is_ok() {}
        let sender = thread::spawn(move || producer.send_timeout(b"at last", LONG));
        thread::sleep(SHORT);
        let mut room = [0; 500];
        while consumer
            .recv_into_timeout(&mut room, LONG)
            .expect("not received")
            != Some(7)
        {}
        assert_eq!(&room[..7], b"at last");
        sender.join().expect("panicked").expect("not sent");
    }
}

/// Over memfd a side that has slept for 50 ms sleeps on the socket.
#[test]
fn a_side_that_has_slept_for_long_is_woken() {
    let (mut producer, mut consumer) = ring(&small());
    let receiver = thread::spawn(move || {
        let got = consumer.recv_into_timeout(&mut [0; 8], LONG);
        (consumer, got)
    });
    thread::sleep(4 * SHORT);
    producer.send(b"awaited!").expect("not sent");
    let (mut consumer, got) = receiver.join().expect("panicked");
    assert_eq!(got.expect("not received"), Some(8));

    while producer.try_send(&[0; 500]).is_ok() {}
    let sender = thread::spawn(move || producer.send_timeout(b"at last", LONG).map(|()| producer));
    thread::sleep(4 * SHORT);
    let mut room = [0; 500];
    while consumer.recv_into_timeout(&mut room, LONG).expect("lost") != Some(7) {}
    let producer = sender.join().expect("panicked").expect("not sent");

    let receiver = thread::spawn(move || consumer.recv_into_timeout(&mut [0; 8], LONG));
    thread::sleep(4 * SHORT);
    drop(producer);
    assert_eq!(receiver.join().expect("panicked").expect("no end"), None);
}

#[test]
fn many_records_arrive_whichever_side_waits() {
    const RECORDS: usize = 50_000;
    for options in spin_options() {
        let (mut producer, mut consumer) = ring(&options);
        let sender = thread::spawn(move || {
            for number in 0..RECORDS {
                producer
                    .send(&pattern(number, number % 64))
                    .expect("not sent");
            }
        });
        let mut room = [0; 64];
        let mut number = 0;
        while let Some(length) = consumer.recv_into(&mut room).expect("not received") {
            assert_eq!(room[..length], pattern(number, number % 64));
            number += 1;
        }
        sender.join().expect("panicked");
        assert_eq!(number, RECORDS);
    }
}

#[test]
fn requests_and_replies_over_two_rings_never_hang() {
    for options in spin_options() {
        let (mut requests, mut requests_in) = ring(&options);
        let (mut replies, mut replies_in) = ring(&options);
        let other = thread::spawn(move || {
            let mut room = [0; 8];
            while let Some(length) = requests_in.recv_into(&mut room).expect("not received") {
                replies.send(&room[..length]).expect("not sent");
            }
        });
        let mut room = [0; 8];
        for number in 0..5000_u64 {
            requests.send(&number.to_ne_bytes()).expect("not sent");
            let got = replies_in
                .recv_into_timeout(&mut room, LONG)
                .expect("not received");
            assert_eq!((got, u64::from_ne_bytes(room)), (Some(8), number));
        }
        drop(requests);
        other.join().expect("panicked");
    }
}

#[test]
fn waiting_ends_when_its_time_is_over() {
    for options in spin_options() {
        let (mut producer, mut consumer) = ring(&options);
        let began = Instant::now();
        let late = consumer.recv_timeout(SHORT).map(drop);
        assert!(
            matches!(&late, Err(RecvError::TimedOut(over)) if over.limit() == SHORT),
            "{late:?}"
        );
        assert!(began.elapsed() >= SHORT);

        while producer.try_send(&[0; 500]).is_ok() {}
        let late = producer.send_timeout(&[0; 500], SHORT);
        assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
        let late = producer.reserve_timeout(500, Duration::ZERO).map(drop);
        assert!(matches!(late, Err(SendError::TimedOut(_))), "{late:?}");
    }
}

#[test]
fn a_sleeping_side_uses_no_processor_time() {
    let (_producer, mut consumer) = ring(&small());
    let sleeper = thread::spawn(move || {
        let before = clock_gettime(ClockId::ThreadCPUTime);
        let late = consumer.recv_timeout(Duration::from_secs(1)).map(drop);
        assert!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
        clock_gettime(ClockId::ThreadCPUTime) - before
    });
    let used = sleeper.join().expect("panicked");
    let used = Duration::new(used.tv_sec as u64, used.tv_nsec as u32);
    // It spins for 100 µs first; on an emulated and busy processor the calls take a multiple of that. One that spins uses all.
    assert!(used < Duration::from_millis(250), "{used:?} of a second");
}
