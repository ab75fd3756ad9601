// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory to write from and to read into that behaves worse than most.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::bytes::{Byte, MOST};
use crate::support::check::Skip;
use crate::support::memory::{Mapping, PAGE};
use crate::support::time::Deadline;
use crate::support::userfault::UserFault;

/// What the memory that a writer writes from does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It lies still.
    Still,
    /// No page of it is there at the start of a write, though none has lost its content.
    Absent,
    /// As above, and each page takes up to two milliseconds to come.
    Late,
    /// Another thread changes all of it, all the time, as far as the bytes still tell their writer.
    Changing,
}

impl Manner {
    pub fn of(seat: usize) -> Self {
        match seat {
            4 | 5 => Manner::Absent,
            6 => Manner::Late,
            7 => Manner::Changing,
            _ => Manner::Still,
        }
    }
}

/// Bytes of one writer, in sequence.
pub struct Source {
    mapping: Mapping,
    manner: Manner,
    seat: usize,
    faults: Option<UserFault>,
    done: AtomicBool,
}

impl Source {
    pub fn new(seat: usize) -> Result<Self> {
        let manner = Manner::of(seat);
        let visibility = match manner {
            Manner::Absent => libc::MAP_SHARED,
            _ => libc::MAP_PRIVATE,
        };
        // A write may start anywhere in the first page.
        let len = (PAGE + MOST).next_multiple_of(PAGE);
        let source = Source {
            mapping: Mapping::with_flags(len, visibility)?,
            manner,
            seat,
            faults: match manner {
                Manner::Late => user_fault()?,
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
            self.put(offset, Byte::new(self.seat, offset));
        }
    }

    fn put(&self, offset: usize, byte: Byte) {
        // SAFETY: offsets are within our own mapping, to which no Rust reference exists; single bytes cannot tear.
        unsafe { self.mapping.start().add(offset).write_volatile(byte.0) };
    }

    /// Where to write from if the next byte's place in the sequence is `place`.
    pub fn at(&self, place: usize, random: &mut Rng) -> Result<*const u8> {
        match self.manner {
            Manner::Absent => self.mapping.forget_pages()?,
            Manner::Late if self.faults.is_some() => self.mapping.forget_pages()?,
            _ => {}
        }
        let period = random.usize(..PAGE / Byte::PERIOD);
        let offset = period * Byte::PERIOD + place % Byte::PERIOD;
        Ok(self.mapping.start().wrapping_add(offset))
    }

    /// Runs `body` while the memory does what is its manner.
    pub fn while_it_acts<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        std::thread::scope(|scope| {
            let actor = scope.spawn(|| self.act());
            let result = body();
            self.done.store(true, Ordering::Relaxed);
            actor.join().expect("the memory's thread does not panic")?;
            result
        })
    }

    fn act(&self) -> Result<()> {
        match (&self.faults, self.manner) {
            (Some(faults), _) => self.bring_pages(faults),
            (None, Manner::Changing) => {
                self.change();
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    fn change(&self) {
        let mut random = Rng::with_seed(self.seat as u64);
        while !self.done.load(Ordering::Relaxed) {
            let shift = random.usize(..Byte::PERIOD);
            for offset in 0..self.mapping.len() {
                self.put(offset, Byte::new(self.seat, offset + shift));
            }
        }
    }

    fn bring_pages(&self, faults: &UserFault) -> Result<()> {
        let content: [u8; PAGE] = std::array::from_fn(|offset| Byte::new(self.seat, offset).0);
        let mut random = Rng::with_seed(self.seat as u64);
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

/// How long the end of a writer may wait for the thread that brings its pages.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Where there is no userfaultfd the pages just lie still.
fn user_fault() -> Result<Option<UserFault>> {
    match UserFault::open() {
        Ok(faults) => Ok(Some(faults)),
        Err(error) if error.is::<Skip>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Where a reader reads to.
pub enum Target {
    Ready(Mapping),
    /// Mapped anew, so that no page of it is there, for each read.
    Fresh,
}

impl Target {
    pub fn new(seat: usize) -> Result<Self> {
        if seat % 2 == 1 {
            return Ok(Target::Fresh);
        }
        Ok(Target::Ready(whole_mapping()?))
    }

    /// Gives `read` a start with room for `MOST` bytes, and `take` what came there.
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
        // SAFETY: the kernel filled that many bytes of a mapping that nobody else uses.
        take(read(mapping.start()).map(|count| unsafe {
            std::slice::from_raw_parts(mapping.start(), count.min(mapping.len()))
        }))
    }
}

fn whole_mapping() -> Result<Mapping> {
    Mapping::new(MOST.div_ceil(PAGE)).context("memory for a reader")
}
