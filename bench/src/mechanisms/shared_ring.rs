// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of messages in shared memory for one sender and one receiver. Each side publishes its count in its own cache line, and loads the
//! count of the peer only when the cached one shows no space or no message. The sides spin, the latency of user space without regard to
//! processor time; or they sleep on an empty or full ring, on a futex(2) or an eventfd(2), and wake only a peer that has announced that
//! it may sleep, as in virtio.

use std::hint::spin_loop;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use rustix::{io, thread::futex};
use sluice_testkit::shared_memory::SharedMemory;

use super::link::ensure_fits;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// The total size of messages in flight, as the default of Sluice's ring.
const CAPACITY: usize = 4 << 20;
const MIN_SLOTS: usize = 4;

/// `wait` creates what one side waits on.
fn mechanism<W: Wait + 'static>(
    name: &'static str,
    waiting: Waiting,
    wait: impl Fn() -> Result<W> + 'static,
) -> Mechanism {
    Mechanism {
        in_flight: Box::new(slots),
        never_sleeps: !W::SLEEPS,
        ..Mechanism::new(name, waiting, move |size| {
            let ring = Ring::new(size, [wait()?, wait()?])?;
            let sender = |ring| Ok(End::<W, SENDER>::new(ring));
            let receiver = |ring| Ok(End::<W, RECEIVER>::new(ring));
            Ok(Link::new(ring, sender, receiver))
        })
    }
}

pub fn mechanisms() -> [Mechanism; 3] {
    let eventfd = || {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC);
        event.map(Event).context("cannot create an eventfd")
    };
    [
        mechanism("eventfd-shm", Waiting::Sleep, eventfd),
        mechanism("futex-shm", Waiting::Sleep, || Ok(Futex)),
        mechanism("shm-spin", Waiting::Spin, || Ok(Spin)),
    ]
}

trait Wait {
    /// False if it spins instead, and the functions below are not called.
    const SLEEPS: bool = true;

    /// Sleeps until woken, unless the word is no longer WAITING. Spurious wake-ups are allowed.
    fn sleep(&self, _waiting: &AtomicU32) -> Result<()> {
        Ok(())
    }

    fn wake(&self, _waiting: &AtomicU32) -> Result<()> {
        Ok(())
    }
}

struct Spin;

impl Wait for Spin {
    const SLEEPS: bool = false;
}

struct Futex;

impl Wait for Futex {
    fn sleep(&self, waiting: &AtomicU32) -> Result<()> {
        match futex::wait(waiting, futex::Flags::empty(), WAITING, None) {
            Ok(()) | Err(io::Errno::AGAIN | io::Errno::INTR) => Ok(()),
            Err(error) => Err(error).context("cannot sleep on a futex"),
        }
    }

    fn wake(&self, waiting: &AtomicU32) -> Result<()> {
        let woken = futex::wake(waiting, futex::Flags::empty(), 1);
        woken.map(drop).context("cannot wake a futex")
    }
}

struct Event(EventFd);

/// The count of an eventfd persists until it is read, so a sleep that begins after the wake-up ends at once.
impl Wait for Event {
    fn sleep(&self, _waiting: &AtomicU32) -> Result<()> {
        match self.0.read() {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot read an eventfd"),
        }
    }

    fn wake(&self, _waiting: &AtomicU32) -> Result<()> {
        self.0.write(1).context("cannot write an eventfd")?;
        Ok(())
    }
}

const WAITING: u32 = 1;
const NOT_WAITING: u32 = 0;

/// The position of one side, for which the other waits. Two cache lines, because processors prefetch lines in pairs.
#[repr(C, align(128))]
struct Position {
    /// The number of messages modulo 2³¹, and the bit ENDED.
    count: AtomicU32,
    /// The peer sleeps, or is about to, until this position advances.
    waiting: AtomicU32,
}

const ENDED: u32 = 1 << 31;
const COUNT: u32 = ENDED - 1;

/// No wake-up is lost: the waiter sets the word and then loads the count, while the publisher stores the count and then loads the
/// word. All four accesses are SeqCst, so at least one of the two sees the store of the other. The process that clears the word also
/// wakes, and the sleep is on that word: the wake-up may belong to a count that the waiter has already seen.
impl Position {
    /// Returns when the count differs from `seen`, or earlier.
    fn wait<W: Wait>(&self, how: &W, seen: u32) -> Result<()> {
        if !W::SLEEPS {
            spin_loop();
            return Ok(());
        }
        self.waiting.store(WAITING, Ordering::SeqCst);
        let slept = match self.count.load(Ordering::SeqCst) == seen {
            true => how.sleep(&self.waiting),
            false => Ok(()),
        };
        self.waiting.store(NOT_WAITING, Ordering::Relaxed);
        slept
    }

    /// Sets the count, and wakes a waiting peer if `enough` returns true. Pairs with the Acquire of a peer that loads the count.
    fn publish<W: Wait>(&self, how: &W, count: u32, enough: impl FnOnce() -> bool) -> Result<()> {
        if !W::SLEEPS {
            self.count.store(count, Ordering::Release);
            return Ok(());
        }
        self.count.store(count, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) == WAITING && enough() {
            // Cleared, so that a sleeper that has not run yet is not woken again by each message.
            if self.waiting.swap(NOT_WAITING, Ordering::SeqCst) == WAITING {
                how.wake(&self.waiting)?;
            }
        }
        Ok(())
    }
}

