// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use sluice_abi as abi;

use crate::bus::BusInfo;
use crate::control::{Control, State};
use crate::endpoint::{Reader, Writer};
use crate::error::{Error, Owner, Result};
use crate::features::features;
use crate::feed::FeedInfo;
use crate::info::{ChannelInfo, Kind};
use crate::map::{MapInfo, StoreError};
use crate::name::Name;
use crate::ring::RingInfo;
use crate::scope::Scope;

/// The kind of a channel, its name and its scope. A value does not mean that the channel exists.
///
/// ```no_run
/// use sluice::{Channel, Scope};
///
/// let scope = Scope::at("/sys/fs/cgroup/system.slice/example.service")?;
/// let channel = Channel::pipe("frames")?.in_scope(scope);
/// println!("{} bytes are waiting", channel.info()?.bytes);
/// channel.unlink()?;
/// # Ok::<(), sluice::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Channel {
    kind: Kind,
    name: Name,
    scope: Scope,
}

impl Channel {
    /// The pipe of this name in the caller's cgroup.
    pub fn pipe(name: impl AsRef<[u8]>) -> Result<Self> {
        Self::new(Kind::Pipe, name)
    }

    /// The ring of this name in the caller's cgroup, to be opened with [`ring::Options`](crate::ring::Options). Pipes and rings
    /// may have the same name.
    pub fn ring(name: impl AsRef<[u8]>) -> Result<Self> {
        Self::new(Kind::Ring, name)
    }

