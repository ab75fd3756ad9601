// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface, with TCP_NODELAY, or small messages would wait for each other. Buffers are
//! left alone, because the kernel adapts their sizes only then.

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

    fn obstacle(&self, _task: &Task) -> Option<String> {
        connect().err().map(|error| format!("{error:#}"))
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(connect()?))
    }
}

fn connect() -> Result<StreamLink> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .context("cannot listen on 127.0.0.1; is the loopback interface up? 'ip link set lo up'")?;
    let sender = TcpStream::connect(listener.local_addr()?).context(
        "cannot connect to 127.0.0.1; is the loopback interface up? 'ip link set lo up'",
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

/// Others on this machine can connect, too, while the port is open.
fn accept(listener: &TcpListener, sender: &TcpStream) -> Result<TcpStream> {
    let ours = sender.local_addr()?;
    loop {
        let (receiver, address) = listener
            .accept()
            .context("cannot accept a connection on 127.0.0.1")?;
        if address == ours {
            return Ok(receiver);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_that_connects_first_is_not_taken_for_the_sender() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let _stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let receiver = accept(&listener, &sender).unwrap();
        assert_eq!(receiver.peer_addr().unwrap(), sender.local_addr().unwrap());
    }
}
