// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface. With TCP_NODELAY no small message waits for others; without it, which
//! delays every request, a stream of small messages needs fewer segments. The buffer sizes are the defaults, because the
//! kernel adapts only those.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use super::{Link, Mechanism, Workload, stream};
use crate::harness::waiting::Waiting;

const ADVICE: &str = "enable the loopback interface with 'ip link set lo up'";

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|_| unavailable()),
        ..Mechanism::new("tcp", Waiting::Sleep, |_| connect(true))
    }
}

/// Without TCP_NODELAY.
pub fn coalescing() -> Mechanism {
    Mechanism {
        label: "tcp (coalescing)".into(),
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::Stream => unavailable(),
            _ => Some("only a stream gains if messages wait for others".into()),
        }),
        ..Mechanism::new("tcp-coalescing", Waiting::Sleep, |_| connect(false))
    }
}

fn unavailable() -> Option<String> {
    connect(true).err().map(|error| format!("{error:#}"))
}

fn connect(nodelay: bool) -> Result<Link> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .with_context(|| format!("cannot listen on 127.0.0.1; {ADVICE}"))?;
    let sender = TcpStream::connect(listener.local_addr()?)
        .with_context(|| format!("cannot connect to 127.0.0.1; {ADVICE}"))?;
    let receiver = accept(&listener, &sender)?;
    sender.set_nodelay(nodelay)?;
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
