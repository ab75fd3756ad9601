// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of channels.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::diagnosis::{Diagnose as _, Diagnosis, REOPEN, diagnosed, system_hint};
use crate::kind::Kind;
use crate::store_error::StoreError;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a call to the module failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device node is missing, or no driver serves it.
    #[error("no {node}: module not loaded, or /dev/sluice not in this container")]
    ModuleNotLoaded { node: &'static str },

    /// The loaded module is too old for `missing`.
    #[error("the loaded module is too old: no {missing}")]
    ModuleTooOld { missing: &'static str },

    /// The hierarchy of cgroup v2 is not mounted.
    #[error("no cgroup v2 mount")]
    NoCgroup2,

    /// Invalid channel name `name`: `reason`.
    #[error("invalid channel name '{name}': {reason}")]
    InvalidName { name: String, reason: &'static str },

    /// The path is not a cgroup v2 directory.
    #[error("{} is not a cgroup v2 directory", path.display())]
    NotACgroupDirectory { path: PathBuf },

    /// There is no `kind` named `name` in `scope`: nobody has created it, or it has another kind.
    #[error("no {kind} named '{name}' in {scope}")]
    NotFound {
        kind: Kind,
        name: String,
        scope: String,
    },

    /// Only with [`Options::exclusive`](crate::Options::exclusive).
    #[error("the {kind} '{name}' already exists in {scope}")]
    AlreadyExists {
        kind: Kind,
        name: String,
        scope: String,
    },

    /// The permission bits of the channel do not permit the call, or those of the directory of its cgroup.
    #[error("permission denied for the {kind} '{name}' in {scope}{}", of_owner(.owner.as_ref()))]
    PermissionDenied {
        kind: Kind,
        name: String,
        scope: String,
        /// None if the caller may not query the channel.
        owner: Option<Owner>,
    },

    /// The mode of the device node does not permit the open.
    #[error("permission denied for {node}")]
    NodePermission { node: &'static str },

    /// [`Options::create`](crate::Options::create) found a channel that another user had created.
    #[error("'{name}' in {scope} belongs to user {uid}")]
    OtherOwner {
        name: String,
        scope: String,
        uid: u32,
    },

    /// The caller may not look up names in the scope.
    #[error("permission denied for {scope}: this process is outside of it")]
    OutsideScope { scope: String },

    /// The `kind` `name` in `scope` belongs to another user.
    #[error("the {kind} '{name}' in {scope} belongs to another user")]
    NotOwner {
        kind: Kind,
        name: String,
        scope: String,
    },

    /// [`Channel::destroy`](crate::Channel::destroy) was called during the open.
    #[error("'{name}' in {scope} was destroyed during the open")]
    Destroyed { name: String, scope: String },

    /// Only of a nonblocking open.
    #[error("no reader has {what} open")]
    NoReader { what: String },

    /// Capacity `bytes` exceeds the limit, or the pipe belongs to another user.
    #[error("capacity {bytes} exceeds the limit, or the pipe belongs to another user")]
    CapacityLimit { bytes: u64 },

    /// Invalid pipe capacity `bytes`.
    #[error("invalid pipe capacity {bytes}")]
    CapacityRange { bytes: u64 },

    /// The pipe holds more than `bytes` bytes.
    #[error("the pipe holds more than {bytes} bytes")]
    CapacityInUse { bytes: u64 },

    /// The quota of the scope, or of a scope above it: scope_max_channels or scope_max_bytes.
    #[error("{what} failed: scope quota exceeded")]
    ScopeQuotaExceeded { what: String, limits: Limits },

    /// The quota of the user: user_max_channels or user_max_bytes.
    #[error("{what} failed: user quota exceeded")]
    UserQuotaExceeded { what: String, limits: Limits },

    /// ETIMEDOUT. The daemon that stores durable maps did not answer before the deadline of the map.
    #[error("{what} failed: the store of durable maps does not answer")]
    StoreTimeout { what: String },

    /// EIO or EROFS. The daemon cannot store or restore the durable map.
    #[error("{what} failed in the store of durable maps")]
    StoreFailed {
        what: String,
        #[source]
        error: StoreError,
    },

    /// ETIMEDOUT of an unlink or a destroy. Changes of the durable map are refused already.
    #[error("'{name}' in {scope} is removed once the store of durable maps answers")]
    UnlinkPending { name: String, scope: String },

    /// `what` failed: out of memory.
    #[error("{what} failed: out of memory")]
    NoMemory { what: String },

    /// A system call failed: `what`.
    #[error("{what} failed")]
    Io { what: String, source: io::Error },
}

/// The user of a channel, and its permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub permissions: u32,
}

/// The limits of a quota when it was exceeded, as far as this process may read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// "scope" or "user".
    of: &'static str,
    pub channels: Option<u64>,
    pub bytes: Option<u64>,
}

impl Limits {
    fn read(of: &'static str) -> Self {
        let limit = |what| {
            let path = format!("/sys/module/sluice/parameters/{of}_max_{what}");
            fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Self {
            of,
            channels: limit("channels"),
            bytes: limit("bytes"),
        }
    }

    /// Which of the two is reached is not in the answer of the module.
    fn hint(&self) -> String {
        let named = |what, value: Option<u64>| match value {
            Some(value) => format!("{}_max_{what} ({value})", self.of),
            None => format!("{}_max_{what}", self.of),
        };
        let (channels, bytes) = (named("channels", self.channels), named("bytes", self.bytes));
        format!(
            "remove unused channels, which 'sudo sluice ls --all' lists, or raise {channels} or {bytes}"
        )
    }
}

fn of_owner(owner: Option<&Owner>) -> String {
    owner.map_or_else(String::new, |Owner { uid, permissions }| {
        format!(": it belongs to user {uid}, with the permissions {permissions:03o}")
    })
}

const STORE_SILENT: &str = "check whether sluiced runs: 'systemctl status sluiced'";

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Self::NoCgroup2,
            Some(libc::ENOSPC) => Self::ScopeQuotaExceeded {
                what,
                limits: Limits::read("scope"),
            },
            Some(libc::EDQUOT) => Self::UserQuotaExceeded {
                what,
                limits: Limits::read("user"),
            },
            Some(libc::ENOMEM) => Self::NoMemory { what },
            _ => Self::Io { what, source },
        }
    }

    fn diagnosis(&self) -> Diagnosis {
        let (errno, hint) = match self {
            Self::ModuleNotLoaded { .. } => {
                let hint = "run 'sudo modprobe sluice', or pass /dev/sluice to the container";
                return Diagnosis::new(libc::ENOENT, hint).of_kind(ErrorKind::Unsupported);
            }
            Self::ModuleTooOld { .. } => (
                libc::ENOSYS,
                "run 'sudo sluice unload && sudo modprobe sluice'",
            ),
            Self::NoCgroup2 => (
                libc::EOPNOTSUPP,
                "run 'sudo mount -t cgroup2 none /sys/fs/cgroup'",
            ),
            Self::InvalidName { .. } => (
                libc::EINVAL,
                "use 1 to 63 bytes without '/' and NUL, not '.' or '..'",
            ),
            Self::NotACgroupDirectory { .. } => (libc::EBADF, "give one below /sys/fs/cgroup"),
            Self::NotFound { kind, name, .. } => {
                return Diagnosis::new(libc::ENOENT, to_create(*kind, name));
            }
            Self::AlreadyExists { kind, name, .. } => {
                return Diagnosis::new(libc::EEXIST, to_remove(*kind, name));
            }
            Self::PermissionDenied {
                kind: Kind::Feed, ..
            } => (libc::EACCES, "let its publisher choose another mode"),
            Self::NotOwner {
                kind: Kind::Feed, ..
            } => (libc::EPERM, "unload the module that publishes it"),
            Self::PermissionDenied { owner: None, .. } => {
                (libc::EACCES, "run it in the cgroup, or as root")
            }
            Self::PermissionDenied { .. } => (
                libc::EACCES,
                "have its owner, or root, create it with other permissions",
            ),
            Self::NodePermission { .. } => (
                libc::EACCES,
                "run it as root, or have an administrator change the mode of the node",
            ),
            Self::OtherOwner { .. } => (
                libc::EACCES,
                "if you trust that user, open it without 'create', or as one of any owner (--any-owner)",
            ),
            Self::OutsideScope { .. } => (libc::EACCES, "run it in the cgroup, or as root"),
            Self::NotOwner { .. } => (libc::EPERM, "run it as that user, or as root"),
            Self::Destroyed { .. } => (libc::EPIPE, REOPEN),
            Self::NoReader { .. } => (
                libc::ENXIO,
                "start the reader first in the same cgroup, or use a blocking open",
            ),
            Self::CapacityLimit { .. } => (
                libc::EPERM,
                "ask for less, let its owner set it, or raise /sys/module/sluice/parameters/pipe_max_size as root",
            ),
            Self::CapacityRange { .. } => (libc::EINVAL, "give 1 byte to 1 GiB"),
            Self::CapacityInUse { .. } => {
                (libc::EBUSY, "read them first, or ask for a larger capacity")
            }
            Self::ScopeQuotaExceeded { limits, .. } => {
                let full = Diagnosis::new(libc::ENOSPC, limits.hint());
                return full.of_kind(ErrorKind::QuotaExceeded);
            }
            Self::UserQuotaExceeded { limits, .. } => {
                return Diagnosis::new(libc::EDQUOT, limits.hint());
            }
            Self::StoreTimeout { .. } | Self::UnlinkPending { .. } => {
                (libc::ETIMEDOUT, STORE_SILENT)
            }
            Self::StoreFailed { error, .. } => return error.diagnose(),
            Self::NoMemory { .. } => (
                libc::ENOMEM,
                "raise memory.max of this cgroup, or free memory in it",
            ),
            Self::Io { source, .. } => return Diagnosis::of_io(source, system_hint(source)),
        };
        Diagnosis::new(errno, hint)
    }
}

