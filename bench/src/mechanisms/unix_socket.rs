// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX. Stream sockets have the default buffers. Seqpacket preserves message boundaries: a message is sent atomically, so the send buffer of the socket limits its size.

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, recv, send, setsockopt, socketpair,
    sockopt,
};

use super::mechanism::failure;
use super::stream::Ends;
use super::{Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

/// Bytes of the buffer that the kernel reserves.
const RESERVED: usize = 32;

pub fn mechanisms() -> [Mechanism; 2] {
    let stream = stream::mechanism("unix-stream", || pair(SockType::Stream));
    [stream, packets()]
}

pub fn pair(kind: SockType) -> Result<Ends> {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
        .context("cannot create a socket pair")
}

/// Only the buffer of the sender counts. The kernel doubles it, because its own structures count, too. It may exceed net.core.wmem_max, which only root may.
pub fn large_pair(kind: SockType, bytes: usize) -> Result<Ends> {
    let (receiver, sender) = pair(kind)?;
    setsockopt(&sender, sockopt::SndBufForce, &bytes)
        .context("cannot enlarge the send buffer of a socket; run as root")?;
    Ok((receiver, sender))
}

fn packets() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|task| failure(ensure_fits(task.size))),
        ..Mechanism::new("unix-seqpacket", Waiting::Sleep, |_| {
            Ok(Link::new(pair(SockType::SeqPacket)?, sender, receiver))
        })
    }
}

fn sender((_, socket): Ends) -> Result<impl FnMut(&[u8]) -> Result<()>> {
    Ok(move |message: &[u8]| {
        let sent = send(socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL);
        sent.map(drop).context("cannot send a message")
    })
}

fn receiver((socket, _): Ends) -> Result<impl FnMut(&mut [u8]) -> Result<usize>> {
    Ok(move |message: &mut [u8]| {
        let received = recv(socket.as_raw_fd(), message, MsgFlags::empty());
        received.context("cannot receive a message")
    })
}

fn ensure_fits(size: usize) -> Result<()> {
    let (_, sender) = pair(SockType::SeqPacket)?;
    let most = getsockopt(&sender, sockopt::SndBuf)?.saturating_sub(RESERVED);
    ensure!(
        size <= most,
        "its messages are limited to {most} bytes; raise the limit with sysctl net.core.wmem_default={}",
        size + RESERVED
    );
    Ok(())
}
