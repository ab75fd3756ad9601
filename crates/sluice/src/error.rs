// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use crate::info::Kind;
use crate::map::StoreError;

/// Converts errors to that of the standard library of the same kind, which keeps their text.
macro_rules! into_io {
    ($($error:ident),*) => {$(
        impl From<$error> for std::io::Error {
            fn from(error: $error) -> Self {
                Self::new(error.kind(), error)
            }
        }
    )*};
}

pub(crate) use into_io;

pub type Result<T> = std::result::Result<T, Error>;

/// Why a call to the module failed. The message is one line: what failed, the cause, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device node is missing, or no driver serves it.
    #[error(
        "no {node}: module not loaded, or /dev/sluice not in this container; run 'sudo modprobe sluice' or pass it"
    )]
    ModuleNotLoaded { node: &'static str },

    #[error(
        "the loaded module is too old: no {missing}; run 'sudo rmmod sluice' and load the current module"
    )]
    ModuleTooOld { missing: &'static str },

    #[error("no cgroup v2 mount; run 'sudo mount -t cgroup2 none /sys/fs/cgroup'")]
    NoCgroup2,

    #[error(
        "invalid channel name '{name}': {reason}; use 1 to 63 bytes without '/' and NUL, not '.' or '..'"
    )]
    InvalidName { name: String, reason: &'static str },

    #[error("{} is not a cgroup v2 directory; give one below /sys/fs/cgroup", path.display())]
    NotACgroupDirectory { path: PathBuf },

    #[error("no {kind} named '{name}' in {scope}; {}", to_create(*kind, name))]
    NotFound {
        kind: Kind,
        name: String,
        scope: String,
    },

    /// Only with [`Options::exclusive`](crate::Options::exclusive).
    #[error(
        "the {kind} '{name}' already exists in {scope}; choose another name or {}",
        to_remove(*kind, name)
    )]
    AlreadyExists {
        kind: Kind,
        name: String,
        scope: String,
    },

    /// The caller is outside the scope, or the mode of the cgroup directory or of the channel does not permit the call.
    #[error(
        "permission denied for '{name}' in {scope}; join the cgroup, or have the owner change the mode"
    )]
    PermissionDenied { name: String, scope: String },

    /// [`Options::create`](crate::Options::create) found a channel that another user had created.
    #[error(
        "'{name}' in {scope} belongs to user {uid}; if you trust that user, open it without 'create', or with any_owner (--any-owner)"
    )]
    OtherOwner {
        name: String,
        scope: String,
        uid: u32,
    },

    /// The caller may not look up names in the scope.
    #[error(
        "permission denied for {scope}: this process is outside of it; join the cgroup or run as root"
    )]
    OutsideScope { scope: String },

    #[error("'{name}' in {scope} belongs to another user; ask the owner, or run as root")]
    NotOwner { name: String, scope: String },

    /// [`Channel::destroy`](crate::Channel::destroy) was called during the open.
    #[error(
        "'{name}' in {scope} was destroyed during the open; open it again if it is created again"
    )]
    Destroyed { name: String, scope: String },

    /// Only of a nonblocking open.
    #[error("no reader has {what} open; start the reader first, or use a blocking open")]
    NoReader { what: String },

    #[error(
        "capacity {bytes} exceeds the limit, or the pipe belongs to another user; ask for less, let its owner set it, or raise /sys/module/sluice/parameters/pipe_max_size as root"
    )]
    CapacityLimit { bytes: u64 },

    #[error("invalid pipe capacity {bytes}; give 1 byte to 1 GiB")]
    CapacityRange { bytes: u64 },

    #[error(
        "the pipe holds more than {bytes} bytes; read them first, or ask for a larger capacity"
    )]
    CapacityInUse { bytes: u64 },

    /// The quota of the scope, or of a scope above it: scope_max_channels or scope_max_bytes.
    #[error(
        "{what} failed: scope quota exceeded; remove unused channels or raise scope_max_channels or scope_max_bytes"
    )]
    ScopeQuotaExceeded { what: String },

    /// The quota of the user: user_max_channels or user_max_bytes.
    #[error(
        "{what} failed: user quota exceeded; remove unused channels or raise user_max_channels or user_max_bytes"
    )]
    UserQuotaExceeded { what: String },

    /// ETIMEDOUT. The daemon that stores durable maps did not answer before the deadline of the map.
    #[error("{what} failed: the store of durable maps does not answer; is sluiced running?")]
    StoreTimeout { what: String },

    /// EIO or EROFS. The daemon cannot store or restore the durable map.
    #[error("{what} failed: the store of durable maps: {error}")]
    StoreFailed { what: String, error: StoreError },

    /// ETIMEDOUT of an unlink or a destroy. Changes of the durable map are refused already.
    #[error(
        "'{name}' in {scope} is removed once the store of durable maps answers; is sluiced running?"
    )]
    UnlinkPending { name: String, scope: String },

    #[error("{what} failed: out of memory; raise memory.max of this cgroup, or free memory in it")]
    NoMemory { what: String },

    #[error("{what} failed: {source}; run 'sluice doctor'")]
    Io { what: String, source: io::Error },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Self::NoCgroup2,
            Some(libc::ENOSPC) => Self::ScopeQuotaExceeded { what },
            Some(libc::EDQUOT) => Self::UserQuotaExceeded { what },
            Some(libc::ENOMEM) => Self::NoMemory { what },
            _ => Self::Io { what, source },
        }
    }

    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::ModuleNotLoaded { .. } | Self::NotFound { .. } => ErrorKind::NotFound,
            Self::ModuleTooOld { .. } | Self::NoCgroup2 => ErrorKind::Unsupported,
            Self::InvalidName { .. }
            | Self::NotACgroupDirectory { .. }
            | Self::CapacityRange { .. } => ErrorKind::InvalidInput,
            Self::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Self::PermissionDenied { .. }
            | Self::OtherOwner { .. }
            | Self::OutsideScope { .. }
            | Self::NotOwner { .. }
            | Self::CapacityLimit { .. } => ErrorKind::PermissionDenied,
            Self::CapacityInUse { .. } => ErrorKind::ResourceBusy,
            Self::ScopeQuotaExceeded { .. } | Self::UserQuotaExceeded { .. } => {
                ErrorKind::QuotaExceeded
            }
            Self::NoMemory { .. } => ErrorKind::OutOfMemory,
            Self::Destroyed { .. } => ErrorKind::BrokenPipe,
            Self::NoReader { .. } => ErrorKind::Other,
            Self::StoreTimeout { .. } | Self::UnlinkPending { .. } => ErrorKind::TimedOut,
            Self::StoreFailed { error, .. } => error.kind(),
            Self::Io { source, .. } => source.kind(),
        }
    }
}

fn to_create(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Pipe | Kind::Ring | Kind::Bus | Kind::Map => {
            format!("run 'sluice {kind} create {name}'")
        }
        Kind::Feed => "load the module that publishes it".to_owned(),
        Kind::Other(_) => "let its other side create it, or open it with create".to_owned(),
    }
}

fn to_remove(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Pipe | Kind::Ring | Kind::Bus | Kind::Map => {
            format!("run 'sluice {kind} rm {name}'")
        }
        Kind::Feed => "unload the module that publishes it".to_owned(),
        Kind::Other(_) => "unlink it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_exhausted_resource_has_its_own_error() {
        let of = |errno| Error::io("opening", io::Error::from_raw_os_error(errno)).to_string();
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
            assert!(
                text.contains(&format!("'sluice {noun} create frames'")),
                "{text}"
            );
            let text = used(kind).to_string();
            assert!(
                text.contains(&format!("'sluice {noun} rm frames'")),
                "{text}"
            );
        }
        assert!(!missing(Kind::Other(9)).to_string().contains("sluice"));
    }
}
