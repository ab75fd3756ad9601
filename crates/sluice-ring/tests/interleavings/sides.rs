// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both sides of a ring, with their parkers and notifiers.

use loom::sync::Arc;
use loom::thread;
use sluice_ring::sync::Ordering;
use sluice_ring::{Consumer, Notifier, Parker, PeerState, Producer, stored_peer_state};

use super::kernel::{Sleep, System};
use super::memory::View;
use super::{FILLER, LENGTH};

/// What both sides have in common.
pub struct Connection {
    pub parker: Parker,
    pub notifier: Notifier,
    pub system: System,
}

impl Connection {
    /// `registered`: this side is registered with membarrier(2), and over memfd the peer, too.
    fn new(system: System, registered: bool) -> Self {
        let own = system.own();
        if registered {
            own.processor.register();
        }
        let (parker, notifier) = match system.sleep {
            Sleep::Futex => (Parker::new(registered), Notifier::new(registered)),
            Sleep::Wait | Sleep::Poll => {
                if registered {
                    own.ctrl.announce_membarrier();
                }
                (
                    Parker::acknowledging(registered),
                    Notifier::expecting_announcement(registered),
                )
            }
        };
        Self {
            parker,
            notifier,
            system,
        }
    }

    pub fn notify(&mut self) {
        let (own, peer) = (self.system.own(), self.system.peer());
        self.notifier.notify(&own.ctrl, &peer.ctrl, &self.system);
        if self.system.sleep != Sleep::Futex {
            // A notifier that issues full barriers may be interrupted, too.
            own.processor.serve();
        }
    }

    pub fn prepare_park(&mut self) -> u32 {
        let system = &self.system;
        let (own, peer) = (&system.own().ctrl, &system.peer().ctrl);
        self.parker.prepare_park(own, peer, system.method(), system)
    }

    pub fn finish_park(&mut self) {
        let (own, peer) = (&self.system.own().ctrl, &self.system.peer().ctrl);
        self.parker.finish_park(own);
        if self.system.sleep == Sleep::Poll {
            self.parker.acknowledge(own, peer);
        }
    }

    pub fn acknowledged(&self) -> u32 {
        let own = &self.system.own().ctrl;
        own.wake_ack.load(Ordering::Relaxed)
    }

    fn sleep(&mut self, mut poll: impl FnMut() -> bool) {
        let seq = self.prepare_park();
        if !poll() && !self.system.peer().ctrl.is_closed() {
            self.system.sleep(seq);
        }
        self.finish_park();
    }

    pub fn peer_state(&self) -> PeerState {
        stored_peer_state(&self.system.peer().ctrl)
    }

    fn close(mut self) {
        self.system.own().ctrl.close();
        self.notify();
        if self.system.sleep != Sleep::Futex {
            self.system.release_endpoint();
        }
    }
}

pub struct Sender {
    pub core: Producer<View>,
    pub connection: Connection,
}

pub struct Receiver {
    pub core: Consumer<View>,
    pub connection: Connection,
}

/// Both sides. They omit most barriers if they are `registered` with membarrier(2).
pub fn sides(capacity: u64, sleep: Sleep, registered: bool) -> (Sender, Receiver) {
    let view = View::new(capacity);
    let sender = Sender::attach(&view, sleep, registered);
    let receiver = Receiver::attach(&view, sleep, registered);
    (sender, receiver)
}

impl Sender {
    pub fn attach(view: &View, sleep: Sleep, registered: bool) -> Self {
        let system = System {
            ring: Arc::clone(&view.0),
            own: |ring| &ring.producer,
            peer: |ring| &ring.consumer,
            sleep,
        };
        Self {
            core: Producer::new(view.clone()),
            connection: Connection::new(system, registered),
        }
    }

    pub fn write(&mut self, number: u32) {
        let at = self.core.reserve(LENGTH);
        for (offset, word) in [(0, number), (4, FILLER)] {
            self.core.memory().fill(at + offset, word);
        }
        self.core.write(LENGTH);
    }

    pub fn publish(&mut self) {
        self.core.publish();
        self.connection.notify();
        self.core.prezero();
    }

    pub fn send(&mut self, number: u32) {
        while !self.core.has_room(LENGTH).unwrap() {
            let core = &mut self.core;
            self.connection.sleep(|| core.has_room(LENGTH).unwrap());
        }
        self.write(number);
        self.publish();
    }

    pub fn close(self) {
        self.connection.close();
    }

    pub fn die(self) {
        self.connection.system.release_endpoint();
    }
}

impl Receiver {
    pub fn attach(view: &View, sleep: Sleep, registered: bool) -> Self {
        let system = System {
            ring: Arc::clone(&view.0),
            own: |ring| &ring.consumer,
            peer: |ring| &ring.producer,
            sleep,
        };
        Self {
            core: Consumer::new(view.clone()),
            connection: Connection::new(system, registered),
        }
    }

    /// Receives a record without releasing it.
    pub fn take(&mut self) -> Option<u32> {
        let length = self.core.peek().unwrap()?;
        assert_eq!(length, LENGTH);
        let at = self.core.bytes();
        let word = |offset| self.core.memory().read(at + offset);
        let (number, filler) = (word(0), word(4));
        assert_eq!(filler, FILLER, "the bytes of another record");
        self.core.advance(length);
        Some(number)
    }

    pub fn try_receive(&mut self) -> Option<u32> {
        let number = self.take()?;
        self.core.release();
        self.connection.notify();
        Some(number)
    }

    /// Waits for a record, or for the end of the sender.
    pub fn receive(&mut self) -> Result<u32, PeerState> {
        loop {
            if let Some(number) = self.try_receive() {
                return Ok(number);
            }
            match self.connection.peer_state() {
                PeerState::Active => {}
                ended => return self.try_receive().ok_or(ended),
            }
            let core = &mut self.core;
            self.connection.sleep(|| core.peek().unwrap().is_some());
        }
    }

    /// Receives a record by spinning.
    pub fn receive_awake(&mut self) -> u32 {
        loop {
            if let Some(number) = self.try_receive() {
                let own = &self.connection.system.own().ctrl;
                self.connection.parker.note_spin_success(own);
                return number;
            }
            thread::yield_now();
        }
    }
}
