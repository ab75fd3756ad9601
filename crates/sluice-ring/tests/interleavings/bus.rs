// SPDX-License-Identifier: MIT OR Apache-2.0
//! A model of the ring of a bus, as kernel/bus_ring.c and kernel/bus_receive.c have it: reservation, commit, claims, and the
//! tail. Two senders and two subscribers, one that blocks senders and one that loses messages, share two slots, so that slots
//! are used again. Loom reports a slot that is written while it is read. At the end each message has arrived once, in the
//! order of its sender, or is counted as lost.
//!
//! Not modelled: sleep and wake-up, which are those of all kinds; the ring of bytes, which is reserved with the slots; addressed
//! messages.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

const SLOTS: u64 = 2;
const CLAIMED: u64 = 1;
struct Slot {
    stamp: AtomicU64,
    message: UnsafeCell<u64>,
}

struct Subscriber {
    blocks: bool,
    /// The sequence of the next message, and whether it is claimed.
    cursor: AtomicU64,
    lost: AtomicU64,
}

struct Bus {
    head: AtomicU64,
    tail: AtomicU64,
    slots: Vec<Slot>,
    subscribers: Vec<Subscriber>,
    /// Protects the tail against other changes, and the counts of losses.
    lock: Mutex<()>,
}

/// What a subscriber remembers from one call to the next.
#[derive(Default)]
struct Receiver {
    expected: u64,
    received: Vec<u64>,
    lost: u64,
}

// SAFETY: loom checks the accesses to the messages.
unsafe impl Send for Bus {}
// SAFETY: as above.
unsafe impl Sync for Bus {}

impl Bus {
    /// The first sequence is SLOTS, so that the stamps before it are those of one lap earlier.
    fn new() -> Self {
        let slot = |number| Slot {
            stamp: AtomicU64::new(number),
            message: UnsafeCell::new(0),
        };
        let subscriber = |blocks| Subscriber {
            blocks,
            cursor: AtomicU64::new(SLOTS << 1),
            lost: AtomicU64::new(0),
        };
        Self {
            head: AtomicU64::new(SLOTS),
            tail: AtomicU64::new(SLOTS),
            slots: (0..SLOTS).map(slot).collect(),
            subscribers: vec![subscriber(true), subscriber(false)],
            lock: Mutex::new(()),
        }
    }

    fn slot(&self, sequence: u64) -> &Slot {
        &self.slots[(sequence % SLOTS) as usize]
    }

    fn is_committed(&self, sequence: u64) -> bool {
        self.slot(sequence).stamp.load(Ordering::Acquire) == sequence // (S)
    }

    fn reserve(&self) -> Option<u64> {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            let tail = self.tail.load(Ordering::Acquire); // (T)
            if head - tail >= SLOTS {
                return None;
            }
            match self
                .head
                .compare_exchange(head, head + 1, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => return Some(head),
                Err(now) => head = now,
            }
        }
    }

    /// False: the subscriber that blocks holds the room.
    fn send(&self, message: u64) -> bool {
        loop {
            if let Some(sequence) = self.reserve() {
                let slot = self.slot(sequence);
                // SAFETY: loom checks that nobody else accesses it.
                slot.message.with_mut(|place| unsafe { *place = message });
                slot.stamp.store(sequence, Ordering::Release); // (S)
                return true;
            }
            if !self.make_room() {
                return false;
            }
            thread::yield_now();
        }
    }

    fn held(&self, only_blocking: bool, head: u64) -> u64 {
        let counts = |subscriber: &&Subscriber| subscriber.blocks || !only_blocking;
        let cursors = self.subscribers.iter().filter(counts);
        // (C)
        let sequences = cursors.map(|subscriber| subscriber.cursor.load(Ordering::Acquire) >> 1);
        sequences.fold(head, u64::min)
    }

    fn move_tail(&self, end: u64) {
        let mut tail = self.tail.load(Ordering::Relaxed);
        while tail < end && self.is_committed(tail) {
            tail += 1;
        }
        self.tail.store(tail, Ordering::Release); // (T)
    }

    fn make_room(&self) -> bool {
        let _guard = self.lock.lock().unwrap();
        let head = self.head.load(Ordering::Acquire);
        self.move_tail(self.held(false, head));
        let tail = self.tail.load(Ordering::Relaxed);
        if self.head.load(Ordering::Relaxed) - tail < SLOTS {
            return true;
        }
        let most = self.held(true, head);
        if most == tail {
            return false;
        }
        if self.is_committed(tail) {
            self.lose(tail + 1);
        }
        true
    }

    /// Under the lock.
    fn lose(&self, to: u64) {
        let mut end = to;
        for subscriber in &self.subscribers {
            let mut word = subscriber.cursor.load(Ordering::Acquire); // (C)
            while word >> 1 < to {
                if word & CLAIMED != 0 {
                    end = end.min(word >> 1);
                    break;
                }
                match subscriber.cursor.compare_exchange(
                    word,
                    to << 1,
                    Ordering::SeqCst,
                    Ordering::Acquire,
                ) {
                    Ok(_) => {
                        subscriber
                            .lost
                            .fetch_add(to - (word >> 1), Ordering::Relaxed);
                        break;
                    }
                    Err(now) => word = now,
                }
            }
        }
        self.move_tail(end);
    }

    fn claim(&self, subscriber: &Subscriber) -> u64 {
        let mut word = subscriber.cursor.load(Ordering::Relaxed);
        loop {
            let claimed = word | CLAIMED;
            match subscriber.cursor.compare_exchange(
                word,
                claimed,
                Ordering::SeqCst,
                Ordering::Relaxed,
            ) {
                Ok(_) => return word >> 1,
                Err(now) => word = now,
            }
        }
    }

    /// One attempt to receive. False: there is no message.
    fn receive(&self, number: usize, receiver: &mut Receiver) -> bool {
        let subscriber = &self.subscribers[number];
        let mut counted = None;
        let sequence = loop {
            let sequence = self.claim(subscriber);
            if sequence == receiver.expected || Some(sequence) == counted {
                break sequence;
            }
            subscriber.cursor.store(sequence << 1, Ordering::Release);
            // What was lost is counted under the lock.
            drop(self.lock.lock().unwrap());
            counted = Some(sequence);
        };
        let received = self.is_committed(sequence);
        if received {
            let slot = self.slot(sequence);
            // SAFETY: loom checks that nobody writes to it meanwhile.
            let message = slot.message.with(|place| unsafe { *place });
            receiver.received.push(message);
            receiver.lost += subscriber.lost.swap(0, Ordering::Relaxed);
        }
        receiver.expected = sequence + u64::from(received);
        let cursor = receiver.expected << 1;
        subscriber.cursor.store(cursor, Ordering::Release); // (C)
        received
    }
}

