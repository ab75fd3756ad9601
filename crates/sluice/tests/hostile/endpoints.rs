// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks that only a device ring permits: on the words for poll(2) and membarrier(2), on the end that the module reports, and by
//! its calls.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sluice::ring::{
    AsyncConsumer, AsyncProducer, Consumer, Producer, ProtocolViolation, RecvError, SendError,
};
use sluice_hostile::{
    CLOSED, FEATURES, Memory, POS, WAIT_FLAGS, WAKE_ACK, WAKE_SEQ, destroy, unused_name,
};

use super::carrier::{MaliciousConsumer, MaliciousProducer};
use super::support::{
    CAPACITY, LONG, RACE, SHORT, assert_error, malicious_consumer, malicious_consumer_with,
    malicious_producer, malicious_producer_with, run_against, small, within_timeout,
};

type ConsumerCall = fn(&mut Consumer) -> Result<(), RecvError>;
type ProducerCall = fn(&mut Producer) -> Result<(), SendError>;

/// The spin limits: a side that sleeps at once, and one that never sleeps.
const SPINS: [Duration; 2] = [Duration::ZERO, Duration::MAX];

fn is_hidden_end_of_producer(error: &RecvError) -> bool {
    matches!(
        error,
        RecvError::ProtocolViolation(ProtocolViolation::EndHidden)
    )
}

fn is_hidden_end_of_consumer(error: &SendError) -> bool {
    matches!(
        error,
        SendError::ProtocolViolation(ProtocolViolation::EndHidden)
    )
}

/// A producer that has ended its role and has removed that from its control page.
fn hiding_producer() -> (MaliciousProducer, Consumer) {
    let (malicious, consumer) = malicious_producer_with(&small().spin_limit(Duration::ZERO));
    malicious.carrier.detach().expect("not detached");
    let closed = malicious.memory.word(CLOSED);
    assert_eq!(closed.swap(0, Ordering::Release), 1);
    (malicious, consumer)
}

/// As hiding_producer(), a consumer of a ring that is full up to the returned position.
fn hiding_consumer() -> (MaliciousConsumer, Producer, u64) {
    let (malicious, mut producer) = malicious_consumer_with(&small().spin_limit(Duration::ZERO));
    while producer.try_send(&[0; 500]).is_ok() {}
    let published = producer.pending().expect("failed");
    malicious.carrier.detach().expect("not detached");
    let closed = malicious.memory.word(CLOSED);
    assert_eq!(closed.swap(0, Ordering::Release), 1);
    (malicious, producer, published)
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime")
        .block_on(future)
}

#[test]
fn a_hidden_end_of_the_producer_is_a_violation_in_every_call() {
    let calls: [ConsumerCall; 5] = [
        |consumer| consumer.recv_into(&mut [0; 8]).map(drop),
        |consumer| consumer.recv_into_timeout(&mut [0; 8], LONG).map(drop),
        |consumer| consumer.recv().map(drop),
        |consumer| consumer.recv_batch().map(drop),
        |consumer| consumer.recv_batch_timeout(LONG).map(drop),
    ];
    for call in calls {
        let (malicious, consumer) = hiding_producer();
        let (mut consumer, ended) = within_timeout(move || {
            let mut consumer = consumer;
            let ended = call(&mut consumer);
            (consumer, ended)
        });
        assert_error(ended, is_hidden_end_of_producer);
        assert!(consumer.is_closed());
        // What it stores later does not matter.
        malicious.send(0, b"more");
        assert_error(call(&mut consumer), is_hidden_end_of_producer);
        malicious.memory.word(CLOSED).store(1, Ordering::Release);
        assert_error(call(&mut consumer), is_hidden_end_of_producer);
        assert_error(consumer.prepare_wait(), is_hidden_end_of_producer);
    }
}

