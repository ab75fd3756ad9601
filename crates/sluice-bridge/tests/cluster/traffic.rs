// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local programs: senders of host A, and receivers of host B, as threads.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use sluice::Bus;
use sluice::bus::{self, Policy, RecvError, SendError};

use crate::history::{Id, Sender};
use crate::support::daemon::as_user;
use crate::support::until;

/// A call waits so long before it looks whether the test has ended.
const WAIT: Duration = Duration::from_millis(200);

/// Milliseconds since the start of the test.
#[derive(Clone, Copy)]
pub struct Clock(pub Instant);

impl Clock {
    pub fn millis(self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

/// Sends until `is_ended`, one message in `pace` on the average, and at times many at once.
pub struct Program {
    endpoint: bus::Sender,
    number: usize,
    pub sender: Sender,
}

impl Program {
    pub fn open(number: usize, sender: Sender) -> Self {
        let name = sender.bus;
        until("the bridge has opened the bus", || {
            let info = Bus::named(name).info();
            info.is_ok_and(|info| info.subscribers > 0)
        });
        let endpoint = as_user(sender.uid, move || Bus::named(name).sender().unwrap());
        Self {
            endpoint,
            number,
            sender,
        }
    }

    /// Whether it was sent in time.
    pub fn send(&mut self, clock: Clock) -> bool {
        let id = Id {
            sender: self.number,
            number: self.sender.sent.len() as u64,
        };
        let called = clock.millis();
        match self.endpoint.send_timeout(&id.body(), WAIT) {
            Ok(()) => self.sender.sent.push(called),
            Err(SendError::TimedOut(_)) => return false,
            Err(error) => panic!("{id:?}: {error}"),
        }
        true
    }

    pub fn run(
        mut self,
        clock: Clock,
        pace: Duration,
        seed: u64,
        is_ended: Arc<AtomicBool>,
    ) -> JoinHandle<Self> {
        let mut rng = Rng::with_seed(seed);
        thread::spawn(move || {
            while !is_ended.load(Ordering::SeqCst) {
                let many = if rng.u32(..200) == 0 { 60 } else { 1 };
                (0..many).take_while(|_| self.send(clock)).count();
                thread::sleep(pace.mul_f64(2.0 * rng.f64()));
            }
            self
        })
    }
}

/// What a program of host B has received.
#[derive(Default)]
pub struct Inbox {
    pub received: Vec<(Option<Id>, u64)>,
    pub distinct: HashSet<Id>,
}

pub struct Receiver {
    pub inbox: Arc<Mutex<Inbox>>,
    /// It does not receive meanwhile.
    pub is_asleep: Arc<AtomicBool>,
}

impl Receiver {
    /// Creates the bus, and receives from it until the process ends.
    pub fn start(name: &str, clock: Clock) -> Self {
        let bus = Bus::named(name).create(true).capacity(65536);
        let bus = bus.policies([Policy::Block]).policy(Policy::Block);
        let mut subscriber = bus.subscriber().unwrap();
        let receiver = Self {
            inbox: Arc::default(),
            is_asleep: Arc::default(),
        };
        let (inbox, is_asleep) = (receiver.inbox.clone(), receiver.is_asleep.clone());
        thread::spawn(move || {
            loop {
                while is_asleep.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(20));
                }
                let id = match subscriber.recv_timeout(WAIT) {
                    Ok(message) => Id::of(message.bytes()),
                    Err(RecvError::TimedOut(_)) => continue,
                    Err(error) => panic!("{error}"),
                };
                let mut inbox = inbox.lock().unwrap();
                inbox.received.push((id, clock.millis()));
                inbox.distinct.extend(id);
            }
        });
        receiver
    }

    pub fn count(&self) -> usize {
        self.inbox.lock().unwrap().received.len()
    }

    pub fn has(&self, id: Id) -> bool {
        self.inbox.lock().unwrap().distinct.contains(&id)
    }

    pub fn received(&self) -> Vec<(Option<Id>, u64)> {
        self.inbox.lock().unwrap().received.clone()
    }
}
