// SPDX-License-Identifier: MIT OR Apache-2.0
//! Common code of the AF_UNIX sockets that preserve message boundaries: seqpacket and dgram. A message is sent
//! atomically, so the send buffer of the socket limits its size.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, recv, send, socketpair, sockopt,
};

use super::mechanism::no_file;
use super::{Receiver, Sender, Task};

/// Bytes of the buffer that the kernel reserves.
const RESERVED: usize = 32;

pub struct Packets {
    pub sender: OwnedFd,
    pub receiver: OwnedFd,
}

impl Packets {
    pub fn new(kind: SockType) -> Result<Self> {
        let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
        let (sender, receiver) = pair.context("cannot create a socket pair")?;
        Ok(Self { sender, receiver })
    }

    fn max_bytes(&self) -> Result<usize> {
        let buffer = getsockopt(&self.sender, sockopt::SndBuf)?;
        Ok(buffer.saturating_sub(RESERVED))
    }
}

pub fn unsupported_reason(kind: SockType, task: &Task) -> Option<String> {
    no_file(task).or_else(
        || match Packets::new(kind).and_then(|one| one.max_bytes()) {
            Ok(most) if task.size <= most => None,
            Ok(most) => Some(format!(
                "its messages are limited to {most} bytes; raise the limit with sysctl net.core.wmem_default={}",
                task.size + RESERVED
            )),
            Err(error) => Some(format!("{error:#}")),
        },
    )
}

pub struct SendingEnd(pub OwnedFd);

impl Sender for SendingEnd {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL;
        send(self.0.as_raw_fd(), message, flags).context("cannot send a message")?;
        Ok(())
    }
}

pub struct ReceivingEnd(pub OwnedFd);

impl Receiver for ReceivingEnd {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        recv(self.0.as_raw_fd(), message, MsgFlags::empty()).context("cannot receive a message")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;
    use crate::mechanisms::Workload;

    fn stream_of(size: usize) -> Task {
        Task {
            size,
            placement: Placement::SameCpu,
            workload: Workload::Stream,
        }
    }

    #[test]
    fn the_size_limit_is_exact() {
        for kind in [SockType::SeqPacket, SockType::Datagram] {
            let packets = Packets::new(kind).unwrap();
            let most = packets.max_bytes().unwrap();
            assert_eq!(unsupported_reason(kind, &stream_of(most)), None);
            let mut sender = SendingEnd(packets.sender);
            sender.send(&vec![1; most]).unwrap();
            let reason = unsupported_reason(kind, &stream_of(most + 1)).unwrap();
            assert!(reason.contains("net.core.wmem_default"), "{reason}");
            assert!(sender.send(&vec![1; most + 1]).is_err());
        }
    }

    #[test]
    fn message_boundaries_are_preserved() {
        for kind in [SockType::SeqPacket, SockType::Datagram] {
            let packets = Packets::new(kind).unwrap();
            let mut sender = SendingEnd(packets.sender);
            let mut receiver = ReceivingEnd(packets.receiver);
            sender.send(b"abc").unwrap();
            sender.send(b"de").unwrap();
            let mut message = [0; 8];
            assert_eq!(receiver.receive(&mut message).unwrap(), 3);
            assert_eq!(receiver.receive(&mut message).unwrap(), 2);
            assert_eq!(&message[..3], b"dec");
        }
    }
}