#[test]
fn a_hidden_end_of_the_consumer_is_a_violation_in_every_call() {
    let calls: [ProducerCall; 5] = [
        |producer| producer.send(&[0; 500]),
        |producer| producer.send_timeout(&[0; 500], LONG),
        |producer| producer.reserve(500).map(drop),
        |producer| producer.send_batch().send(&[0; 500]),
        |producer| producer.flush_timeout(LONG),
    ];
    for call in calls {
        let (malicious, producer, published) = hiding_consumer();
        let (mut producer, ended) = within_timeout(move || {
            let mut producer = producer;
            let ended = call(&mut producer);
            (producer, ended)
        });
        assert_error(ended, is_hidden_end_of_consumer);
        assert!(producer.is_closed());
        // What it stores later does not matter.
        malicious
            .memory
            .long(POS)
            .store(published, Ordering::Release);
        assert_error(call(&mut producer), is_hidden_end_of_consumer);
        malicious.memory.word(CLOSED).store(1, Ordering::Release);
        assert_error(call(&mut producer), is_hidden_end_of_consumer);
        assert_error(producer.prepare_wait(500), is_hidden_end_of_consumer);
    }
}

#[test]
fn records_before_a_hidden_end_are_received() {
    let (malicious, mut consumer) = hiding_producer();
    malicious.send(0, b"last");
    let mut buffer = [0; 8];
    assert_eq!(
        consumer.recv_into(&mut buffer).expect("not received"),
        Some(4)
    );
    assert_error(consumer.recv_into(&mut buffer), is_hidden_end_of_producer);
}

/// Waits until the descriptor is readable.
fn wait_readable(side: &impl std::os::fd::AsFd) -> PollFlags {
    let limit = Timespec::try_from(LONG).expect("too long");
    let mut fds = [PollFd::new(side, PollFlags::IN | PollFlags::RDHUP)];
    assert_eq!(poll(&mut fds, Some(&limit)), Ok(1), "no event");
    fds[0].revents()
}

#[test]
fn a_hidden_end_is_a_violation_after_a_poll() {
    let (_malicious, mut consumer) = hiding_producer();
    assert!(consumer.prepare_wait().expect("failed"));
    assert!(wait_readable(&consumer).contains(PollFlags::RDHUP));
    consumer.finish_wait();
    assert_error(consumer.try_recv_into(&mut []), is_hidden_end_of_producer);

    let (_malicious, mut producer, _) = hiding_consumer();
    assert!(producer.prepare_wait(500).expect("failed"));
    assert!(wait_readable(&producer).contains(PollFlags::RDHUP));
    producer.finish_wait();
    assert_error(producer.try_send(&[0; 500]), is_hidden_end_of_consumer);
}

#[test]
fn a_hidden_end_is_a_violation_in_a_runtime() {
    within_timeout(|| {
        run(async {
            let (_malicious, consumer) = hiding_producer();
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            assert_error(consumer.recv_into(&mut []).await, is_hidden_end_of_producer);

            let (_malicious, producer, _) = hiding_consumer();
            let mut producer = AsyncProducer::new(producer).expect("no runtime");
            assert_error(producer.send(&[0; 500]).await, is_hidden_end_of_consumer);
            assert_error(producer.flush().await, is_hidden_end_of_consumer);
        });
    });
}

#[test]
fn an_end_that_is_hidden_during_a_sleep_is_an_end_or_a_violation() {
    for _ in 0..20 {
        let (malicious, mut consumer) =
            malicious_producer_with(&small().spin_limit(Duration::ZERO));
        let receiver = thread::spawn(move || consumer.recv_into_timeout(&mut [], LONG));
        thread::sleep(SHORT / 10);
        malicious.carrier.detach().expect("not detached");
        malicious.memory.word(CLOSED).store(0, Ordering::Release);
        let ended = receiver.join().expect("panicked");
        match ended {
            Ok(None) => {}
            other => assert_error(other, is_hidden_end_of_producer),
        }
    }
}

