// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in shared memory, announced with an eventfd for each receiver. As in virtio, it is written only when the receiver has
//! announced that it may sleep. Either each receiver has a ring of its own, into which the message is copied, as in the report, or
//! all have one ring.

use std::hint::spin_loop;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::thread::yield_now;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_testkit::shared::SharedWords;
use sluice_testkit::shared_memory::SharedMemory;

use super::channel::{CAPACITY, Channel, Receiver, Sender, Shape};

/// Polls of the position of a receiver before the sender yields its processor.
const POLLS: u32 = 100;

pub fn create_copies(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Memory::new(shape, shape.receivers)?))
}

pub fn create_shared(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Memory::new(shape, 1)?))
}

/// The slots of a ring, without positions.
struct Slots {
    memory: SharedMemory,
    stride: usize,
    count: u64,
}

impl Slots {
    fn new(size: usize) -> Result<Self> {
        let stride = size.next_multiple_of(64);
        let count = CAPACITY / stride;
        let bytes = NonZeroUsize::new(count * stride).context("a message exceeds the ring")?;
        Ok(Self {
            memory: SharedMemory::anonymous(bytes)?,
            stride,
            count: count as u64,
        })
    }

    fn at(&self, position: u64) -> *mut u8 {
        let index = (position % self.count) as usize;
        self.memory.at(index * self.stride).as_ptr()
    }
}

struct Memory {
    shape: Shape,
    /// One for each receiver, or one for all.
    rings: Vec<Slots>,
    /// In a cache line each: the number of messages sent to each ring, and received by each receiver.
    sent: SharedWords,
    received: SharedWords,
    /// 1: the receiver may sleep, and is to be told of the next message.
    sleeping: SharedWords,
    events: Vec<EventFd>,
}

impl Memory {
    fn new(shape: &Shape, rings: usize) -> Result<Self> {
        let receivers = shape.receivers;
        let event =
            |_| EventFd::from_flags(EfdFlags::EFD_CLOEXEC).context("cannot create an eventfd");
        Ok(Self {
            shape: *shape,
            rings: (0..rings)
                .map(|_| Slots::new(shape.size))
                .collect::<Result<_>>()?,
            sent: SharedWords::new(rings * SharedWords::PER_LINE)?,
            received: SharedWords::new(receivers * SharedWords::PER_LINE)?,
            sleeping: SharedWords::new(receivers * SharedWords::PER_LINE)?,
            events: (0..receivers).map(event).collect::<Result<_>>()?,
        })
    }

    fn position(words: &SharedWords, number: usize) -> &AtomicU64 {
        &words.words()[number * SharedWords::PER_LINE]
    }

    /// Waits until all receivers of this ring have received what the next message overwrites.
    fn await_room(&self, ring: usize, sent: u64, released: &mut [u64]) {
        let own = match self.rings.len() {
            1 => 0..self.events.len(),
            _ => ring..ring + 1,
        };
        for receiver in own {
            let mut polls = 0;
            while sent - released[receiver] >= self.rings[ring].count {
                // Pairs with the release store of the receiver, which does not read the slot any more.
                released[receiver] =
                    Self::position(&self.received, receiver).load(Ordering::Acquire);
                polls += 1;
                match polls % POLLS {
                    0 => yield_now(),
                    _ => spin_loop(),
                }
            }
        }
    }
}

impl Channel for Memory {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Announcer {
            sent: 0,
            released: vec![0; self.events.len()],
            memory: self,
        }))
    }

    fn receiver(self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(Listener {
            ring: number.min(self.rings.len() - 1),
            number,
            received: 0,
            memory: self,
        }))
    }
}

struct Announcer {
    memory: Box<Memory>,
    sent: u64,
    /// The cached positions of the receivers.
    released: Vec<u64>,
}

impl Sender for Announcer {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        for (number, ring) in self.memory.rings.iter().enumerate() {
            self.memory
                .await_room(number, self.sent, &mut self.released);
            // SAFETY: a slot has room for a message, and no receiver reads it.
            unsafe {
                ring.at(self.sent)
                    .copy_from_nonoverlapping(message.as_ptr(), message.len());
            }
            // Pairs with the acquire load of the receiver.
            Memory::position(&self.memory.sent, number).store(self.sent + 1, Ordering::Release);
        }
        self.sent += 1;
        // Pairs with the fence of a receiver that announces its sleep: it sees the message, or this sees the announcement.
        fence(Ordering::SeqCst);
        for (number, event) in self.memory.events.iter().enumerate() {
            let sleeping = Memory::position(&self.memory.sleeping, number);
            if sleeping.load(Ordering::Relaxed) != 0 {
                sleeping.store(0, Ordering::Relaxed);
                event.write(1).context("cannot write an eventfd")?;
            }
        }
        Ok(())
    }
}

struct Listener {
    memory: Box<Memory>,
    number: usize,
    ring: usize,
    received: u64,
}

impl Listener {
    fn has_message(&self) -> bool {
        // Pairs with the release store of the sender.
        let sent = Memory::position(&self.memory.sent, self.ring).load(Ordering::Acquire);
        sent != self.received
    }
}

impl Receiver for Listener {
    /// The message is read where it is.
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let Shape { size, blocking, .. } = self.memory.shape;
        while !self.has_message() {
            if !blocking {
                return Ok(false);
            }
            Memory::position(&self.memory.sleeping, self.number).store(1, Ordering::Relaxed);
            // Pairs with the fence of the sender.
            fence(Ordering::SeqCst);
            if self.has_message() {
                break;
            }
            match self.memory.events[self.number].read() {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot read an eventfd"),
            }
        }
        let slot = self.memory.rings[self.ring].at(self.received);
        // SAFETY: the sender has written the slot, and does not overwrite it before the position is stored below.
        visit(unsafe { std::slice::from_raw_parts(slot, size) })?;
        self.received += 1;
        Memory::position(&self.memory.received, self.number)
            .store(self.received, Ordering::Release);
        Ok(true)
    }
}
