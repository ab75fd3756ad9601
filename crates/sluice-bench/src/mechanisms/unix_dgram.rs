// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX datagram sockets. A receiver cannot detect a closed peer, so an empty datagram marks the
//! end.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Result;
use nix::sys::socket::SockType;

use super::packets::{self, Packets, receive_whole, send_whole};
use super::{Link, Mechanism, Receiver, Sender, Task, Waiting};

pub struct UnixDgram;

impl Mechanism for UnixDgram {
    fn name(&self) -> &'static str {
        "unix-dgram"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        packets::unsupported_reason(SockType::Datagram, task)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Ends(Packets::new(SockType::Datagram)?)))
    }
}

struct Ends(Packets);

impl Link for Ends {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Input(self.0.sender)))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(Output(self.0.receiver)))
    }
}

struct Input(OwnedFd);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        send_whole(&self.0, message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error means that the receiver has ended.
        let _ = send_whole(&self.0, &[]);
    }
}

struct Output(OwnedFd);

impl Receiver for Output {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        receive_whole(&self.0, message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
