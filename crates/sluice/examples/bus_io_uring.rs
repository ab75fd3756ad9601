// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the messages of several buses with one io_uring: `cargo run -p sluice --example bus_io_uring -- NAME...`.
//! Send with `sluice bus pub NAME`.

use std::env;
use std::io;
use std::os::fd::AsRawFd as _;

use io_uring::{IoUring, opcode, types};
use sluice::Bus;
use sluice::bus::{Header, Message, Subscriber};

/// A read of the next message is pending all the time.
struct Source {
    name: String,
    subscriber: Subscriber,
    buffer: Vec<u8>,
}

impl Source {
    fn open(name: String) -> io::Result<Self> {
        let subscriber = Bus::named(&name).create(true).subscriber()?;
        let max = usize::try_from(subscriber.message_max()).map_err(io::Error::other)?;
        Ok(Self {
            name,
            subscriber,
            buffer: vec![0; Header::LEN + max],
        })
    }

    fn submit(&mut self, ring: &mut IoUring, index: usize) -> io::Result<()> {
        let fd = types::Fd(self.subscriber.as_raw_fd());
        let (start, len) = (self.buffer.as_mut_ptr(), self.buffer.len() as u32);
        let read = opcode::Read::new(fd, start, len).build();
        // SAFETY: the buffer is never freed, and not accessed before the read has completed.
        let pushed = unsafe { ring.submission().push(&read.user_data(index as u64)) };
        pushed.map_err(io::Error::other)
    }

    fn print(&self, len: usize) -> io::Result<()> {
        let message = Message::from_frame(&self.buffer[..len])?;
        let text = String::from_utf8_lossy(message.bytes());
        println!("{} {}: {text}", self.name, message.sequence);
        Ok(())
    }
}

fn main() -> io::Result<()> {
    let mut sources = Vec::new();
    for name in env::args().skip(1) {
        sources.push(Source::open(name)?);
    }
    if sources.is_empty() {
        return Err(io::Error::other(
            "no bus; give the names of buses as arguments",
        ));
    }
    let mut ring = IoUring::new(sources.len().next_power_of_two() as u32)?;
    // Pending reads use the buffers until the process ends.
    let sources = sources.leak();
    for (index, source) in sources.iter_mut().enumerate() {
        source.submit(&mut ring, index)?;
    }
    follow(&mut ring, sources)
}

fn follow(ring: &mut IoUring, sources: &mut [Source]) -> io::Result<()> {
    loop {
        ring.submit_and_wait(1)?;
        let completed: Vec<_> = ring.completion().collect();
        for completion in completed {
            let index = completion.user_data() as usize;
            match completion.result() {
                error @ ..0 => return Err(io::Error::from_raw_os_error(-error)),
                len => sources[index].print(len as usize)?,
            }
            sources[index].submit(ring, index)?;
        }
    }
}
