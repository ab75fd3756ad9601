// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface. With TCP_NODELAY no small message waits for others; without it, which
//! delays every request, a stream of small messages needs fewer segments. The buffer sizes are the defaults, because the
//! kernel adapts only those.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result};

use super::mechanism::failure;
use super::{Mechanism, Workload, stream};

const ADVICE: &str = "enable the loopback interface with 'ip link set lo up'";

pub fn mechanism() -> Mechanism {
    Mechanism {
        unsupported_reason: Box::new(|_| failure(connect(true))),
        ..stream::mechanism("tcp", || connect(true))
    }
}

/// Without TCP_NODELAY.
pub fn coalescing() -> Mechanism {
    Mechanism {
        label: "tcp (coalescing)".into(),
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::Stream => failure(connect(false)),
            _ => Some("only a stream gains if messages wait for others".into()),
        }),
        ..stream::mechanism("tcp-coalescing", || connect(false))
    }
}

/// The receiving and the sending end.
fn connect(nodelay: bool) -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .with_context(|| format!("cannot listen on 127.0.0.1; {ADVICE}"))?;
    let sender = TcpStream::connect(listener.local_addr()?)
        .with_context(|| format!("cannot connect to 127.0.0.1; {ADVICE}"))?;
    sender.set_nodelay(nodelay)?;
    Ok((accept(&listener, &sender)?, sender))
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
