// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ffi::{OsStr, OsString};
use std::fmt::Debug;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use sluice_abi as abi;

use crate::channel::Channel;
use crate::error::Result;
use crate::kind::Kind;
use crate::scope::Scope;
use crate::sys::{Control, Params};

/// The permission bits of a new channel by default: only its owner has access.
pub const DEFAULT_PERMISSIONS: u32 = 0o600;

/// A kind of channels with names: [`Pipe`](crate::Pipe), [`Ring`](crate::Ring), [`Bus`](crate::Bus), [`Map`](crate::Map) or
/// [`Feed`](crate::Feed).
pub trait ChannelKind: sealed::Sealed + Sized {
    const KIND: Kind;
    /// The state of a channel.
    type Info;
    /// Why a channel was not opened.
    type OpenError;
    /// The options that only this kind has.
    #[doc(hidden)]
    type Own: Clone + Debug + Default;
    /// The capacity if none is given. 0: the module's default.
    #[doc(hidden)]
    const DEFAULT_CAPACITY: u64 = 0;

    #[doc(hidden)]
    fn query(channel: &Channel) -> Result<Self::Info>;
}

/// A kind of channels that programs create: all kinds but feeds.
pub trait Creatable: ChannelKind {
    /// Opens an endpoint, to create the channel.
    #[doc(hidden)]
    fn open_new(options: &Options<Self>) -> std::result::Result<OwnedFd, Self::OpenError>;
}

/// Only the kinds of this library implement the traits.
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The options to open a channel of a kind with. `named` of the kind begins the chain, and a call that opens, queries or removes the
/// channel ends it. By default a chain opens an existing channel of the caller's cgroup.
///
/// `named` takes any bytes. The call that ends the chain fails with [`Error::InvalidName`](crate::Error::InvalidName) if no channel can
/// have that name.
///
/// ```no_run
/// use sluice::{Bus, Scope};
///
/// let scope = Scope::at("/sys/fs/cgroup/system.slice/example.service")?;
/// let news = Bus::named("news").scope(scope).create(true).permissions(0o660).capacity(4 << 20);
/// let subscriber = news.subscriber()?;
/// println!("{} subscribers", news.info()?.subscribers);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An option that a kind lacks does not exist:
///
/// ```compile_fail,E0599
/// sluice::Ring::named("prices").nonblocking(true);
/// ```
#[derive(Debug)]
#[must_use]
pub struct Options<K: ChannelKind> {
    /// Not validated.
    name: OsString,
    scope: Scope,
    /// abi::OPEN_*, without the access.
    flags: u32,
    permissions: u32,
    pub(crate) capacity: u64,
    pub(crate) own: K::Own,
}

impl<K: ChannelKind> Options<K> {
    pub(crate) fn new(name: impl AsRef<[u8]>) -> Self {
        Self {
            name: OsStr::from_bytes(name.as_ref()).to_owned(),
            scope: Scope::of_kind(K::KIND),
            flags: 0,
            permissions: DEFAULT_PERMISSIONS,
            capacity: K::DEFAULT_CAPACITY,
            own: K::Own::default(),
        }
    }

    /// The kind, name and scope of the channel.
    pub fn channel(&self) -> Result<Channel> {
        Ok(Channel::new(K::KIND, self.name.as_bytes())?.in_scope(self.scope.clone()))
    }

    /// The state of the channel, which is not opened for it.
    pub fn info(&self) -> Result<K::Info> {
        K::query(&self.channel()?)
    }

    pub(crate) fn flag(mut self, flag: u32, set: bool) -> Self {
        match set {
            true => self.flags |= flag,
            false => self.flags &= !flag,
        }
        self
    }

    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Opens an endpoint with an access, abi::OPEN_READ and OPEN_WRITE.
    pub(crate) fn open_endpoint(
        &self,
        access: u32,
        capacity: u64,
        params: Params<'_>,
    ) -> Result<OwnedFd> {
        let channel = self.channel()?;
        let open = self.structure(&channel, access, capacity);
        let fd = Control::open()?
            .open_channel(&open, params)
            .map_err(|error| channel.open_error(&open, error))?;
        // SAFETY: the kernel has just created this descriptor for the caller, and nothing else uses it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn structure(&self, channel: &Channel, access: u32, capacity: u64) -> abi::Open {
        abi::Open {
            kind: K::KIND.number(),
            scope_fd: self.scope.scope_fd(),
            mode: self.permissions,
            capacity,
            ..abi::Open::new(channel.name().as_bytes(), self.flags | access)
        }
    }
}

impl<K: Creatable> Options<K> {
    /// The scope of the channel; by default the caller's cgroup.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Creates the channel if it does not exist. An existing channel of another user fails with
    /// [`Error::OtherOwner`](crate::Error::OtherOwner), because any user may have taken its name; except a channel of root, or of the
    /// owner of the directory of the scope.
    pub fn create(self, create: bool) -> Self {
        self.flag(abi::OPEN_CREATE, create)
    }

    /// With `create`: opens the channel also if another user has created it.
    pub fn any_owner(self, any_owner: bool) -> Self {
        self.flag(abi::OPEN_ANY_OWNER, any_owner)
    }

    /// With `create`: fails with [`Error::AlreadyExists`](crate::Error::AlreadyExists) if the channel exists.
    pub fn exclusive(self, exclusive: bool) -> Self {
        self.flag(abi::OPEN_EXCL, exclusive)
    }

