// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every interleaving, and every value that the memory model lets a load have, of small cases. Run with
//! `RUSTFLAGS="--cfg sluice_loom" cargo test --release -p sluice-ring --test interleavings`.
#![cfg(sluice_loom)]

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sluice_ring::sync::{AtomicU32, Ordering, fence};
use sluice_ring::{
    Capacity, Consumer, Ctrl, HEADER, Memory, Notifier, Parker, PeerState, Producer, WakeMethod,
    Waker, peer_state,
};

/// Room for one record of eight bytes and the state behind it, so that every record waits for the one before.
const TINY: u64 = 32;
/// Room for a few of them.
const SMALL: u64 = 64;

/// Of the records here: one word that tells which one it is, and one that looks like the state of a record, for who
/// takes old bytes for a header.
const LENGTH: u32 = 8;
const LURE: u32 = sluice_abi::ring::RECORD_READY;

struct Ring {
    words: Vec<AtomicU32>,
    /// Of each word, for loom to see that no record's bytes are written while they may still be read, or the other way round:
    /// as atomics, which the words have to be for their other life as states, they could never be seen to.
    turns: Vec<UnsafeCell<()>>,
    producer: Ctrl,
    consumer: Ctrl,
    futex: Futex,
    producers: Processor,
    consumers: Processor,
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
            producer: Ctrl::default(),
            consumer: Ctrl::default(),
            futex: Futex::default(),
            producers: Processor::default(),
            consumers: Processor::default(),
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

    fn producer(&self) -> &Ctrl {
        &self.0.producer
    }

