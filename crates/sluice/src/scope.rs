// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_abi as abi;

use crate::error::{Error, Result};

/// The cgroup (v2) in which a name is looked up.
#[derive(Clone, Debug)]
pub struct Scope {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Own,
    Directory(Arc<OwnedFd>),
}

impl Scope {
    /// The cgroup in which the calling thread is when it uses this.
    pub fn own() -> Self {
        Self { place: Place::Own }
    }

    /// The cgroup whose directory this is, such as `/sys/fs/cgroup/system.slice/example.service`.
    pub fn at(directory: impl AsRef<Path>) -> Result<Self> {
        let path = directory.as_ref();
        fs::File::options()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_PATH)
            .open(path)
            .map(|file| Self::from(OwnedFd::from(file)))
            .map_err(|error| open_error(error, path))
    }

    pub(crate) fn raw(&self) -> i32 {
        match &self.place {
            Place::Own => abi::SCOPE_SELF,
            Place::Directory(fd) => fd.as_fd().as_raw_fd(),
        }
    }

    pub(crate) fn not_a_scope(&self) -> Error {
        Error::NotAScope {
            path: match &self.place {
                Place::Own => PathBuf::from("this process's cgroup"),
                Place::Directory(fd) => directory(fd),
            },
        }
    }
}

fn open_error(error: io::Error, path: &Path) -> Error {
    match error.raw_os_error() {
        Some(libc::ENOTDIR) => Error::NotAScope {
            path: path.to_owned(),
        },
        _ => Error::io(format!("opening the scope {}", path.display()), error),
    }
}

/// Where an open directory is, as this process sees it.
fn directory(fd: &OwnedFd) -> PathBuf {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))
        .unwrap_or_else(|_| PathBuf::from("a directory"))
}

/// The open directory of a cgroup.
impl From<OwnedFd> for Scope {
    fn from(directory: OwnedFd) -> Self {
        Self {
            place: Place::Directory(Arc::new(directory)),
        }
    }
}

/// Says which cgroup it is, as far as this process can see.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Own => match own_cgroup() {
                Some(name) => write!(f, "this process's scope (cgroup {name})"),
                None => f.write_str("this process's scope"),
            },
            Place::Directory(fd) => write!(f, "the scope {}", directory(fd).display()),
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
    fn of_several_hierarchies_the_unified_one_counts() {
        let table = "3:cpu:/old\n0::/user.slice/a:b\n";
        assert_eq!(unified_name(table).as_deref(), Some("/user.slice/a:b"));
        assert_eq!(unified_name("3:cpu:/old\n"), None);
    }

    #[test]
    fn what_is_no_directory_is_no_scope() {
        let error = Scope::at("/proc/self/status").unwrap_err();
        assert!(matches!(error, Error::NotAScope { .. }), "{error}");
        let error = Scope::at("/nowhere").unwrap_err();
        assert!(error.to_string().contains("/nowhere"), "{error}");
    }

    #[test]
    fn a_scope_by_directory_says_where_it_is() {
        let scope = Scope::at("/proc").unwrap();
        assert_eq!(scope.to_string(), "the scope /proc");
    }
}