diagnosed!(Error);

fn to_create(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Pipe | Kind::Ring | Kind::Bus | Kind::Map => {
            format!(
                "create it with the open, or by 'sluice {kind} create {name}'; 'sudo sluice ls --all' shows whether another cgroup has it"
            )
        }
        Kind::Feed => {
            "'sluice feed ls' lists what exists; load the module that publishes it".to_owned()
        }
        Kind::Other(_) => "let its other side create it, or open it with create".to_owned(),
    }
}

fn to_remove(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Pipe | Kind::Ring | Kind::Bus | Kind::Map => {
            format!("choose another name, or run 'sluice {kind} rm {name}'")
        }
        Kind::Feed => "choose another name, or unload the module that publishes it".to_owned(),
        Kind::Other(_) => "choose another name, or unlink it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exhausted_resource_has_its_own_error() {
        let of = |errno| Error::io("opening", io::Error::from_raw_os_error(errno)).hint();
        assert!(of(libc::ENOSPC).contains("scope_max_channels"));
        assert!(of(libc::EDQUOT).contains("user_max_channels"));
        assert!(of(libc::ENOMEM).contains("memory.max"));
        assert!(of(libc::EOPNOTSUPP).contains("cgroup2"));
        assert!(of(libc::EIO).contains("sluice doctor"));
    }

    #[test]
    fn a_missing_channel_and_a_used_name_name_the_command_of_their_kind() {
        let (name, scope) = ("frames".to_owned(), "/a".to_owned());
        let missing = |kind| Error::NotFound {
            kind,
            name: name.clone(),
            scope: scope.clone(),
        };
        let used = |kind| Error::AlreadyExists {
            kind,
            name: name.clone(),
            scope: scope.clone(),
        };
        for (kind, noun) in [
            (Kind::Pipe, "pipe"),
            (Kind::Ring, "ring"),
            (Kind::Bus, "bus"),
            (Kind::Map, "map"),
        ] {
            let text = missing(kind).to_string();
            assert!(
                text.contains(&format!("no {noun} named 'frames'")),
                "{text}"
            );
            let hint = missing(kind).hint();
            assert!(
                hint.contains(&format!("'sluice {noun} create frames'")),
                "{hint}"
            );
            let hint = used(kind).hint();
            assert!(
                hint.contains(&format!("'sluice {noun} rm frames'")),
                "{hint}"
            );
        }
        assert!(!missing(Kind::Other(9)).hint().contains("sluice"));
    }
}