/// All interleavings with at most this number of preemptions: with more there are too many.
fn explore(preemptions: usize, case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(case);
}

/// Sends this many messages, whose first digit is the sender's; returns those that were sent.
fn send_all(bus: &Bus, sender: u64, count: u64) -> Vec<u64> {
    let messages = (0..count).map(|number| sender * 10 + number);
    messages.filter(|&message| bus.send(message)).collect()
}

/// The messages of one sender, in the order of arrival.
fn from(sender: u64, messages: &[u64]) -> Vec<u64> {
    let all = messages.iter().copied();
    all.filter(|message| message / 10 == sender).collect()
}

fn check(sent: &[u64], blocking: &Receiver, losing: &Receiver) {
    for sender in [0, 1, 2] {
        let sent = from(sender, sent);
        assert_eq!(from(sender, &blocking.received), sent, "what blocks");
        let received = from(sender, &losing.received);
        assert!(received.is_sorted(), "out of order: {received:?}");
        assert!(received.iter().all(|message| sent.contains(message)));
    }
    assert_eq!(blocking.lost, 0, "lost by the one that blocks");
    let counted = losing.received.len() as u64 + losing.lost;
    assert_eq!(counted, sent.len() as u64, "received and lost");
}

/// One thread per sender and subscriber; afterwards the subscribers receive the rest. `before` messages are in the ring at the
/// beginning.
fn senders_and_subscribers(before: u64, per_sender: [u64; 2], attempts: usize) {
    let bus = Arc::new(Bus::new());
    let mut sent = send_all(&bus, 0, before);
    let receiver = || Receiver {
        expected: SLOTS,
        ..Receiver::default()
    };
    let subscribe = |number: usize| {
        let bus = Arc::clone(&bus);
        thread::spawn(move || {
            let mut receiver = receiver();
            for _ in 0..attempts {
                bus.receive(number, &mut receiver);
            }
            receiver
        })
    };
    let (blocking, losing) = (subscribe(0), subscribe(1));
    let other = {
        let bus = Arc::clone(&bus);
        thread::spawn(move || send_all(&bus, 2, per_sender[1]))
    };
    sent.extend(send_all(&bus, 1, per_sender[0]));
    sent.extend(other.join().unwrap());
    let (mut blocking, mut losing) = (blocking.join().unwrap(), losing.join().unwrap());
    while bus.receive(0, &mut blocking) {}
    while bus.receive(1, &mut losing) {}
    losing.lost += bus.subscribers[1].lost.swap(0, Ordering::Relaxed);
    check(&sent, &blocking, &losing);
}

#[test]
fn bus_messages_arrive_once_or_are_counted() {
    explore(4, || senders_and_subscribers(0, [1, 1], 1));
}

#[test]
fn bus_slots_are_used_again() {
    explore(2, || senders_and_subscribers(2, [1, 1], 1));
}