#[test]
fn a_destruction_cannot_be_hidden() {
    for spin in SPINS {
        let name = unused_name();
        let malicious = MaliciousProducer::open(&name, CAPACITY);
        let options = small().spin_limit(spin);
        let consumer = options.named(&name).consumer();
        let mut consumer = consumer.expect("not opened");
        let receiver = thread::spawn(move || consumer.recv_into_timeout(&mut [], LONG));
        thread::sleep(SHORT);
        destroy(&name);
        malicious.memory.word(CLOSED).store(0, Ordering::Release);
        assert_error(receiver.join().expect("panicked"), |error| {
            matches!(error, RecvError::Destroyed)
        });

        let name = unused_name();
        let malicious = MaliciousConsumer::open(&name, CAPACITY);
        let producer = options.named(&name).producer();
        let mut producer = producer.expect("not opened");
        while producer.try_send(&[0; 500]).is_ok() {}
        destroy(&name);
        malicious.memory.word(CLOSED).store(0, Ordering::Release);
        assert_error(producer.send_timeout(&[0; 500], LONG), |error| {
            matches!(error, SendError::Destroyed)
        });
        assert_error(producer.prepare_wait(500), |error| {
            matches!(error, SendError::Destroyed)
        });
    }
}

#[test]
fn a_destruction_cannot_be_hidden_in_a_runtime() {
    within_timeout(|| {
        run(async {
            let name = unused_name();
            let malicious = MaliciousProducer::open(&name, CAPACITY);
            let consumer = small().named(&name).consumer();
            let consumer = consumer.expect("not opened");
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            let destroying = async {
                tokio::time::sleep(SHORT).await;
                destroy(&name);
                malicious.memory.word(CLOSED).store(0, Ordering::Release);
            };
            let (got, ()) = tokio::join!(consumer.recv_into(&mut []), destroying);
            assert_error(got, |error| matches!(error, RecvError::Destroyed));
        });
    });
}

#[test]
fn a_stored_end_of_the_module_is_an_end_until_it_is_removed() {
    let (malicious, mut consumer) = malicious_producer();
    let closed = malicious.memory.word(CLOSED);
    let mut buffer = [0; 8];
    closed.store(2, Ordering::Release);
    assert_error(consumer.recv_into(&mut buffer), |error| {
        matches!(error, RecvError::PeerDied)
    });
    closed.store(3, Ordering::Release);
    assert_error(consumer.recv_into(&mut buffer), |error| {
        matches!(error, RecvError::Destroyed)
    });
    closed.store(0, Ordering::Release);
    assert_error(consumer.recv_into_timeout(&mut buffer, SHORT), |error| {
        matches!(error, RecvError::TimedOut(_))
    });
    malicious.send(0, b"record");
    assert_eq!(
        consumer.recv_into(&mut buffer).expect("not received"),
        Some(6)
    );

    let (malicious, mut producer) = malicious_consumer();
    let closed = malicious.memory.word(CLOSED);
    closed.store(2, Ordering::Release);
    assert_error(producer.send(b"record"), |error| {
        matches!(error, SendError::PeerDied)
    });
    closed.store(3, Ordering::Release);
    assert_error(producer.send(b"record"), |error| {
        matches!(error, SendError::Destroyed)
    });
    closed.store(0, Ordering::Release);
    producer.send(b"record").expect("not sent");
}

#[test]
fn a_wake_up_that_is_taken_back_is_a_timeout_or_a_violation() {
    let began = Instant::now();
    while began.elapsed() < RACE {
        let (malicious, mut consumer) =
            malicious_producer_with(&small().spin_limit(Duration::ZERO));
        let wake_seq = malicious.memory.word(WAKE_SEQ);
        let attack = |_| {
            wake_seq.store(1, Ordering::Release);
            malicious.carrier.wake().expect("not woken");
            wake_seq.store(0, Ordering::Release);
        };
        run_against(attack, || {
            for _ in 0..10 {
                match consumer.recv_into_timeout(&mut [], SHORT / 10) {
                    Err(RecvError::TimedOut(_)) => {}
                    other => {
                        assert_error(other, is_hidden_end_of_producer);
                        break;
                    }
                }
            }
        });
    }
}

