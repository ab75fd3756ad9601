// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the path of a cgroup, which the kernel reports from the root of the hierarchy, to its directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, fstatfs};
use sluice::Scope;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupError {
    /// There is no such cgroup.
    Gone,
    /// There is no descriptor or no memory for it. It may exist.
    NoResources(String),
    /// It may exist.
    Unknown(String),
}

pub trait Cgroups {
    fn scope(&self, path: &[u8]) -> Result<Scope, CgroupError>;
}

/// The hierarchy below the directory where it is mounted.
pub struct CgroupRoot {
    directory: File,
    path: PathBuf,
}

impl CgroupRoot {
    /// Fails if it is not the root of the hierarchy: then every map would seem to be one of a cgroup that is gone.
    pub fn open(path: &Path) -> io::Result<Self> {
        let directory = File::open(path)?;
        if fstatfs(&directory)?.filesystem_type() != CGROUP2_SUPER_MAGIC {
            return Err(io::Error::other(
                "it is not a cgroup2 file system; give its mount point with --cgroup-root",
            ));
        }
        // All cgroups but the root have this file.
        if path.join("cgroup.type").exists() {
            return Err(io::Error::other(
                "it is not the root of the hierarchy; start the daemon outside of containers",
            ));
        }
        let path = path.to_owned();
        Ok(Self { directory, path })
    }
}

impl Cgroups for CgroupRoot {
    fn scope(&self, path: &[u8]) -> Result<Scope, CgroupError> {
        let Some(relative) = relative(path) else {
            return Err(CgroupError::Gone);
        };
        if relative.is_empty() {
            return Ok(Scope::root());
        }
        match open_below(&self.directory, relative) {
            Ok(directory) => Ok(Scope::from(directory)),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV) => Err(CgroupError::Gone),
            Err(errno) => {
                let path = self.path.join(OsStr::from_bytes(relative));
                let error = io::Error::from(errno);
                let text = format!("cannot open {}: {error}", path.display());
                Err(match errno {
                    Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM => CgroupError::NoResources(text),
                    _ => CgroupError::Unknown(text),
                })
            }
        }
    }
}

/// The path without its first slash; none if it could lead elsewhere.
fn relative(path: &[u8]) -> Option<&[u8]> {
    let relative = path.strip_prefix(b"/")?;
    let is_name = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
    let is_safe = relative.is_empty() || relative.split(|byte| *byte == b'/').all(is_name);
    is_safe.then_some(relative)
}

fn open_below(root: &File, path: &[u8]) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC)
        .resolve(
            ResolveFlag::RESOLVE_BENEATH
                | ResolveFlag::RESOLVE_NO_SYMLINKS
                | ResolveFlag::RESOLVE_NO_MAGICLINKS
                | ResolveFlag::RESOLVE_NO_XDEV,
        );
    openat2(root, OsStr::from_bytes(path), how)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::test_directory::TestDirectory;

    #[test]
    fn only_paths_below_the_root_have_a_directory() {
        let parent = TestDirectory::new();
        fs::create_dir_all(parent.path().join("root/a/b")).unwrap();
        fs::create_dir(parent.path().join("outside")).unwrap();
        symlink("../outside", parent.path().join("root/link")).unwrap();
        let path = parent.path().join("root");
        let root = CgroupRoot {
            directory: File::open(&path).unwrap(),
            path,
        };
        for path in ["/", "/a", "/a/b"] {
            assert!(root.scope(path.as_bytes()).is_ok(), "{path}");
        }
        for path in [
            "",
            "a",
            "/c",
            "/..",
            "/../outside",
            "/a/../a",
            "//a",
            "/a/",
            "/a/./b",
        ] {
            assert_eq!(
                root.scope(path.as_bytes()).err(),
                Some(CgroupError::Gone),
                "{path}"
            );
        }
        let link = root.scope(b"/link").err();
        assert!(matches!(link, Some(CgroupError::Unknown(_))), "{link:?}");
    }

    #[test]
    fn a_directory_of_another_file_system_is_refused() {
        let directory = TestDirectory::new();
        let error = CgroupRoot::open(directory.path()).err().unwrap();
        assert!(error.to_string().contains("--cgroup-root"), "{error}");
    }
}