    fn consumer(&self) -> &Ctrl {
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
    fn sleep(&self, wake_seq: &AtomicU32, seen: u32) {
        let guard = self.kernel.lock().unwrap();
        if wake_seq.load(Ordering::Relaxed) == seen {
            drop(self.queue.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        drop(self.kernel.lock().unwrap());
        self.queue.notify_all();
    }
}

/// The processor that a side runs on, as far as membarrier(2) is concerned. Somebody else's barrier interrupts it anywhere; where that
/// makes a difference, serve() is called. Every access is relaxed, so that only the barriers themselves order anything, and those
/// that read are exchanges, which see the latest value.
#[derive(Default)]
struct Processor {
    asked: AtomicU32,
    served: AtomicU32,
    /// A processor that runs no side has issued a barrier when it stopped, and issues one before it runs it again.
    idle: AtomicU32,
}

impl Processor {
    fn serve(&self) {
        let asked = self.asked.fetch_add(0, Ordering::Relaxed);
        if asked != self.served.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            self.served.store(asked, Ordering::Relaxed);
        }
    }

    fn set_idle(&self) {
        fence(Ordering::SeqCst);
        self.idle.swap(1, Ordering::Relaxed);
    }

    fn set_running(&self) {
        self.idle.swap(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn has_served(&self, asked: u32) -> bool {
        self.idle.fetch_add(0, Ordering::Relaxed) == 1
            || self.served.fetch_add(0, Ordering::Relaxed) >= asked
    }
}

/// The system calls of one side.
struct System {
    ring: Arc<Ring>,
    own: fn(&Ring) -> &Processor,
    peer: fn(&Ring) -> &Processor,
}

impl System {
    fn own(&self) -> &Processor {
        (self.own)(&self.ring)
    }

    fn sleep(&self, wake_seq: &AtomicU32, seen: u32) {
        self.own().set_idle();
        self.ring.futex.sleep(wake_seq, seen);
        self.own().set_running();
    }
}

impl Waker for System {
    fn light_barrier(&self) {
        self.own().serve();
    }

    fn heavy_barrier(&self) -> bool {
        fence(Ordering::SeqCst);
        let peer = (self.peer)(&self.ring);
        let asked = peer.asked.fetch_add(1, Ordering::Relaxed) + 1;
        while !peer.has_served(asked) {
            self.own().serve();
            thread::yield_now();
        }
        fence(Ordering::SeqCst);
        true
    }

    fn wake(&self, method: WakeMethod, _wake_seq: &AtomicU32) -> bool {
        assert_eq!(method, WakeMethod::Futex);
        self.ring.futex.wake();
        true
    }
}

/// Runs no side any more.
impl Drop for System {
    fn drop(&mut self) {
        self.own().set_idle();
    }
}

/// One side with its ways to sleep and to wake.
struct Sender {
    core: Producer<View>,
    parker: Parker,
    notifier: Notifier,
    system: System,
}

struct Receiver {
    core: Consumer<View>,
    parker: Parker,
    notifier: Notifier,
    system: System,
}

/// Both sides, which leave most barriers out if they are registered with membarrier(2).
fn sides(capacity: u64, registered: bool) -> (Sender, Receiver) {
    let view = View::new(capacity);
    let sender = Sender {
        core: Producer::new(view.clone()),
        parker: Parker::new(registered),
        notifier: Notifier::new(registered),
        system: System {
            ring: Arc::clone(&view.0),
            own: |ring| &ring.producers,
            peer: |ring| &ring.consumers,
        },
    };
    let receiver = Receiver {
        system: System {
            ring: Arc::clone(&view.0),
            own: |ring| &ring.consumers,
            peer: |ring| &ring.producers,
        },
        core: Consumer::new(view),
        parker: Parker::new(registered),
        notifier: Notifier::new(registered),
    };
    (sender, receiver)
}

impl Sender {
    fn write(&mut self, number: u32) {
        let at = self.core.reserve(LENGTH);
        for (offset, word) in [(0, number), (4, LURE)] {
            self.core.memory().fill(at + offset, word);
        }
        self.core.write(LENGTH);
    }

    fn notify(&mut self) {
        let ring = &self.system.ring;
        self.notifier
            .notify(&ring.producer, &ring.consumer, &self.system);
    }

    fn publish(&mut self) {
        self.core.publish();
        self.notify();
        self.core.prezero();
    }

    fn send(&mut self, number: u32) {
        while !self.core.has_room(LENGTH).unwrap() {
            self.sleep();
        }
        self.write(number);
        self.publish();
    }

    fn sleep(&mut self) {
        let ring = Arc::clone(&self.system.ring);
        let (own, peer) = (&ring.producer, &ring.consumer);
        let method = WakeMethod::Futex;
        let seq = self.parker.prepare_park(own, peer, method, &self.system);
        if !self.core.has_room(LENGTH).unwrap() {
            self.system.sleep(&peer.wake_seq, seq);
        }
        self.parker.finish_park(own);
    }

    fn close(mut self) {
        self.system.ring.producer.close();
        self.notify();
    }
}

impl Receiver {
    /// Takes a record without giving its room back.
    fn take(&mut self) -> Option<u32> {
        let length = self.core.peek().unwrap()?;
        assert_eq!(length, LENGTH);
        let at = self.core.bytes();
        let word = |offset| self.core.memory().read(at + offset);
        let (number, lure) = (word(0), word(4));
        assert_eq!(lure, LURE, "the bytes of another record");
        self.core.advance(length);
        Some(number)
    }

    fn release(&mut self) {
        self.core.release();
        let ring = &self.system.ring;
        self.notifier
            .notify(&ring.consumer, &ring.producer, &self.system);
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

    /// As if it had spun for it.
    fn receive_awake(&mut self) -> u32 {
        loop {
            if let Some(number) = self.try_receive() {
                self.parker.note_spin_success(&self.system.ring.consumer);
                return number;
            }
            thread::yield_now();
        }
    }

    fn sleep(&mut self) {
        let ring = Arc::clone(&self.system.ring);
        let (own, peer) = (&ring.consumer, &ring.producer);
        let method = WakeMethod::Futex;
        let seq = self.parker.prepare_park(own, peer, method, &self.system);
        if self.core.peek().unwrap().is_none() && !peer.is_closed() {
            self.system.sleep(&peer.wake_seq, seq);
        }
        self.parker.finish_park(own);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
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
        let (mut sender, mut receiver) = sides(TINY, false);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
        let sending = thread::spawn(move || {
            // Room for a longer record, of which only the first bytes are sent.
            let long = 3 * LENGTH;
            assert!(sender.core.has_room(long).unwrap());
            let at = sender.core.reserve(long);
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
        let (mut sender, mut receiver) = sides(TINY, false);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
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
        let (mut sender, mut receiver) = sides(TINY, false);
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
        let (mut sender, mut receiver) = sides(TINY, false);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
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
        let (mut sender, mut receiver) = sides(SMALL, false);
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

/// A registered producer leaves its barrier out, until the consumer asks for it with a barrier on the producer's processor.
#[test]
fn who_sleeps_for_a_record_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, true);
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
fn who_sleeps_for_room_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(TINY, true);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        // It leaves its processor.
        receiver.system.own().set_idle();
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

/// The consumer asks for barriers, does without, and asks again.
#[test]
fn who_sleeps_again_after_spinning_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, true);
        // It has slept before, and the barriers that it asked for are in force.
        let ring = Arc::clone(&receiver.system.ring);
        sender.system.own().set_idle();
        let method = WakeMethod::Futex;
        receiver
            .parker
            .prepare_park(&ring.consumer, &ring.producer, method, &receiver.system);
        receiver.parker.finish_park(&ring.consumer);
        sender.system.own().set_running();
        let sending = thread::spawn(move || {
            sender.send(1);
            sender.send(2);
        });
        assert_eq!(receiver.receive_awake(), 1);
        assert_eq!(receiver.receive(), Some(2));
        sending.join().unwrap();
    });
}

/// The socket hangs up when the peer's process has closed it, or is gone.
#[test]
fn an_orderly_end_is_no_death_and_hides_no_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        let socket = Arc::new(AtomicU32::new(0));
        let hung_up = Arc::clone(&socket);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            sender.core.memory().producer().close();
            // What a process did before a system call is done when others see its effect.
            hung_up.store(1, Ordering::Release);
        });
        let peer = &receiver.system.ring.producer;
        let state = peer_state(peer, || socket.load(Ordering::Relaxed) == 1);
        assert_ne!(state, PeerState::Dead, "it closed first");
        if state == PeerState::Closed {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

#[test]
fn what_was_sent_before_a_death_is_received() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        let socket = Arc::new(AtomicU32::new(0));
        let hung_up = Arc::clone(&socket);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            hung_up.store(1, Ordering::Release);
        });
        let peer = &receiver.system.ring.producer;
        if peer_state(peer, || socket.load(Ordering::Relaxed) == 1) == PeerState::Dead {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

#[test]
fn positions_tell_how_much_is_on_the_way() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        sender.send(1);
        sender.send(2);
        let taking = thread::spawn(move || {
            assert_eq!(receiver.try_receive(), Some(1));
        });
        let stride = HEADER + u64::from(LENGTH);
        let pending = sender.core.pending().unwrap();
        assert!([stride, 2 * stride].contains(&pending), "{pending}");
        taking.join().unwrap();
        assert_eq!(sender.core.pending().unwrap(), stride);
    });
}
