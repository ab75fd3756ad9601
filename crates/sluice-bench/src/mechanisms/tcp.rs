// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface, with TCP_NODELAY, so that small messages are not delayed. The buffer
//! sizes are the defaults, because the kernel adapts only those.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use super::{Link, Mechanism, stream};
use crate::harness::waiting::Waiting;

const ADVICE: &str = "enable the loopback interface with 'ip link set lo up'";

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|_| connect().err().map(|error| format!("{error:#}"))),
        ..Mechanism::new("tcp", Waiting::Sleep, |_| connect())
    }
}

fn connect() -> Result<Link> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .with_context(|| format!("cannot listen on 127.0.0.1; {ADVICE}"))?;
    let sender = TcpStream::connect(listener.local_addr()?)
        .with_context(|| format!("cannot connect to 127.0.0.1; {ADVICE}"))?;
    let receiver = accept(&listener, &sender)?;
    sender.set_nodelay(true)?;
    receiver.set_nodelay(true)?;
    Ok(stream::link(receiver, sender))
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
