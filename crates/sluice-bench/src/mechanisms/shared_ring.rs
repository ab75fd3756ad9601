// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of messages in shared memory, for one sender and one receiver; how they wait is somebody else's choice. Each side
//! counts in a cache line of its own what it is done with, and looks at the other's count only when its last look tells of no
//! more room, or no more messages.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use super::{Link, Receiver, Sender};
use crate::harness::shared_memory::SharedMemory;

/// What the messages on the way may take together, however many they are: enough that neither side waits for the other at
/// each message, and little enough to stay in the processors' second caches.
const CAPACITY: usize = 128 * 1024;
const FEWEST_SLOTS: usize = 4;

/// How far one side is. Two lines, as processors fetch neighbours in pairs.
#[repr(C, align(128))]
pub struct Position {
    /// Of messages, modulo 2³¹, and the bit ENDED.
    pub count: AtomicU32,
    /// The other side sleeps, or is about to, until this side gets farther.
    pub awaited: AtomicU32,
}

/// This side does nothing more.
const ENDED: u32 = 1 << 31;
const COUNT: u32 = ENDED - 1;

/// How one side waits for the other's position.
pub trait Rest {
    /// Returns when the count is not `seen` any more, or earlier.
    fn wait(&self, position: &Position, seen: u32) -> Result<()>;

    /// Sets the count, and wakes who waits for it if `enough` says that this is worth it. What was written before is then
    /// seen by whoever reads the new count with Acquire.
    fn publish(&self, position: &Position, count: u32, enough: impl FnOnce() -> bool)
    -> Result<()>;
}

/// The sender's position, the receiver's position, and then the slots: a length and so many bytes each.
#[derive(Clone)]
pub struct Ring<R> {
    memory: Rc<SharedMemory>,
    size: usize,
    stride: usize,
    slots: u32,
    /// How the receiver waits.
    for_messages: R,
    /// How the sender waits.
    for_room: R,
}

const SENT: usize = 0;
const RECEIVED: usize = size_of::<Position>();
const SLOTS: usize = 2 * size_of::<Position>();

type Length = u32;

impl<R: Rest> Ring<R> {
    pub fn new(size: usize, for_messages: R, for_room: R) -> Result<Self> {
        let too_large = || {
            format!(
                "a ring carries messages up to {} bytes, not of {size}",
                Length::MAX
            )
        };
        Length::try_from(size).with_context(too_large)?;
        let stride = (size_of::<Length>() + size).next_multiple_of(align_of::<u64>());
        let slots = (CAPACITY / stride).next_power_of_two().max(FEWEST_SLOTS);
        let len = NonZeroUsize::new(SLOTS + slots * stride).context("a ring is never empty")?;
        Ok(Self {
            memory: Rc::new(SharedMemory::nameless(len)?),
            size,
            stride,
            slots: slots as u32,
            for_messages,
            for_room,
        })
    }

    fn sent(&self) -> &Position {
        // SAFETY: the mapping begins at a page, zeroed, with two positions that are only ever used as such.
        unsafe { self.memory.at(SENT).cast().as_ref() }
    }

    fn received(&self) -> &Position {
        // SAFETY: as above.
        unsafe { self.memory.at(RECEIVED).cast().as_ref() }
    }

    /// Where the length is; the bytes follow it.
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

impl<R: Rest + 'static> Link for Ring<R> {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(RingSender {
            ring: *self,
            sent: 0,
            received: 0,
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(RingReceiver {
            ring: *self,
            received: 0,
            sent: 0,
        }))
    }
}

struct RingSender<R: Rest> {
    ring: Ring<R>,
    sent: u32,
    /// As of the last look.
    received: u32,
}

