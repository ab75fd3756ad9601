// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside a container: bytes that are held in the pipe for a while, so that another container can try to see them.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};
use nix::fcntl::OFlag;
use sluice_testkit::module::PIPE_NODE;

use crate::protocol::Event;

nix::ioctl_read_bad!(bytes_to_read, nix::libc::FIONREAD, nix::libc::c_int);

#[derive(Default)]
pub struct Secret {
    held: Option<File>,
}

impl Secret {
    pub fn hold(&mut self, text: &str) -> Result<Event> {
        let mut file = open(true)?;
        file.write_all(text.as_bytes())
            .context("cannot put bytes into the pipe")?;
        self.held = Some(file);
        Ok(Event::Held)
    }

    /// How much the pipe announces, and how much it gives.
    pub fn peek(&self) -> Result<Event> {
        let file = open(false)?;
        Ok(Event::Peeked {
            announced: announced(&file)?,
            read: read_what_is_there(file)?.len(),
        })
    }

    pub fn take(&mut self) -> Result<Event> {
        let file = self.held.take().context("nothing is held")?;
        let bytes = read_what_is_there(file)?;
        Ok(Event::Taken {
            text: String::from_utf8_lossy(&bytes).into_owned(),
        })
    }
}

/// Never waits: neither for another end nor for bytes.
fn open(write: bool) -> Result<File> {
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let file = File::options()
        .read(true)
        .write(write)
        .custom_flags(nonblocking)
        .open(PIPE_NODE);
    file.with_context(|| format!("cannot open {PIPE_NODE}"))
}

fn announced(file: &File) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: the descriptor is open and the kernel stores one int.
    unsafe { bytes_to_read(file.as_raw_fd(), &mut bytes) }
        .context("the pipe does not tell how much is in it")?;
    Ok(usize::try_from(bytes)?)
}

fn read_what_is_there(mut file: File) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    match file.read(&mut bytes) {
        Ok(n) => bytes.truncate(n),
        Err(error) if error.kind() == ErrorKind::WouldBlock => bytes.clear(),
        Err(error) => return Err(error).context("cannot read from the pipe"),
    }
    Ok(bytes)
}
