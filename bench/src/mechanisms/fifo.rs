// SPDX-License-Identifier: MIT OR Apache-2.0
//! A FIFO of mkfifo(3). Its name is removed before the measurement; it is only needed for open().

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::mechanism::memory_directory;
use super::temp_paths::Directory;
use super::{Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism::new("fifo", Waiting::Sleep, |_| {
        // A directory of this user, so that no other user can open the FIFO.
        let directory = Directory::new(&memory_directory())?;
        open_both(&directory.0.join("fifo")).context("cannot create and open a FIFO")
    })
}

fn open_both(path: &Path) -> Result<Link> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    // A blocking open would wait for the other end, which only this process can open.
    let receiver = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    let sender = File::options().write(true).open(path)?;
    fcntl(&receiver, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(stream::link(receiver, sender))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_directory_is_private_and_removed_with_the_fifo() {
        let directory = Directory::new(&memory_directory()).unwrap();
        let path = directory.0.clone();
        let _ends = open_both(&directory.0.join("fifo")).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }
}