impl<R: Rest> RingSender<R> {
    fn await_room(&mut self) -> Result<()> {
        while distance(self.received, self.sent) == self.ring.slots {
            // Acquire pairs with the receiver's publish: it has read the slots that are written over next.
            let seen = self.ring.received().count.load(Ordering::Acquire);
            ensure!(seen & ENDED == 0, "the receiver has ended");
            if seen == self.received {
                self.ring.for_room.wait(self.ring.received(), seen)?;
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

impl<R: Rest> Sender for RingSender<R> {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() <= self.ring.size,
            "this ring carries messages up to {} bytes, not of {}",
            self.ring.size,
            message.len()
        );
        self.await_room()?;
        let slot = self.ring.slot(self.sent);
        // SAFETY: the slot has room for a length and as many bytes as were just allowed, and is aligned for the length; until
        // the count tells of it only the sender touches it.
        unsafe {
            slot.cast::<Length>().write(message.len() as Length);
            slot.add(size_of::<Length>())
                .copy_from_nonoverlapping(message.as_ptr(), message.len());
        }
        self.sent = next(self.sent);
        self.publish(self.sent)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<R: Rest> Drop for RingSender<R> {
    fn drop(&mut self) {
        // What was sent before is still received. A receiver that cannot be woken is ended by the harness.
        let _ = self.publish(self.sent | ENDED);
    }
}

struct RingReceiver<R: Rest> {
    ring: Ring<R>,
    received: u32,
    /// As of the last look, with the bit ENDED.
    sent: u32,
}

impl<R: Rest> RingReceiver<R> {
    /// Returns false when nothing more will come.
    fn await_message(&mut self) -> Result<bool> {
        while self.sent & COUNT == self.received {
            if self.sent & ENDED != 0 {
                return Ok(false);
            }
            // Acquire pairs with the sender's publish: it has written the slots that are read next.
            let seen = self.ring.sent().count.load(Ordering::Acquire);
            if seen == self.sent {
                self.ring.for_messages.wait(self.ring.sent(), seen)?;
            }
            self.sent = seen;
        }
        Ok(true)
    }

    /// A full ring is half emptied before the sender is woken, so that two on one processor change places twice for each
    /// ring of messages and not for each message.
    fn publish(&self, count: u32) -> Result<()> {
        let half_empty = || {
            // A sender that waits has set its count before it said so.
            let sent = self.ring.sent().count.load(Ordering::Acquire);
            distance(count & COUNT, sent & COUNT) <= self.ring.slots / 2
        };
        self.ring.for_room.publish(self.ring.received(), count, || {
            count & ENDED != 0 || half_empty()
        })
    }
}

impl<R: Rest> Receiver for RingReceiver<R> {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if !self.await_message()? {
            return Ok(0);
        }
        let slot = self.ring.slot(self.received);
        // SAFETY: the sender has written the slot, and leaves it alone until the count tells that it was read.
        let len = unsafe { slot.cast::<Length>().read() } as usize;
        ensure!(
            len <= message.len().min(self.ring.size),
            "a message of {len} bytes does not fit where {} were expected",
            message.len()
        );
        // SAFETY: as above; both places have so many bytes.
        unsafe {
            slot.add(size_of::<Length>())
                .copy_to_nonoverlapping(message.as_mut_ptr(), len);
        }
        self.received = next(self.received);
        self.publish(self.received)?;
        Ok(len)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl<R: Rest> Drop for RingReceiver<R> {
    fn drop(&mut self) {
        // A sender that cannot be woken is ended by the harness.
        let _ = self.publish(self.received | ENDED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::shm_spin::Spinning;

    /// Both ends in one process, which must never wait.
    fn ends(size: usize) -> (Box<dyn Sender>, Box<dyn Receiver>, u32) {
        let ring = Ring::new(size, Spinning, Spinning).unwrap();
        let slots = ring.slots;
        (
            Box::new(ring.clone()).sender().unwrap(),
            Box::new(ring).receiver().unwrap(),
            slots,
        )
    }

    #[test]
    fn messages_come_out_as_they_went_in_and_then_the_end() {
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
    fn a_full_ring_whose_receiver_has_ended_takes_no_more() {
        let (mut sender, receiver, slots) = ends(65536);
        assert_eq!(slots as usize, FEWEST_SLOTS);
        for _ in 0..slots {
            sender.send(&[1; 65536]).unwrap();
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
    fn messages_that_are_too_long_are_refused() {
        let (mut sender, mut receiver, _) = ends(4);
        assert!(sender.send(b"five!").is_err());
        sender.send(b"four").unwrap();
        assert!(receiver.receive(&mut [0; 3]).is_err());
    }
}
