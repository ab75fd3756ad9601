// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt::Debug;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use sluice::ring::{Consumer, Options, Producer, SetupError, Socket};
use sluice_hostile::{LyingConsumer, LyingProducer};

/// Long enough for anything that is to happen.
pub const LONG: Duration = Duration::from_secs(20);

/// Long enough to see that nothing happens.
pub const SHORT: Duration = Duration::from_millis(50);

/// For how long two threads race.
pub const RACE: Duration = Duration::from_secs(1);

pub const CAPACITY: usize = 4096;

pub fn small() -> Options {
    Options::new()
        .capacity(CAPACITY as u64)
        .handshake_timeout(SHORT)
}

/// An honest consumer, and the liar that sends to it.
pub fn lied_to() -> (LyingProducer, Consumer) {
    let (liar, socket) = LyingProducer::new(CAPACITY);
    let consumer = small().consumer(Socket::from(socket)).expect("no ring");
    (liar, consumer)
}

/// An honest producer, and the liar that receives from it.
pub fn lied_back() -> (LyingConsumer, Producer) {
    let (liar, socket) = LyingConsumer::new();
    let producer = small().producer(Socket::from(socket)).expect("no ring");
    (liar, producer)
}

/// What becomes of the side that receives over this socket.
pub fn consumer(socket: OwnedFd) -> Result<(), SetupError> {
    small().consumer(Socket::from(socket)).map(drop)
}

/// What becomes of the side that sends over this socket.
pub fn producer(socket: OwnedFd) -> Result<(), SetupError> {
    small().producer(Socket::from(socket)).map(drop)
}

/// Fails if it takes longer than anything here may.
pub fn in_time<T: Send + 'static>(does: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(does()));
    told.recv_timeout(LONG).expect("it hangs, or panicked")
}

/// Runs both at once, `harm` again and again until the other is done.
pub fn against<T>(harm: impl Fn(u32) + Send, does: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            for round in 0.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                harm(round);
            }
        });
        // A panic, too, has to end the other thread.
        let _end = EndsWith(done);
        does()
    })
}

struct EndsWith<'a>(&'a AtomicBool);

impl Drop for EndsWith<'_> {
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
