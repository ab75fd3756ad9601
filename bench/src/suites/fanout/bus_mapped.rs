// SPDX-License-Identifier: MIT OR Apache-2.0
//! A subscriber that reads the messages of a bus in mapped memory. Several are received, and released, by one call.

use std::num::NonZeroUsize;
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use sluice_abi::bus::{self, Entry, RECEIVE_MAX};

use super::bus::Endpoint;
use super::channel::{CAPACITY, Receiver};

/// At most this part of the ring is held by a receiver, so that the sender has room.
const HELD_PART: usize = 4;

/// The bytes of the bus twice in a row; unmapped when dropped.
struct Mapping(NonNull<u8>);

const BYTES: NonZeroUsize = NonZeroUsize::new(2 * CAPACITY).unwrap();

impl Mapping {
    fn new(endpoint: &Endpoint) -> Result<Self> {
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        let (offset, access) = (bus::MMAP_DATA as i64, ProtFlags::PROT_READ);
        // SAFETY: the kernel chooses the address, so the new mapping aliases nothing.
        let start = unsafe { mmap(None, BYTES, access, flags, &endpoint.0, offset) };
        Ok(Self(start.context("cannot map a bus")?.cast()))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: all users of the memory borrow the mapping.
        unsafe { munmap(self.0.cast(), BYTES.get()) }.expect("the mapping is valid");
    }
}

pub struct Mapped {
    endpoint: Endpoint,
    mapping: Mapping,
    entries: [Entry; RECEIVE_MAX],
    /// The entries of the last call, and the number of them that were visited.
    count: usize,
    visited: usize,
    at_once: usize,
    /// Follows the last message that was visited.
    released: u64,
}

impl Mapped {
    pub fn new(endpoint: Endpoint, size: usize) -> Result<Self> {
        Ok(Self {
            mapping: Mapping::new(&endpoint)?,
            endpoint,
            entries: [Entry::default(); RECEIVE_MAX],
            count: 0,
            visited: 0,
            at_once: (CAPACITY / HELD_PART / size).clamp(1, RECEIVE_MAX),
            released: 0,
        })
    }

    /// Releases what was visited, and receives more. False: there is none.
    fn refill(&mut self) -> Result<bool> {
        let entries = self.entries.as_mut_ptr();
        let mut receive = bus::Receive::new(entries, self.at_once, self.released);
        match self.endpoint.call(bus::RECEIVE, &mut receive) {
            Ok(()) => {}
            Err(Errno::EAGAIN) => return Ok(false),
            Err(error) => return Err(error).context("cannot receive messages"),
        }
        self.count = receive.count as usize;
        self.visited = 0;
        ensure!(
            self.count <= self.at_once,
            "too many messages were received"
        );
        Ok(self.count > 0)
    }
}

impl Receiver for Mapped {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        if self.visited == self.count && !self.refill()? {
            return Ok(false);
        }
        let entry = self.entries[self.visited];
        let (offset, length) = (entry.offset as usize, entry.length as usize);
        ensure!(
            offset + length <= BYTES.get(),
            "a message is outside of the mapping"
        );
        // SAFETY: the message is in the mapping, and does not change before it is released.
        visit(unsafe { std::slice::from_raw_parts(self.mapping.0.add(offset).as_ptr(), length) })?;
        self.visited += 1;
        self.released = entry.sequence + 1;
        Ok(true)
    }
}
