// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that do the minimum to pass messages from one bus to another through a stream: no acknowledgement, no header, no order
//! after a failure. Their cost is the lower bound of the cost of a bridge.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::spawn;

use anyhow::{Context as _, Result};
use sluice::bus::Policy;

use crate::{BYTES, bus};

const CONNECT: &str = "CONNECT {\"verbose\":false,\"headers\":true}\r\n";
/// Messages of a request.
const BATCH: usize = 1000;

fn connect() -> Result<TcpStream> {
    let mut stream = TcpStream::connect("127.0.0.1:4222")?;
    stream.set_nodelay(true)?;
    stream.write_all(CONNECT.as_bytes())?;
    Ok(stream)
}

pub fn out() -> Result<()> {
    let mut stream = connect()?;
    let mut input = Input::new(stream.try_clone()?);
    spawn(move || while input.line().is_ok() {});
    let mut subscriber = bus("relay").policy(Policy::Block).subscriber()?;
    let mut buffer = Vec::new();
    loop {
        let message = subscriber.recv()?;
        buffer.clear();
        write!(buffer, "PUB relay.new {BYTES}\r\n")?;
        buffer.extend_from_slice(message.bytes());
        buffer.extend_from_slice(b"\r\n");
        stream.write_all(&buffer)?;
    }
}

pub fn into() -> Result<()> {
    let mut stream = connect()?;
    let mut input = Input::new(stream.try_clone()?);
    let sender = bus("in").sender()?;
    stream.write_all(b"SUB relay-in 1\r\n")?;
    loop {
        let request = format!("{{\"batch\":{BATCH}}}");
        let len = request.len();
        write!(
            stream,
            "PUB $JS.API.CONSUMER.MSG.NEXT.RELAY.relay relay-in {len}\r\n{request}\r\n"
        )?;
        for _ in 0..BATCH {
            while !input.line()?.starts_with("MSG ") {}
            sender.send(input.bytes(BYTES)?)?;
        }
    }
}

/// What the server sends.
struct Input {
    stream: TcpStream,
    buffer: Vec<u8>,
    begin: usize,
}

impl Input {
    fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            begin: 0,
        }
    }

    /// The next line; answers a ping.
    fn line(&mut self) -> Result<String> {
        loop {
            let found = self.buffer[self.begin..]
                .iter()
                .position(|byte| *byte == b'\n');
            let Some(len) = found else {
                self.fill()?;
                continue;
            };
            let line = self.begin..self.begin + len;
            self.begin = line.end + 1;
            let line = String::from_utf8_lossy(&self.buffer[line]).into_owned();
            if line.starts_with("PING") {
                self.stream.write_all(b"PONG\r\n")?;
            }
            return Ok(line);
        }
    }

    /// A message of this length, and the end of its line.
    fn bytes(&mut self, len: usize) -> Result<&[u8]> {
        while self.buffer.len() < self.begin + len + 2 {
            self.fill()?;
        }
        let begin = self.begin;
        self.begin += len + 2;
        Ok(&self.buffer[begin..begin + len])
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + (64 << 10), 0);
        let read = self.stream.read(&mut self.buffer[len..])?;
        self.buffer.truncate(len + read);
        (read > 0)
            .then_some(())
            .context("the server has closed the connection")
    }
}
