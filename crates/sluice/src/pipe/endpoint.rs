// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two ends of a pipe, unnamed or named.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use sluice_abi as abi;

use super::info::PipeInfo;
use crate::error::{Error, Result};
use crate::sys::{ioctl, set, set_spin_limit};

/// The reading end of a pipe.
///
/// A read of an empty pipe returns 0 bytes (end of stream) when no writer has it open. While a writer has it open, the read
/// blocks, or fails with [`io::ErrorKind::WouldBlock`] on a nonblocking endpoint. After
/// [`Channel::destroy`](crate::Channel::destroy) it fails with [`io::ErrorKind::BrokenPipe`].
#[derive(Debug)]
pub struct Reader {
    file: File,
}

/// The writing end of a pipe.
///
/// A write fails with [`io::ErrorKind::BrokenPipe`] when no reader has the pipe open, and after
/// [`Channel::destroy`](crate::Channel::destroy); SIGPIPE, which Rust programs ignore,
/// terminates other programs. On a nonblocking endpoint a write that does not fit is short or fails with
/// [`io::ErrorKind::WouldBlock`].
#[derive(Debug)]
pub struct Writer {
    file: File,
}

macro_rules! endpoint {
    ($end:ident) => {
        impl $end {
            /// Sets the capacity of the pipe, rounded up to a power of two of pages, and returns it.
            pub fn set_capacity(&self, bytes: u64) -> Result<u64> {
                set_capacity(self.as_fd(), bytes)
            }

            /// Sets how long a call on this endpoint spins at most before it blocks, and returns the effective limit: at most
            /// the module's limit. Zero disables spinning.
            pub fn set_spin_limit(&self, limit: Duration) -> Result<Duration> {
                set_spin_limit(self.as_fd(), abi::PIPE_SET_SPIN, limit)
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

        /// An inherited or received endpoint. The first use fails if the descriptor is not one.
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

    /// Does nothing: every write puts its bytes into the pipe.
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

    /// Does nothing: every write puts its bytes into the pipe.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn set_capacity(fd: BorrowedFd<'_>, bytes: u64) -> Result<u64> {
    set(fd, abi::PIPE_SET_CAPACITY, bytes).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => Error::CapacityInUse { bytes },
        Some(libc::EPERM) => Error::CapacityLimit { bytes },
        Some(libc::EINVAL) => Error::CapacityRange { bytes },
        _ => Error::io("setting the capacity", error),
    })
}

fn info(fd: BorrowedFd<'_>) -> Result<PipeInfo> {
    let mut info = abi::PipeInfo::default();
    ioctl(fd, abi::PIPE_INFO, &mut info).map_err(|error| Error::io("querying the pipe", error))?;
    Ok(info.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Socket descriptors: they transfer bytes and fail every ioctl of a pipe.
    fn ends() -> (Reader, Writer) {
        let (reader, writer) = UnixStream::pair().unwrap();
        (OwnedFd::from(reader).into(), OwnedFd::from(writer).into())
    }

    #[test]
    fn bytes_and_the_end_of_stream_arrive() {
        let (mut reader, mut writer) = ends();
        writer.write_all(b"some bytes").unwrap();
        drop(writer);
        let mut all = String::new();
        reader.read_to_string(&mut all).unwrap();
        assert_eq!(all, "some bytes");
    }

    #[test]
    fn an_ioctl_on_another_descriptor_fails() {
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
