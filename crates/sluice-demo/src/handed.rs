// SPDX-License-Identifier: MIT OR Apache-2.0
//! Inside a container: endpoints that it was handed, and could not have opened by any name.

use std::fs;
use std::io::{IoSliceMut, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use sha2::{Digest, Sha256};
use sluice::{Reader, Writer};
use sluice_testkit::clock;

use crate::protocol::Event;
use crate::transfer::{hexadecimal, write_all};
use crate::worker::{INPUT, SOCKET};

/// The first after standard error, as crun hands them over.
const PRESERVED: RawFd = 3;

/// The endpoint that this container was started with. Call it once, before anything is opened.
pub fn take_preserved() -> Result<Reader> {
    // SAFETY: crun left it open for us, and nobody else here knows of it.
    let fd = unsafe { OwnedFd::from_raw_fd(PRESERVED) };
    // The processes that send and receive are not to hold it open.
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))
        .context("cannot use the endpoint that crun was to preserve")?;
    Ok(fd.into())
}

/// Sends the container's file through the endpoint that the host gives now; its end is the end of the stream.
pub fn send(write_size: usize) -> Result<Event> {
    let socket = UnixStream::connect(SOCKET).context("cannot reach the host over its socket")?;
    let end = Writer::from(take_file(&socket)?);
    let content = fs::read(INPUT).with_context(|| format!("cannot read {INPUT}"))?;
    let begin_ns = clock::now_ns();
    let bytes = write_all(end, &content, write_size)?;
    Ok(Event::Sent { bytes, begin_ns })
}

pub fn receive(mut end: &Reader, read_size: usize) -> Result<Event> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; read_size];
    let mut bytes = 0;
    loop {
        match end
            .read(&mut buffer)
            .context("cannot read from the channel")?
        {
            0 => break,
            n => {
                hash.update(&buffer[..n]);
                bytes += n as u64;
            }
        }
    }
    Ok(Event::Received {
        bytes,
        end_ns: clock::now_ns(),
        sha256: Some(hexadecimal(&hash.finalize())),
    })
}

/// The file that comes with the next byte (SCM_RIGHTS).
fn take_file(socket: &UnixStream) -> Result<OwnedFd> {
    let mut byte = [0];
    let mut content = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut content, Some(&mut space), flags)
        .context("cannot receive from the host")?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(fds) = control {
            let fd = *fds.first().context("the host's message carries no file")?;
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows of it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    bail!("the host's message carries no file")
}
