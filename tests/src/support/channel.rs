// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a test opens its pipe, whether that is a FIFO, the cgroup's default pipe or a named pipe.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

use super::check::skip;
use super::ctl::{self, Ctl};

/// The default capacity of a pipe in bytes.
pub const CAPACITY: usize = 65536;
/// The largest atomic write.
pub const PIPE_BUF: usize = libc::PIPE_BUF;

const CLOSED_ON_EXEC: OFlag = OFlag::O_CLOEXEC;

#[derive(Clone, Debug)]
pub enum Channel {
    /// A FIFO, or the node of the default pipe.
    Path(PathBuf),
    /// A channel of this name in the caller's cgroup, created by the first open.
    Name(&'static str),
}

impl Channel {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Channel::Path(path.into())
    }

    /// The path; skips the test if there is none.
    pub fn path(&self) -> Result<&Path> {
        match self {
            Channel::Path(path) => Ok(path),
            Channel::Name(_) => Err(skip("a pipe with a name has no path")),
        }
    }

    pub fn open(&self, flags: OFlag) -> nix::Result<OwnedFd> {
        match self {
            Channel::Path(path) => open(path, flags | CLOSED_ON_EXEC, Mode::empty()),
            Channel::Name(name) => open_named(name, flags),
        }
    }

    /// Blocks until there is a writer.
    pub fn open_reader(&self) -> Result<OwnedFd> {
        self.open(OFlag::O_RDONLY).context("opening for reading")
    }

    /// Blocks until there is a reader.
    pub fn open_writer(&self) -> Result<OwnedFd> {
        self.open(OFlag::O_WRONLY).context("opening for writing")
    }

    pub fn open_read_write(&self) -> Result<OwnedFd> {
        self.open(OFlag::O_RDWR)
            .context("opening for reading and writing")
    }

    /// A reader in non-blocking mode.
    pub fn open_reader_nonblocking(&self) -> Result<OwnedFd> {
        self.open(OFlag::O_RDONLY | OFlag::O_NONBLOCK)
            .context("opening for reading without waiting")
    }

    /// A writer in non-blocking mode; requires a reader.
    pub fn open_writer_nonblocking(&self) -> Result<OwnedFd> {
        self.open(OFlag::O_WRONLY | OFlag::O_NONBLOCK)
            .context("opening for writing without waiting")
    }

    /// Reader and writer in this process, in blocking mode.
    pub fn open_ends(&self) -> Result<(OwnedFd, OwnedFd)> {
        let reader = self.open_reader_nonblocking()?;
        let writer = self.open_writer()?;
        set_blocking(&reader)?;
        Ok((reader, writer))
    }

    /// Reader and writer in this process, in non-blocking mode.
    pub fn open_ends_nonblocking(&self) -> Result<(OwnedFd, OwnedFd)> {
        let reader = self.open_reader_nonblocking()?;
        let writer = self.open_writer_nonblocking()?;
        Ok((reader, writer))
    }
}

/// As with a FIFO, the content is discarded with the last endpoint. Flags that open(2) ignores for a FIFO have no
/// equivalent here.
fn open_named(name: &str, flags: OFlag) -> nix::Result<OwnedFd> {
    let access = match flags & OFlag::O_ACCMODE {
        OFlag::O_RDONLY => ctl::READ,
        OFlag::O_WRONLY => ctl::WRITE,
        OFlag::O_RDWR => ctl::BOTH,
        _ => 0,
    };
    let waiting = match flags.contains(OFlag::O_NONBLOCK) {
        true => ctl::NONBLOCK,
        false => 0,
    };
    let node = open(ctl::NODE, OFlag::O_RDONLY | CLOSED_ON_EXEC, Mode::empty())?;
    Ctl::from(node).open(ctl::Open::new(name, access | waiting | ctl::CREATE))
}

pub fn set_blocking(fd: &impl AsFd) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::empty())).context("making an endpoint wait")?;
    Ok(())
}

pub fn set_nonblocking(fd: &impl AsFd) -> Result<()> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("making an endpoint not wait")?;
    Ok(())
}

/// One read of up to `limit` bytes.
pub fn read_some(fd: &impl AsFd, limit: usize) -> nix::Result<Vec<u8>> {
    let mut bytes = vec![0; limit];
    let count = read(fd, &mut bytes)?;
    Ok(filled_part(bytes, count))
}

/// What a read has stored in its buffer.
fn filled_part(mut bytes: Vec<u8>, count: usize) -> Vec<u8> {
    let limit = bytes.len();
    assert!(
        count <= limit,
        "a read of up to {limit} bytes returned {count}"
    );
    bytes.truncate(count);
    bytes
}

/// One read of up to `limit` bytes with RWF_NOWAIT, whatever the mode of the endpoint.
pub fn read_nowait(fd: &impl AsFd, limit: usize) -> nix::Result<Vec<u8>> {
    let mut bytes = vec![0u8; limit];
    let piece = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: limit,
    };
    // SAFETY: one valid buffer with no other references.
    let count = unsafe { libc::preadv2(fd.as_fd().as_raw_fd(), &piece, 1, -1, libc::RWF_NOWAIT) };
    Ok(filled_part(bytes, Errno::result(count)? as usize))
}

/// One write with RWF_NOWAIT, whatever the mode of the endpoint.
pub fn write_nowait(fd: &impl AsFd, bytes: &[u8]) -> nix::Result<usize> {
    let piece = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: one valid buffer, which the kernel only reads.
    let count = unsafe { libc::pwritev2(fd.as_fd().as_raw_fd(), &piece, 1, -1, libc::RWF_NOWAIT) };
    Ok(Errno::result(count)? as usize)
}

/// Reads exactly `count` bytes, in any number of reads.
pub fn read_all(fd: &impl AsFd, count: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; count];
    let mut filled = 0;
    while filled < count {
        let more = read(fd, &mut bytes[filled..])
            .with_context(|| format!("reading byte {filled} of {count}"))?;
        ensure!(more > 0, "the file ended after {filled} of {count} bytes");
        filled += more;
    }
    Ok(bytes)
}

/// Reads until the end of the file.
pub fn read_to_end(fd: &impl AsFd) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let more = read_some(fd, CAPACITY)
            .with_context(|| format!("reading on after {} bytes", bytes.len()))?;
        if more.is_empty() {
            return Ok(bytes);
        }
        bytes.extend(more);
    }
}

/// Writes everything, in any number of writes.
pub fn write_all(fd: &impl AsFd, bytes: &[u8]) -> Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += write(fd, &bytes[done..])
            .with_context(|| format!("writing byte {done} of {}", bytes.len()))?;
    }
    Ok(())
}

/// Writes whole pages of `byte` until no more fit, and returns the number of bytes. `fd` must be non-blocking.
pub fn fill(fd: &impl AsFd, byte: u8) -> Result<usize> {
    let page = [byte; PIPE_BUF];
    let mut filled = 0;
    loop {
        match write(fd, &page) {
            Ok(count) => filled += count,
            Err(Errno::EAGAIN) => return Ok(filled),
            Err(error) => return Err(error).context("filling the pipe"),
        }
    }
}
