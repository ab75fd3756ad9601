// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pipe(2) for each receiver: written one after the other, or written once and duplicated with tee(2). The pipes are
//! enlarged so that a burst fits.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice, tee};
use nix::unistd::pipe2;

use super::channel::{CAPACITY, Channel, Receiver, Sender, Shape};

pub fn create(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Pipes::new(shape)?))
}

pub fn create_tee(shape: &Shape) -> Result<Box<dyn Channel>> {
    Ok(Box::new(TeePipes {
        source: pipe()?,
        pipes: Pipes::new(shape)?,
    }))
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let ends = pipe2(OFlag::O_CLOEXEC).context("cannot create a pipe")?;
    fcntl(&ends.1, FcntlArg::F_SETPIPE_SZ(CAPACITY as i32))
        .context("cannot enlarge a pipe; run as root or raise fs.pipe-max-size")?;
    Ok(ends)
}

/// The file is then for one process only, because the flag is of the open file.
pub fn set_nonblocking(end: &OwnedFd) -> Result<()> {
    fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).context("cannot set O_NONBLOCK")?;
    Ok(())
}

struct Pipes {
    size: usize,
    receiving: Vec<OwnedFd>,
    sending: Vec<File>,
}

impl Pipes {
    fn new(shape: &Shape) -> Result<Self> {
        let (mut receiving, mut sending) = (Vec::new(), Vec::new());
        for _ in 0..shape.receivers {
            let (from, to) = pipe()?;
            if !shape.blocking {
                set_nonblocking(&from)?;
            }
            receiving.push(from);
            sending.push(to.into());
        }
        Ok(Self {
            size: shape.size,
            receiving,
            sending,
        })
    }
}

impl Channel for Pipes {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(Writer(self.sending)))
    }

    fn receiver(mut self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>> {
        let from = self.receiving.swap_remove(number);
        Ok(Box::new(Reader::new(from, self.size)))
    }
}

/// Writes each message to each file.
pub struct Writer(pub Vec<File>);

impl Sender for Writer {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        for file in &mut self.0 {
            file.write_all(message).context("cannot send a message")?;
        }
        Ok(())
    }
}

/// Reads messages of one size from a stream, of which a part may arrive first.
pub struct Reader {
    file: File,
    message: Vec<u8>,
    filled: usize,
}

impl Reader {
    pub fn new(end: OwnedFd, size: usize) -> Self {
        Self {
            file: end.into(),
            message: vec![0; size],
            filled: 0,
        }
    }
}

impl Receiver for Reader {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        while self.filled < self.message.len() {
            match self.file.read(&mut self.message[self.filled..]) {
                Ok(read) => {
                    ensure!(read > 0, "the stream ended unexpectedly");
                    self.filled += read;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error).context("cannot receive a message"),
            }
        }
        self.filled = 0;
        visit(&self.message)?;
        Ok(true)
    }
}

struct TeePipes {
    source: (OwnedFd, OwnedFd),
    pipes: Pipes,
}

impl Channel for TeePipes {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let (from, to) = self.source;
        Ok(Box::new(Duplicator {
            from,
            to: to.into(),
            pipes: self.pipes.sending,
        }))
    }

    fn receiver(self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>> {
        Box::new(self.pipes).receiver(number)
    }
}

/// Writes each message once. The pipes of the receivers get references to its pages, the last one by a move.
struct Duplicator {
    from: OwnedFd,
    to: File,
    pipes: Vec<File>,
}

impl Sender for Duplicator {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let size = message.len();
        self.to
            .write_all(message)
            .context("cannot send a message")?;
        let (last, others) = self.pipes.split_last().context("there is no receiver")?;
        for pipe in others {
            let copied = tee(&self.from, pipe, size, SpliceFFlags::empty());
            expect_all(copied.context("cannot tee a message")?, size)?;
        }
        let moved = splice(&self.from, None, last, None, size, SpliceFFlags::empty());
        expect_all(moved.context("cannot splice a message")?, size)
    }
}

fn expect_all(moved: usize, size: usize) -> Result<()> {
    ensure!(
        moved == size,
        "{moved} of {size} bytes fit into a pipe; a burst must fit"
    );
    Ok(())
}

/// Whether the pipes of this process may be as large as needed.
pub fn unavailable() -> Option<String> {
    pipe().err().map(|error| format!("{error:#}"))
}