#[test]
fn wake_ack_and_features_of_the_peer_have_no_effect() {
    const RECORDS: u8 = 200;
    fn attack(memory: &Memory) -> impl Fn(u32) {
        |round| {
            let value = round.wrapping_mul(0x9e37_79b9);
            memory.word(WAKE_ACK).store(value, Ordering::Relaxed);
            memory.word(FEATURES).store(value, Ordering::Relaxed);
        }
    }
    for spin in SPINS {
        let (malicious, mut consumer) = malicious_producer_with(&small().spin_limit(spin));
        run_against(attack(&malicious.memory), || {
            let mut next = 0;
            for number in 0..RECORDS {
                next = malicious.send(next, &[number; 8]);
                let mut buffer = [0; 8];
                let got = consumer.recv_into_timeout(&mut buffer, LONG);
                assert_eq!(got.expect("not received"), Some(8));
                assert_eq!(buffer, [number; 8]);
            }
        });

        let (malicious, mut producer) = malicious_consumer_with(&small().spin_limit(spin));
        let producer_memory = malicious.map_producer(CAPACITY);
        run_against(attack(&malicious.memory), || {
            for number in 0..RECORDS {
                producer.send_timeout(&[number; 8], LONG).expect("not sent");
                let published = producer_memory.long(POS).load(Ordering::Acquire);
                malicious
                    .memory
                    .long(POS)
                    .store(published, Ordering::Release);
                producer.flush_timeout(LONG).expect("not flushed");
            }
        });
    }
}

#[test]
fn each_request_for_a_wake_up_is_answered_once() {
    const REQUESTS: u32 = 20_000;
    let (malicious, mut producer) = malicious_consumer();
    let wait_flags = malicious.memory.word(WAIT_FLAGS);
    let producer_memory = malicious.map_producer(CAPACITY);
    for wait_seq in 1..=REQUESTS {
        wait_flags.store(wait_seq << 3 | 0x02, Ordering::Release);
        for _ in 0..2 {
            producer.send(b"12345678").expect("not sent");
        }
        let published = producer_memory.long(POS).load(Ordering::Acquire);
        malicious
            .memory
            .long(POS)
            .store(published, Ordering::Release);
    }
    let wake_seq = producer_memory.word(WAKE_SEQ).load(Ordering::Relaxed);
    assert_eq!(wake_seq, REQUESTS);
}

#[test]
fn endless_wake_ups_do_not_extend_a_timeout() {
    for spin in SPINS {
        let (malicious, mut consumer) = malicious_producer_with(&small().spin_limit(spin));
        let wake_seq = malicious.memory.word(WAKE_SEQ);
        let attack = |round| {
            wake_seq.store(round, Ordering::Release);
            malicious.carrier.wake().expect("not woken");
        };
        run_against(attack, || {
            for _ in 0..5 {
                let began = Instant::now();
                assert_error(consumer.recv_into_timeout(&mut [], SHORT), |error| {
                    matches!(error, RecvError::TimedOut(_))
                });
                assert!(began.elapsed() >= SHORT && began.elapsed() < LONG);
            }
        });
    }
}

#[test]
fn endless_wake_ups_do_not_starve_the_timers_of_a_runtime() {
    let (malicious, consumer) = malicious_producer();
    let wake_seq = malicious.memory.word(WAKE_SEQ);
    let attack = |round| {
        wake_seq.store(round, Ordering::Release);
        malicious.carrier.wake().expect("not woken");
    };
    run_against(attack, || {
        run(async {
            let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
            for _ in 0..5 {
                let began = Instant::now();
                let result = tokio::time::timeout(SHORT, consumer.recv_into(&mut [])).await;
                assert!(result.is_err(), "{result:?}");
                let elapsed = began.elapsed();
                assert!(elapsed < LONG / 2, "{elapsed:?} instead of {SHORT:?}");
            }
        });
    });
}
