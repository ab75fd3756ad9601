// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use sluice_abi as abi;

use crate::control::Control;
use crate::endpoint::{Reader, Writer};
use crate::error::{Error, Result};
use crate::info::ChannelInfo;
use crate::name::Name;
use crate::scope::Scope;

/// The name of a pipe and its scope. A value does not mean that the pipe exists.
///
/// ```no_run
/// use sluice::{Channel, Scope};
///
/// let scope = Scope::at("/sys/fs/cgroup/system.slice/example.service")?;
/// let channel = Channel::new("frames")?.in_scope(scope);
/// println!("{} bytes are waiting", channel.info()?.bytes);
/// channel.unlink()?;
/// # Ok::<(), sluice::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    name: Name,
    scope: Scope,
}

impl Channel {
    /// The channel of this name in the caller's cgroup.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self {
            name: Name::new(name)?,
            scope: Scope::own(),
        })
    }

    /// The channel of the same name in another scope.
    #[must_use]
    pub fn in_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// The options to open it with: by default an existing channel, with a blocking open.
    pub fn options(&self) -> OpenOptions<'_> {
        OpenOptions {
            channel: self,
            flags: 0,
            mode: 0o600,
            capacity: 0,
        }
    }

    /// Removes the name. Open endpoints stay connected; a channel without endpoints is freed.
    pub fn unlink(&self) -> Result<()> {
        self.remove(abi::CTL_UNLINK, "removing")
    }

    /// As [`unlink`](Self::unlink), and ends the channel for the processes that have it open: unread bytes are discarded,
    /// and reads, writes and blocked opens fail with [`io::ErrorKind::BrokenPipe`].
    pub fn destroy(&self) -> Result<()> {
        self.remove(abi::CTL_DESTROY, "destroying")
    }

    fn remove(&self, command: libc::Ioctl, doing: &str) -> Result<()> {
        let mut name = abi::Unlink::new(self.scope.raw(), self.name.as_bytes());
        Control::open()?
            .call(command, &mut name)
            .map(drop)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM) => Error::NotOwner {
                    name: self.name.to_string(),
                    scope: self.scope.to_string(),
                },
                Some(libc::ENOTTY) => Error::ModuleTooOld {
                    missing: "SLUICE_CTL_DESTROY",
                },
                _ => self.error(doing, error),
            })
    }

    /// The state of the channel, which is not opened for it.
    pub fn info(&self) -> Result<ChannelInfo> {
        let mut info = abi::ChannelInfo::EMPTY;
        Control::open()?
            .info(self.scope.raw(), self.name.as_bytes(), &mut info)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EACCES) => Error::OutsideScope {
                    scope: self.scope.to_string(),
                },
                _ => self.error("querying", error),
            })?;
        Ok(info.into())
    }

    /// The errors that all operations on a channel have in common.
    fn error(&self, doing: &str, error: io::Error) -> Error {
        let (name, scope) = (self.name.to_string(), self.scope.to_string());
        match error.raw_os_error() {
            Some(libc::ENOENT) => Error::NotFound { name, scope },
            Some(libc::EACCES) => Error::PermissionDenied { name, scope },
            Some(libc::EBADF) => self.scope.not_a_cgroup_directory(),
            _ => Error::io(format!("{doing} the channel '{name}' in {scope}"), error),
        }
    }
}

/// The options to open a [`Channel`] with. The default opens an existing channel and blocks until the other side opens it.
///
/// ```no_run
/// use std::io::Write as _;
///
/// let channel = sluice::Channel::new("frames")?;
/// let mut writer = channel.options().create(true).mode(0o660).writer()?;
/// writer.write_all(b"hello")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct OpenOptions<'a> {
    channel: &'a Channel,
    flags: u32,
    mode: u32,
    capacity: u64,
}

impl OpenOptions<'_> {
    /// Creates the channel if it does not exist.
    pub fn create(self, create: bool) -> Self {
        self.flag(abi::OPEN_CREATE, create)
    }

    /// With `create`: fails with [`Error::AlreadyExists`] if the channel exists.
    pub fn exclusive(self, exclusive: bool) -> Self {
        self.flag(abi::OPEN_EXCL, exclusive)
    }

    /// With `create`: keeps the channel and its bytes without endpoints, until it is unlinked or its cgroup is removed. An
    /// existing channel becomes persistent too; that of another user fails with [`Error::NotOwner`].
    pub fn persistent(self, persistent: bool) -> Self {
        self.flag(abi::OPEN_PERSIST, persistent)
    }

    /// Neither the open nor the reads and writes of the endpoint block, see [`Reader`] and [`Writer`].
    pub fn nonblocking(self, nonblocking: bool) -> Self {
        self.flag(abi::OPEN_NONBLOCK, nonblocking)
    }

    /// The permission bits of a channel that this open creates, as of a file; 0o600 by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The capacity in bytes of a channel that this open creates, rounded up to a power of two of pages.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Opens the channel for reading. Blocks until a writer opens it, unless nonblocking. Fails with [`Error::Destroyed`] if
    /// the channel is destroyed meanwhile.
    pub fn reader(&self) -> Result<Reader> {
        self.open(abi::OPEN_READ).map(Reader::from)
    }

    /// Opens the channel for writing. Blocks until a reader opens it; nonblocking, it fails with [`Error::NoReader`] instead.
    pub fn writer(&self) -> Result<Writer> {
        self.open(abi::OPEN_WRITE).map(Writer::from)
    }

    fn flag(mut self, flag: u32, set: bool) -> Self {
        match set {
            true => self.flags |= flag,
            false => self.flags &= !flag,
        }
        self
    }

    fn open(&self, side: u32) -> Result<OwnedFd> {
        let mut open = abi::Open {
            scope_fd: self.channel.scope.raw(),
            mode: self.mode,
            capacity: self.capacity,
            ..abi::Open::new(self.channel.name.as_bytes(), self.flags | side)
        };
        let fd = Control::open()?
            .call(abi::CTL_OPEN, &mut open)
            .map_err(|error| self.error(error))?;
        // SAFETY: the kernel has just created this descriptor for the caller, and nothing else uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn error(&self, error: io::Error) -> Error {
        let (name, scope) = (&self.channel.name, &self.channel.scope);
        match error.raw_os_error() {
            Some(libc::EEXIST) => Error::AlreadyExists {
                name: name.to_string(),
                scope: scope.to_string(),
            },
            Some(libc::EPIPE) => Error::Destroyed {
                name: name.to_string(),
                scope: scope.to_string(),
            },
            Some(libc::ENXIO) => Error::NoReader {
                what: format!("'{name}' in {scope}"),
            },
            Some(libc::EPERM) if self.capacity > 0 => Error::CapacityLimit {
                bytes: self.capacity,
            },
            Some(libc::EPERM) => Error::NotOwner {
                name: name.to_string(),
                scope: scope.to_string(),
            },
            Some(libc::EINVAL) if self.capacity > 0 => Error::CapacityRange {
                bytes: self.capacity,
            },
            _ => self.channel.error("opening", error),
        }
    }
}
