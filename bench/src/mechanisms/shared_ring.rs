// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of messages in shared memory for one sender and one receiver; the wait strategy is a parameter. Each side
//! publishes its count in its own cache line, and loads the count of the peer only when the cached one shows no space
//! or no message.

use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use sluice_testkit::shared_memory::SharedMemory;

use super::link::ensure_fits;
use super::{Link, Receiver, Sender};

/// The total size of messages in flight, as the default of Sluice's ring.
const CAPACITY: usize = 4 << 20;
const MIN_SLOTS: usize = 4;

/// The position of one side. Two cache lines, because processors prefetch lines in pairs.
#[repr(C, align(128))]
pub struct Position {
    /// The number of messages modulo 2³¹, and the bit ENDED.
    pub count: AtomicU32,
    /// The peer sleeps, or is about to, until this position advances.
    pub waiting: AtomicU32,
}

/// This side has ended.
const ENDED: u32 = 1 << 31;
const COUNT: u32 = ENDED - 1;

/// How one side waits for the position of the other.
pub trait WaitStrategy {
    /// Called in the process that waits, before the first message.
    fn begin_waiting(&self) -> Result<()> {
        Ok(())
    }

    /// Returns when the count differs from `seen`, or earlier.
    fn wait(&self, position: &Position, seen: u32) -> Result<()>;

    /// Sets the count, and wakes a waiting peer if `enough` returns true. Earlier stores are visible to a process that
    /// loads the new count with Acquire.
    fn publish(&self, position: &Position, count: u32, enough: impl FnOnce() -> bool)
    -> Result<()>;
}

/// The position of the sender, the position of the receiver, and the slots: a length and the bytes each.
#[derive(Clone)]
pub struct Ring<R> {
    memory: Rc<SharedMemory>,
    size: usize,
    stride: usize,
    slots: u32,
    /// How the receiver waits.
    for_messages: R,
    /// How the sender waits.
    for_space: R,
}

const SENT: usize = 0;
const RECEIVED: usize = size_of::<Position>();
const SLOTS: usize = 2 * size_of::<Position>();

type Length = u32;

fn stride(size: usize) -> usize {
    (size_of::<Length>() + size).next_multiple_of(align_of::<u64>())
}

/// The number of slots for messages of this size.
pub fn slots(size: usize) -> usize {
    let fit = CAPACITY / stride(size);
    fit.next_power_of_two().max(MIN_SLOTS)
}

impl<R: WaitStrategy + 'static> Ring<R> {
    pub fn link(size: usize, for_messages: R, for_space: R) -> Result<Link> {
        let ring = Self::new(size, for_messages, for_space)?;
        Ok(Link::new(
            ring,
            |ring| {
                ring.for_space.begin_waiting()?;
                Ok(ring.sender())
            },
            |ring| {
                ring.for_messages.begin_waiting()?;
                Ok(ring.receiver())
            },
        ))
    }

    fn sender(self) -> RingSender<R> {
        RingSender {
            ring: self,
            sent: 0,
            received: 0,
        }
    }

    fn receiver(self) -> RingReceiver<R> {
        RingReceiver {
            ring: self,
            received: 0,
            sent: 0,
        }
    }
}

impl<R: WaitStrategy> Ring<R> {
    fn new(size: usize, for_messages: R, for_space: R) -> Result<Self> {
        let too_large = || {
            format!(
                "a ring carries messages of up to {} bytes, not {size}",
                Length::MAX
            )
        };
        Length::try_from(size).with_context(too_large)?;
        let (stride, slots) = (stride(size), slots(size));
        let len = NonZeroUsize::new(SLOTS + slots * stride).context("a ring is never empty")?;
        Ok(Self {
            memory: Rc::new(SharedMemory::anonymous(len)?),
            size,
            stride,
            slots: slots as u32,
            for_messages,
            for_space,
        })
    }

    fn sent(&self) -> &Position {
        // SAFETY: the mapping is page-aligned and zeroed, and begins with two positions that are only used as such.
        unsafe { self.memory.at(SENT).cast().as_ref() }
    }

    fn received(&self) -> &Position {
        // SAFETY: as above.
        unsafe { self.memory.at(RECEIVED).cast().as_ref() }
    }

    /// A pointer to the length, which the bytes follow.
    fn slot(&self, count: u32) -> *mut u8 {
        // 2³¹ is a multiple of the number of slots, so the count may wrap around.
        let index = (count & (self.slots - 1)) as usize;
        self.memory.at(SLOTS + index * self.stride).as_ptr()
    }
}

fn next(count: u32) -> u32 {
    (count + 1) & COUNT
}

fn distance(from: u32, to: u32) -> u32 {
    to.wrapping_sub(from) & COUNT
}

struct RingSender<R: WaitStrategy> {
    ring: Ring<R>,
    sent: u32,
    /// The cached count.
    received: u32,
}

impl<R: WaitStrategy> RingSender<R> {
    fn wait_for_space(&mut self) -> Result<()> {
        while distance(self.received, self.sent) == self.ring.slots {
            // Acquire: pairs with publish() of the receiver, which has read the slots that are overwritten next.
            let seen = self.ring.received().count.load(Ordering::Acquire);
            ensure!(seen & ENDED == 0, "the receiver has ended");
            if seen == self.received {
                self.ring.for_space.wait(self.ring.received(), seen)?;
            }
            self.received = seen;
        }
        Ok(())
    }

