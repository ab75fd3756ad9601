// SPDX-License-Identifier: MIT OR Apache-2.0
use std::os::fd::OwnedFd;

use sluice_abi as abi;

use super::endpoint::{Reader, Writer};
use super::unnamed::Unnamed;
use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::info::ChannelInfo;
use crate::kind::Kind;
use crate::options::{self, ChannelKind, Creatable, sealed};
use crate::sys::Params;

/// The kind of pipes: where their chains begin.
#[derive(Debug)]
pub enum Pipe {}

impl Pipe {
    /// The pipe of this name.
    pub fn named(name: impl AsRef<[u8]>) -> Options {
        Options::new(name)
    }

    /// The unnamed pipe of the caller's cgroup, `/dev/sluice/pipe`.
    pub fn unnamed() -> Unnamed {
        Unnamed::default()
    }
}

/// The options to open a pipe with. An open blocks until the other side opens the pipe, unless it is nonblocking.
///
/// ```no_run
/// use std::io::Write as _;
///
/// let mut writer = sluice::Pipe::named("frames").create(true).permissions(0o660).writer()?;
/// writer.write_all(b"hello")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Options = options::Options<Pipe>;

impl sealed::Sealed for Pipe {}

impl ChannelKind for Pipe {
    const KIND: Kind = Kind::Pipe;
    type Info = ChannelInfo;
    type OpenError = Error;
    type Own = ();

    fn query(channel: &Channel) -> Result<ChannelInfo> {
        channel.info()
    }
}

impl Creatable for Pipe {
    /// A nonblocking open for reading succeeds without the other side.
    fn open_new(options: &Options) -> Result<OwnedFd> {
        options.clone().nonblocking(true).open_pipe(abi::OPEN_READ)
    }
}

impl Options {
    /// Neither the open nor the reads and writes of the endpoint block, see [`Reader`] and [`Writer`].
    pub fn nonblocking(self, nonblocking: bool) -> Self {
        self.flag(abi::OPEN_NONBLOCK, nonblocking)
    }

    /// Opens the pipe for reading. Blocks until a writer opens it, unless nonblocking. Fails with [`Error::Destroyed`] if it is
    /// destroyed meanwhile.
    pub fn reader(&self) -> Result<Reader> {
        self.open_pipe(abi::OPEN_READ).map(Reader::from)
    }

    /// Opens the pipe for writing. Blocks until a reader opens it; nonblocking, it fails with [`Error::NoReader`] instead.
    pub fn writer(&self) -> Result<Writer> {
        self.open_pipe(abi::OPEN_WRITE).map(Writer::from)
    }

    fn open_pipe(&self, access: u32) -> Result<OwnedFd> {
        self.open_endpoint(access, self.capacity, Params::None)
    }
}
