// SPDX-License-Identifier: MIT OR Apache-2.0
//! All interleavings of small cases, and all values that the memory model permits a load to return. Run with
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

/// Room for one record of eight bytes and the state after it, so that every record waits for the previous one.
const TINY: u64 = 32;
/// Room for several records.
const SMALL: u64 = 64;

/// The length of each record: a word with its number, and FILLER, which equals the state of a record, to detect stale bytes
/// that are taken for a header.
const LENGTH: u32 = 8;
const FILLER: u32 = sluice_abi::ring::RECORD_READY;

struct Ring {
    words: Vec<AtomicU32>,
    /// One per word, for loom to check that no record's bytes are written while they may still be read, and vice versa. The
    /// words are atomics, because they are also states, and loom does not check these.
    turns: Vec<UnsafeCell<()>>,
    producer: Ctrl,
    consumer: Ctrl,
    futex: Futex,
    producers: Processor,
    consumers: Processor,
}

// SAFETY: the only fields that are not atomic have type ().
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

/// A model of futex(2): the comparison and the sleep are atomic with respect to wake-ups.
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

/// A model of the processor of a side, for membarrier(2). The barrier of another process may interrupt it anywhere; serve()
/// is called where that makes a difference. Every access is relaxed, so that only the barriers order anything, and reads are
/// exchanges, which return the latest value.
#[derive(Default)]
struct Processor {
    asked: AtomicU32,
    served: AtomicU32,
    /// A processor that runs no side has issued a barrier when it stopped, and issues one before it resumes.
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

/// Then the processor runs no side.
impl Drop for System {
    fn drop(&mut self) {
        self.own().set_idle();
    }
}

/// A side with its parker and notifier.
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

/// Both sides. They omit most barriers if they are `registered` with membarrier(2).
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
        for (offset, word) in [(0, number), (4, FILLER)] {
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
    /// Receives a record without releasing it.
    fn take(&mut self) -> Option<u32> {
        let length = self.core.peek().unwrap()?;
        assert_eq!(length, LENGTH);
        let at = self.core.bytes();
        let word = |offset| self.core.memory().read(at + offset);
        let (number, filler) = (word(0), word(4));
        assert_eq!(filler, FILLER, "the bytes of another record");
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

    /// Receives a record by spinning.
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

/// The limit of preemptions in cases with repeated sleeps, which otherwise have too many interleavings. It exceeds the
/// number that any seeded lost wake-up needs.
const PREEMPTIONS: usize = 4;

fn explore_with_sleepers(case: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(case);
}

#[test]
fn received_records_are_complete_and_in_order() {
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
fn a_batch_is_received_as_a_whole() {
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
fn stale_bytes_are_never_taken_for_a_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(TINY, false);
        // One lap, so that there are stale bytes at the positions of the next records.
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
fn reserved_bytes_are_never_taken_for_a_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        let sending = thread::spawn(move || {
            // Reserves a longer record, and sends only its first bytes.
            let long = 3 * LENGTH;
            assert!(sender.core.has_room(long).unwrap());
            let at = sender.core.reserve(long);
            for offset in (0..u64::from(long)).step_by(4) {
                sender.core.memory().fill(at + offset, FILLER);
            }
            sender.core.write(LENGTH);
            sender.publish();
        });
        let seen: Vec<u32> = (0..2).filter_map(|_| receiver.try_receive()).collect();
        assert!(seen.is_empty() || seen == [FILLER], "{seen:?}");
        sending.join().unwrap();
    });
}

#[test]
fn nothing_is_overwritten_before_it_is_released() {
    explore(|| {
        let (mut sender, mut receiver) = sides(TINY, false);
        sender.send(1);
        let sending = thread::spawn(move || {
            // The second record occupies the place of the unreleased one.
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
fn a_sleeping_consumer_is_woken() {
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
fn a_sleeping_producer_is_woken() {
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
fn a_close_wakes_and_follows_all_records() {
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
fn a_close_is_visible_after_all_records() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        let sending = thread::spawn(move || {
            sender.write(1);
            // Without notify(), whose barrier would order the two by itself.
            sender.core.publish();
            sender.core.memory().producer().close();
        });
        if receiver.core.memory().producer().is_closed() {
            assert_eq!(receiver.try_receive(), Some(1));
        }
        sending.join().unwrap();
    });
}

/// A registered producer omits its barrier, until the consumer requests it with a barrier on the producer's processor.
#[test]
fn a_sleeping_consumer_is_woken_without_barriers() {
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
fn a_sleeping_producer_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(TINY, true);
        sender.send(1);
        let sending = thread::spawn(move || sender.send(2));
        assert_eq!(receiver.try_receive(), Some(1));
        // Its processor becomes idle.
        receiver.system.own().set_idle();
        sending.join().unwrap();
        assert_eq!(receiver.try_receive(), Some(2));
    });
}

/// The consumer requests barriers, withdraws the request, and requests them again.
#[test]
fn a_consumer_that_sleeps_after_spinning_is_woken_without_barriers() {
    explore_with_sleepers(|| {
        let (mut sender, mut receiver) = sides(SMALL, true);
        // It has slept before, so NEED_FENCE is set.
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

/// The socket hangs up after the peer's process has closed it or exited.
#[test]
fn a_close_is_not_a_death_and_hides_no_record() {
    explore(|| {
        let (mut sender, mut receiver) = sides(SMALL, false);
        let socket = Arc::new(AtomicU32::new(0));
        let hung_up = Arc::clone(&socket);
        let sending = thread::spawn(move || {
            sender.write(1);
            sender.core.publish();
            sender.core.memory().producer().close();
            // Stores before a system call are visible when its effect is.
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
fn records_sent_before_a_death_are_received() {
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
fn positions_show_the_bytes_in_transit() {
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
