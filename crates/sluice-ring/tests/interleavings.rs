// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving, and every value that the memory model lets a load have, of small cases. Run with
//! `RUSTFLAGS="--cfg sluice_loom" cargo test --release -p sluice-ring --test interleavings`.
#![cfg(sluice_loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sluice_ring::sync::{AtomicU32, Ordering};
use sluice_ring::{Bed, Call, Capacity, Consumer, HEADER, How, Memory, Producer, Rest, Side};

/// Room for one record of eight bytes and the state behind it, so that every record waits for the one before.
const TINY: u64 = 32;
/// Room for a few of them.
const SMALL: u64 = 64;

/// Of the records here: one word that tells which one it is, and one that looks like the state of a record, for who
/// takes old bytes for a header.
const LENGTH: u32 = 8;
const LURE: u32 = sluice_abi::ring::RECORD;

struct Ring {
    words: Vec<AtomicU32>,
    /// Of each word, for loom to see that no record's bytes are written while they may still be read, or the other way round:
    /// as atomics, which the words have to be for their other life as states, they could never be seen to.
    turns: Vec<UnsafeCell<()>>,
    producer: Side,
    consumer: Side,
    bed: Futex,
}

// SAFETY: what is not atomic has no value.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

#[derive(Clone)]
struct View(Arc<Ring>);

impl View {
    fn new(capacity: u64) -> Self {
        Self(Arc::new(Ring {
            words: (0..capacity / 4).map(|_| AtomicU32::new(0)).collect(),
            turns: (0..capacity / 4).map(|_| UnsafeCell::new(())).collect(),
            producer: Side::default(),
            consumer: Side::default(),
            bed: Futex::default(),
        }))
    }
}

impl View {
    fn index(&self, position: u64) -> usize {
        (position / 4 % self.0.words.len() as u64) as usize
    }

    fn fill(&self, position: u64, word: u32) {
        let index = self.index(position);
        self.0.turns[index].with_mut(|_| ());
        self.0.words[index].store(word, Ordering::Relaxed);
    }

    fn read(&self, position: u64) -> u32 {
        let index = self.index(position);
        self.0.turns[index].with(|_| ());
        self.0.words[index].load(Ordering::Relaxed)
    }
}

impl Memory for View {
    fn capacity(&self) -> Capacity {
        Capacity::tiny(self.0.words.len() as u64 * 4)
    }

    fn producer(&self) -> &Side {
        &self.0.producer
    }

    fn consumer(&self) -> &Side {
        &self.0.consumer
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        &self.0.words[self.index(position)]
    }
}

/// futex(2): compares and sleeps in one step, as far as those who wake are concerned.
#[derive(Default)]
struct Futex {
    kernel: Mutex<()>,
    queue: Condvar,
}

impl Futex {
    fn sleep(&self, bell: &AtomicU32, seen: u32) {
        let guard = self.kernel.lock().unwrap();
        if bell.load(Ordering::Relaxed) == seen {
            drop(self.queue.wait(guard).unwrap());
        }
    }
}

impl Bed for Futex {
    fn barrier_everywhere(&self) {
        unreachable!("loom knows no such barrier, so nobody is registered for it");
    }

    fn wake(&self, how: How, _bell: &AtomicU32) {
        assert_eq!(how, How::Futex);
        drop(self.kernel.lock().unwrap());
        self.queue.notify_all();
    }
}

/// One side with its ways to sleep and to wake.
struct Sender {
    core: Producer<View>,
    rest: Rest,
    call: Call,
}

struct Receiver {
    core: Consumer<View>,
    rest: Rest,
    call: Call,
}

impl Sender {
    fn new(view: &View) -> Self {
        Self {
            core: Producer::new(view.clone()),
            rest: Rest::new(false),
            call: Call::new(false),
        }
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.core.memory().0)
    }

    fn write(&mut self, number: u32) {
        let at = self.core.bytes_for(LENGTH);
        for (offset, word) in [(0, number), (4, LURE)] {
            self.core.memory().fill(at + offset, word);
        }
        self.core.write(LENGTH);
    }

    fn publish(&mut self) {
        self.core.publish();
        let ring = self.ring();
        self.call.out(&ring.producer, &ring.consumer, &ring.bed);
        self.core.clear_ahead();
    }

    fn send(&mut self, number: u32) {
        while !self.core.has_room(LENGTH).unwrap() {
            self.sleep();
        }
        self.write(number);
        self.publish();
    }

    fn sleep(&mut self) {
        let ring = self.ring();
        let (own, other) = (&ring.producer, &ring.consumer);
        let seen = self.rest.lie_down(own, other, How::Futex, &ring.bed);
        if !self.core.has_room(LENGTH).unwrap() {
            ring.bed.sleep(&other.bell, seen);
        }
        self.rest.get_up(own);
    }

    fn close(mut self) {
        let ring = self.ring();
        ring.producer.close();
        self.call.out(&ring.producer, &ring.consumer, &ring.bed);
    }
}

impl Receiver {
    fn new(view: &View) -> Self {
        Self {
            core: Consumer::new(view.clone()),
            rest: Rest::new(false),
            call: Call::new(false),
        }
    }

    fn ring(&self) -> Arc<Ring> {
        Arc::clone(&self.core.memory().0)
    }

    /// Takes a record without giving its room back.
    fn take(&mut self) -> Option<u32> {
        let length = self.core.peek().unwrap()?;
        assert_eq!(length, LENGTH);
        let at = self.core.bytes();
        let word = |offset| self.core.memory().read(at + offset);
        let (number, lure) = (word(0), word(4));
        assert_eq!(lure, LURE, "the bytes of another record");
        self.core.take(length);
        Some(number)
    }

