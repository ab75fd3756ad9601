// SPDX-License-Identifier: MIT OR Apache-2.0

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recvmsg, sendmsg, shutdown,
    socketpair,
};

/// The maximum number of files that a test sends in one message.
const FILES: usize = 8;

/// What a side over memfd has, apart from its mapping.
#[derive(Debug)]
pub struct Memfd {
    pub peer: Peer,
    /// The memory of this side.
    pub file: OwnedFd,
}

/// A bare connected socket.
#[derive(Debug)]
pub struct Peer(OwnedFd);

impl Peer {
    /// Returns one end, and the other for the library.
    pub fn pair() -> (Self, OwnedFd) {
        let (peer, socket) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("no socket pair");
        (Self(peer), socket)
    }

    /// Sends one message with these files. Fails if the socket is full or the other end is closed.
    pub fn send(&self, message: &[u8], files: &[BorrowedFd]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags).map(drop)
    }

    /// Receives the next queued message with its files. Without bytes it is an empty message or the end of the stream.
    pub fn receive(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut message = [0; 64];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let into = &mut [IoSliceMut::new(&mut message)];
        let bytes = recvmsg(&self.0, into, &mut control, flags)?.bytes;
        let files = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        });
        let files = files.flatten().collect();
        Ok((message[..bytes].to_vec(), files))
    }

    /// Receives all queued messages and returns the error number of the last if that is a reply.
    pub fn last_reply(&self) -> Option<u32> {
        let mut last = None;
        loop {
            match self.receive() {
                Ok((message, _)) if message.is_empty() => break,
                Ok((message, _)) => last = Some(message),
                // Reported once if the other end closed with unread messages; its own messages are still queued.
                Err(Errno::CONNRESET) => {}
                Err(_) => break,
            }
        }
        let word = last.filter(|message| message.len() == 8)?;
        Some(u32::from_ne_bytes(word[4..].try_into().ok()?))
    }

    /// Shuts down the sending half. Receiving still works.
    pub fn shutdown(&self) {
        shutdown(&self.0, Shutdown::Write).expect("not shut down");
    }
}

impl From<OwnedFd> for Peer {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