    /// The feed of this name in the root scope, to be opened with [`Feed::open`](crate::feed::Feed::open).
    pub fn feed(name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self::new(Kind::Feed, name)?.in_scope(Scope::root()))
    }

    /// The bus of this name in the caller's cgroup, to be opened with [`bus::Options`](crate::bus::Options).
    pub fn bus(name: impl AsRef<[u8]>) -> Result<Self> {
        Self::new(Kind::Bus, name)
    }

    /// The map of this name in the caller's cgroup, to be opened with [`map::Options`](crate::map::Options).
    pub fn map(name: impl AsRef<[u8]>) -> Result<Self> {
        Self::new(Kind::Map, name)
    }

    fn new(kind: Kind, name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self {
            kind,
            name: Name::new(name)?,
            scope: Scope::own(),
        })
    }

    /// The channel of the same kind and name in another scope.
    #[must_use]
    pub fn in_scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    pub fn kind(&self) -> Kind {
        self.kind
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
            mode: OpenOptions::DEFAULT_MODE,
            capacity: 0,
        }
    }

    /// Removes the name. Open endpoints stay connected; a channel without endpoints is freed.
    ///
    /// Of a durable map, the daemon first deletes what is stored, and changes are refused from then on. If it does not answer before the
    /// deadline of the map, this fails with [`Error::UnlinkPending`]: the map is removed once it does. If it cannot delete it, this
    /// fails with [`Error::StoreFailed`], and the map is as before.
    pub fn unlink(&self) -> Result<()> {
        self.remove(abi::CTL_UNLINK, "removing")
    }

    /// As [`unlink`](Self::unlink), and ends the channel for the processes that have it open. Of a pipe, unread bytes are discarded, and
    /// reads, writes and blocked opens fail with [`io::ErrorKind::BrokenPipe`]. Both sides of a ring learn that it is destroyed, as
    /// do all endpoints of a bus or a map.
    pub fn destroy(&self) -> Result<()> {
        self.remove(abi::CTL_DESTROY, "destroying")
    }

    fn remove(&self, command: libc::Ioctl, doing: &str) -> Result<()> {
        let mut which = abi::Unlink {
            kind: self.kind.number(),
            ..abi::Unlink::new(self.scope.raw(), self.name.as_bytes())
        };
        let control = Control::open()?;
        repeat_remove(|| control.call_once(command, &mut which))
            .map_err(|error| self.remove_error(doing, error))
    }

    fn remove_error(&self, doing: &str, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EPERM) => Error::NotOwner {
                name: self.name.to_string(),
                scope: self.scope.to_string(),
            },
            Some(libc::ENOTTY) => Error::ModuleTooOld {
                missing: "SLUICE_CTL_DESTROY",
            },
            Some(libc::ETIMEDOUT) => Error::UnlinkPending {
                name: self.name.to_string(),
                scope: self.scope.to_string(),
            },
            // Of a durable map: no limit of channels prevents a removal.
            Some(libc::ENOSPC) => Error::StoreFailed {
                what: self.describe(doing),
                error: StoreError::Full,
            },
            _ => self.error(doing, error),
        }
    }

    /// What has failed.
    fn describe(&self, doing: &str) -> String {
        format!(
            "{doing} the {} '{}' in {}",
            self.kind, self.name, self.scope
        )
    }

    /// The state of the channel, which is not opened for it.
    pub fn info(&self) -> Result<ChannelInfo> {
        let mut info = abi::ChannelInfo::EMPTY;
        let kind = self.kind.number();
        Control::open()?
            .info(kind, self.scope.raw(), self.name.as_bytes(), &mut info)
            .map_err(|error| self.query_error(error))?;
        Ok(info.into())
    }

    /// The state of the ring, which is not opened for it.
    pub fn ring_info(&self) -> Result<RingInfo> {
        self.state::<abi::RingInfo>(Kind::Ring).map(RingInfo::from)
    }

    /// The state of the feed, which is not opened for it.
    pub fn feed_info(&self) -> Result<FeedInfo> {
        self.state::<abi::feed::Info>(Kind::Feed)
            .map(FeedInfo::from)
    }

    /// The state of the bus, which is not opened for it.
    pub fn bus_info(&self) -> Result<BusInfo> {
        self.state::<abi::bus::Info>(Kind::Bus).map(BusInfo::from)
    }

    /// The state of the map, which is not opened for it.
    pub fn map_info(&self) -> Result<MapInfo> {
        self.state::<abi::map::Info>(Kind::Map).map(MapInfo::from)
    }

    fn state<S: State>(&self, kind: Kind) -> Result<S> {
        self.expect_kind(kind, "Channel::info()")?;
        Control::open()?
            .state(self.scope.raw(), self.name.as_bytes())
            .map_err(|error| self.query_error(error))
    }

    fn expect_kind(&self, kind: Kind, instead: &'static str) -> Result<()> {
        match self.kind == kind {
            true => Ok(()),
            false => Err(Error::WrongKind {
                name: self.name.to_string(),
                kind: self.kind,
                instead,
            }),
        }
    }

    fn query_error(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EACCES) => Error::OutsideScope {
                scope: self.scope.to_string(),
            },
            _ => self.error("querying", error),
        }
    }

    /// The errors that all operations on a channel have in common.
    fn error(&self, doing: &str, error: io::Error) -> Error {
        let (name, scope) = (self.name.to_string(), self.scope.to_string());
        match error.raw_os_error() {
            Some(libc::ENOENT) => Error::NotFound {
                kind: self.kind,
                name,
                scope,
            },
            Some(libc::EACCES) => Error::PermissionDenied {
                kind: self.kind,
                name,
                scope,
                owner: None,
            },
            Some(libc::EINVAL) if self.kind == Kind::Ring && !supports(Kind::Ring) => {
                Error::ModuleTooOld { missing: "rings" }
            }
            Some(libc::EINVAL) if self.kind == Kind::Bus && !supports(Kind::Bus) => {
                Error::ModuleTooOld { missing: "buses" }
            }
            Some(libc::EINVAL) if self.kind == Kind::Map && !supports(Kind::Map) => {
                Error::ModuleTooOld { missing: "maps" }
            }
            // A module without feeds knows neither the kind nor the root scope.
            Some(libc::EINVAL | libc::EBADF)
                if self.kind == Kind::Feed && !supports(Kind::Feed) =>
            {
                Error::ModuleTooOld { missing: "feeds" }
            }
            Some(libc::EBADF) => self.scope.not_a_cgroup_directory(),
            errno => {
                let what = self.describe(doing);
                match (errno, StoreError::of_map(self.kind, errno)) {
                    (Some(libc::ETIMEDOUT), _) => Error::StoreTimeout { what },
                    (_, Some(error)) => Error::StoreFailed { what, error },
                    _ => Error::io(what, error),
                }
            }
        }
    }
}

/// Repeats an unlink or a destroy after a signal. That of a durable map may have taken effect meanwhile.
fn repeat_remove(mut remove: impl FnMut() -> io::Result<i32>) -> io::Result<()> {
    let mut interrupted = false;
    loop {
        match remove().map_err(|error| (error.raw_os_error(), error)) {
            Err((Some(libc::EINTR), _)) => interrupted = true,
            Err((Some(libc::ENOENT), _)) if interrupted => return Ok(()),
            other => return other.map(drop).map_err(|(_, error)| error),
        }
    }
}

