// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;

use sluice_abi as abi;

use crate::error::{Error, Owner, Result};
use crate::features::features;
use crate::info::ChannelInfo;
use crate::kind::Kind;
use crate::name::Name;
use crate::scope::Scope;
use crate::store_error::StoreError;
use crate::sys::{Control, State};

/// The kind of a channel, its name and its scope, for programs that treat all kinds alike. A value does not mean that the channel
/// exists. A channel is opened by the [`Options`](crate::Options) of its kind.
///
/// ```no_run
/// use sluice::{Channel, Kind, Scope};
///
/// let scope = Scope::at("/sys/fs/cgroup/system.slice/example.service")?;
/// let channel = Channel::new(Kind::Pipe, "frames")?.in_scope(scope);
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
    /// The channel of this name in the caller's cgroup; a feed is in the root scope. Channels of different kinds may have the same
    /// name.
    pub fn new(kind: Kind, name: impl AsRef<[u8]>) -> Result<Self> {
        Ok(Self {
            kind,
            name: Name::new(name)?,
            scope: Scope::of_kind(kind),
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
            ..abi::Unlink::new(self.scope.scope_fd(), self.name.as_bytes())
        };
        let control = Control::open()?;
        repeat_remove(|| control.call_once(command, &mut which))
            .map_err(|error| self.remove_error(doing, error))
    }

    fn remove_error(&self, doing: &str, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EPERM) => Error::NotOwner {
                kind: self.kind,
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
            .info(kind, self.scope.scope_fd(), self.name.as_bytes(), &mut info)
            .map_err(|error| self.query_error(error))?;
        Ok(info.into())
    }

    /// The state of a channel of the kind that has this structure.
    pub(crate) fn state<S: State>(&self) -> Result<S> {
        Control::open()?
            .state(self.scope.scope_fd(), self.name.as_bytes())
            .map_err(|error| self.query_error(error))
    }

    fn query_error(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EACCES) => Error::OutsideScope {
                scope: self.scope.to_string(),
            },
            _ => self.error("querying", error),
        }
    }

    /// Why the channel was not opened.
    pub(crate) fn open_error(&self, open: &abi::Open, error: io::Error) -> Error {
        let (name, scope) = (self.name.to_string(), self.scope.to_string());
        let (kind, bytes) = (self.kind, open.capacity);
        // The other kinds validate it before, and limit it by quotas only.
        let of_capacity = kind == Kind::Pipe && bytes > 0;
        match error.raw_os_error() {
            Some(libc::EEXIST) => Error::AlreadyExists { kind, name, scope },
            Some(libc::EPIPE) => Error::Destroyed { name, scope },
            Some(libc::ENXIO) => Error::NoReader {
                what: format!("'{name}' in {scope}"),
            },
            Some(libc::EACCES) => self.refused(open.flags),
            Some(libc::EPERM) if of_capacity => Error::CapacityLimit { bytes },
            Some(libc::EPERM) => Error::NotOwner { kind, name, scope },
            Some(libc::EINVAL) if of_capacity => Error::CapacityRange { bytes },
            _ => self.error("opening", error),
        }
    }

    /// Why the kernel has answered EACCES to an open with these flags.
    fn refused(&self, flags: u32) -> Error {
        let (name, scope) = (self.name.to_string(), self.scope.to_string());
        let requires_owner = flags & (abi::OPEN_CREATE | abi::OPEN_ANY_OWNER) == abi::OPEN_CREATE;
        // SAFETY: it has no preconditions.
        let own = unsafe { libc::geteuid() };
        match self.info() {
            Ok(info) if requires_owner && ![own, 0].contains(&info.uid) => Error::OtherOwner {
                name,
                scope,
                uid: info.uid,
            },
            info => Error::PermissionDenied {
                kind: self.kind,
                name,
                scope,
                owner: info.ok().map(|info| Owner {
                    uid: info.uid,
                    permissions: info.mode,
                }),
            },
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
            Some(errno) if may_be_unsupported(self.kind, errno) && !supports(self.kind) => {
                Error::ModuleTooOld {
                    missing: self.kind.plural(),
                }
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

/// Whether a module without the kind answers with this errno. The oldest has pipes; one without feeds has no root scope, either.
fn may_be_unsupported(kind: Kind, errno: i32) -> bool {
    match kind {
        Kind::Ring | Kind::Bus | Kind::Map => errno == libc::EINVAL,
        Kind::Feed => [libc::EINVAL, libc::EBADF].contains(&errno),
        Kind::Pipe | Kind::Other(_) => false,
    }
}

fn supports(kind: Kind) -> bool {
    features().is_ok_and(|features| features.has_kind(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let map = Channel::new(Kind::Map, "jobs").unwrap();
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
    fn only_a_pipe_has_errors_of_its_capacity() {
        let of = |kind, errno, capacity| {
            let open = abi::Open {
                capacity,
                ..abi::Open::new(b"frames", abi::OPEN_READ)
            };
            let channel = Channel::new(kind, "frames").unwrap();
            channel.open_error(&open, io::Error::from_raw_os_error(errno))
        };
        let limit = of(Kind::Pipe, libc::EPERM, 4096);
        assert!(matches!(limit, Error::CapacityLimit { bytes: 4096 }));
        let range = of(Kind::Pipe, libc::EINVAL, 4096);
        assert!(matches!(range, Error::CapacityRange { bytes: 4096 }));
        for (kind, capacity) in [(Kind::Pipe, 0), (Kind::Bus, 4096)] {
            let owner = of(kind, libc::EPERM, capacity);
            assert!(matches!(owner, Error::NotOwner { .. }), "{owner:?}");
        }
        let exists = of(Kind::Ring, libc::EEXIST, 4096).to_string();
        assert!(
            exists.contains("the ring 'frames' already exists"),
            "{exists}"
        );
    }
}
