// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints of a device ring, by bare ioctls.

use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::mm::ProtFlags;

use crate::DATA;
use crate::memory::Memory;

const CTL: &str = "/dev/sluice/ctl";
const CTL_OPEN: Opcode = 0x4068_c710;
const CTL_DESTROY: Opcode = 0x4050_c715;
const RING_WAKE: Opcode = 0x0000_c720;
const RING_DETACH: Opcode = 0x0000_c722;

const KIND_RING: u32 = 2;
const OPEN_READ: u32 = 1;
const OPEN_WRITE: u32 = 2;
const OPEN_CREATE: u32 = 4;
const SCOPE_SELF: u32 = -1_i32 as u32;

const MMAP_PRODUCER: u64 = 0;
const MMAP_CONSUMER: u64 = 0x10_0000;
const MMAP_DATA: u64 = 0x20_0000;

/// The size of a control page.
const PAGE: usize = DATA;

/// The role of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Producer,
    Consumer,
}

/// An endpoint of a device ring.
#[derive(Debug)]
pub struct Endpoint(OwnedFd);

/// A name that no other ring of this machine has.
pub fn unused_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("test-{}-{count}", process::id())
}

/// A structure of /dev/sluice/ctl, which begins with size, kind, flags, scope_fd and name.
#[repr(C, align(8))]
struct Argument<const SIZE: usize>([u8; SIZE]);

impl<const SIZE: usize> Argument<SIZE> {
    fn new(flags: u32, name: &str) -> Self {
        let mut argument = Self([0; SIZE]);
        argument.set(0, &(SIZE as u32).to_ne_bytes());
        argument.set(4, &KIND_RING.to_ne_bytes());
        argument.set(8, &flags.to_ne_bytes());
        argument.set(12, &SCOPE_SELF.to_ne_bytes());
        assert!(name.len() < 64, "{name}");
        argument.set(16, name.as_bytes());
        argument
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// A call with the address of its argument, or without one.
struct Call {
    opcode: Opcode,
    argument: *mut c_void,
}

// SAFETY: both constructors of the value pass an argument that the call takes, or none to a call that takes none.
unsafe impl Ioctl for Call {
    type Output = IoctlOutput;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.opcode
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(returned: IoctlOutput, _: *mut c_void) -> Result<IoctlOutput, Errno> {
        Ok(returned)
    }
}

/// Calls an ioctl of /dev/sluice/ctl with a structure of its size.
fn control<const SIZE: usize>(
    opcode: Opcode,
    mut argument: Argument<SIZE>,
) -> Result<IoctlOutput, Errno> {
    let control = File::open(CTL).expect("the module is not loaded");
    let argument = (&raw mut argument).cast();
    // SAFETY: the structure has the size that its first word says, and contains no address.
    unsafe { ioctl(&control, Call { opcode, argument }) }
}

/// The access of a side to its own memory, and to that of its peer.
pub(crate) const OWN: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
pub(crate) const PEERS: ProtFlags = ProtFlags::READ;

/// Destroys the device ring of this name.
pub fn destroy(name: &str) {
    control(CTL_DESTROY, Argument::<80>::new(0, name)).expect("not destroyed");
}

impl Endpoint {
    /// Opens a role of the device ring of this name, which it creates if necessary.
    pub fn open(name: &str, role: Role, capacity: usize) -> Self {
        let side = match role {
            Role::Producer => OPEN_WRITE,
            Role::Consumer => OPEN_READ,
        };
        let mut argument = Argument::<104>::new(side | OPEN_CREATE, name);
        argument.set(80, &0o600_u32.to_ne_bytes());
        argument.set(88, &(capacity as u64).to_ne_bytes());
        let fd = control(CTL_OPEN, argument).expect("not opened");
        // SAFETY: the call returns a new descriptor.
        Self(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Wakes the peer, whatever `wake_seq` is.
    pub fn wake(&self) -> Result<(), Errno> {
        self.call(RING_WAKE)
    }

    /// Ends this role. Mappings remain.
    pub fn detach(&self) -> Result<(), Errno> {
        self.call(RING_DETACH)
    }

    fn call(&self, opcode: Opcode) -> Result<(), Errno> {
        let argument = std::ptr::null_mut();
        // SAFETY: both calls take no argument.
        unsafe { ioctl(&self.0, Call { opcode, argument }) }.map(drop)
    }

    /// The control page of the producer, and the data at [`DATA`].
    pub fn map_producer(&self, capacity: usize, access: ProtFlags) -> Memory {
        let memory = Memory::reserve(PAGE + 2 * capacity);
        memory.replace(0, &self.0, MMAP_PRODUCER, PAGE, access);
        memory.replace(DATA, &self.0, MMAP_DATA, 2 * capacity, access);
        memory
    }

    /// The control page of the consumer.
    pub fn map_consumer(&self, access: ProtFlags) -> Memory {
        let memory = Memory::reserve(PAGE);
        memory.replace(0, &self.0, MMAP_CONSUMER, PAGE, access);
        memory
    }
}

impl From<Endpoint> for OwnedFd {
    fn from(endpoint: Endpoint) -> Self {
        endpoint.0
    }
}

impl From<OwnedFd> for Endpoint {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}
