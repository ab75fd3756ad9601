// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models of the kernel: futex(2), membarrier(2), and an endpoint of the module.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sluice_abi::ring::{DESTROYED, DIED};
use sluice_ring::sync::{AtomicU32, Ordering, fence};
use sluice_ring::{Ctrl, WakeMethod, Waker};

use super::memory::{Ring, Side};

/// The system call in which a side sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    Futex,
    /// SLUICE_RING_WAIT.
    Wait,
    /// poll(2) on the endpoint.
    Poll,
}

/// A model of futex(2): the comparison and the sleep are atomic with respect to wake-ups.
#[derive(Default)]
pub struct Futex {
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

/// A model of an endpoint: its wait queue, and whether it has ended. A waker does not lock an empty queue, so that only the
/// barriers order the two sides.
#[derive(Default)]
pub struct Endpoint {
    ended: AtomicU32,
    queued: AtomicU32,
    woken: Mutex<bool>,
    queue: Condvar,
}

impl Endpoint {
    /// Checks again after each wake-up, as wait_event() and poll(2) do.
    fn sleep_until(&self, is_ready: impl Fn() -> bool) {
        self.queued.store(1, Ordering::Relaxed);
        loop {
            // Pairs with the barrier in wake().
            fence(Ordering::SeqCst);
            if is_ready() {
                break;
            }
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.queue.wait(woken).unwrap();
            }
            *woken = false;
        }
        self.queued.store(0, Ordering::Relaxed);
    }

    fn wake(&self) {
        // Pairs with the barrier in sleep_until().
        fence(Ordering::SeqCst);
        if self.queued.load(Ordering::Relaxed) == 1 {
            *self.woken.lock().unwrap() = true;
            self.queue.notify_all();
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed) == 1
    }

    /// Stores how the endpoint ended, unless it has, and wakes the peer.
    fn end(&self, own: &Ctrl, how: u32, peer: &Self) {
        let _ = own
            .closed
            .compare_exchange(0, how, Ordering::Release, Ordering::Relaxed);
        self.ended.store(1, Ordering::Relaxed);
        peer.wake();
    }
}

/// SLUICE_CTL_DESTROY.
pub fn destroy(ring: &Ring) {
    let (producer, consumer) = (&ring.producer, &ring.consumer);
    for (side, peer) in [(producer, consumer), (consumer, producer)] {
        side.endpoint.end(&side.ctrl, DESTROYED, &peer.endpoint);
    }
}

/// A model of the processor of a side, for membarrier(2). The barrier of another process may interrupt it anywhere; serve()
/// is called where that makes a difference. Every access is relaxed, so that only the barriers order anything, and reads are
/// exchanges, which return the latest value.
#[derive(Default)]
pub struct Processor {
    /// Whether the side is registered, so that barriers of others concern it.
    registered: AtomicU32,
    asked: AtomicU32,
    served: AtomicU32,
    /// A processor that runs no side has issued a barrier when it stopped, and issues one before it resumes.
    idle: AtomicU32,
}

impl Processor {
    /// Orders nothing by itself, although the real one does.
    pub fn register(&self) {
        self.registered.swap(1, Ordering::Relaxed);
    }

    pub fn serve(&self) {
        let asked = self.asked.fetch_add(0, Ordering::Relaxed);
        if asked != self.served.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
            self.served.store(asked, Ordering::Relaxed);
        }
    }

    pub fn set_idle(&self) {
        fence(Ordering::SeqCst);
        self.idle.swap(1, Ordering::Relaxed);
    }

    pub fn set_running(&self) {
        self.idle.swap(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    fn has_served(&self, asked: u32) -> bool {
        self.idle.fetch_add(0, Ordering::Relaxed) == 1
            || self.served.fetch_add(0, Ordering::Relaxed) >= asked
    }

    fn is_registered(&self) -> bool {
        self.registered.fetch_add(0, Ordering::Relaxed) == 1
    }
}

/// The system calls of one side.
pub struct System {
    pub ring: Arc<Ring>,
    pub own: fn(&Ring) -> &Side,
    pub peer: fn(&Ring) -> &Side,
    pub sleep: Sleep,
}

impl System {
    pub fn own(&self) -> &Side {
        (self.own)(&self.ring)
    }

    pub fn peer(&self) -> &Side {
        (self.peer)(&self.ring)
    }

    pub fn method(&self) -> WakeMethod {
        match self.sleep {
            Sleep::Futex => WakeMethod::Futex,
            Sleep::Wait | Sleep::Poll => WakeMethod::Descriptor,
        }
    }

    /// Sleeps until the peer's wake_seq is not `seq`, or the peer has ended.
    pub fn sleep(&self, seq: u32) {
        let (own, peer) = (self.own(), self.peer());
        let wake_seq = &peer.ctrl.wake_seq;
        own.processor.set_idle();
        match self.sleep {
            Sleep::Futex => self.ring.futex.sleep(wake_seq, seq),
            Sleep::Wait => own.endpoint.sleep_until(|| {
                wake_seq.load(Ordering::Relaxed) != seq || peer.endpoint.has_ended()
            }),
            Sleep::Poll => own.endpoint.sleep_until(|| {
                let acknowledged = own.ctrl.wake_ack.load(Ordering::Relaxed);
                wake_seq.load(Ordering::Relaxed) != acknowledged || peer.endpoint.has_ended()
            }),
        }
        own.processor.set_running();
    }

    /// The last reference to the endpoint is gone.
    pub fn release_endpoint(&self) {
        let (own, peer) = (self.own(), self.peer());
        own.endpoint.end(&own.ctrl, DIED, &peer.endpoint);
    }
}

impl Waker for System {
    fn light_barrier(&self) {
        self.own().processor.serve();
    }

    fn heavy_barrier(&self) -> bool {
        fence(Ordering::SeqCst);
        let peer = &self.peer().processor;
        if peer.is_registered() {
            let asked = peer.asked.fetch_add(1, Ordering::Relaxed) + 1;
            while !peer.has_served(asked) {
                self.own().processor.serve();
                thread::yield_now();
            }
        }
        fence(Ordering::SeqCst);
        true
    }

    fn wake(&self, method: WakeMethod, _wake_seq: &AtomicU32) -> bool {
        match method {
            WakeMethod::Futex => self.ring.futex.wake(),
            WakeMethod::Descriptor => self.peer().endpoint.wake(),
        }
        true
    }
}

/// Then the processor runs no side.
impl Drop for System {
    fn drop(&mut self) {
        // After a failure there is no model any more.
        if !std::thread::panicking() {
            self.own().processor.set_idle();
        }
    }
}
