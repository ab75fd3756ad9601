// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a tokio runtime.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::thread;

use futures_core::Stream;
use futures_sink::Sink;
use sluice::ring::{AsyncConsumer, AsyncProducer, RecvError, SendError};
use tokio::time::timeout;

use super::support::{LONG, SHORT, pattern, ring, small};

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("no runtime");
    runtime.block_on(async { timeout(LONG, future).await.expect("it hangs") })
}

#[test]
fn both_sides_in_one_thread() {
    run(async {
        let (producer, consumer) = ring(&small());
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let sending = async move {
            for number in 0..5000 {
                producer
                    .send(&pattern(number, 100))
                    .await
                    .expect("not sent");
            }
        };
        let receiving = async move {
            let mut room = [0; 100];
            let mut number = 0;
            while let Some(length) = consumer.recv_into(&mut room).await.expect("not received") {
                assert_eq!(room[..length], pattern(number, 100));
                number += 1;
            }
            number
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert_eq!(received, 5000);
    });
}

#[test]
fn a_blocking_side_and_one_in_a_runtime() {
    let (mut producer, consumer) = ring(&small());
    let sender = thread::spawn(move || {
        for number in 0..5000 {
            producer.send(&pattern(number, 10)).expect("not sent");
            if number % 1000 == 0 {
                thread::sleep(SHORT);
            }
        }
    });
    let received = run(async {
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut room = [0; 10];
        let mut number = 0;
        while consumer
            .recv_into(&mut room)
            .await
            .expect("not received")
            .is_some()
        {
            assert_eq!(room[..], pattern(number, 10));
            number += 1;
        }
        number
    });
    sender.join().expect("panicked");
    assert_eq!(received, 5000);
}

#[test]
fn a_call_that_was_dropped_took_nothing() {
    run(async {
        let (mut producer, consumer) = ring(&small());
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut room = [0; 8];
        let waited = timeout(SHORT, consumer.recv_into(&mut room)).await;
        assert!(waited.is_err(), "{waited:?}");
        producer.send(b"whole").expect("not sent");
        assert_eq!(
            consumer.recv_into(&mut room).await.expect("not received"),
            Some(5)
        );
        let waited = timeout(SHORT, consumer.recv_into(&mut room)).await;
        assert!(waited.is_err(), "{waited:?}");
        drop(producer);
        assert_eq!(consumer.recv_into(&mut room).await.expect("no end"), None);
    });
}

#[test]
fn a_sender_in_a_runtime_learns_that_the_receiver_is_gone() {
    run(async {
        let (producer, consumer) = ring(&small());
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        let filled = timeout(SHORT, async {
            loop {
                producer.send(&[0; 500]).await.expect("not sent");
            }
        });
        assert!(filled.await.is_err());
        let closing = async {
            tokio::time::sleep(SHORT).await;
            drop(consumer);
        };
        let (sent, ()) = tokio::join!(producer.send(&[0; 500]), closing);
        assert!(matches!(sent, Err(SendError::Closed)), "{sent:?}");
    });
}

#[test]
fn every_way_to_call_works_in_a_runtime() {
    run(async {
        let (producer, consumer) = ring(&small());
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let mut room = [0; 8];

        let none = consumer.try_recv_into(&mut room);
        assert!(matches!(none, Err(RecvError::Empty)), "{none:?}");
        let late = consumer.recv_into_timeout(&mut room, SHORT).await;
        assert!(matches!(late, Err(RecvError::TimedOut(_))), "{late:?}");

        producer.try_send(b"one").expect("no room");
        let mut room = producer.reserve(3).await.expect("no room");
        room.copy_from_slice(b"two");
        room.commit();
        let mut batch = producer.send_batch();
        batch.send(b"three").await.expect("not sent");
        batch.try_send(b"four").expect("not sent");
        batch.publish();

        let record = consumer.recv().await.expect("broken").expect("no end");
        assert_eq!(record.to_vec(), b"one");
        drop(record);
        let mut batch = consumer
            .recv_batch()
            .await
            .expect("broken")
            .expect("no end");
        for expected in [&b"two"[..], b"three", b"four"] {
            let bytes = batch.recv().expect("broken").expect("not there");
            assert_eq!(bytes.to_vec(), expected);
        }
        drop(batch);
        producer.flush().await.expect("not flushed");

        let full = loop {
            if let Err(error) = producer.send_timeout(&[0; 500], SHORT).await {
                break error;
            }
        };
        assert!(matches!(full, SendError::TimedOut(_)), "{full:?}");
        assert!(!producer.is_closed() && !consumer.is_closed());
        consumer.abort();
        let died = producer.flush().await;
        assert!(matches!(died, Err(SendError::PeerDied)), "{died:?}");
    });
}

#[test]
fn a_ring_is_a_sink_and_a_stream() {
    const RECORDS: usize = 1000;
    run(async {
        let (producer, consumer) = ring(&small());
        let mut producer = AsyncProducer::new(producer).expect("no runtime");
        let mut consumer = AsyncConsumer::new(consumer).expect("no runtime");
        let sending = async move {
            for number in 0..RECORDS {
                poll_fn(|cx| Sink::<Vec<u8>>::poll_ready(Pin::new(&mut producer), cx))
                    .await
                    .expect("no room");
                let record = pattern(number, number % 900);
                Pin::new(&mut producer)
                    .start_send(record)
                    .expect("not sent");
            }
            poll_fn(|cx| Sink::<Vec<u8>>::poll_close(Pin::new(&mut producer), cx))
                .await
                .expect("not all was taken");
        };
        let receiving = async move {
            let mut number = 0;
            while let Some(record) = poll_fn(|cx| Pin::new(&mut consumer).poll_next(cx)).await {
                assert_eq!(record.expect("broken"), pattern(number, number % 900));
                number += 1;
            }
            number
        };
        let ((), received) = tokio::join!(sending, receiving);
        assert_eq!(received, RECORDS);
    });
}
