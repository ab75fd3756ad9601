// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pair of AF_UNIX sockets for each receiver, with send buffers that a burst fits into.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, socketpair};

use super::channel::{CAPACITY, Channel, Receiver, Sender, Shape};
use super::pipe::{Reader, Writer, set_nonblocking};
use crate::mechanisms::unix_stream::enlarge_send_buffer;

/// The kernel counts the memory of a message, which is several times as much as the bytes of a short one.
const SEND_BUFFER: usize = 4 * CAPACITY;

pub fn create_stream(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Sockets::new(SockType::Stream, shape)?))
}

pub fn create_seqpacket(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Sockets::new(SockType::SeqPacket, shape)?))
}

fn pair(kind: SockType) -> Result<(OwnedFd, OwnedFd)> {
    let pair = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC);
    let (sending, receiving) = pair.context("cannot create a socket pair")?;
    enlarge_send_buffer(&sending, SEND_BUFFER)?;
    Ok((sending, receiving))
}

/// The reason why buffers of the needed size are not available.
pub fn unavailable() -> Option<String> {
    pair(SockType::Stream)
        .err()
        .map(|error| format!("{error:#}"))
}

struct Sockets {
    kind: SockType,
    size: usize,
    receiving: Vec<OwnedFd>,
    sending: Vec<File>,
}

impl Sockets {
    fn new(kind: SockType, shape: &Shape) -> Result<Self> {
        let (mut receiving, mut sending) = (Vec::new(), Vec::new());
        for _ in 0..shape.receivers {
            let (to, from) = pair(kind)?;
            if !shape.blocking {
                set_nonblocking(&from)?;
            }
            receiving.push(from);
            sending.push(to.into());
        }
        Ok(Self {
            kind,
            size: shape.size,
            receiving,
            sending,
        })
    }
}

impl Channel for Sockets {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Writer(self.sending)))
    }

    fn receiver(mut self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>> {
        let from = self.receiving.swap_remove(number);
        Ok(match self.kind {
            SockType::Stream => Box::new(Reader::new(from, self.size)),
            _ => Box::new(Packets {
                socket: from,
                message: vec![0; self.size],
            }),
        })
    }
}

struct Packets {
    socket: OwnedFd,
    message: Vec<u8>,
}

impl Receiver for Packets {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        let received = recv(
            self.socket.as_raw_fd(),
            &mut self.message,
            MsgFlags::empty(),
        );
        match received {
            Ok(length) => {
                ensure!(length > 0, "the connection ended unexpectedly");
                visit(&self.message[..length])?;
                Ok(true)
            }
            Err(Errno::EAGAIN) => Ok(false),
            Err(error) => Err(error).context("cannot receive a message"),
        }
    }
}
