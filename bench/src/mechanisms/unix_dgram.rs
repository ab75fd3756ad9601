// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX datagram sockets. A receiver cannot detect a closed peer, so an empty datagram marks the
//! end.

use anyhow::Result;
use nix::sys::socket::SockType;

use super::packets::{self, Packets, ReceivingEnd, SendingEnd};
use super::{Link, Mechanism, Sender};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| packets::unsupported_reason(SockType::Datagram, task)),
        ..Mechanism::new("unix-dgram", Waiting::Sleep, |_| {
            Ok(Link::new(
                Packets::new(SockType::Datagram)?,
                |ends| Ok(Input(SendingEnd(ends.sender))),
                |ends| Ok(ReceivingEnd(ends.receiver)),
            ))
        })
    }
}

struct Input(SendingEnd);

impl Sender for Input {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.0.send(message)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // An error means that the receiver has ended.
        let _ = self.send(&[]);
    }
}
