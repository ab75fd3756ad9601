// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers for writers and readers that are missing, slow to fault in, or changing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::bytes::MOST;
use crate::support::check::Skip;
use crate::support::memory::{Mapping, PAGE};
use crate::support::numbered_bytes::Byte;
use crate::support::time::Deadline;
use crate::support::userfault::UserFault;

/// The behavior of a writer's buffer during a write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum MemoryBehavior {
    /// Resident and constant.
    Still,
    /// No page is mapped at the start of a write; the content is kept.
    Absent,
    /// As above, and each page fault takes up to 2 ms.
    Late,
    /// Another thread keeps changing all of it; each byte still identifies its writer.
    Changing,
}

impl MemoryBehavior {
    pub fn of(slot: usize) -> Self {
        match slot {
            4 | 5 => MemoryBehavior::Absent,
            6 => MemoryBehavior::Late,
            7 => MemoryBehavior::Changing,
            _ => MemoryBehavior::Still,
        }
    }
}

/// Bytes of one writer, in sequence.
pub struct Source {
    mapping: Mapping,
    behavior: MemoryBehavior,
    slot: usize,
    faults: Option<UserFault>,
    done: AtomicBool,
}

impl Source {
    pub fn new(slot: usize) -> Result<Self> {
        let behavior = MemoryBehavior::of(slot);
        let visibility = match behavior {
            MemoryBehavior::Absent => libc::MAP_SHARED,
            _ => libc::MAP_PRIVATE,
        };
        // A write may start anywhere in the first page.
        let len = (PAGE + MOST).next_multiple_of(PAGE);
        let source = Source {
            mapping: Mapping::with_flags(len, visibility)?,
            behavior,
            slot,
            faults: match behavior {
                MemoryBehavior::Late => user_fault()?,
                _ => None,
            },
            done: AtomicBool::new(false),
        };
        match &source.faults {
            Some(faults) => faults.watch(source.mapping.start(), source.mapping.len())?,
            None => source.put_sequence(),
        }
        Ok(source)
    }

    fn put_sequence(&self) {
        for offset in 0..self.mapping.len() {
            self.put(offset, Byte::new(self.slot, offset));
        }
    }

    fn put(&self, offset: usize, byte: Byte) {
        // SAFETY: offsets are within our own mapping, to which no Rust reference exists; single bytes cannot tear.
        unsafe { self.mapping.start().add(offset).write_volatile(byte.0) };
    }

    /// The start of a write whose first byte has this position in the sequence.
    pub fn at(&self, position: usize, random: &mut Rng) -> Result<*const u8> {
        match self.behavior {
            MemoryBehavior::Absent => self.mapping.discard_pages()?,
            MemoryBehavior::Late if self.faults.is_some() => self.mapping.discard_pages()?,
            _ => {}
        }
        let period = random.usize(0..=PAGE / Byte::PERIOD - 1);
        let offset = period * Byte::PERIOD + position % Byte::PERIOD;
        Ok(self.mapping.start().wrapping_add(offset))
    }

    /// Runs `body` while a thread applies the behavior.
    pub fn while_active<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        std::thread::scope(|scope| {
            let actor = scope.spawn(|| self.act());
            let result = body();
            self.done.store(true, Ordering::Relaxed);
            actor.join().expect("the memory's thread does not panic")?;
            result
        })
    }

    fn act(&self) -> Result<()> {
        match (&self.faults, self.behavior) {
            (Some(faults), _) => self.fill_missing_pages(faults),
            (None, MemoryBehavior::Changing) => {
                self.change();
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    fn change(&self) {
        let mut random = Rng::with_seed(self.slot as u64);
        while !self.done.load(Ordering::Relaxed) {
            let shift = random.usize(..Byte::PERIOD);
            for offset in 0..self.mapping.len() {
                self.put(offset, Byte::new(self.slot, offset + shift));
            }
        }
    }

    fn fill_missing_pages(&self, faults: &UserFault) -> Result<()> {
        let content: [u8; PAGE] = std::array::from_fn(|offset| Byte::new(self.slot, offset).0);
        let mut random = Rng::with_seed(self.slot as u64);
        while !self.done.load(Ordering::Relaxed) {
            let Some(page) = faults.next(&Deadline::after(LOOK_EVERY))? else {
                continue;
            };
            std::thread::sleep(Duration::from_micros(random.u64(..=2000)));
            faults.fill(page, &content)?;
        }
        Ok(())
    }
}

/// How often the thread that resolves page faults checks whether the writer has finished.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Without userfaultfd the pages are simply resident.
fn user_fault() -> Result<Option<UserFault>> {
    match UserFault::open() {
        Ok(faults) => Ok(Some(faults)),
        Err(error) if error.is::<Skip>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The buffer of a reader.
pub enum Target {
    Ready(Mapping),
    /// A new mapping, without resident pages, for each read.
    Fresh,
}

impl Target {
    pub fn new(slot: usize) -> Result<Self> {
        if slot % 2 == 1 {
            return Ok(Target::Fresh);
        }
        Ok(Target::Ready(whole_mapping()?))
    }

    /// Calls `read` with a buffer of `MOST` bytes, and `take` with the bytes read.
    pub fn fill<T>(
        &self,
        read: impl FnOnce(*mut u8) -> nix::Result<usize>,
        take: impl FnOnce(nix::Result<&[u8]>) -> Result<T>,
    ) -> Result<T> {
        let fresh;
        let mapping = match self {
            Target::Ready(mapping) => mapping,
            Target::Fresh => {
                fresh = whole_mapping()?;
                &fresh
            }
        };
        // SAFETY: the kernel filled that many bytes of a mapping that nothing else uses.
        take(read(mapping.start()).map(|count| unsafe {
            std::slice::from_raw_parts(mapping.start(), count.min(mapping.len()))
        }))
    }
}

fn whole_mapping() -> Result<Mapping> {
    Mapping::new(MOST.div_ceil(PAGE)).context("memory for a reader")
}
