// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of ctl as bytes, so that any of them can be wrong.

use std::ptr;

use anyhow::Result;
use nix::unistd::close;

use super::ctl::{
    BOTH, CREATE, ChannelInfo, Ctl, FEATURES, Features, INFO, Info, LIST, List, Name, OPEN, OWN,
    Open, UNLINK,
};
use super::ioctl::raw_with_result;
use super::memory::{Mapping, PAGE};

/// Where the size of a structure stands.
pub const SIZE_AT: usize = 0;

/// A call that succeeds, as the bytes of its structure.
pub struct Request {
    pub what: &'static str,
    pub command: u64,
    pub bytes: Vec<u8>,
    /// The least size that the call takes.
    pub least: usize,
    /// Whether it writes results into its structure.
    pub answers: bool,
}

fn bytes_of<T: Copy>(structure: &T) -> Vec<u8> {
    // SAFETY: the structures of the interface have no padding, so all of their bytes have a value.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(structure).cast(), size_of::<T>()) }.to_vec()
}

impl Request {
    fn new<T: Copy>(what: &'static str, command: u64, structure: &T, answers: bool) -> Self {
        Request {
            what,
            command,
            bytes: bytes_of(structure),
            least: size_of::<T>(),
            answers,
        }
    }

    pub fn with_word(&self, at: usize, word: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        bytes
    }

    /// These bytes in its place, with zeros behind them.
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

/// Memory for the answers to a list.
pub struct Entries(Mapping);

impl Entries {
    pub fn new() -> Result<Self> {
        Ok(Entries(Mapping::new(1)?))
    }

    pub fn start(&self) -> *mut ChannelInfo {
        self.0.start().cast()
    }
}

/// Of each call one that succeeds, as long as there is "channel"; unlinking comes last.
pub fn requests(entries: &Entries) -> Vec<Request> {
    let list = List::new(OWN, entries.start(), 4);
    let mut all = vec![
        Request::new("features", FEATURES, &Features::default(), true),
        Request::new("open", OPEN, &Open::new("channel", BOTH | CREATE), false),
        Request::new("info", INFO, &Info::new(OWN, "channel"), true),
        Request::new("list", LIST, &list, true),
        Request::new("unlink", UNLINK, &Name::new(OWN, "channel"), false),
    ];
    all[0].least = 4;
    all[2].least = size_of::<Name>();
    all
}
