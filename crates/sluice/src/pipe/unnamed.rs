// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use super::endpoint::{Reader, Writer};
use crate::error::{Error, Result};
use crate::sys::{PIPE_NODE, node_error};

/// The options to open the unnamed pipe of the caller's cgroup with, `/dev/sluice/pipe`.
///
/// The first open in the cgroup creates it, and the close of the last endpoint frees it.
///
/// ```no_run
/// use std::io::Write as _;
///
/// let mut writer = sluice::Pipe::unnamed().writer()?; // waits for a reader
/// writer.write_all(b"hello")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Unnamed {
    nonblocking: bool,
}

impl Unnamed {
    /// Neither the open nor the reads and writes of the endpoint block, see [`Reader`] and [`Writer`].
    pub fn nonblocking(mut self, nonblocking: bool) -> Self {
        self.nonblocking = nonblocking;
        self
    }

    /// Opens the pipe for reading. Blocks until a writer opens it, unless nonblocking.
    pub fn reader(&self) -> Result<Reader> {
        self.open(File::options().read(true)).map(Reader::from)
    }

    /// Opens the pipe for writing. Blocks until a reader opens it; nonblocking, it fails with [`Error::NoReader`] instead.
    pub fn writer(&self) -> Result<Writer> {
        self.open(File::options().write(true)).map(Writer::from)
    }

    fn open(&self, options: &mut std::fs::OpenOptions) -> Result<OwnedFd> {
        if self.nonblocking {
            options.custom_flags(libc::O_NONBLOCK);
        }
        options
            .open(PIPE_NODE)
            .map(OwnedFd::from)
            .map_err(open_error)
    }
}

fn open_error(error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::ENXIO) => Error::NoReader {
            what: "the default pipe".to_owned(),
        },
        _ => node_error(PIPE_NODE, error),
    }
}