    /// With `create`: keeps the channel and its content without endpoints, until it is unlinked or its cgroup is removed. An
    /// existing channel becomes persistent too; that of another user fails with [`Error::NotOwner`](crate::Error::NotOwner).
    pub fn persistent(self, persistent: bool) -> Self {
        self.flag(abi::OPEN_PERSIST, persistent)
    }

    /// The permission bits of a channel that this open creates, as of a file; [`DEFAULT_PERMISSIONS`] by default.
    pub fn permissions(mut self, bits: u32) -> Self {
        self.permissions = bits;
        self
    }

    /// The capacity in bytes of a channel that this open creates. An existing channel keeps its own.
    ///
    /// | | by default | at most | |
    /// |---|---|---|---|
    /// | pipe | 16 pages | 1 GiB; above pipe_max_size with CAP_SYS_RESOURCE only | rounded up to a power of two of pages |
    /// | ring | 4 MiB | 256 MiB | rounded up to a power of two of at least a page; see [`ring::SocketOptions::capacity`](crate::ring::SocketOptions::capacity) |
    /// | bus | 1 MiB | 256 MiB | rounded up to a power of two of at least a page. A message has at most half of it less 64 bytes, and at most 1 MiB, or 64 KiB on a PREEMPT_RT kernel |
    /// | map | 4 MiB | 64 GiB | the bytes of keys and values, about 200 per entry, and about 32 per [event](crate::map::Options::events) |
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// Creates a channel that exists until it is removed. Fails if it exists.
    pub fn create_persistent(&self) -> std::result::Result<(), K::OpenError> {
        let flags = abi::OPEN_CREATE | abi::OPEN_EXCL | abi::OPEN_PERSIST;
        K::open_new(&self.clone().flag(flags, true)).map(drop)
    }

    /// As [`Channel::unlink`].
    pub fn unlink(&self) -> Result<()> {
        self.channel()?.unlink()
    }

    /// As [`Channel::destroy`].
    pub fn destroy(&self) -> Result<()> {
        self.channel()?.destroy()
    }
}

// Derived, it would require that the kind, too, can be cloned.
impl<K: ChannelKind> Clone for Options<K> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            scope: self.scope.clone(),
            flags: self.flags,
            permissions: self.permissions,
            capacity: self.capacity,
            own: self.own.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bus, Error, Feed, Map, Pipe, Ring};

    /// What the kernel gets.
    fn open<K: ChannelKind>(options: &Options<K>) -> abi::Open {
        let channel = options.channel().unwrap();
        options.structure(&channel, abi::OPEN_READ, options.capacity)
    }

    fn chain<K: Creatable>(options: Options<K>) -> abi::Open {
        let options = options
            .scope(Scope::root())
            .create(true)
            .any_owner(true)
            .exclusive(true)
            .persistent(true)
            .permissions(0o640)
            .capacity(1 << 20);
        open(&options)
    }

    #[test]
    fn the_chain_of_each_kind_sets_what_the_kernel_gets() {
        for (open, kind) in [
            (chain(Pipe::named("frames")), abi::KIND_PIPE),
            (chain(Ring::named("frames")), abi::KIND_RING),
            (chain(Bus::named("frames")), abi::KIND_BUS),
            (chain(Map::named("frames")), abi::KIND_MAP),
        ] {
            let flags = abi::OPEN_READ
                | abi::OPEN_CREATE
                | abi::OPEN_ANY_OWNER
                | abi::OPEN_EXCL
                | abi::OPEN_PERSIST;
            assert_eq!((open.kind, open.flags), (kind, flags));
            assert_eq!((open.mode, open.capacity), (0o640, 1 << 20));
            assert_eq!(open.scope_fd, abi::SCOPE_ROOT);
            assert_eq!(open.name, abi::padded(b"frames"));
        }
    }

    #[test]
    fn by_default_an_existing_channel_of_the_own_cgroup_is_opened() {
        let pipe = open(&Pipe::named("frames"));
        let default = (abi::OPEN_READ, DEFAULT_PERMISSIONS, 0, abi::SCOPE_SELF);
        assert_eq!(
            (pipe.flags, pipe.mode, pipe.capacity, pipe.scope_fd),
            default
        );
        let feed = open(&Feed::named("frames"));
        assert_eq!(
            (feed.kind, feed.scope_fd),
            (abi::KIND_FEED, abi::SCOPE_ROOT)
        );
        let undone = Pipe::named("frames").nonblocking(true).nonblocking(false);
        assert_eq!(open(&undone).flags, abi::OPEN_READ);
    }

    #[test]
    fn the_call_that_ends_a_chain_validates_the_name() {
        let is_invalid = |error: &Error| matches!(error, Error::InvalidName { .. });
        let bad = "a/b";
        for ended in [
            Pipe::named(bad).reader().map(drop),
            Pipe::named(bad).create_persistent(),
            Ring::named(bad).unlink(),
            Bus::named(bad).destroy(),
            Map::named(bad).info().map(drop),
            Feed::named(bad).open().map(drop),
            Feed::named(bad).channel().map(drop),
        ] {
            assert!(ended.as_ref().is_err_and(is_invalid), "{ended:?}");
        }
        let sender = Bus::named(bad).sender().unwrap_err();
        let map = Map::named(bad).open().unwrap_err();
        let producer = Ring::named(bad).producer().unwrap_err();
        for text in [sender.to_string(), map.to_string(), producer.to_string()] {
            assert!(text.contains("invalid channel name 'a/b'"), "{text}");
        }
    }
}
