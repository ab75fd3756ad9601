// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings in a tokio runtime.

use std::future::Future;
use std::thread;

use sluice::ring::{AsyncConsumer, AsyncProducer, SendError};
use tokio::time::timeout;

use crate::support::{LONG, SHORT, pattern, ring, small};

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
            while let Some(length) = consumer.recv(&mut room).await.expect("not received") {
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
            .recv(&mut room)
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
        let waited = timeout(SHORT, consumer.recv(&mut room)).await;
        assert!(waited.is_err(), "{waited:?}");
        producer.send(b"whole").expect("not sent");
        assert_eq!(
            consumer.recv(&mut room).await.expect("not received"),
            Some(5)
        );
        let waited = timeout(SHORT, consumer.recv(&mut room)).await;
        assert!(waited.is_err(), "{waited:?}");
        drop(producer);
        assert_eq!(consumer.recv(&mut room).await.expect("no end"), None);
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