    fn publish(&self, count: u32) -> Result<()> {
        self.ring
            .for_messages
            .publish(self.ring.sent(), count, || true)
    }
}

impl<R: WaitStrategy> Sender for RingSender<R> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() <= self.ring.size,
            "this ring carries messages of up to {} bytes, not {}",
            self.ring.size,
            message.len()
        );
        self.wait_for_space()?;
        let slot = self.ring.slot(self.sent);
        // SAFETY: the slot has space for a length and for the bytes whose number was checked above, and is aligned for
        // the length; the receiver does not access it before the count is published.
        unsafe {
            slot.cast::<Length>().write(message.len() as Length);
            slot.add(size_of::<Length>())
                .copy_from_nonoverlapping(message.as_ptr(), message.len());
        }
        self.sent = next(self.sent);
        self.publish(self.sent)
    }
}

impl<R: WaitStrategy> Drop for RingSender<R> {
    fn drop(&mut self) {
        // Earlier messages are still received. If the receiver cannot be woken, the harness kills it.
        let _ = self.publish(self.sent | ENDED);
    }
}

struct RingReceiver<R: WaitStrategy> {
    ring: Ring<R>,
    received: u32,
    /// The cached count, with the bit ENDED.
    sent: u32,
}

impl<R: WaitStrategy> RingReceiver<R> {
    /// Returns false after the end.
    fn wait_for_message(&mut self) -> Result<bool> {
        while self.sent & COUNT == self.received {
            if self.sent & ENDED != 0 {
                return Ok(false);
            }
            // Acquire: pairs with publish() of the sender, which has written the slots that are read next.
            let seen = self.ring.sent().count.load(Ordering::Acquire);
            if seen == self.sent {
                self.ring.for_messages.wait(self.ring.sent(), seen)?;
            }
            self.sent = seen;
        }
        Ok(true)
    }

    /// The sender is woken only once the ring is half empty, so that two processes on one processor switch twice per
    /// ring and not per message.
    fn publish(&self, count: u32) -> Result<()> {
        let half_empty = || {
            // A waiting sender has stored its count before it announced that it waits.
            let sent = self.ring.sent().count.load(Ordering::Acquire);
            distance(count & COUNT, sent & COUNT) <= self.ring.slots / 2
        };
        self.ring
            .for_space
            .publish(self.ring.received(), count, || {
                count & ENDED != 0 || half_empty()
            })
    }
}

impl<R: WaitStrategy> Receiver for RingReceiver<R> {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if !self.wait_for_message()? {
            return Ok(0);
        }
        let slot = self.ring.slot(self.received);
        // SAFETY: the sender has written the slot, and does not overwrite it before the count is published.
        let len = unsafe { slot.cast::<Length>().read() } as usize;
        ensure_fits(len, message.len().min(self.ring.size))?;
        // SAFETY: as above; both buffers have at least `len` bytes.
        unsafe {
            slot.add(size_of::<Length>())
                .copy_to_nonoverlapping(message.as_mut_ptr(), len);
        }
        self.received = next(self.received);
        self.publish(self.received)?;
        Ok(len)
    }
}

impl<R: WaitStrategy> Drop for RingReceiver<R> {
    fn drop(&mut self) {
        // If the sender cannot be woken, the harness kills it.
        let _ = self.publish(self.received | ENDED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::shm_spin::Spinning;

    /// Both ends in one process, which must never wait.
    fn ends(size: usize) -> (RingSender<Spinning>, RingReceiver<Spinning>, u32) {
        let ring = Ring::new(size, Spinning, Spinning).unwrap();
        let slots = ring.slots;
        (ring.clone().sender(), ring.receiver(), slots)
    }

    #[test]
    fn messages_arrive_unchanged_before_the_end() {
        let (mut sender, mut receiver, slots) = ends(5);
        let mut message = [0; 5];
        for number in 0..3 * slots {
            let sent = &number.to_le_bytes()[..1 + number as usize % 4];
            sender.send(sent).unwrap();
            assert_eq!(receiver.receive(&mut message).unwrap(), sent.len());
            assert_eq!(&message[..sent.len()], sent);
        }
        sender.send(b"last").unwrap();
        drop(sender);
        assert_eq!(receiver.receive(&mut message).unwrap(), 4);
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
    }

    #[test]
    fn sending_into_a_full_ring_fails_after_the_receiver_has_ended() {
        const LONG: usize = CAPACITY / 2;
        let (mut sender, receiver, slots) = ends(LONG);
        assert_eq!(slots as usize, MIN_SLOTS);
        for _ in 0..slots {
            sender.send(&vec![1; LONG]).unwrap();
        }
        drop(receiver);
        let error = sender.send(&[1]).unwrap_err();
        assert!(error.to_string().contains("receiver has ended"), "{error}");
    }

    #[test]
    fn counts_wrap_around() {
        assert_eq!(next(COUNT), 0);
        assert_eq!(distance(COUNT, 2), 3);
        assert_eq!(distance(7, 7), 0);
    }

    #[test]
    fn messages_that_are_too_long_are_rejected() {
        let (mut sender, mut receiver, _) = ends(4);
        assert!(sender.send(b"five!").is_err());
        sender.send(b"four").unwrap();
        assert!(receiver.receive(&mut [0; 3]).is_err());
    }
}
