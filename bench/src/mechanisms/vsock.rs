// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of vsock(7) to this machine, over its loopback transport: the sockets between a host and its virtual
//! machines, as programs use them to run alike on one machine. With the default buffers.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, VsockAddr, accept4, bind, connect, getpeername,
    getsockname, listen, socket,
};

use super::{Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|_| listener().err().map(|error| format!("{error:#}"))),
        ..Mechanism::new("vsock", Waiting::Sleep, |_| link())
    }
}

fn link() -> Result<Link> {
    let listener = listener()?;
    let sender = new_socket()?;
    connect(sender.as_raw_fd(), &address(&listener)?).context("cannot connect to a vsock")?;
    let receiver = accept(&listener, &sender)?;
    Ok(stream::link(receiver, sender))
}

/// Binding to the address of the loopback transport fails at once where there is none.
fn listener() -> Result<OwnedFd> {
    let listener = new_socket()?;
    let address = VsockAddr::new(libc::VMADDR_CID_LOCAL, libc::VMADDR_PORT_ANY);
    bind(listener.as_raw_fd(), &address).map_err(bind_error)?;
    listen(&listener, Backlog::new(1)?).context("cannot listen on a vsock")?;
    Ok(listener)
}

fn new_socket() -> Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Vsock, SockType::Stream, flags, None);
    socket.context("cannot create a vsock; load it with 'modprobe vsock_loopback'")
}

fn bind_error(errno: Errno) -> anyhow::Error {
    let advice = match errno {
        Errno::EADDRNOTAVAIL => {
            "there is no loopback transport; load it with 'modprobe vsock_loopback'"
        }
        _ => "see vsock(7)",
    };
    anyhow::Error::new(errno).context(format!("cannot bind a vsock to this machine; {advice}"))
}

fn address(socket: &OwnedFd) -> Result<VsockAddr> {
    getsockname(socket.as_raw_fd()).context("cannot read the address of a vsock")
}

/// Another process may connect first while the port is open.
fn accept(listener: &OwnedFd, sender: &OwnedFd) -> Result<OwnedFd> {
    let expected = address(sender)?.port();
    loop {
        let accepted = accept4(listener.as_raw_fd(), SockFlag::SOCK_CLOEXEC);
        let accepted = accepted.context("cannot accept a connection of a vsock")?;
        // SAFETY: the call returned a new descriptor.
        let receiver = unsafe { OwnedFd::from_raw_fd(accepted) };
        let peer: VsockAddr = getpeername(receiver.as_raw_fd())?;
        if peer.port() == expected {
            return Ok(receiver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_missing_transport_is_named() {
        let error = format!("{:#}", bind_error(Errno::EADDRNOTAVAIL));
        assert!(error.contains("modprobe vsock_loopback"), "{error}");
    }
}
