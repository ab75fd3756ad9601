// SPDX-License-Identifier: MIT OR Apache-2.0
//! A subscriber that reads the messages of a bus in mapped memory. Several are received, and released, by one call.

use std::fs::File;
use std::num::NonZeroUsize;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use sluice_abi::bus::{self, Entry, RECEIVE_MAX};

use super::endpoint;
use crate::suites::fanout::channel::{CAPACITY, End, Visit};

/// The mapping has the bytes of the bus twice in a row.
const BYTES: NonZeroUsize = NonZeroUsize::new(2 * CAPACITY).unwrap();
/// At most this part of the ring is held by a receiver, so that the sender has room.
const HELD_PART: usize = 4;

pub fn receiver(endpoint: File, size: usize) -> Result<End> {
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
    let (offset, access) = (bus::MMAP_DATA as i64, ProtFlags::PROT_READ);
    // SAFETY: the kernel chooses the address, so the new mapping aliases nothing. It is never unmapped: the process of a receiver
    // ends with it.
    let mapping = unsafe { mmap(None, BYTES, access, flags, &endpoint, offset) };
    let mapping = mapping.context("cannot map a bus")?.cast::<u8>();
    let at_once = (CAPACITY / HELD_PART / size).clamp(1, RECEIVE_MAX);
    let mut entries = [Entry::default(); RECEIVE_MAX];
    // The entries of the last call that were not visited yet.
    let mut pending = 0..0;
    // Follows the last message that was visited.
    let mut released = 0;
    End::receiver(move |visit: Visit| {
        if pending.is_empty() {
            let mut receive = bus::Receive::new(entries.as_mut_ptr(), at_once, released);
            match endpoint::call(&endpoint, bus::RECEIVE, &mut receive) {
                Err(Errno::EAGAIN) => return Ok(false),
                received => received.context("cannot receive messages")?,
            };
            pending = 0..receive.count as usize;
            ensure!(pending.end <= at_once, "too many messages were received");
        }
        let Some(next) = pending.next() else {
            return Ok(false);
        };
        let entry = entries[next];
        let (offset, length) = (entry.offset as usize, entry.length as usize);
        ensure!(
            offset + length <= BYTES.get(),
            "a message is outside of the mapping"
        );
        // SAFETY: the message is in the mapping, and does not change before it is released.
        visit(unsafe { std::slice::from_raw_parts(mapping.add(offset).as_ptr(), length) })?;
        released = entry.sequence + 1;
        Ok(true)
    })
}
