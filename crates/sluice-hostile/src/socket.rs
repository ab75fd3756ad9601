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

/// As many files as a test sends at once.
const FILES: usize = 8;

/// A bare end of a connection.
#[derive(Debug)]
pub struct Peer(OwnedFd);

impl Peer {
    /// And the honest side's end.
    pub fn pair() -> (Self, OwnedFd) {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("no sockets");
        (Self(ours), theirs)
    }

    /// Sends one message with these files, unless the socket is full or there is nobody at the other end.
    pub fn say(&self, message: &[u8], files: &[BorrowedFd]) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.0, &[IoSlice::new(message)], &mut control, flags).map(drop)
    }

    /// The next message that is there, with its files. Without any bytes it is the end.
    pub fn hear(&self) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
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

    /// The error in the last message that is there, if that is a verdict.
    pub fn last_verdict(&self) -> Option<u32> {
        let mut last = None;
        loop {
            match self.hear() {
                Ok((message, _)) if message.is_empty() => break,
                Ok((message, _)) => last = Some(message),
                // It hung up without hearing all; what it said is there nevertheless.
                Err(Errno::CONNRESET) => {}
                Err(_) => break,
            }
        }
        let word = last.filter(|message| message.len() == 8)?;
        Some(u32::from_ne_bytes(word[4..].try_into().ok()?))
    }

    /// Nothing more is said, and what is heard is still heard.
    pub fn says_no_more(&self) {
        shutdown(&self.0, Shutdown::Write).expect("not shut down");
    }
}

/// A connected one.
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
