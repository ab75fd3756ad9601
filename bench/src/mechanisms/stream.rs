// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams with a file descriptor. Both ends are open before the fork.

use std::fs::File;
use std::hint::spin_loop;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

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

/// With O_NONBLOCK, and polled all the time: a system call for each look, but no sleep and no wake-up.
pub fn nonblocking(name: &'static str, ends: fn() -> Result<Ends>) -> Mechanism {
    Mechanism {
        never_sleeps: true,
        ..Mechanism::new(name, Waiting::Spin, move |_| {
            let ends = ends()?;
            for end in [&ends.0, &ends.1] {
                fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            }
            Ok(link(ends))
        })
    }
}

pub fn link(ends: Ends) -> Link {
    Link::new(
        ends,
        |(_, sender)| Ok(StreamSender(sender.into())),
        |(receiver, _)| Ok(StreamReceiver(receiver.into())),
    )
}

fn retry(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Reads what is there, at least one byte; 0 at the end.
pub fn read(mut file: &File, buffer: &mut [u8]) -> Result<usize> {
    retry(|| file.read(buffer)).context("cannot read a message")
}

pub struct StreamSender(pub File);

impl Sender for StreamSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let mut sent = 0;
        while sent < message.len() {
            let written = retry(|| self.0.write(&message[sent..]));
            let written = written.context("cannot write a message")?;
            ensure!(written > 0, "nothing of a message was written");
            sent += written;
        }
        Ok(())
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
