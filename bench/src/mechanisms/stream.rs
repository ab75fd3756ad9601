// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams with a file descriptor. Both ends are open before the fork.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};

use super::mechanism::failure;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// A receiving and a sending end.
pub type Ends = (OwnedFd, OwnedFd);

/// A mechanism whose links have these ends, if they can be created here.
pub fn mechanism(name: &'static str, ends: fn() -> Result<Ends>) -> Mechanism {
    Mechanism {
        is_file: true,
        unsupported_reason: Box::new(move |_| failure(ends())),
        ..Mechanism::new(name, Waiting::Sleep, move |_| Ok(link(ends()?)))
    }
}

pub fn link(ends: Ends) -> Link {
    Link::new(
        ends,
        |(_, sender)| Ok(StreamSender(sender.into())),
        |(receiver, _)| Ok(StreamReceiver(receiver.into())),
    )
}

/// Reads what is there, at least one byte; 0 at the end.
pub fn read(mut file: &File, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other.context("cannot read a message"),
        }
    }
}

pub struct StreamSender(pub File);

impl Sender for StreamSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.write_all(message).context("cannot write a message")
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

pub struct StreamReceiver(pub File);

impl Receiver for StreamReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < message.len() {
            match read(&self.0, &mut message[filled..])? {
                0 => break,
                n => filled += n,
            }
        }
        Ok(filled)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}
