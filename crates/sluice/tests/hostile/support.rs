// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sluice::ring::{Consumer, Producer};

pub use super::carrier::{
    LONG, MaliciousConsumer, MaliciousProducer, malicious_consumer_with, malicious_producer_with,
    small,
};

/// The time after which an event counts as absent.
pub const SHORT: Duration = Duration::from_millis(50);

/// The duration of a race between two threads.
pub const RACE: Duration = Duration::from_secs(1);

pub const CAPACITY: usize = 4096;

/// A malicious producer, and the library's consumer of its ring.
pub fn malicious_producer() -> (MaliciousProducer, Consumer) {
    malicious_producer_with(&small())
}

/// A malicious consumer, and the library's producer of its ring.
pub fn malicious_consumer() -> (MaliciousConsumer, Producer) {
    malicious_consumer_with(&small())
}

/// Runs this in a thread. Fails if it takes longer than LONG.
pub fn within_timeout<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, result) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    result.recv_timeout(LONG).expect("timeout or panic")
}

/// Runs `attack` in a loop in a second thread until `work` returns.
pub fn run_against<T>(attack: impl Fn(u32) + Send, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                attack(round);
            }
        });
        // Ends the other thread after a panic, too.
        let _guard = SetOnDrop(done);
        work()
    })
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[track_caller]
pub fn assert_error<T: Debug, E: Debug>(result: Result<T, E>, is: impl FnOnce(&E) -> bool) {
    match &result {
        Err(error) if is(error) => {}
        _ => panic!("{result:?}"),
    }
}
