// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls of a bus with addresses in their structures.

use std::io;
use std::os::fd::BorrowedFd;

use sluice_abi::bus;

use crate::sys::{checked, raw, retry};

/// Releases all messages before the sequence `released`, and receives up to the length of `entries`. Returns their number.
pub(super) fn receive(
    fd: BorrowedFd<'_>,
    released: u64,
    entries: &mut [bus::Entry],
) -> io::Result<usize> {
    let mut receive = bus::Receive::new(entries.as_mut_ptr(), entries.len(), released);
    // SAFETY: the address is that of `count` entries, accessed by nothing else until the call returns; any bytes are a valid entry.
    retry(|| checked(unsafe { raw(fd, bus::RECEIVE, &raw mut receive) }))?;
    Ok((receive.count as usize).min(entries.len()))
}

/// The subscribers of a bus after the one with the id `after`, up to the length of `entries`. Returns their number.
pub(super) fn subscribers(
    fd: BorrowedFd<'_>,
    after: u64,
    entries: &mut [bus::SubscriberInfo],
) -> io::Result<usize> {
    let mut list = bus::Subscribers::new(after, entries.as_mut_ptr(), entries.len());
    // SAFETY: as in receive().
    retry(|| checked(unsafe { raw(fd, bus::SUBSCRIBERS, &raw mut list) }))?;
    Ok((list.count as usize).min(entries.len()))
}
