// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes that do the minimum to pass messages from one bus to another through a stream. Their cost is the lower bound of the cost of
//! a bridge: of any ([`out`], [`into`]); of one that promises what the bridge promises ([`out_with_ids`], [`into_acknowledged`]); and of
//! one that has the client of the bridge, too ([`relay_client`](crate::relay_client)).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::thread::spawn;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice::bus::{Policy, RecvError};

use crate::{BYTES, IN_FLIGHT, bus, now};

/// The most messages per acknowledgement, and its longest delay: those of the bridge.
pub const ACKNOWLEDGED_MAX: usize = 64;
pub const TELL_WITHIN: Duration = Duration::from_millis(10);
const CONNECT: &str = "CONNECT {\"verbose\":false,\"headers\":true}\r\n";
/// Messages of a request.
pub const BATCH: usize = 1000;

fn connect() -> Result<TcpStream> {
    let mut stream = TcpStream::connect("127.0.0.1:4222")?;
    stream.set_nodelay(true)?;
    stream.write_all(CONNECT.as_bytes())?;
    Ok(stream)
}

/// No acknowledgement, no header, no order after a failure.
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
            "PUB $JS.API.CONSUMER.MSG.NEXT.relay.relay relay-in {len}\r\n{request}\r\n"
        )?;
        for _ in 0..BATCH {
            while !input.line()?.starts_with("MSG ") {}
            sender.send(input.bytes(BYTES)?)?;
        }
    }
}

/// Each message has an id, and the server acknowledges it.
pub fn out_with_ids() -> Result<()> {
    let mut stream = connect()?;
    let mut input = Input::new(stream.try_clone()?);
    stream.write_all(b"SUB relay-ids-acks.* 1\r\n")?;
    let bus = bus("relay-ids").policy(Policy::Block).nonblocking(true);
    let mut subscriber = bus.subscriber()?;
    let incarnation = now();
    let (mut sent, mut acknowledged) = (0, 0);
    let mut buffer = Vec::new();
    loop {
        let has_room = sent - acknowledged < IN_FLIGHT;
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = [readable(stream.as_fd()), readable(subscriber.as_fd())];
        poll(&mut fds[..1 + usize::from(has_room)], PollTimeout::NONE)?;
        if fds[0].any() == Some(true) {
            input.fill()?;
            while let Some((line, body)) = input.message()? {
                let expected = format!("MSG relay-ids-acks.{acknowledged} ");
                let is_stored = input.buffer[body].starts_with(b"{\"stream\":\"relay-ids\",");
                ensure!(
                    line.starts_with(&expected) && is_stored,
                    "not stored: {line}"
                );
                acknowledged += 1;
            }
        }
        buffer.clear();
        while sent - acknowledged < IN_FLIGHT {
            let message = match subscriber.try_recv() {
                Err(RecvError::Empty) => break,
                message => message?,
            };
            let header = format!("NATS/1.0\r\nNats-Msg-Id: {incarnation:016x}-{sent}\r\n\r\n");
            let (len, total) = (header.len(), header.len() + BYTES);
            write!(
                buffer,
                "HPUB relay-ids.new relay-ids-acks.{sent} {len} {total}\r\n{header}"
            )?;
            buffer.extend_from_slice(message.bytes());
            buffer.extend_from_slice(b"\r\n");
            sent += 1;
        }
        stream.write_all(&buffer)?;
    }
}

/// Acknowledges what the bus has.
pub fn into_acknowledged() -> Result<()> {
    let mut stream = connect()?;
    let mut input = Input::new(stream.try_clone()?);
    let sender = bus("in").sender()?;
    stream.write_all(b"SUB relay-ids-in 1\r\n")?;
    let (mut pending, mut untold, mut reply) = (0, 0, String::new());
    loop {
        if pending == 0 {
            let request = format!("{{\"batch\":{BATCH}}}");
            let len = request.len();
            write!(
                stream,
                "PUB $JS.API.CONSUMER.MSG.NEXT.relay-ids.relay relay-ids-in {len}\r\n{request}\r\n"
            )?;
            pending = BATCH;
        }
        let is_over = match input.message()? {
            Some((line, body)) => {
                sender.send(&input.buffer[body.end - BYTES..body.end])?;
                reply = line.split(' ').nth(3).unwrap_or_default().to_owned();
                untold += 1;
                pending -= 1;
                untold == ACKNOWLEDGED_MAX
            }
            None => {
                input
                    .stream
                    .set_read_timeout((untold > 0).then_some(TELL_WITHIN))?;
                !input.fill()?
            }
        };
        if is_over {
            write!(stream, "PUB {reply} 0\r\n\r\n")?;
            untold = 0;
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
            match self.buffered_line()? {
                Some(line) => return Ok(line),
                None => self.fill()?,
            };
        }
    }

    fn buffered_line(&mut self) -> Result<Option<String>> {
        let found = self.buffer[self.begin..]
            .iter()
            .position(|byte| *byte == b'\n');
        let Some(len) = found else {
            return Ok(None);
        };
        let line = self.begin..self.begin + len;
        self.begin = line.end + 1;
        let line = String::from_utf8_lossy(&self.buffer[line]).into_owned();
        if line.starts_with("PING") {
            self.stream.write_all(b"PONG\r\n")?;
        }
        Ok(Some(line))
    }

    /// A message that has arrived as a whole: its line, and where its headers and its body are.
    fn message(&mut self) -> Result<Option<(String, Range<usize>)>> {
        loop {
            let begin = self.begin;
            let Some(line) = self.buffered_line()? else {
                return Ok(None);
            };
            if !line.starts_with("MSG ") && !line.starts_with("HMSG ") {
                continue;
            }
            let len = line.trim_end().rsplit(' ').next().unwrap_or_default();
            let body = self.begin..self.begin + len.parse::<usize>()?;
            if self.buffer.len() < body.end + 2 {
                self.begin = begin;
                return Ok(None);
            }
            self.begin = body.end + 2;
            return Ok(Some((line, body)));
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

    /// Returns false after the timeout of the socket.
    fn fill(&mut self) -> Result<bool> {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        let len = self.buffer.len();
        self.buffer.resize(len + (64 << 10), 0);
        let read = self.stream.read(&mut self.buffer[len..]);
        self.buffer.truncate(len + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => bail!("the server has closed the connection"),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            read => Ok(read.map(|_| true)?),
        }
    }
}
