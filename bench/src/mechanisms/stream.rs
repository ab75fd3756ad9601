// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ends of mechanisms that are byte streams with a file descriptor.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};

use super::{Link, Receiver, Sender};

/// Both ends are open before the fork.
pub fn link(receiver: impl Into<OwnedFd>, sender: impl Into<OwnedFd>) -> Link {
    let ends: (OwnedFd, OwnedFd) = (receiver.into(), sender.into());
    Link::new(
        ends,
        |(_, sender)| Ok(StreamSender(sender.into())),
        |(receiver, _)| Ok(StreamReceiver(receiver.into())),
    )
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
            match self.0.read(&mut message[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot read a message"),
            }
        }
        Ok(filled)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_several_pieces_is_assembled() {
        let (receiver, sender) = nix::unistd::pipe().unwrap();
        let (mut receiver, mut sender) = (StreamReceiver(receiver.into()), File::from(sender));
        let feeding = std::thread::spawn(move || {
            for piece in [&b"ab"[..], b"cd", b"e"] {
                sender.write_all(piece).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let mut message = [0; 4];
        assert_eq!(receiver.receive(&mut message).unwrap(), 4);
        assert_eq!(&message, b"abcd");
        assert_eq!(receiver.receive(&mut message).unwrap(), 1);
        assert_eq!(receiver.receive(&mut message).unwrap(), 0);
        feeding.join().unwrap();
    }
}
