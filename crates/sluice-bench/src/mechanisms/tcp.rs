// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface, with TCP_NODELAY, so that small messages are not delayed. The buffer
//! sizes are the defaults, because the kernel adapts only those.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::stream::StreamLink;
use super::{Link, Mechanism, Task, Waiting};

pub struct Tcp;

impl Mechanism for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Sleep
    }

    fn unsupported_reason(&self, _task: &Task) -> Option<String> {
        connect().err().map(|error| format!("{error:#}"))
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(connect()?))
    }
}

fn connect() -> Result<StreamLink> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(
        "cannot listen on 127.0.0.1; enable the loopback interface with 'ip link set lo up'",
    )?;
    let sender = TcpStream::connect(listener.local_addr()?).context(
        "cannot connect to 127.0.0.1; enable the loopback interface with 'ip link set lo up'",
    )?;
    let receiver = accept(&listener, &sender)?;
    sender.set_nodelay(true)?;
    receiver.set_nodelay(true)?;
    let (sender, receiver): (OwnedFd, OwnedFd) = (sender.into(), receiver.into());
    Ok(StreamLink {
        sender: sender.into(),
        receiver: receiver.into(),
    })
}

/// Another process may connect first while the port is open.
fn accept(listener: &TcpListener, sender: &TcpStream) -> Result<TcpStream> {
    let expected = sender.local_addr()?;
    loop {
        let (receiver, address) = listener
            .accept()
            .context("cannot accept a connection on 127.0.0.1")?;
        if address == expected {
            return Ok(receiver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_of_another_process_is_ignored() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let receiver = accept(&listener, &sender).unwrap();
        assert_eq!(receiver.peer_addr().unwrap(), sender.local_addr().unwrap());
    }
}
