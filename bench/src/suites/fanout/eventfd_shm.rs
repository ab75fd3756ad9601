// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in shared memory, announced with an eventfd for each receiver. As in virtio, it is written only when the receiver has
//! announced that it may sleep. Either each receiver has a ring of its own, into which the message is copied, as in the report, or
//! all have one ring.

use std::hint::spin_loop;
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::atomic::{Ordering, fence};
use std::thread::yield_now;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};
use sluice_testkit::shared_memory::SharedMemory;

use super::channel::{CAPACITY, Create, End, Visit};
use super::conditions::Conditions;
use crate::suites::counters::Counters;

/// Polls of the position of a receiver before the sender yields its processor.
const POLLS: u32 = 100;

pub fn rings(count: fn(&Conditions) -> usize) -> Result<Create> {
    Ok(Rc::new(move |conditions: &Conditions| {
        let memory = Memory::new(conditions, count(conditions))?;
        Ok(Box::new(move |number| match number {
            None => sender(memory),
            Some(number) => receiver(memory, number),
        }))
    }))
}

struct Memory {
    conditions: Conditions,
    /// One ring for each receiver, or one for all, with this many slots each.
    rings: usize,
    slots: u64,
    stride: usize,
    memory: SharedMemory,
    /// The number of messages sent to each ring, and received by each receiver.
    sent: Counters,
    received: Counters,
    /// 1: the receiver may sleep, and is to be told of the next message.
    sleeping: Counters,
    events: Vec<EventFd>,
}

impl Memory {
    fn new(conditions: &Conditions, rings: usize) -> Result<Self> {
        let receivers = conditions.receivers;
        let stride = conditions.size.next_multiple_of(64);
        let slots = CAPACITY / stride;
        let bytes = NonZeroUsize::new(rings * slots * stride);
        let event = |_| EventFd::from_flags(EfdFlags::EFD_CLOEXEC);
        let events = (0..receivers).map(event).collect::<Result<_, _>>();
        Ok(Self {
            conditions: *conditions,
            rings,
            slots: slots as u64,
            stride,
            memory: SharedMemory::anonymous(bytes.context("a message exceeds the ring")?)?,
            sent: Counters::new(rings)?,
            received: Counters::new(receivers)?,
            sleeping: Counters::new(receivers)?,
            events: events.context("cannot create an eventfd")?,
        })
    }

    fn slot(&self, ring: usize, position: u64) -> *mut u8 {
        let index = (position % self.slots) as usize;
        let offset = (ring * self.slots as usize + index) * self.stride;
        self.memory.at(offset).as_ptr()
    }

    /// Waits until all receivers of this ring have received what the next message overwrites.
    fn await_room(&self, ring: usize, sent: u64, released: &mut [u64]) {
        let own = match self.rings {
            1 => 0..self.events.len(),
            _ => ring..ring + 1,
        };
        for receiver in own {
            let mut polls = 0;
            while sent - released[receiver] >= self.slots {
                // The receiver does not read the slots before this position any more.
                released[receiver] = self.received.get(receiver);
                polls += 1;
                match polls % POLLS {
                    0 => yield_now(),
                    _ => spin_loop(),
                }
            }
        }
    }
}

fn sender(memory: Memory) -> Result<End> {
    let mut sent = 0;
    // The cached positions of the receivers.
    let mut released = vec![0; memory.events.len()];
    End::sender(move |message| {
        for ring in 0..memory.rings {
            memory.await_room(ring, sent, &mut released);
            let slot = memory.slot(ring, sent);
            // SAFETY: a slot has room for a message, and no receiver reads it.
            unsafe { slot.copy_from_nonoverlapping(message.as_ptr(), message.len()) };
            memory.sent.set(ring, sent + 1);
        }
        sent += 1;
        // Pairs with the fence of a receiver that announces its sleep: it sees the message, or this sees the announcement.
        fence(Ordering::SeqCst);
        for (number, event) in memory.events.iter().enumerate() {
            let sleeping = memory.sleeping.at(number);
            if sleeping.load(Ordering::Relaxed) != 0 {
                sleeping.store(0, Ordering::Relaxed);
                event.write(1).context("cannot write an eventfd")?;
            }
        }
        Ok(())
    })
}

fn receiver(memory: Memory, number: usize) -> Result<End> {
    let ring = number.min(memory.rings - 1);
    let mut received = 0;
    End::receiver(move |visit: Visit| {
        while memory.sent.get(ring) == received {
            if !memory.conditions.blocks() {
                return Ok(false);
            }
            memory.sleeping.at(number).store(1, Ordering::Relaxed);
            // Pairs with the fence of the sender.
            fence(Ordering::SeqCst);
            if memory.sent.get(ring) != received {
                break;
            }
            match memory.events[number].read() {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot read an eventfd"),
            }
        }
        let (slot, size) = (memory.slot(ring, received), memory.conditions.size);
        // SAFETY: the sender has written the slot, and does not overwrite it before the position is set. The message is read in place.
        visit(unsafe { std::slice::from_raw_parts(slot, size) })?;
        received += 1;
        memory.received.set(number, received);
        Ok(true)
    })
}
