// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bus of the module, without spinning, with receivers that block the sender: the guarantee that the rivals give. By
//! plain calls, several messages per call, by mapped memory, and through io_uring.

use std::cell::RefCell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use io_uring::{IoUring, opcode, types};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use sluice_abi::bus::{self, Entry, Frame, Params, RECEIVE_MAX};
use sluice_abi::{CTL_OPEN, KIND_BUS, Open, Setting};
use sluice_abi::{OPEN_CREATE, OPEN_NONBLOCK, OPEN_READ, OPEN_WRITE};
use sluice_testkit::module::SLUICE;

use super::channel::{CAPACITY, Channel, Create, End, Sender, Visit};
use super::conditions::Conditions;
use super::files::{receiver, to_each};
use crate::suites::plan::Plan;
use crate::suites::wakeup::complete;

const CTL: &str = "/dev/sluice/ctl";
const NAME: &str = "fanout";
/// The mapping has the bytes of the bus twice in a row.
const MAPPED_BYTES: NonZeroUsize = NonZeroUsize::new(2 * CAPACITY).unwrap();
/// Messages of a call.
const BATCH: usize = 32;
/// Frames of a batch begin at multiples of this number of bytes.
const ALIGN: usize = 8;
/// At most this part of the ring is held by a receiver of a mapped bus, so that the sender has room.
const HELD_PART: usize = 4;
/// The position argument of a file without positions.
const CURRENT: u64 = u64::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    Plain,
    /// Several messages by one call.
    Batched,
    Mapped,
    /// One request in flight, submitted and completed by one call.
    Uring,
}

pub fn prepare(plan: &Plan, mode: u32, calls: Calls) -> Result<Create> {
    ensure!(Path::new(CTL).exists(), SLUICE.how_to_load());
    let tree = plan.tree.clone().map_err(|skip| anyhow!(skip.reason))?;
    if calls == Calls::Uring {
        ring()?;
    }
    Ok(Rc::new(move |conditions: &Conditions| {
        let scope = tree.create_cgroup()?.directory()?;
        create(&scope, *conditions, mode, calls)
    }))
}

fn create(scope: &File, conditions: Conditions, mode: u32, calls: Calls) -> Result<Channel> {
    let if_mapped = |flag| if calls == Calls::Mapped { flag } else { 0 };
    let format = match calls {
        Calls::Batched => bus::BATCHED,
        _ => bus::RAW,
    };
    let params = Params {
        mode,
        // The queue of a unicast bus has no policies.
        policies: if mode == bus::UNICAST { 0 } else { bus::BLOCK },
        flags: if_mapped(bus::MAPPABLE),
        format,
        ..Params::default()
    };
    let sending = open(scope, OPEN_WRITE | OPEN_CREATE, params)?;
    let params = Params {
        policy: params.policies,
        flags: if_mapped(bus::MAPPED),
        format,
        ..Params::default()
    };
    let flags = match conditions.blocks() {
        true => OPEN_READ,
        false => OPEN_READ | OPEN_NONBLOCK,
    };
    let receiving = (0..conditions.receivers).map(|_| open(scope, flags, params));
    let mut receiving = receiving.collect::<Result<Vec<_>>>()?;
    Ok(Box::new(move |number| match (number, calls) {
        (None, Calls::Plain | Calls::Mapped) => to_each(vec![sending]),
        (None, Calls::Batched) => Ok(batching_sender(sending)),
        (None, Calls::Uring) => uring_sender(sending),
        (Some(number), Calls::Plain) => receiver(receiving.swap_remove(number), conditions.size, 1),
        (Some(number), Calls::Batched) => {
            batching_receiver(receiving.swap_remove(number), conditions.size)
        }
        (Some(number), Calls::Mapped) => {
            mapped_receiver(receiving.swap_remove(number), conditions.size)
        }
        (Some(number), Calls::Uring) => uring_receiver(receiving.swap_remove(number), &conditions),
    }))
}

/// An endpoint that never spins.
fn open(scope: &File, flags: u32, params: Params) -> Result<File> {
    let ctl = File::options().read(true).write(true).open(CTL);
    let ctl = ctl.with_context(|| format!("cannot open {CTL}; run as root"))?;
    let mut open = Open {
        kind: KIND_BUS,
        scope_fd: scope.as_raw_fd(),
        capacity: CAPACITY as u64,
        params: (&raw const params) as u64,
        ..Open::new(NAME, flags)
    };
    let fd = call(&ctl, CTL_OPEN, &mut open).context("cannot open a bus; see 'dmesg | tail'")?;
    // SAFETY: the call returned a new file descriptor.
    let endpoint = unsafe { File::from_raw_fd(fd) };
    call(&endpoint, bus::SET_SPIN, &mut Setting::new(0)).context("cannot turn off spinning")?;
    Ok(endpoint)
}

fn call<T>(file: &File, command: libc::Ioctl, argument: &mut T) -> nix::Result<i32> {
    // SAFETY: the kernel accesses one structure of the size that it begins with, and what that names.
    Errno::result(unsafe { libc::ioctl(file.as_raw_fd(), command, argument) })
}

