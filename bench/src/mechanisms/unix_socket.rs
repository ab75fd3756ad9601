// SPDX-License-Identifier: MIT OR Apache-2.0
//! A socketpair(2) of AF_UNIX. Stream sockets have the default buffers, or larger ones, or are polled without blocking.
//! Seqpacket and dgram preserve message boundaries: a message is sent atomically, so the send buffer of the socket limits its
//! size. The receiver of a datagram cannot detect a closed peer.

use std::os::fd::AsRawFd;

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, getsockopt, recv, send, setsockopt, socketpair,
    sockopt,
};

use super::link::MarksEnd;
use super::mechanism::failure;
use super::stream::Ends;
use super::{Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

/// The kernel doubles it, because its own structures count, too. The default is 208 KiB after that.
const LARGE: usize = 1 << 20;
/// Bytes of the buffer that the kernel reserves.
const RESERVED: usize = 32;

pub fn mechanisms() -> [Mechanism; 5] {
    let large = || large_pair(SockType::Stream, LARGE);
    let large = stream::mechanism("unix-stream-large", large);
    [
        stream::mechanism("unix-stream", || pair(SockType::Stream)),
        large.labelled("unix-stream-large (2 MiB)"),
        stream::nonblocking("unix-nonblock", || pair(SockType::Stream)),
        packets("unix-seqpacket", SockType::SeqPacket),
        packets("unix-dgram", SockType::Datagram),
    ]
}

pub fn pair(kind: SockType) -> Result<Ends> {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
        .context("cannot create a socket pair")
}

/// Only the buffer of the sender counts. It may exceed net.core.wmem_max, which only root may.
pub fn large_pair(kind: SockType, bytes: usize) -> Result<Ends> {
    let (receiver, sender) = pair(kind)?;
    setsockopt(&sender, sockopt::SndBufForce, &bytes)
        .context("cannot enlarge the send buffer of a socket; run as root")?;
    Ok((receiver, sender))
}

fn packets(name: &'static str, kind: SockType) -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(move |task| failure(ensure_fits(kind, task.size))),
        ..Mechanism::new(name, Waiting::Sleep, move |_| packet_link(kind))
    }
}

fn packet_link(kind: SockType) -> Result<Link> {
    let sender = |(_, socket): Ends| {
        Ok(move |message: &[u8]| {
            let sent = send(socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL);
            sent.map(drop).context("cannot send a message")
        })
    };
    let receiver = |(socket, _): Ends| {
        Ok(move |message: &mut [u8]| {
            let received = recv(socket.as_raw_fd(), message, MsgFlags::empty());
            received.context("cannot receive a message")
        })
    };
    let ends = pair(kind)?;
    Ok(match kind {
        SockType::Datagram => Link::new(ends, move |ends| sender(ends).map(MarksEnd), receiver),
        _ => Link::new(ends, sender, receiver),
    })
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
