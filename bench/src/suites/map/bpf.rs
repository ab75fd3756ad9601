// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hash map of BPF, used by bpf(2) without any program: memory for all elements is allocated in advance, which is its
//! default. A batch there returns all elements in the order of the buckets, not chosen keys, so several gets are
//! one call each, and only the dump uses BPF_MAP_LOOKUP_BATCH.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;

use super::store::{
    Client, KEY_SIZE, Key, Stopwatch, Store, StoreResources, VALUE_SIZE, Value, Visit, filled,
};
use crate::harness::rounds::Skipped;

/// Values of enum bpf_cmd.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_LOOKUP_BATCH: libc::c_long = 24;
const MAP_TYPE_HASH: u32 = 1;
/// Elements of a call; each must have room for the longest list of a bucket.
const DUMP_BATCH: usize = 1024;

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
/// The attributes belong to the command, and all addresses in them are valid for it.
unsafe fn bpf<T>(command: libc::c_long, attributes: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: by the caller.
    Errno::result(unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) })
}

pub fn unavailable(_: &StoreResources) -> Option<Skipped> {
    let error = new_map(1).err()?;
    let reason = format!("{error:#}; it needs CAP_BPF");
    Some(Skipped::unavailable("bpf-map", reason))
}

pub fn create(keys: u64, _: &StoreResources) -> Result<Rc<dyn Store>> {
    let map = Rc::new(new_map(u32::try_from(keys)?)?);
    let client = move || -> Result<Box<dyn Client>> {
        Ok(Box::new(User {
            map: Rc::clone(&map),
            keys: vec![[0; KEY_SIZE]; DUMP_BATCH],
            values: vec![[0; VALUE_SIZE]; DUMP_BATCH],
        }))
    };
    filled(client, keys)
}

fn new_map(keys: u32) -> Result<OwnedFd> {
    // The type, the sizes of a key and of a value, the number of elements; the kernel takes the other fields as 0.
    let mut attributes = [MAP_TYPE_HASH, KEY_SIZE as u32, VALUE_SIZE as u32, keys];
    // SAFETY: the attributes contain no address.
    let fd = unsafe { bpf(MAP_CREATE, &mut attributes) };
    let fd = fd.context("cannot create a map of BPF")?;
    // SAFETY: the call returned a new file descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

struct User {
    map: Rc<OwnedFd>,
    keys: Vec<Key>,
    values: Vec<Value>,
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

    fn dump(&mut self, calls: &mut Stopwatch, visit: &mut Visit) -> Result<()> {
        // Where the next call begins.
        let mut position = 0u32;
        let out_batch = &raw mut position as u64;
        let (mut in_batch, mut is_last) = (0, false);
        while !is_last {
            let mut attributes = BatchAttributes {
                in_batch,
                out_batch,
                keys: self.keys.as_mut_ptr() as u64,
                values: self.values.as_mut_ptr() as u64,
                count: DUMP_BATCH as u32,
                map_fd: self.map.as_raw_fd() as u32,
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: there is room for as many keys and values as the count says, and for the position.
            let result = calls.time(|| unsafe { bpf(MAP_LOOKUP_BATCH, &mut attributes) });
            is_last = result == Err(Errno::ENOENT);
            let is_listed = is_last || result.is_ok();
            ensure!(is_listed, "cannot list a map of BPF: {result:?}");
            let elements = self.keys.iter().zip(&self.values);
            for (key, value) in elements.take(attributes.count as usize) {
                visit(key, value)?;
            }
            in_batch = out_batch;
        }
        Ok(())
    }
}
