// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of ctl as bytes, any of which a test can change.

use std::ptr;

use anyhow::Result;
use nix::unistd::close;

use super::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, FEATURES, Features, INFO, Info, LIST, List, OPEN, OWN, Open,
    UNLINK, Unlink,
};
use super::ioctl::raw_with_result;
use super::memory::{Mapping, PAGE};

/// The offset of a structure's size.
pub const SIZE_AT: usize = 0;

/// A valid call, as the bytes of its structure.
pub struct Request {
    pub what: &'static str,
    pub command: u64,
    pub bytes: Vec<u8>,
    /// Whether the kernel writes results into the structure.
    pub answers: bool,
    /// Whether the kernel reads nothing of the structure but its size.
    pub output_only: bool,
}

pub fn bytes_of<T: Copy>(structure: &T) -> Vec<u8> {
    // SAFETY: the structures of the interface have no padding, so all of their bytes have a value.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(structure).cast(), size_of::<T>()) }.to_vec()
}

impl Request {
    fn new<T: Copy>(what: &'static str, command: u64, structure: &T, answers: bool) -> Self {
        Request {
            what,
            command,
            bytes: bytes_of(structure),
            answers,
            output_only: command == FEATURES,
        }
    }

    pub fn with_word(&self, at: usize, word: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        bytes
    }

    /// Sends these bytes instead, followed by zeros.
    pub fn send(&self, ctl: &Ctl, bytes: &[u8]) -> nix::Result<()> {
        let mut page = vec![0; PAGE];
        page[..bytes.len()].copy_from_slice(bytes);
        self.send_at(ctl, page.as_mut_ptr())
    }

    pub fn send_at(&self, ctl: &Ctl, start: *mut u8) -> nix::Result<()> {
        let result = raw_with_result(ctl, self.command, start)?;
        if self.command == OPEN {
            close(result)?;
        }
        Ok(())
    }
}

/// Memory for results outside of the structures.
pub struct Entries(Mapping);

impl Entries {
    const LISTED: usize = 4;

    pub fn new() -> Result<Self> {
        let entries = Entries(Mapping::new(1)?);
        // SAFETY: within our own mapping, to which no Rust reference exists.
        unsafe { entries.info().write(ChannelInfo::EMPTY) };
        Ok(entries)
    }

    pub fn start(&self) -> *mut ChannelInfo {
        self.0.start().cast()
    }

    /// The entry after those of the list.
    fn info(&self) -> *mut ChannelInfo {
        self.start().wrapping_add(Self::LISTED)
    }
}

/// A valid request of each call, provided that "channel" exists; unlink comes last.
pub fn requests(entries: &Entries) -> Vec<Request> {
    let info = Info::new(OWN, "channel", entries.info());
    let list = List::new(OWN, entries.start(), Entries::LISTED);
    vec![
        Request::new("features", FEATURES, &Features::default(), true),
        Request::new("open", OPEN, &Open::new("channel", BOTH | CREATE), false),
        Request::new("info", INFO, &info, false),
        Request::new("list", LIST, &list, true),
        Request::new("unlink", UNLINK, &Unlink::new(OWN, "channel"), false),
    ]
}
