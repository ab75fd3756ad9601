// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FIFO of mkfifo(3). Its name is removed before the measurement; it is only needed for open().

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::{mkdtemp, mkfifo};

use super::stream::StreamLink;
use super::{Link, Mechanism, Waiting, memory_directory};

pub struct Fifo;

impl Mechanism for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let directory = Directory::new()?;
        let ends = open_both(&directory.fifo());
        Ok(Box::new(ends.context("cannot create and open a FIFO")?))
    }
}

fn open_both(path: &Path) -> Result<StreamLink> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // A blocking open would wait for the other end, which only this process can open.
    let receiver = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let sender = File::options().write(true).open(path)?;
    fcntl(&receiver, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(StreamLink { sender, receiver })
}

/// A directory of this user, so that no other user can open the FIFO.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let template = memory_directory().join("sluice-bench-fifo-XXXXXX");
        let directory = mkdtemp(&template);
        Ok(Self(directory.with_context(|| {
            format!("cannot create a directory like {}", template.display())
        })?))
    }

    fn fifo(&self) -> PathBuf {
        self.0.join("fifo")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!(
                "cannot remove {}: {error}; remove it manually",
                self.0.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_private_and_removed_with_the_fifo() {
        use std::os::unix::fs::PermissionsExt;
        let directory = Directory::new().unwrap();
        let path = directory.0.clone();
        let _ends = open_both(&directory.fifo()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }
}
