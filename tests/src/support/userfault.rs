// SPDX-License-Identifier: MIT OR Apache-2.0
//! userfaultfd(2): pages whose first access blocks until user space provides their content.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::unistd::read;
use nix::{ioctl_readwrite, libc};

use super::check::skip;
use super::memory::PAGE;
use super::poll;
use super::time::Deadline;

// From linux/userfaultfd.h.
const UFFD_API: u64 = 0xaa;
const FEATURE_WP_ASYNC: u64 = 1 << 15;
const REGISTER_MODE_MISSING: u64 = 1;
const REGISTER_MODE_WP: u64 = 2;
const EVENT_PAGEFAULT: u8 = 0x12;
const MESSAGE_SIZE: usize = 32;
/// The offset of the address in a page-fault message.
const ADDRESS_AT: usize = 16;

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

/// Memory of this process whose missing pages it provides itself on access.
pub struct UserFault {
    fd: OwnedFd,
}

impl UserFault {
    /// Skips the test if userfaultfd is not available.
    pub fn open() -> Result<Self> {
        Self::with_features(0)?.context("negotiating the userfaultfd API")
    }

    /// Records writes instead of blocking them, which some kernels permit for any mapping. `None`: it is not supported.
    pub fn for_recording_writes() -> Result<Option<Self>> {
        Self::with_features(FEATURE_WP_ASYNC)
    }

    /// `None`: the kernel does not support these features.
    fn with_features(features: u64) -> Result<Option<Self>> {
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
        // SAFETY: a new descriptor, which nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let mut api = UffdioApi {
            api: UFFD_API,
            features,
            ioctls: 0,
        };
        // SAFETY: a valid structure.
        match unsafe { uffdio_api(fd.as_raw_fd(), &mut api) } {
            Ok(_) => Ok(Some(UserFault { fd })),
            Err(Errno::EINVAL) => Ok(None),
            Err(error) => Err(error).context("negotiating the userfaultfd API"),
        }
    }

    /// Makes accesses to missing pages of this range block until `fill`.
    pub fn watch(&self, start: *mut u8, len: usize) -> Result<()> {
        self.register(start, len, REGISTER_MODE_MISSING)
    }

    /// Registers this range for write protection.
    pub fn watch_writes(&self, start: *mut u8, len: usize) -> Result<()> {
        self.register(start, len, REGISTER_MODE_WP)
    }

    fn register(&self, start: *mut u8, len: usize, mode: u64) -> Result<()> {
        let mut register = UffdioRegister {
            range: UffdioRange {
                start: start as u64,
                len: len as u64,
            },
            mode,
            ioctls: 0,
        };
        // SAFETY: a valid structure; the kernel checks the range.
        unsafe { uffdio_register(self.fd.as_raw_fd(), &mut register) }
            .context("registering pages with userfaultfd")?;
        Ok(())
    }

    /// The page of the next page fault, or `None` at the deadline.
    pub fn next(&self, deadline: &Deadline) -> Result<Option<*mut u8>> {
        let mut message = [0; MESSAGE_SIZE];
        loop {
            if !poll::wait_readable(&self.fd, deadline)? {
                return Ok(None);
            }
            match read(&self.fd, &mut message) {
                Ok(_) => return page_of(&message).map(Some),
                // The access was interrupted meanwhile.
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error).context("reading a userfaultfd event"),
            }
        }
    }

    /// Provides the content of this page and ends the fault.
    pub fn fill(&self, page: *mut u8, content: &[u8; PAGE]) -> Result<()> {
        let mut copy = UffdioCopy {
            dst: page as u64,
            src: content.as_ptr() as u64,
            len: PAGE as u64,
            mode: 0,
            copy: 0,
        };
        // SAFETY: a valid structure; the source is a page of ours, and the kernel fills only missing pages.
        match unsafe { uffdio_copy(self.fd.as_raw_fd(), &mut copy) } {
            // An interrupted access that is repeated is reported twice.
            Ok(_) | Err(Errno::EEXIST) => Ok(()),
            Err(error) => Err(error).context("filling a missing page"),
        }
    }
}

fn page_of(message: &[u8; MESSAGE_SIZE]) -> Result<*mut u8> {
    ensure!(
        message[0] == EVENT_PAGEFAULT,
        "userfaultfd reports event {:#x}, expected a page fault",
        message[0]
    );
    let word = message[ADDRESS_AT..ADDRESS_AT + 8].try_into();
    let address = u64::from_ne_bytes(word.expect("eight bytes were taken")) as usize;
    Ok((address & !(PAGE - 1)) as *mut u8)
}
