// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls other than sending and receiving.

use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice::ring::{Consumer, RecvError, SendError};

use super::support::{LONG, SHORT, ring, small};

#[test]
fn an_abort_looks_like_a_death() {
    for spin in [Duration::ZERO, Duration::MAX] {
        let (mut producer, mut consumer) = ring(&small().spin_limit(spin));
        producer.send(b"before").expect("not sent");
        producer.abort();
        let mut room = [0; 8];
        assert_eq!(
            consumer.recv_into(&mut room).expect("not received"),
            Some(6)
        );
        let died = consumer.recv_into_timeout(&mut room, LONG);
        assert!(matches!(died, Err(RecvError::PeerDied)), "{died:?}");

        let (mut producer, consumer) = ring(&small().spin_limit(spin));
        producer.send(b"never taken").expect("not sent");
        consumer.abort();
        let died = producer.flush_timeout(LONG);
        assert!(matches!(died, Err(SendError::PeerDied)), "{died:?}");
    }
}

#[test]
fn is_closed_reports_a_close_and_a_death() {
    let (mut producer, mut consumer) = ring(&small());
    assert!(!producer.is_closed());
    assert!(!consumer.is_closed());
    drop(consumer);
    assert!(producer.is_closed());

    let (mut producer, mut consumer) = ring(&small());
    producer.send(b"last").expect("not sent");
    producer.abort();
    // A socket is checked once per tick of a coarse clock.
    let until = Instant::now() + LONG;
    while !consumer.is_closed() {
        assert!(Instant::now() < until, "it never learns");
    }
    let got = consumer.try_recv_into(&mut [0; 8]);
    assert_eq!(got.expect("there is still a record"), Some(4));
}

#[test]
fn a_batch_can_be_received_without_waiting() {
    let (mut producer, mut consumer) = ring(&small());
    let none = consumer.try_recv_batch().map(drop);
    assert!(matches!(none, Err(RecvError::Empty)), "{none:?}");
    let late = consumer.recv_batch_timeout(SHORT).map(drop);
    assert!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");
    producer.send(b"one").expect("not sent");
    let mut batch = consumer
        .try_recv_batch()
        .expect("not there")
        .expect("no end");
    let bytes = batch.recv().expect("broken").expect("not there").to_vec();
    assert_eq!(bytes, b"one");
    drop(batch);
    drop(producer);
    assert!(consumer.try_recv_batch().expect("no end").is_none());
    assert!(consumer.recv_batch_timeout(LONG).expect("no end").is_none());
}

#[test]
fn values_are_read_in_place() {
    let (mut producer, mut consumer) = ring(&small());
    let record = [&7_u64.to_ne_bytes()[..], &9_u16.to_ne_bytes()].concat();
    producer.send(&record).expect("not sent");
    let record = consumer.recv().expect("broken").expect("no end");
    assert_eq!(record.read_at::<u64>(0), Some(7));
    assert_eq!(record.read_at::<u16>(8), Some(9));
    assert_eq!(record.read_at::<u32>(8), None);
    drop(record);
}

/// Waits until one of them has a record.
fn wait_for_any(consumers: &mut [Consumer]) -> io::Result<()> {
    let mut idle = !consumers.is_empty();
    for consumer in &mut *consumers {
        idle &= consumer.prepare_wait()?;
    }
    if idle {
        let limit = Timespec::try_from(LONG).expect("too long");
        let mut asked: Vec<PollFd> = consumers
            .iter()
            .map(|consumer| PollFd::new(consumer, PollFlags::IN))
            .collect();
        assert!(poll(&mut asked, Some(&limit))? > 0, "no wake-up");
    }
    for consumer in consumers {
        consumer.finish_wait();
    }
    Ok(())
}

#[test]
fn several_rings_are_waited_for_at_once() {
    const RECORDS: usize = 500;
    let (producers, mut consumers): (Vec<_>, Vec<_>) = (0..3).map(|_| ring(&small())).unzip();
    let senders: Vec<_> = producers
        .into_iter()
        .map(|mut producer| {
            thread::spawn(move || {
                for number in 0..RECORDS {
                    producer.send(b"record").expect("not sent");
                    if number % 100 == 0 {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
            })
        })
        .collect();
    let mut received = 0;
    let mut room = [0; 8];
    while !consumers.is_empty() {
        consumers.retain_mut(|consumer| {
            loop {
                match consumer.try_recv_into(&mut room) {
                    Ok(Some(_)) => received += 1,
                    Ok(None) => return false,
                    Err(RecvError::Empty) => return true,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        wait_for_any(&mut consumers).expect("cannot wait");
    }
    assert_eq!(received, 3 * RECORDS);
    for sender in senders {
        sender.join().expect("panicked");
    }
}

#[test]
fn a_producer_can_wait_for_room_on_a_descriptor() {
    let (mut producer, mut consumer) = ring(&small());
    while producer.try_send(&[0; 500]).is_ok() {}
    assert!(producer.prepare_wait(500).expect("no ring"));
    let taking = thread::spawn(move || {
        thread::sleep(SHORT);
        consumer.recv_into(&mut [0; 500]).map(|_| consumer)
    });
    let limit = Timespec::try_from(LONG).expect("too long");
    let woken = poll(&mut [PollFd::new(&producer, PollFlags::IN)], Some(&limit));
    assert_eq!(woken.expect("cannot wait"), 1);
    producer.finish_wait();
    producer.try_send(&[0; 500]).expect("no room");
    assert!(producer.prepare_wait(0).is_ok());
    producer.finish_wait();
    taking.join().expect("panicked").expect("not received");
}

#[test]
fn errors_convert_to_io_errors() {
    fn full() -> io::Result<()> {
        let (mut producer, _consumer) = ring(&small());
        loop {
            producer.try_send(&[0; 500])?;
        }
    }
    assert_eq!(
        full().map_err(|error| error.kind()),
        Err(ErrorKind::WouldBlock)
    );
}
