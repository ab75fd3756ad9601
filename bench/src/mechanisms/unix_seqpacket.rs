// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX seqpacket sockets, which preserve message boundaries and report a closed peer.

use nix::sys::socket::SockType;

use super::packets::{self, Packets, ReceivingEnd, SendingEnd};
use super::{Link, Mechanism};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| packets::unsupported_reason(SockType::SeqPacket, task)),
        ..Mechanism::new("unix-seqpacket", Waiting::Sleep, |_| {
            Ok(Link::new(
                Packets::new(SockType::SeqPacket)?,
                |ends| Ok(SendingEnd(ends.sender)),
                |ends| Ok(ReceivingEnd(ends.receiver)),
            ))
        })
    }
}
