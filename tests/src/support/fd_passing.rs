// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passing open files between processes (SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result, bail};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg,
    sendmsg, socketpair,
};

/// A connected pair of sockets.
pub fn socket_pair() -> Result<(OwnedFd, OwnedFd)> {
    let flags = SockFlag::SOCK_CLOEXEC;
    socketpair(AddressFamily::Unix, SockType::Stream, None, flags).context("socketpair")
}

/// Sends an open file to the reader of the other socket.
pub fn send_fd(socket: &OwnedFd, fd: BorrowedFd) -> Result<()> {
    let fds = [fd.as_raw_fd()];
    let control = [ControlMessage::ScmRights(&fds)];
    let content = [IoSlice::new(b"!")];
    sendmsg::<()>(
        socket.as_raw_fd(),
        &content,
        &control,
        MsgFlags::empty(),
        None,
    )
    .context("sending a file")?;
    Ok(())
}

pub fn receive_fd(socket: &OwnedFd) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut content = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut content, Some(&mut space), flags)
        .context("receiving a file")?;
    for control in message.cmsgs().context("reading the control messages")? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            let fd = *fds.first().context("the message carries no file")?;
            // SAFETY: a new descriptor, which nothing else owns.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    bail!("the message carries no file")
}
