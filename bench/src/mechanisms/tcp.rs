// SPDX-License-Identifier: MIT OR Apache-2.0
//! A TCP connection over the loopback interface. With TCP_NODELAY no small message waits for others; without it, which
//! delays every request, a stream of small messages needs fewer segments. The buffer sizes are the defaults, because the
//! kernel adapts only those.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};

use super::mechanism::failure;
use super::stream::Ends;
use super::{Mechanism, Workload, stream};

const ADVICE: &str = "enable the loopback interface with 'ip link set lo up'";

pub fn mechanisms() -> [Mechanism; 2] {
    let coalescing = Mechanism {
        label: "tcp (coalescing)".into(),
        unsupported_reason: Box::new(|task| match task.workload {
            Workload::Stream => failure(connect(false)),
            _ => Some("only a stream gains if messages wait for others".into()),
        }),
        ..stream::mechanism("tcp-coalescing", || connect(false))
    };
    [stream::mechanism("tcp", || connect(true)), coalescing]
}

fn connect(nodelay: bool) -> Result<Ends> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .with_context(|| format!("cannot listen on 127.0.0.1; {ADVICE}"))?;
    let sender = TcpStream::connect(listener.local_addr()?)
        .with_context(|| format!("cannot connect to 127.0.0.1; {ADVICE}"))?;
    sender.set_nodelay(nodelay)?;
    let accepted = listener.accept();
    let (receiver, peer) = accepted.context("cannot accept a connection on 127.0.0.1")?;
    ensure!(
        peer == sender.local_addr()?,
        "another process connected to the port first; run again"
    );
    Ok((receiver.into(), sender.into()))
}
