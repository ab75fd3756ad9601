// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends of a pipe, be it the cgroup's own or a named one.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use sluice_abi as abi;

use crate::control::ioctl;
use crate::error::{Error, Result};
use crate::info::PipeInfo;

/// The reading end of a pipe.
///
/// A read returns 0 bytes when there are none and no writer is left. On a nonblocking endpoint it fails with
/// [`io::ErrorKind::WouldBlock`] while a writer has the pipe open and there is nothing to read.
#[derive(Debug)]
pub struct Reader {
    file: File,
}

/// The writing end of a pipe.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] when no reader is left; Rust programs ignore SIGPIPE, and a program
/// that does not is ended by it. On a nonblocking endpoint a write that does not fit fails with
/// [`io::ErrorKind::WouldBlock`] or is short.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

macro_rules! endpoint {
    ($end:ident) => {
        impl $end {
            /// Sets the capacity of the pipe, and returns it: it is rounded up to a power of two of pages.
            pub fn set_capacity(&self, bytes: u64) -> Result<u64> {
                set_capacity(self.as_fd(), bytes)
            }

            /// Sets for how long calls on this end may spin before they sleep, and returns what is in force: at most the
            /// module's own limit. Zero turns spinning off.
            pub fn set_spin_limit(&self, limit: Duration) -> Result<Duration> {
                set_spin_limit(self.as_fd(), limit)
            }

            /// The state of the pipe.
            pub fn info(&self) -> Result<PipeInfo> {
                info(self.as_fd())
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.file.as_fd()
            }
        }

        impl AsRawFd for $end {
            fn as_raw_fd(&self) -> RawFd {
                self.file.as_raw_fd()
            }
        }

        impl From<$end> for OwnedFd {
            fn from(end: $end) -> Self {
                end.file.into()
            }
        }

        /// An endpoint that was inherited or received. That it is one shows with its first use.
        impl From<OwnedFd> for $end {
            fn from(fd: OwnedFd) -> Self {
                Self { file: fd.into() }
            }
        }
    };
}

endpoint!(Reader);
endpoint!(Writer);

impl Read for &Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&self.file).read_vectored(buffers)
    }
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(buffers)
    }
}

impl Write for &Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.file).write(bytes)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&self.file).write_vectored(buffers)
    }

    /// Nothing to do: what was written is in the pipe.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(buffers)
    }

    /// Nothing to do: what was written is in the pipe.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set(fd: BorrowedFd<'_>, command: libc::Ioctl, value: u64) -> io::Result<u64> {
    let mut setting = abi::Setting::new(value);
    ioctl(fd, command, &mut setting)?;
    Ok(setting.value)
}

fn set_capacity(fd: BorrowedFd<'_>, bytes: u64) -> Result<u64> {
    set(fd, abi::PIPE_SET_CAPACITY, bytes).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::CapacityInUse { bytes },
        Some(libc::EPERM) => Error::CapacityLimit { bytes },
        Some(libc::EINVAL) => Error::CapacityRange { bytes },
        _ => Error::io("setting the capacity", error),
    })
}

fn set_spin_limit(fd: BorrowedFd<'_>, limit: Duration) -> Result<Duration> {
    let nanoseconds = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    set(fd, abi::PIPE_SET_SPIN, nanoseconds)
        .map(Duration::from_nanos)
        .map_err(|error| Error::io("setting the spin limit", error))
}

fn info(fd: BorrowedFd<'_>) -> Result<PipeInfo> {
    let mut info = abi::PipeInfo::default();
    ioctl(fd, abi::PIPE_INFO, &mut info)
        .map_err(|error| Error::io("asking for the pipe's state", error))?;
    Ok(info.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Any connected pair of descriptors shows that bytes go through, and what no pipe of ours answers.
    fn ends() -> (Reader, Writer) {
        let (reader, writer) = UnixStream::pair().unwrap();
        (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
    }

    #[test]
    fn bytes_go_through_and_end() {
        let (mut reader, mut writer) = ends();
        writer.write_all(b"some bytes").unwrap();
        drop(writer);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "some bytes");
    }

    #[test]
    fn what_is_no_endpoint_says_so_in_an_error() {
        let (reader, writer) = ends();
        for error in [
            reader.info().unwrap_err(),
            writer.set_capacity(4096).unwrap_err(),
            writer.set_spin_limit(Duration::ZERO).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Io { .. }), "{error:?}");
        }
    }
}
