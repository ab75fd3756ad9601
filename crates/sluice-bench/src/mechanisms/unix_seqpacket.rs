// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX seqpacket sockets, which preserve message boundaries and report a closed peer.

use std::os::fd::{BorrowedFd, OwnedFd};

use anyhow::Result;
use nix::sys::socket::SockType;

use super::packets::{self, Packets, receive_whole, send_whole};
use super::{Link, Mechanism, Receiver, Sender, Task, Waiting};

pub struct UnixSeqpacket;

impl Mechanism for UnixSeqpacket {
    fn name(&self) -> &'static str {
        "unix-seqpacket"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        packets::unsupported_reason(SockType::SeqPacket, task)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Ends(Packets::new(SockType::SeqPacket)?)))
    }
}

struct Ends(Packets);

impl Link for Ends {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(End(self.0.sender)))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        Ok(Box::new(End(self.0.receiver)))
    }
}

struct End(OwnedFd);

impl Sender for End {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        send_whole(&self.0, message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Receiver for End {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        receive_whole(&self.0, message)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