fn supports(kind: Kind) -> bool {
    features().is_ok_and(|features| features.has_kind(kind))
}

/// The options to open a [`Channel`] with. The default opens an existing channel; that of a pipe blocks until the
/// other side opens it.
///
/// ```no_run
/// use std::io::Write as _;
///
/// let channel = sluice::Channel::pipe("frames")?;
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
    /// The permission bits of a new channel by default: it is accessible by its owner only.
    pub const DEFAULT_MODE: u32 = 0o600;

    /// Creates the channel if it does not exist. An existing channel of another user fails with [`Error::OtherOwner`], because any
    /// user may have taken its name; except a channel of root, or of the owner of the directory of the scope.
    pub fn create(self, create: bool) -> Self {
        self.flag(abi::OPEN_CREATE, create)
    }

    /// With `create`: opens the channel also if another user has created it.
    pub fn any_owner(self, any_owner: bool) -> Self {
        self.flag(abi::OPEN_ANY_OWNER, any_owner)
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

    /// Neither the open nor the reads and writes of the endpoint block, see [`Reader`] and [`Writer`]. No effect on a ring.
    pub fn nonblocking(self, nonblocking: bool) -> Self {
        self.flag(abi::OPEN_NONBLOCK, nonblocking)
    }

    /// The permission bits of a channel that this open creates, as of a file; 0o600 by default.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// The capacity in bytes of a pipe that this open creates, rounded up to a power of two of pages. That of a ring is in
    /// [`ring::Options`](crate::ring::Options::capacity), that of a bus in [`bus::Options`](crate::bus::Options::capacity), that of
    /// a map in [`map::Options`](crate::map::Options::capacity).
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Opens the pipe for reading. Blocks until a writer opens it, unless nonblocking. Fails with [`Error::Destroyed`] if it is
    /// destroyed meanwhile.
    pub fn reader(&self) -> Result<Reader> {
        self.pipe(abi::OPEN_READ).map(Reader::from)
    }

    /// Opens the pipe for writing. Blocks until a reader opens it; nonblocking, it fails with [`Error::NoReader`] instead.
    pub fn writer(&self) -> Result<Writer> {
        self.pipe(abi::OPEN_WRITE).map(Writer::from)
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.capacity != 0
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        self.flags & abi::OPEN_EXCL != 0
    }

    /// Opens an endpoint of a ring.
    pub(crate) fn ring(
        &self,
        side: u32,
        capacity: u64,
        params: &abi::RingParams,
    ) -> Result<OwnedFd> {
        let instead = "OpenOptions::reader() or writer()";
        self.channel.expect_kind(Kind::Ring, instead)?;
        let open = self.structure(side, capacity);
        self.endpoint(Control::open()?.open_ring(&open, params))
    }

    /// Opens an endpoint of a bus.
    pub(crate) fn bus(
        &self,
        access: u32,
        capacity: u64,
        params: &abi::bus::Params,
    ) -> Result<OwnedFd> {
        let instead = "OpenOptions::reader() or writer()";
        self.channel.expect_kind(Kind::Bus, instead)?;
        let open = self.structure(access, capacity);
        self.endpoint(Control::open()?.open_bus(&open, params))
    }

    /// Opens an endpoint of a map.
    pub(crate) fn map(
        &self,
        access: u32,
        capacity: u64,
        params: &abi::map::Params,
    ) -> Result<OwnedFd> {
        let instead = "OpenOptions::reader() or writer()";
        self.channel.expect_kind(Kind::Map, instead)?;
        let open = self.structure(access, capacity);
        self.endpoint(Control::open()?.open_map(&open, params))
    }

    pub(crate) fn channel(&self) -> &Channel {
        self.channel
    }

    /// Opens an endpoint of a feed.
    pub(crate) fn feed(&self) -> Result<OwnedFd> {
        let mut open = self.structure(abi::OPEN_READ, 0);
        self.endpoint(Control::open()?.call(abi::CTL_OPEN, &mut open))
    }

    fn pipe(&self, side: u32) -> Result<OwnedFd> {
        let instead = match self.channel.kind {
            Kind::Feed => "feed::Feed::open()",
            Kind::Bus => "bus::Options::open_sender() or open_subscriber()",
            Kind::Map => "map::Options::open()",
            _ => "ring::Options::open_producer() or open_consumer()",
        };
        self.channel.expect_kind(Kind::Pipe, instead)?;
        let mut open = self.structure(side, self.capacity);
        self.endpoint(Control::open()?.call(abi::CTL_OPEN, &mut open))
    }

    fn flag(mut self, flag: u32, set: bool) -> Self {
        match set {
            true => self.flags |= flag,
            false => self.flags &= !flag,
        }
        self
    }

    fn structure(&self, side: u32, capacity: u64) -> abi::Open {
        abi::Open {
            kind: self.channel.kind.number(),
            scope_fd: self.channel.scope.raw(),
            mode: self.mode,
            capacity,
            ..abi::Open::new(self.channel.name.as_bytes(), self.flags | side)
        }
    }

    fn endpoint(&self, opened: io::Result<i32>) -> Result<OwnedFd> {
        let fd = opened.map_err(|error| self.error(error))?;
        // SAFETY: the kernel has just created this descriptor for the caller, and nothing else uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Why the kernel has answered EACCES.
    fn refused(&self) -> Error {
        let (name, scope) = (
            self.channel.name.to_string(),
            self.channel.scope.to_string(),
        );
        let requires_owner =
            self.flags & (abi::OPEN_CREATE | abi::OPEN_ANY_OWNER) == abi::OPEN_CREATE;
        // SAFETY: it has no preconditions.
        let own = unsafe { libc::geteuid() };
        match self.channel.info() {
            Ok(info) if requires_owner && ![own, 0].contains(&info.uid) => Error::OtherOwner {
                name,
                scope,
                uid: info.uid,
            },
            info => Error::PermissionDenied {
                kind: self.channel.kind,
                name,
                scope,
                owner: info.ok().map(|info| Owner {
                    uid: info.uid,
                    mode: info.mode,
                }),
            },
        }
    }

    fn error(&self, error: io::Error) -> Error {
        let (name, scope) = (&self.channel.name, &self.channel.scope);
        match error.raw_os_error() {
            Some(libc::EEXIST) => Error::AlreadyExists {
                kind: self.channel.kind,
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
            Some(libc::EACCES) => self.refused(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_does_not_open_as_a_pipe() {
        let ring = Channel::ring("frames").unwrap();
        let options = ring.options();
        for error in [options.reader().map(drop), options.writer().map(drop)] {
            let error = error.unwrap_err();
            assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains("'frames' is a ring"), "{text}");
            assert!(text.contains("open_producer"), "{text}");
        }
    }

    #[test]
    fn a_remove_that_a_signal_interrupted_may_have_taken_effect() {
        let remove = |errnos: &[i32]| {
            let mut errnos = errnos.iter();
            repeat_remove(|| match errnos.next() {
                Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
                None => Ok(0),
            })
            .map_err(|error| error.raw_os_error())
        };
        assert_eq!(remove(&[]), Ok(()));
        assert_eq!(remove(&[libc::EINTR]), Ok(()));
        assert_eq!(remove(&[libc::EINTR, libc::EINTR, libc::ENOENT]), Ok(()));
        assert_eq!(remove(&[libc::ENOENT]), Err(Some(libc::ENOENT)));
        assert_eq!(remove(&[libc::EINTR, libc::EIO]), Err(Some(libc::EIO)));
    }

    #[test]
    fn a_removal_fails_by_its_store_and_not_by_a_limit() {
        let map = Channel::map("jobs").unwrap();
        let of = |errno| map.remove_error("removing", io::Error::from_raw_os_error(errno));
        for (errno, word) in [
            (libc::ENOSPC, "no space left"),
            (libc::EROFS, "read-only"),
            (libc::EIO, "input/output"),
            (libc::ETIMEDOUT, "whether sluiced runs"),
        ] {
            let text = crate::explain(&of(errno));
            assert!(text.contains(word), "{text}");
            assert!(text.contains("'jobs'"), "{text}");
            assert!(!text.contains("quota"), "{text}");
        }
    }

    #[test]
    fn a_pipe_has_no_state_of_a_ring() {
        let pipe = Channel::pipe("frames").unwrap();
        let error = pipe.ring_info().unwrap_err();
        assert!(matches!(error, Error::WrongKind { .. }), "{error:?}");
    }
}
