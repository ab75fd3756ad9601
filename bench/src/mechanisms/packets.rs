// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX sockets that preserve message boundaries: seqpacket and dgram. A message is sent atomically, so
//! the send buffer of the socket limits its size. The receiver of a datagram cannot detect a closed peer.

use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, recv, send, socketpair, sockopt,
};

use super::link::MarksEnd;
use super::mechanism::failure;
use super::{Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// Bytes of the buffer that the kernel reserves.
const RESERVED: usize = 32;

pub fn seqpacket() -> Mechanism {
    mechanism("unix-seqpacket", SockType::SeqPacket)
}

pub fn dgram() -> Mechanism {
    mechanism("unix-dgram", SockType::Datagram)
}

fn mechanism(name: &'static str, kind: SockType) -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(move |task| failure(ensure_fits(kind, task.size))),
        ..Mechanism::new(name, Waiting::Sleep, move |_| link(kind))
    }
}

fn link(kind: SockType) -> Result<Link> {
    type Ends = (OwnedFd, OwnedFd);
    let receiver = |(receiver, _): Ends| Ok(PacketReceiver(receiver));
    let ends = pair(kind)?;
    Ok(match kind {
        SockType::Datagram => {
            let sender = |(_, sender): Ends| Ok(MarksEnd(PacketSender(sender)));
            Link::new(ends, sender, receiver)
        }
        _ => Link::new(ends, |(_, sender)| Ok(PacketSender(sender)), receiver),
    })
}

/// The receiving and the sending end.
fn pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
        .context("cannot create a socket pair")
}

fn ensure_fits(kind: SockType, size: usize) -> Result<()> {
    let (_, sender) = pair(kind)?;
    let most = getsockopt(&sender, sockopt::SndBuf)?.saturating_sub(RESERVED);
    ensure!(
        size <= most,
        "its messages are limited to {most} bytes; raise the limit with sysctl net.core.wmem_default={}",
        size + RESERVED
    );
    Ok(())
}

struct PacketSender(OwnedFd);

impl Sender for PacketSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let flags = MsgFlags::MSG_NOSIGNAL;
        send(self.0.as_raw_fd(), message, flags).context("cannot send a message")?;
        Ok(())
    }
}

struct PacketReceiver(OwnedFd);

impl Receiver for PacketReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        recv(self.0.as_raw_fd(), message, MsgFlags::empty()).context("cannot receive a message")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_preserved_and_the_size_limit_is_exact() {
        for kind in [SockType::SeqPacket, SockType::Datagram] {
            let (receiver, sender) = pair(kind).unwrap();
            let most = getsockopt(&sender, sockopt::SndBuf).unwrap() - RESERVED;
            let (mut sender, mut receiver) = (PacketSender(sender), PacketReceiver(receiver));
            sender.send(b"abc").unwrap();
            sender.send(b"de").unwrap();
            let mut message = [0; 8];
            assert_eq!(receiver.receive(&mut message).unwrap(), 3);
            assert_eq!(receiver.receive(&mut message).unwrap(), 2);
            assert_eq!(&message[..3], b"dec");

            ensure_fits(kind, most).unwrap();
            sender.send(&vec![1; most]).unwrap();
            let error = ensure_fits(kind, most + 1).unwrap_err().to_string();
            assert!(error.contains("net.core.wmem_default"), "{error}");
            assert!(sender.send(&vec![1; most + 1]).is_err());
        }
    }
}
