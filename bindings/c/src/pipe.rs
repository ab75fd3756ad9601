// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pipes: descriptors for read(2), write(2), poll(2) and close(2), as of a FIFO.

use std::ffi::{c_char, c_int};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::time::Duration;

use sluice::Pipe;
use sluice::pipe::{PipeInfo, Reader};

use crate::error::{Failure, Result};
use crate::input::{check_flags, has, nanoseconds, not_open, options, options_of_c, text};
use crate::options::Channel;
use crate::result::{call, put};

/// A flag in struct sluice_pipe_options: neither the open nor the reads and writes of the descriptor wait.
pub const SLUICE_PIPE_NONBLOCK: u32 = 1;

/// The options of pipes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct PipeOptions {
    /// sizeof(struct sluice_pipe_options), as SLUICE_PIPE_OPTIONS_INIT sets it.
    pub size: usize,
    pub channel: Channel,
    /// SLUICE_PIPE_NONBLOCK.
    pub flags: u32,
    /// Zero.
    pub reserved_word: u32,
    /// Zero.
    pub reserved: [u64; 4],
}

options_of_c! { PipeOptions(88): reserved_word, reserved; }

/// The state of a pipe. The counts of pages are totals since the pipe was created.
#[repr(C)]
pub struct PipeState {
    /// Endpoints open for reading, waiting opens included.
    pub readers: u32,
    /// Endpoints open for writing, waiting opens included.
    pub writers: u32,
    /// Bytes.
    pub capacity: u64,
    /// Bytes written and not yet read.
    pub bytes: u64,
    /// The spin limit of this endpoint.
    pub spin_limit_ns: u64,
    pub pages_allocated: u64,
    /// Pages moved in by splice(2) without a copy.
    pub pages_spliced_in: u64,
    /// Pages moved out by splice(2) without a copy.
    pub pages_spliced_out: u64,
    pub reserved: [u64; 4],
}

impl From<PipeInfo> for PipeState {
    fn from(info: PipeInfo) -> Self {
        Self {
            readers: info.readers,
            writers: info.writers,
            capacity: info.capacity,
            bytes: info.bytes,
            spin_limit_ns: nanoseconds(info.spin_limit),
            pages_allocated: info.pages_allocated,
            pages_spliced_in: info.pages_spliced_in,
            pages_spliced_out: info.pages_spliced_out,
            reserved: [0; 4],
        }
    }
}

/// # Safety
/// As of sluice_pipe_open_reader().
unsafe fn passed(passed: *const PipeOptions) -> Result<(Channel, bool)> {
    // SAFETY: as the caller guarantees.
    let passed = unsafe { options(passed) }?;
    check_flags(passed.flags, SLUICE_PIPE_NONBLOCK)?;
    Ok((passed.channel, has(passed.flags, SLUICE_PIPE_NONBLOCK)))
}

/// # Safety
/// As of sluice_pipe_open_reader().
unsafe fn named(name: *const c_char, options: *const PipeOptions) -> Result<sluice::pipe::Options> {
    // SAFETY: as the caller guarantees.
    unsafe {
        let (channel, nonblocking) = passed(options)?;
        let pipe = channel.apply(Pipe::named(text(name)?))?;
        Ok(pipe.nonblocking(nonblocking))
    }
}

/// A pipe without a name has only the option SLUICE_PIPE_NONBLOCK.
///
/// # Safety
/// As of sluice_pipe_open_reader().
unsafe fn unnamed(options: *const PipeOptions) -> Result<sluice::pipe::Unnamed> {
    // SAFETY: as the caller guarantees.
    let (channel, nonblocking) = unsafe { passed(options) }?;
    channel.check_reserved()?;
    match channel.is_default() {
        true => Ok(Pipe::unnamed().nonblocking(nonblocking)),
        false => Err(Failure::invalid(
            c"a pipe without a name has no options of a channel",
            c"leave them out, or name the pipe",
        )),
    }
}

/// Opens a pipe for reading, and returns a descriptor. Waits for a writer, unless SLUICE_PIPE_NONBLOCK is set. With a name of NULL, opens
/// the pipe of the cgroup of the caller, /dev/sluice/pipe. As read(2) of a FIFO, a read returns 0 when there is no writer. As write(2) to a
/// FIFO, a write without a reader raises SIGPIPE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_pipe_open_reader(
    name: *const c_char,
    options: *const PipeOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let reader = unsafe {
            match name.is_null() {
                true => unnamed(options)?.reader()?,
                false => named(name, options)?.reader()?,
            }
        };
        Ok(OwnedFd::from(reader))
    })
}

/// Opens a pipe for writing, and returns a descriptor. Waits for a reader; with SLUICE_PIPE_NONBLOCK it fails with -ENXIO instead. A
/// name of NULL means the pipe of the cgroup of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_pipe_open_writer(
    name: *const c_char,
    options: *const PipeOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        let writer = unsafe {
            match name.is_null() {
                true => unnamed(options)?.writer()?,
                false => named(name, options)?.writer()?,
            }
        };
        Ok(OwnedFd::from(writer))
    })
}

/// Creates a pipe that exists until it is removed. Fails with -EEXIST if it exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sluice_pipe_create(
    name: *const c_char,
    options: *const PipeOptions,
) -> c_int {
    call(|| {
        // SAFETY: the conventions.
        unsafe { named(name, options) }?.create_persistent()?;
        Ok(())
    })
}

/// An endpoint of either side, which keeps the descriptor open: what is called here does not depend on the side.
fn borrowed(fd: c_int) -> Result<ManuallyDrop<Reader>> {
    if fd < 0 {
        return Err(not_open());
    }
    // SAFETY: it is not closed here. A descriptor that is not open fails the call that uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Ok(ManuallyDrop::new(fd.into()))
}

/// Sets the capacity of a pipe, rounded up to a power of two of pages, and returns it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_pipe_set_capacity(fd: c_int, bytes: u64) -> i64 {
    call(|| Ok(borrowed(fd)?.set_capacity(bytes)?))
}

/// Sets how long a call on this endpoint spins at most before it blocks, in nanoseconds, and returns the effective limit: at most the
/// limit of the module. 0 disables spinning.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_pipe_set_spin_limit(fd: c_int, limit_ns: u64) -> i64 {
    call(|| {
        let limit = borrowed(fd)?.set_spin_limit(Duration::from_nanos(limit_ns))?;
        Ok(nanoseconds(limit))
    })
}

/// Queries the state of the pipe of an endpoint. sluice_channel_query() queries a named pipe without opening it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_pipe_info(fd: c_int, state: Option<&mut MaybeUninit<PipeState>>) -> c_int {
    put(state, || Ok(borrowed(fd)?.info()?))
}