/// Messages that are sent by one call, with their frames.
struct Batch {
    endpoint: File,
    frames: Vec<u8>,
    count: usize,
}

impl Batch {
    fn push(&mut self, message: &[u8]) -> Result<()> {
        let begin = self.frames.len().next_multiple_of(ALIGN);
        self.frames.resize(begin, 0);
        let frame = Frame::new(u32::try_from(message.len())?, 0);
        self.frames.extend_from_slice(&frame.to_bytes());
        self.frames.extend_from_slice(message);
        self.count += 1;
        match self.count {
            BATCH => self.flush(),
            _ => Ok(()),
        }
    }

    /// A short write ends between two frames.
    fn flush(&mut self) -> Result<()> {
        let sent = self.endpoint.write_all(&self.frames);
        self.frames.clear();
        self.count = 0;
        sent.context("cannot send messages")
    }
}

fn batching_sender(endpoint: File) -> End {
    let batch = Rc::new(RefCell::new(Batch {
        endpoint,
        frames: Vec::new(),
        count: 0,
    }));
    let flushed = Rc::clone(&batch);
    End::Sender(Sender {
        send: Box::new(move |message| batch.borrow_mut().push(message)),
        flush: Box::new(move || flushed.borrow_mut().flush()),
        daemon: None,
    })
}

fn batching_receiver(mut endpoint: File, size: usize) -> Result<End> {
    let step = (Frame::SIZE + size).next_multiple_of(ALIGN);
    let mut buffer = vec![0; BATCH * step];
    // The part of the buffer that was not visited yet.
    let mut pending = 0..0;
    End::receiver(move |visit: Visit| {
        if pending.is_empty() {
            match endpoint.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                read => pending = 0..read.context("cannot receive messages")?,
            }
        }
        let frames = &buffer[pending.clone()];
        let (frame, rest) = frames.split_first_chunk().context("a frame is cut off")?;
        let length = Frame::from_bytes(frame).length as usize;
        visit(rest.get(..length).context("a message is cut off")?)?;
        let step = (Frame::SIZE + length).next_multiple_of(ALIGN);
        pending.start = pending.end.min(pending.start + step);
        Ok(true)
    })
}

/// Reads the messages in mapped memory. Several are received, and released, by one call.
fn mapped_receiver(endpoint: File, size: usize) -> Result<End> {
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
    let (offset, access) = (bus::MMAP_DATA as i64, ProtFlags::PROT_READ);
    // SAFETY: the kernel chooses the address, so the new mapping aliases nothing. It ends with the process.
    let mapping = unsafe { mmap(None, MAPPED_BYTES, access, flags, &endpoint, offset) };
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
            match call(&endpoint, bus::RECEIVE, &mut receive) {
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
        let is_inside = offset + length <= MAPPED_BYTES.get();
        ensure!(is_inside, "a message is outside of the mapping");
        // SAFETY: the message is in the mapping, and does not change before it is released.
        visit(unsafe { std::slice::from_raw_parts(mapping.add(offset).as_ptr(), length) })?;
        released = entry.sequence + 1;
        Ok(true)
    })
}

/// With a single issuer that runs its own completions.
fn ring() -> Result<IoUring> {
    let mut builder = IoUring::builder();
    let ring = builder.setup_single_issuer().setup_defer_taskrun().build(2);
    ring.context("no io_uring; check 'sysctl kernel.io_uring_disabled' (needs Linux 6.1)")
}

fn uring_sender(endpoint: File) -> Result<End> {
    let mut ring = ring()?;
    End::sender(move |message| {
        let fd = types::Fd(endpoint.as_raw_fd());
        let length = u32::try_from(message.len())?;
        let write = opcode::Write::new(fd, message.as_ptr(), length).offset(CURRENT);
        // SAFETY: the message outlives the call.
        let sent = unsafe { complete(&mut ring, &write.build()) }?;
        let sent = sent.context("cannot send a message")?;
        ensure!(sent == message.len(), "a part of a message was sent");
        Ok(())
    })
}

fn uring_receiver(endpoint: File, conditions: &Conditions) -> Result<End> {
    let mut ring = ring()?;
    let mut message = vec![0; conditions.size];
    let length = u32::try_from(message.len())?;
    // io_uring waits on a file with O_NONBLOCK, too, unless the request says otherwise.
    let blocks = conditions.blocks();
    let flags = if blocks { 0 } else { libc::RWF_NOWAIT };
    End::receiver(move |visit: Visit| {
        let fd = types::Fd(endpoint.as_raw_fd());
        let read = opcode::Read::new(fd, message.as_mut_ptr(), length);
        let read = read.offset(CURRENT).rw_flags(flags);
        // SAFETY: the buffer outlives the call, and is not used meanwhile.
        match unsafe { complete(&mut ring, &read.build()) }? {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            read => {
                visit(&message[..read.context("cannot receive a message")?])?;
                Ok(true)
            }
        }
    })
}