type Length = u32;

fn stride(size: usize) -> usize {
    (size_of::<Length>() + size).next_multiple_of(align_of::<u64>())
}

fn slots(size: usize) -> usize {
    let fit = CAPACITY / stride(size);
    fit.next_power_of_two().max(MIN_SLOTS)
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// The positions of both sides, and the slots: a length and the bytes each.
struct Ring<W> {
    memory: SharedMemory,
    size: usize,
    slots: u32,
    waits: [W; 2],
}

const POSITION: usize = size_of::<Position>();

impl<W> Ring<W> {
    fn new(size: usize, waits: [W; 2]) -> Result<Self> {
        let fits = size <= Length::MAX as usize;
        ensure!(fits, "a ring carries no message of {size} bytes");
        let slots = slots(size);
        let len = NonZeroUsize::new(2 * POSITION + slots * stride(size));
        let memory = SharedMemory::anonymous(len.context("a ring is never empty")?)?;
        Ok(Self {
            memory,
            size,
            slots: slots as u32,
            waits,
        })
    }

    fn position(&self, side: usize) -> &Position {
        // SAFETY: the mapping is page-aligned and zeroed, and begins with two positions that are only used as such.
        unsafe { self.memory.at(side * POSITION).cast().as_ref() }
    }

    /// A pointer to the length, which the bytes follow.
    fn slot(&self, count: u32) -> *mut u8 {
        // 2³¹ is a multiple of the number of slots, so the count may wrap around.
        let index = (count & (self.slots - 1)) as usize;
        let at = 2 * POSITION + index * stride(self.size);
        self.memory.at(at).as_ptr()
    }
}

fn next(count: u32) -> u32 {
    (count + 1) & COUNT
}

fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & COUNT
}

struct End<W: Wait, const SIDE: usize> {
    ring: Ring<W>,
    own: u32,
    /// The cached count of the peer, with the bit ENDED.
    peer: u32,
}

impl<W: Wait, const SIDE: usize> End<W, SIDE> {
    fn new(ring: Ring<W>) -> Self {
        let (own, peer) = (0, 0);
        Self { ring, own, peer }
    }

    fn peer_has_ended(&self) -> bool {
        self.peer & ENDED != 0
    }

    /// Loads the count of the peer, and waits if it has not changed.
    fn look(&mut self) -> Result<()> {
        let position = self.ring.position(1 - SIDE);
        // Acquire: pairs with publish() of the peer, which has written or read the slots that are used next.
        let seen = position.count.load(Ordering::Acquire);
        if seen == self.peer {
            position.wait(&self.ring.waits[1 - SIDE], seen)?;
        }
        self.peer = seen;
        Ok(())
    }

    /// The sender is woken only once the ring is half empty, so that two processes on one processor switch twice per ring.
    fn publish(&self, count: u32) -> Result<()> {
        let half_empty = || {
            // A waiting sender has stored its count before it announced that it waits.
            let sent = self.ring.position(SENDER).count.load(Ordering::Acquire);
            distance(count, sent) <= self.ring.slots / 2
        };
        let enough = || SIDE == SENDER || count & ENDED != 0 || half_empty();
        let position = self.ring.position(SIDE);
        position.publish(&self.ring.waits[SIDE], count, enough)
    }

    fn advance(&mut self) -> Result<()> {
        self.own = next(self.own);
        self.publish(self.own)
    }
}

impl<W: Wait> Sender for End<W, SENDER> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let len = message.len();
        ensure_fits(len, self.ring.size)?;
        while distance(self.peer, self.own) == self.ring.slots {
            ensure!(!self.peer_has_ended(), "the receiver has ended");
            self.look()?;
        }
        let slot = self.ring.slot(self.own);
        // SAFETY: the slot has space for a length and as many bytes, and is aligned; the receiver does not access it before the count.
        unsafe {
            slot.cast::<Length>().write(len as Length);
            slot.add(size_of::<Length>())
                .copy_from_nonoverlapping(message.as_ptr(), len);
        }
        self.advance()
    }
}

impl<W: Wait> Receiver for End<W, RECEIVER> {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        while distance(self.own, self.peer) == 0 {
            if self.peer_has_ended() {
                return Ok(0);
            }
            self.look()?;
        }
        let slot = self.ring.slot(self.own);
        // SAFETY: the sender has written the slot, and does not overwrite it before the count is published.
        let len = unsafe { slot.cast::<Length>().read() } as usize;
        ensure_fits(len, message.len().min(self.ring.size))?;
        // SAFETY: the bytes follow the length, and both buffers have at least `len` of them.
        unsafe {
            slot.add(size_of::<Length>())
                .copy_to_nonoverlapping(message.as_mut_ptr(), len);
        }
        self.advance()?;
        Ok(len)
    }
}

impl<W: Wait, const SIDE: usize> Drop for End<W, SIDE> {
    fn drop(&mut self) {
        // Earlier messages are still received. If the peer cannot be woken, the harness kills it.
        let _ = self.publish(self.own | ENDED);
    }
}
