// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FIFO of mkfifo(3): pipe(2) with a name. The name is gone before anything is measured; it is the open that it is for.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::{mkdtemp, mkfifo};

use super::stream::StreamLink;
use super::{Link, Mechanism, Waiting, memory_folder};

pub struct Fifo;

impl Mechanism for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let folder = Folder::new()?;
        let ends = open_both(&folder.fifo());
        Ok(Box::new(ends.context("cannot make and open a FIFO")?))
    }
}

fn open_both(path: &Path) -> Result<StreamLink> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // A plain open would wait for the other end, which only this process can open.
    let receiver = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let sender = File::options().write(true).open(path)?;
    fcntl(&receiver, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(StreamLink { sender, receiver })
}

/// Of this user alone, so that no one else can open the FIFO in between.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let template = memory_folder().join("sluice-bench-fifo-XXXXXX");
        let folder = mkdtemp(&template);
        Ok(Self(folder.with_context(|| {
            format!("cannot make a folder {}", template.display())
        })?))
    }

    fn fifo(&self) -> PathBuf {
        self.0.join("fifo")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!(
                "cannot remove {} ({error}); remove it by hand",
                self.0.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_private_and_goes_with_the_fifo_in_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new().unwrap();
        let path = folder.0.clone();
        let _ends = open_both(&folder.fifo()).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(folder);
        assert!(!path.exists());
    }
}
