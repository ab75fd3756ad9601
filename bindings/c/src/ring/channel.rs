// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings with names, in channels of the module.

use std::ffi::{c_char, c_int};
use std::mem::MaybeUninit;

use sluice::Ring;
use sluice::ring::{RingInfo, RoleState};

use super::consumer::Consumer;
use super::options::RingOptions;
use super::producer::Producer;
use crate::error::Result;
use crate::input::{options, owned, text};
use crate::options::in_scope;
use crate::result::{call, give, put};

pub const SLUICE_RING_ROLE_VACANT: u32 = 0;
pub const SLUICE_RING_ROLE_TAKEN: u32 = 1;
pub const SLUICE_RING_ROLE_CLOSED: u32 = 2;
pub const SLUICE_RING_ROLE_DIED: u32 = 3;
pub const SLUICE_RING_ROLE_DESTROYED: u32 = 4;

/// The state of a ring with a name.
#[repr(C)]
pub struct RingState {
    /// SLUICE_RING_ROLE_VACANT and others.
    pub producer: u32,
    /// SLUICE_RING_ROLE_VACANT and others.
    pub consumer: u32,
    /// Bytes.
    pub capacity: u64,
    /// The position up to which the producer says that it has published.
    pub published: u64,
    /// The position up to which the consumer says that it has released.
    pub released: u64,
    /// The memory node of the data, or -1.
    pub numa_node: i64,
    pub reserved: [u64; 4],
}

impl From<RingInfo> for RingState {
    fn from(info: RingInfo) -> Self {
        Self {
            producer: number(info.producer),
            consumer: number(info.consumer),
            capacity: info.capacity,
            published: info.published,
            released: info.released,
            numa_node: info.numa_node.map_or(-1, i64::from),
            reserved: [0; 4],
        }
    }
}

fn number(state: RoleState) -> u32 {
    match state {
        RoleState::Vacant => SLUICE_RING_ROLE_VACANT,
        RoleState::Taken => SLUICE_RING_ROLE_TAKEN,
        RoleState::Closed => SLUICE_RING_ROLE_CLOSED,
        RoleState::Died => SLUICE_RING_ROLE_DIED,
        RoleState::Destroyed => SLUICE_RING_ROLE_DESTROYED,
        RoleState::Other(number) => number,
        _ => u32::MAX,
    }
}

/// # Safety
/// As of sluice_ring_open_producer().
unsafe fn named(name: *const c_char, passed: *const RingOptions) -> Result<sluice::Options<Ring>> {
    // SAFETY: as the caller guarantees.
    unsafe { options(passed)?.named(text(name)?) }
}

/// Opens the sending side of the ring of this name. Does not wait for the other side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_open_producer(
    name: *const c_char,
    options: *const RingOptions,
    producer: Option<&mut MaybeUninit<*mut Producer>>,
) -> c_int {
    give(producer, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.producer()?)
    })
}

/// Opens the receiving side of the ring of this name. Does not wait for the other side.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_open_consumer(
    name: *const c_char,
    options: *const RingOptions,
    consumer: Option<&mut MaybeUninit<*mut Consumer>>,
) -> c_int {
    give(consumer, || {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.consumer()?)
    })
}

/// Opens an endpoint of the sending side for another process, and returns its descriptor, which that process receives by SCM_RIGHTS or
/// inherits, and passes to sluice_ring_attach_producer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_producer_endpoint(
    name: *const c_char,
    options: *const RingOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.producer_endpoint()?)
    })
}

/// Opens an endpoint of the receiving side for another process, for sluice_ring_attach_consumer(). Returns its descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_consumer_endpoint(
    name: *const c_char,
    options: *const RingOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        Ok(unsafe { named(name, options) }?.consumer_endpoint()?)
    })
}

/// Sets up the sending side on an endpoint that another process has opened. The descriptor belongs to the library from then on, also after
/// a failure. Of the options, max_capacity, spin_limit_ns and SLUICE_RING_MLOCK have an effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_attach_producer(
    fd: c_int,
    options: *const RingOptions,
    producer: Option<&mut MaybeUninit<*mut Producer>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(producer, || {
        // SAFETY: the conventions.
        let options = unsafe { self::options(options) }?.attach()?;
        Ok(options.producer(endpoint?)?)
    })
}

/// Sets up the receiving side on an endpoint that another process has opened. Descriptor and options are treated as by
/// sluice_ring_attach_producer().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_attach_consumer(
    fd: c_int,
    options: *const RingOptions,
    consumer: Option<&mut MaybeUninit<*mut Consumer>>,
) -> c_int {
    // SAFETY: the conventions.
    let endpoint = unsafe { owned(fd) };
    give(consumer, || {
        // SAFETY: the conventions.
        let options = unsafe { self::options(options) }?.attach()?;
        Ok(options.consumer(endpoint?)?)
    })
}

/// Creates a ring that exists until it is removed. Fails with -EEXIST if it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_create(
    name: *const c_char,
    options: *const RingOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        unsafe { named(name, options) }?.create_persistent()?;
        Ok(())
    })
}

/// Queries the state of the ring of this name. The scope has the meaning of `scope` in struct sluice_channel.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_ring_query(
    name: *const c_char,
    scope: *const c_char,
    state: Option<&mut MaybeUninit<RingState>>,
) -> c_int {
    put(state, || {
        // SAFETY: the conventions.
        Ok(unsafe { in_scope(Ring::named(text(name)?), scope) }?.info()?)
    })
}
