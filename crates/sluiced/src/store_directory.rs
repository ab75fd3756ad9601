// SPDX-License-Identifier: MIT OR Apache-2.0
//! The directory of the store: only its owner may enter it, and one process uses it at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::store::{StoreError, StoreErrorKind};

/// Locked as long as it exists.
pub struct StoreDirectory {
    path: PathBuf,
    _lock: Flock<File>,
}

impl StoreDirectory {
    /// Creates the directory if its parent exists.
    pub fn lock(path: &Path) -> Result<Self, StoreError> {
        create(path)?;
        restrict(path)?;
        let name = path.join("maps.lock");
        let file = open(&name).map_err(|error| io_error("cannot open", &name, &error))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| lock_error(path, errno))?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn database(&self) -> PathBuf {
        self.path.join("maps.db")
    }

    /// Creates the database file, which only its owner may read; SQLite gives its other files the same permissions. What prevents
    /// it has an exact cause here.
    pub fn create_database(&self) -> Result<(), StoreError> {
        let name = self.database();
        match open(&name) {
            Ok(_) => Ok(()),
            Err(error) => Err(io_error("cannot open", &name, &error)),
        }
    }
}

fn create(path: &Path) -> Result<(), StoreError> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(_) if path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(StoreError {
            kind: StoreErrorKind::Other,
            text: format!(
                "cannot create {}: there is no directory for it; create that, or give another with --store",
                path.display()
            ),
        }),
        Err(error) => Err(io_error("cannot create", path, &error)),
    }
}

fn restrict(path: &Path) -> Result<(), StoreError> {
    let failed = |error| io_error("cannot restrict the permissions of", path, &error);
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    match mode & 0o077 {
        0 => Ok(()),
        _ => fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(failed),
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn lock_error(path: &Path, errno: Errno) -> StoreError {
    match errno {
        Errno::EWOULDBLOCK => StoreError {
            kind: StoreErrorKind::Other,
            text: format!(
                "another sluiced uses {}; end it, or give another directory with --store",
                path.display()
            ),
        },
        _ => io_error("cannot lock", path, &errno.into()),
    }
}

pub fn io_error(what: &str, path: &Path, error: &io::Error) -> StoreError {
    let (kind, remedy) = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT) => (StoreErrorKind::Full, "free space there"),
        Some(Errno::EFBIG) => (
            StoreErrorKind::Full,
            "raise the limit of the size of files (ulimit -f; LimitFSIZE= in the unit), and restart sluiced",
        ),
        Some(Errno::EROFS) => (
            StoreErrorKind::ReadOnly,
            "mount its file system for writing, and check the disk if the system made it read-only",
        ),
        Some(Errno::EACCES | Errno::EPERM) => (
            StoreErrorKind::Other,
            "give the user of the daemon all rights there",
        ),
        Some(Errno::ENOTDIR | Errno::EEXIST) => (
            StoreErrorKind::Other,
            "give a directory of which no part is a file",
        ),
        Some(Errno::ENOENT) => (StoreErrorKind::Other, "create the directory above it"),
        _ => (StoreErrorKind::Other, "check the disk"),
    };
    StoreError {
        kind,
        text: format!("{what} {}: {error}; {remedy}", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory::TestDirectory;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn it_is_created_for_its_owner_only() {
        let parent = TestDirectory::new();
        let path = parent.path().join("store");
        let directory = StoreDirectory::lock(&path).unwrap();
        directory.create_database().unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&directory.database()), 0o600);
    }

    #[test]
    fn permissions_of_others_are_removed() {
        let parent = TestDirectory::new();
        fs::set_permissions(parent.path(), Permissions::from_mode(0o755)).unwrap();
        let _directory = StoreDirectory::lock(parent.path()).unwrap();
        assert_eq!(mode(parent.path()), 0o700);
    }

    #[test]
    fn a_second_daemon_is_refused() {
        let parent = TestDirectory::new();
        let first = StoreDirectory::lock(parent.path()).unwrap();
        let error = StoreDirectory::lock(parent.path()).err().unwrap();
        assert!(error.text.contains("another sluiced"), "{error}");
        drop(first);
        StoreDirectory::lock(parent.path()).unwrap();
    }

    #[test]
    fn a_missing_parent_is_named_with_what_to_do() {
        let parent = TestDirectory::new();
        let error = StoreDirectory::lock(&parent.path().join("a/b")).err();
        let text = error.unwrap().text;
        assert!(text.contains("/a/b") && text.contains("--store"), "{text}");
    }

    #[test]
    fn a_file_is_no_directory_for_the_store() {
        let parent = TestDirectory::new();
        let file = parent.path().join("file");
        fs::write(&file, "precious").unwrap();
        for path in [file.clone(), file.join("store")] {
            let text = StoreDirectory::lock(&path).err().unwrap().text;
            assert!(text.contains("give a directory"), "{text}");
        }
    }

    #[test]
    fn each_cause_has_its_remedy() {
        let of = |errno: Errno| io_error("cannot open", Path::new("/x"), &errno.into());
        assert_eq!(of(Errno::ENOSPC).errno(), Errno::ENOSPC);
        assert_eq!(of(Errno::EROFS).errno(), Errno::EROFS);
        assert_eq!(of(Errno::EFBIG).errno(), Errno::ENOSPC);
        assert!(of(Errno::EFBIG).text.contains("ulimit -f"));
        assert_eq!(of(Errno::EIO).errno(), Errno::EIO);
        assert!(of(Errno::EACCES).text.contains("user of the daemon"));
    }
}