    fn release(&mut self) {
        self.core.release();
        let ring = self.ring();
        self.call.out(&ring.consumer, &ring.producer, &ring.bed);
    }

    fn try_receive(&mut self) -> Option<u32> {
        let number = self.take()?;
        self.release();
        Some(number)
    }

    fn receive(&mut self) -> Option<u32> {
        loop {
            if let Some(number) = self.try_receive() {
                return Some(number);
            }
            if self.core.memory().producer().is_closed() {
                return self.try_receive();
            }
            self.sleep();
        }
    }

    fn sleep(&mut self) {
        let ring = self.ring();
        let (own, other) = (&ring.consumer, &ring.producer);
        let seen = self.rest.lie_down(own, other, How::Futex, &ring.bed);
        if self.core.peek().unwrap().is_none() && !other.is_closed() {
            ring.bed.sleep(&other.bell, seen);
        }
        self.rest.get_up(own);
    }
}

fn explore(case: impl Fn() + Sync + Send + 'static) {
    loom::model(case);
}

/// Cases in which a side may sleep again and again have too many: all with so many preemptions, which is more than
/// any lost wake-up that was ever planted here needs.
const PREEMPTIONS: usize = 4;

fn explore_with_sleepers(case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(case);
}

#[test]
fn what_is_seen_is_whole_and_in_order() {
    explore(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            sender.send(10);
            sender.send(11);
        });
        let seen: Vec<u32> = (0..3).filter_map(|_| receiver.try_receive()).collect();
        assert!([&[][..], &[10], &[10, 11]].contains(&&seen[..]), "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn a_batch_is_seen_whole() {
    explore(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            for number in [10, 11, 12] {
                assert!(sender.core.has_room(LENGTH).unwrap());
                sender.write(number);
            }
            sender.publish();
        });
        let mut seen = Vec::new();
        while let Some(number) = receiver.take() {
            seen.push(number);
        }
        assert!(seen.is_empty() || seen == [10, 11, 12], "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn old_bytes_are_never_taken_for_a_record() {
    explore(|| {
        let view = View::new(TINY);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        // Once around, so that there are old bytes wherever the next records will be.
        for number in 0..2 {
            sender.send(number);
            assert_eq!(receiver.try_receive(), Some(number));
        }
        let sending = thread::spawn(move || sender.send(2));
        let seen: Vec<u32> = (0..2).filter_map(|_| receiver.try_receive()).collect();
        assert!(seen.is_empty() || seen == [2], "{seen:?}");
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), seen.is_empty().then_some(2));
        assert_eq!(receiver.try_receive(), None);
    });
}

#[test]
fn what_was_filled_and_not_sent_is_never_taken_for_a_record() {
    explore(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            // Room for a longer record, of which only the first bytes are sent.
            let long = 3 * LENGTH;
            assert!(sender.core.has_room(long).unwrap());
            let at = sender.core.bytes_for(long);
            for offset in (0..u64::from(long)).step_by(4) {
                sender.core.memory().fill(at + offset, LURE);
            }
            sender.core.write(LENGTH);
            sender.publish();
        });
        let seen: Vec<u32> = (0..2).filter_map(|_| receiver.try_receive()).collect();
        assert!(seen.is_empty() || seen == [LURE], "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn nothing_is_overwritten_before_it_is_released() {
    explore(|| {
        let view = View::new(TINY);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        sender.send(1);
        let sending = thread::spawn(move || {
            // The second of them has the place of the one that is there.
            for number in [2, 3] {
                if sender.core.has_room(LENGTH).unwrap() {
                    sender.write(number);
                    sender.core.publish();
                }
            }
        });
        for _ in 0..2 {
            if receiver.take().is_some() {
                receiver.core.release();
            }
        }
        sending.join().unwrap();
    });
}

#[test]
fn who_sleeps_for_a_record_is_woken() {
    explore_with_sleepers(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive(), Some(1));
        assert_eq!(receiver.receive(), Some(2));
        sending.join().unwrap();
    });
}

#[test]
fn who_sleeps_for_room_is_woken() {
    explore_with_sleepers(|| {
        let view = View::new(TINY);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

#[test]
fn both_sides_may_sleep_at_the_same_time() {
    explore_with_sleepers(|| {
        let view = View::new(TINY);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            for number in [1, 2] {
                sender.send(number);
            }
        });
        for number in [1, 2] {
            assert_eq!(receiver.receive(), Some(number));
        }
        sending.join().unwrap();
    });
}

#[test]
fn the_end_wakes_and_comes_after_everything() {
    explore_with_sleepers(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.close();
        });
        assert_eq!(receiver.receive(), Some(1));
        assert_eq!(receiver.receive(), None);
        sending.join().unwrap();
    });
}

#[test]
fn the_end_is_seen_after_everything() {
    explore(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        let sending = thread::spawn(move || {
            sender.write(1);
            // Without a call, whose barrier would order the two by itself.
            sender.core.publish();
            sender.core.memory().producer().close();
        });
        if receiver.core.memory().producer().is_closed() {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

#[test]
fn positions_tell_how_much_is_on_the_way() {
    explore(|| {
        let view = View::new(SMALL);
        let mut sender = Sender::new(&view);
        let mut receiver = Receiver::new(&view);
        sender.send(1);
        sender.send(2);
        let taking = thread::spawn(move || {
            assert_eq!(receiver.try_receive(), Some(1));
        });
        let step = HEADER + u64::from(LENGTH);
        let pending = sender.core.pending().unwrap();
        assert!([step, 2 * step].contains(&pending), "{pending}");
        taking.join().unwrap();
        assert_eq!(sender.core.pending().unwrap(), step);
    });
}
