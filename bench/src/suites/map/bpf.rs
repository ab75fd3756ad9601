// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash map of BPF, used by bpf(2) without any program: memory for all elements is allocated in advance, which is its
//! default. A batch there returns all elements in the order of the buckets, not those of chosen keys, so several gets are
//! one call each, and only the dump uses BPF_MAP_LOOKUP_BATCH.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result};
use nix::errno::Errno;

use super::store::{Client, KEY_SIZE, Key, Resources, Store, VALUE_SIZE, Value, Visit};
use crate::harness::rounds::Skipped;

/// Values of enum bpf_cmd.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_LOOKUP_BATCH: libc::c_long = 24;
const MAP_TYPE_HASH: u32 = 1;
/// Elements of a call; each must have room for the longest list of a bucket.
const DUMP_BATCH: usize = 1024;

/// The first fields of union bpf_attr for MAP_CREATE; the kernel takes the others as 0.
#[repr(C)]
struct CreateAttributes {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

#[repr(C)]
struct ElementAttributes {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// # Safety
/// The attributes are those of the command, and all addresses in them are valid for it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: by the caller.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) })
}

pub fn unavailable(_: &Resources) -> Option<Skipped> {
    let error = Map::new(1).err()?;
    Some(Skipped::unavailable(
        "bpf-map",
        format!("{error:#}; it needs CAP_BPF"),
    ))
}

pub fn create(keys: u64, _: &Resources) -> Result<Box<dyn Store>> {
    Ok(Box::new(Map::new(keys)?))
}

struct Map(Rc<OwnedFd>);

impl Map {
    fn new(keys: u64) -> Result<Self> {
        let mut attributes = CreateAttributes {
            map_type: MAP_TYPE_HASH,
            key_size: KEY_SIZE as u32,
            value_size: VALUE_SIZE as u32,
            max_entries: u32::try_from(keys)?,
            map_flags: 0,
        };
        // SAFETY: the attributes contain no address.
        let fd = unsafe { bpf(MAP_CREATE, &mut attributes) };
        let fd = fd.context("cannot create a map of BPF")?;
        // SAFETY: the call returned a new file descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self(Rc::new(fd)))
    }
}

impl Store for Map {
    fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(User {
            map: Rc::clone(&self.0),
            keys: vec![[0; KEY_SIZE]; DUMP_BATCH],
            values: vec![[0; VALUE_SIZE]; DUMP_BATCH],
            position: None,
            count: 0,
            ended: false,
        }))
    }
}

struct User {
    map: Rc<OwnedFd>,
    keys: Vec<Key>,
    values: Vec<Value>,
    /// Where the next part of a dump begins, and the elements of the last one.
    position: Option<u32>,
    count: usize,
    ended: bool,
}

impl User {
    fn element(&self, key: &Key, value: *const Value) -> ElementAttributes {
        ElementAttributes {
            map_fd: self.map.as_raw_fd() as u32,
            padding: 0,
            key: key.as_ptr() as u64,
            value: value as u64,
            flags: 0,
        }
    }
}

impl Client for User {
    fn get(&mut self, key: &Key, value: &mut Value) -> Result<()> {
        let mut attributes = self.element(key, value);
        // SAFETY: the kernel reads a key and writes a value.
        let result = unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) };
        result.map(drop).context("cannot look up a value of BPF")
    }

    fn set(&mut self, key: &Key, value: &Value) -> Result<()> {
        let mut attributes = self.element(key, value);
        // SAFETY: the kernel reads a key and a value.
        let result = unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) };
        result.map(drop).context("cannot update a value of BPF")
    }

    fn dump_part(&mut self, restart: bool) -> Result<bool> {
        if restart {
            (self.position, self.ended) = (None, false);
        }
        if self.ended {
            return Ok(false);
        }
        let mut next = 0u32;
        let first = self.position.as_ref();
        let mut attributes = BatchAttributes {
            in_batch: first.map_or(0, |position| position as *const u32 as u64),
            out_batch: &raw mut next as u64,
            keys: self.keys.as_mut_ptr() as u64,
            values: self.values.as_mut_ptr() as u64,
            count: DUMP_BATCH as u32,
            map_fd: self.map.as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        // SAFETY: there is room for as many keys and values as the count says, and for both positions.
        match unsafe { bpf(MAP_LOOKUP_BATCH, &mut attributes) } {
            Ok(_) => {}
            Err(Errno::ENOENT) => self.ended = true,
            Err(error) => return Err(error).context("cannot list a map of BPF"),
        }
        self.position = Some(next);
        self.count = attributes.count as usize;
        Ok(self.count > 0)
    }

    fn visit_part(&self, visit: &mut Visit) -> Result<()> {
        let mut elements = self.keys.iter().zip(&self.values).take(self.count);
        elements.try_for_each(|(key, value)| visit(key, value))
    }
}
