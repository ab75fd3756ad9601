// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child that is stopped inside a page fault in the middle of a system call, for as long as the test wants:
//! userfaultfd(2) lets user space answer faults, even those that the kernel takes while it copies.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::{ioctl_readwrite, libc};
use serde::{Serialize, de::DeserializeOwned};

use super::check::skip;
use super::child::{Child, spawn_keeping};
use super::memory::{Mapping, PAGE};
use super::notice::Notice;
use super::poll;
use super::time::Deadline;

// From linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const REGISTER_MODE_MISSING: u64 = 1;
const EVENT_PAGEFAULT: u8 = 0x12;
const MESSAGE_SIZE: usize = 32;

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRange {
    start: u64,
    len: u64,
}

#[repr(C)]
struct UffdioRegister {
    range: UffdioRange,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioCopy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copy: i64,
}

ioctl_readwrite!(uffdio_api, 0xaa, 0x3f, UffdioApi);
ioctl_readwrite!(uffdio_register, 0xaa, 0x00, UffdioRegister);
ioctl_readwrite!(uffdio_copy, 0xaa, 0x03, UffdioCopy);

/// Pages that are there, and behind them one whose first touch waits until `resolve`.
pub struct SlowBuffer {
    mapping: Mapping,
    uffd: OwnedFd,
}

impl SlowBuffer {
    fn new(ready_pages: usize) -> Result<Self> {
        let uffd = open_userfaultfd()?;
        let mapping = Mapping::new(ready_pages + 1)?;
        for page in 0..ready_pages {
            // SAFETY: within our own mapping.
            unsafe { mapping.start().add(page * PAGE).write_volatile(0) };
        }
        let mut register = UffdioRegister {
            range: UffdioRange {
                start: mapping.start() as u64 + (ready_pages * PAGE) as u64,
                len: PAGE as u64,
            },
            mode: REGISTER_MODE_MISSING,
            ioctls: 0,
        };
        // SAFETY: a valid structure; the range is ours.
        unsafe { uffdio_register(uffd.as_raw_fd(), &mut register) }
            .context("registering a page with userfaultfd")?;
        Ok(SlowBuffer { mapping, uffd })
    }

    pub fn start(&self) -> *mut u8 {
        self.mapping.start()
    }

    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// What the buffer holds; only once nothing faults any more.
    pub fn to_vec(&self, count: usize) -> Vec<u8> {
        assert!(count <= self.len(), "the buffer has fewer bytes");
        // SAFETY: readable memory of ours that nobody writes meanwhile.
        unsafe { std::slice::from_raw_parts(self.start(), count) }.to_vec()
    }

    fn wait_fault(&self) -> Result<()> {
        let deadline = Deadline::of_patience();
        ensure!(
            poll::wait_readable(&self.uffd, &deadline)?,
            "no page fault within {:?}",
            deadline.span()
        );
        let mut message = [0; MESSAGE_SIZE];
        nix::unistd::read(&self.uffd, &mut message).context("reading a userfaultfd event")?;
        ensure!(
            message[0] == EVENT_PAGEFAULT,
            "userfaultfd reports event {:#x}, expected a page fault",
            message[0]
        );
        Ok(())
    }

    /// Lets whoever touched the slow page go on and find `byte` all over it.
    fn resolve(&self, byte: u8) -> Result<()> {
        let content = [byte; PAGE];
        let mut copy = UffdioCopy {
            dst: self.start() as u64 + (self.len() - PAGE) as u64,
            src: content.as_ptr() as u64,
            len: PAGE as u64,
            mode: 0,
            copy: 0,
        };
        // SAFETY: a valid structure; source and destination are whole pages of ours.
        unsafe { uffdio_copy(self.uffd.as_raw_fd(), &mut copy) }
            .context("resolving a page fault")?;
        Ok(())
    }
}

fn open_userfaultfd() -> Result<OwnedFd> {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: takes flags only.
    let fd = match Errno::result(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }) {
        Ok(fd) => fd,
        Err(Errno::ENOSYS) => {
            return Err(skip("this kernel has no userfaultfd (CONFIG_USERFAULTFD)"));
        }
        Err(Errno::EPERM) => {
            return Err(skip("userfaultfd for the kernel's own faults needs root"));
        }
        Err(error) => return Err(error).context("userfaultfd"),
    };
    // SAFETY: the kernel just gave us this descriptor.
    let uffd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = UffdioApi {
        api: UFFD_API,
        features: 0,
        ioctls: 0,
    };
    // SAFETY: a valid structure.
    unsafe { uffdio_api(uffd.as_raw_fd(), &mut api) }.context("agreeing on the userfaultfd API")?;
    Ok(uffd)
}

/// A child in a page fault.
pub struct Stalled<T> {
    child: Child<T>,
    resume: Notice,
}

/// The byte that the slow page turns out to hold.
pub const SLOW_BYTE: u8 = 0x5a;

/// Runs `body` in a child with a buffer of `ready_pages` pages and a slow one behind them, and returns once the child
/// is in the fault.
pub fn spawn_stalled<T, F>(what: &str, ready_pages: usize, body: F) -> Result<Stalled<T>>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(&SlowBuffer) -> Result<T>,
{
    open_userfaultfd()?;
    let faulted = Notice::new()?;
    let resume = Notice::new()?;
    let keep = [faulted.fds(), resume.fds()].concat();
    let child = spawn_keeping(what, &keep, || {
        let buffer = SlowBuffer::new(ready_pages)?;
        std::thread::scope(|scope| {
            scope
                .spawn(|| answer_fault(&buffer, &faulted, &resume).expect("the fault is answered"));
            body(&buffer)
        })
    })?;
    if let Err(error) = faulted.wait(&format!("{what}: takes its page fault")) {
        if child.has_ended()? {
            child
                .finish()
                .context("the child ended instead of faulting")?;
            bail!("{what}: returned without touching its buffer");
        }
        return Err(error);
    }
    Ok(Stalled { child, resume })
}

// SAFETY: the mapping is used by address only, by the kernel on both threads' behalf.
unsafe impl Sync for SlowBuffer {}

fn answer_fault(buffer: &SlowBuffer, faulted: &Notice, resume: &Notice) -> Result<()> {
    buffer.wait_fault()?;
    faulted.give()?;
    resume.wait("the test lets the fault end")?;
    buffer.resolve(SLOW_BYTE)
}

impl<T: Serialize + DeserializeOwned> Stalled<T> {
    /// Ends the fault and returns what the child returns.
    pub fn resume(self) -> Result<T> {
        self.resume.give()?;
        self.child.finish()
    }

    pub fn kill(self) -> Result<()> {
        self.child.kill()
    }

    pub fn expect_still_stalled(&self) -> Result<()> {
        ensure!(
            !self.child.has_ended()?,
            "the child left its page fault by itself"
        );
        Ok(())
    }
}
