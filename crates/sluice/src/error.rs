// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io;
use std::path::PathBuf;

pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "there is no {node}: the module is not loaded, or this container was not given the node; on the host run 'sudo modprobe sluice', and pass /dev/sluice to the container"
    )]
    NotLoaded { node: &'static str },

    #[error(
        "the loaded module is older than this program and lacks {lacking}; unload it with 'sudo rmmod sluice' and load the one that came with this program"
    )]
    OldModule { lacking: &'static str },

    #[error(
        "no cgroup v2 hierarchy is mounted, and without one all processes would share one scope; boot with systemd.unified_cgroup_hierarchy=1 or run 'sudo mount -t cgroup2 none /sys/fs/cgroup'"
    )]
    NoCgroup2,

    #[error(
        "'{name}' cannot be a channel's name: {reason}; use 1 to 63 bytes without '/' and NUL, and neither '.' nor '..'"
    )]
    InvalidName { name: String, reason: &'static str },

    #[error("{} is not the directory of a cgroup v2; give one below /sys/fs/cgroup", path.display())]
    NotAScope { path: PathBuf },

    #[error(
        "no channel named '{name}' in {scope}; create it ('sluice pipe create {name}') or look where it is ('sluice ls --scope DIR')"
    )]
    NotFound { name: String, scope: String },

    #[error(
        "a channel named '{name}' is already in {scope}; use it, choose another name, or remove it ('sluice pipe rm {name}')"
    )]
    Exists { name: String, scope: String },

    #[error(
        "permission denied for '{name}' in {scope}: outside the scope, or its cgroup directory or the channel's mode does not permit it; enter the scope or ask the owner"
    )]
    Denied { name: String, scope: String },

    #[error(
        "permission denied to look into {scope}: this process is outside of it; enter the scope, or run it as root"
    )]
    OutsideScope { scope: String },

    #[error("'{name}' in {scope} belongs to another user; ask its owner, or run this as root")]
    NotOwner { name: String, scope: String },

    #[error(
        "nobody has {what} open for reading; start the reader first, or open it so that it waits for one"
    )]
    NoReader { what: String },

    #[error(
        "a capacity of {bytes} bytes is above the module's limit; ask for less, or have root raise /sys/module/sluice/parameters/pipe_max_size"
    )]
    CapacityLimit { bytes: u64 },

    #[error("{bytes} bytes is no capacity that a pipe can have; it must be 1 byte to 1 GiB")]
    CapacityRange { bytes: u64 },

    #[error("the pipe holds more bytes than {bytes}; read them first, or ask for more")]
    CapacityInUse { bytes: u64 },

    #[error(
        "{what} failed: its scope, or one above, has all the channels or bytes that it may have; remove what nobody needs ('sluice ls', 'sluice pipe rm NAME'), ask for a smaller capacity, or have root raise scope_max_channels or scope_max_bytes in /sys/module/sluice/parameters"
    )]
    ScopeFull { what: String },

    #[error(
        "{what} failed: this user has all the channels or bytes that one may have; remove what nobody needs ('sluice ls', 'sluice pipe rm NAME'), ask for a smaller capacity, or have root raise user_max_channels or user_max_bytes in /sys/module/sluice/parameters"
    )]
    UserQuota { what: String },

    #[error(
        "{what} failed for lack of memory; raise the memory limit of this cgroup (memory.max), or end what uses it up"
    )]
    NoMemory { what: String },

    #[error(
        "{what} failed: {source}; 'sluice doctor' tells whether something is wrong with this system"
    )]
    Io { what: String, source: io::Error },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        let what = what.into();
        match source.raw_os_error() {
            Some(libc::EOPNOTSUPP) => Self::NoCgroup2,
            Some(libc::ENOSPC) => Self::ScopeFull { what },
            Some(libc::EDQUOT) => Self::UserQuota { what },
            Some(libc::ENOMEM) => Self::NoMemory { what },
            _ => Self::Io { what, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_is_told_apart() {
        let of = |errno| Error::io("opening", io::Error::from_raw_os_error(errno)).to_string();
        assert!(of(libc::ENOSPC).contains("scope_max_channels"));
        assert!(of(libc::EDQUOT).contains("user_max_channels"));
        assert!(of(libc::ENOMEM).contains("memory.max"));
        assert!(of(libc::EOPNOTSUPP).contains("cgroup2"));
        assert!(of(libc::EIO).contains("sluice doctor"));
    }
}
