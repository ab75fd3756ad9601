// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_abi as abi;

use crate::error::{Error, Result};
use crate::kind::Kind;

/// The cgroup (v2) in which names are looked up.
#[derive(Clone, Debug)]
pub struct Scope {
    cgroup: Cgroup,
}

#[derive(Clone, Debug)]
enum Cgroup {
    Own,
    Root,
    Directory(Arc<OwnedFd>),
}

impl Scope {
    /// The cgroup of the calling thread at the time of each use.
    pub fn own() -> Self {
        Self {
            cgroup: Cgroup::Own,
        }
    }

    /// The root of the hierarchy, which is the scope of feeds. Needs no cgroup v2 mount.
    pub fn root() -> Self {
        Self {
            cgroup: Cgroup::Root,
        }
    }

    /// The cgroup of this directory, such as `/sys/fs/cgroup/system.slice/example.service`.
    pub fn at(directory: impl AsRef<Path>) -> Result<Self> {
        let path = directory.as_ref();
        fs::File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_PATH)
            .open(path)
            .map(|file| Self::from(OwnedFd::from(file)))
            .map_err(|error| open_error(error, path))
    }

    /// The scope of channels of a kind, if none is given.
    pub(crate) fn of_kind(kind: Kind) -> Self {
        match kind {
            Kind::Feed => Self::root(),
            _ => Self::own(),
        }
    }

    /// The value of the field `scope_fd` in the module's structures. A descriptor in it is open as long as this scope or a clone of it exists.
    pub fn scope_fd(&self) -> i32 {
        match &self.cgroup {
            Cgroup::Own => abi::SCOPE_SELF,
            Cgroup::Root => abi::SCOPE_ROOT,
            Cgroup::Directory(fd) => fd.as_fd().as_raw_fd(),
        }
    }

    /// The inode of the directory of the caller's cgroup, which is the number of the cgroup. None without the usual mount of cgroup v2.
    pub(crate) fn own_cgroup_number() -> Option<u64> {
        let directory = format!("/sys/fs/cgroup{}", own_cgroup()?);
        Some(fs::metadata(directory).ok()?.ino())
    }

    pub(crate) fn not_a_cgroup_directory(&self) -> Error {
        Error::NotACgroupDirectory {
            path: match &self.cgroup {
                Cgroup::Own => PathBuf::from("this process's cgroup"),
                Cgroup::Root => PathBuf::from("the root of the hierarchy"),
                Cgroup::Directory(fd) => directory(fd),
            },
        }
    }
}

fn open_error(error: io::Error, path: &Path) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOTDIR) => Error::NotACgroupDirectory {
            path: path.to_owned(),
        },
        _ => Error::io(format!("opening the scope {}", path.display()), error),
    }
}

/// The path of an open directory in the mount namespace of this process.
fn directory(fd: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .unwrap_or_else(|_| PathBuf::from("a directory"))
}

/// The descriptor is that of a cgroup directory, which each use of the scope checks.
impl From<OwnedFd> for Scope {
    fn from(directory: OwnedFd) -> Self {
        Self {
            cgroup: Cgroup::Directory(Arc::new(directory)),
        }
    }
}

/// Writes the cgroup as this process sees it, for messages.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cgroup {
            Cgroup::Own => match own_cgroup() {
                Some(name) => write!(f, "this process's scope (cgroup {name})"),
                None => f.write_str("this process's scope"),
            },
            Cgroup::Root => f.write_str("the root scope"),
            Cgroup::Directory(fd) => write!(f, "the scope {}", directory(fd).display()),
        }
    }
}

fn own_cgroup() -> Option<String> {
    unified_name(&fs::read_to_string("/proc/thread-self/cgroup").ok()?)
}

fn unified_name(table: &str) -> Option<String> {
    let name = table.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_hierarchy_is_chosen() {
        let table = "3:cpu:/old\n0::/user.slice/a:b\n";
        assert_eq!(unified_name(table).as_deref(), Some("/user.slice/a:b"));
        assert_eq!(unified_name("3:cpu:/old\n"), None);
    }

    #[test]
    fn a_file_is_not_a_scope() {
        let error = Scope::at("/proc/self/status").unwrap_err();
        assert!(
            matches!(error, Error::NotACgroupDirectory { .. }),
            "{error}"
        );
        let error = Scope::at("/nowhere").unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }

    #[test]
    fn a_scope_of_a_directory_shows_its_path() {
        let scope = Scope::at("/proc").unwrap();
        assert_eq!(scope.to_string(), "the scope /proc");
        assert_eq!(Scope::root().to_string(), "the root scope");
    }
}
