// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feed of Sluice's packet simulator: by read(2) that never spins, and by a mapped ring on which the consumer always
//! spins.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use sluice_abi::{Setting, feed};
use sluice_ring::{Consumer, Memory as _};
use sluice_testkit::module::FEED_NODE;

use super::memory::Mapping;
use super::source::{Header, INTERVAL_NS, SIZE, Source};

/// Bytes after the header of a packet.
const PAYLOAD: u32 = (SIZE - feed::Packet::SIZE) as u32;

pub fn reader() -> Result<Box<dyn Source>> {
    let feed = Feed::open()?;
    feed.call(feed::SET_SPIN, &mut Setting::new(0))?;
    Ok(Box::new(Reader(feed)))
}

pub fn mapped() -> Result<Box<dyn Source>> {
    let feed = Feed::open()?;
    let mut info = feed::Info::default();
    feed.call(feed::INFO, &mut info)?;
    let consumer = Consumer::new(Mapping::new(&feed.0, info.capacity)?);
    Ok(Box::new(Mapped { feed, consumer }))
}

struct Feed(File);

impl Feed {
    fn open() -> Result<Self> {
        let file = File::options().read(true).write(true).open(FEED_NODE);
        let file = file.with_context(|| format!("cannot open {FEED_NODE}; run as root"))?;
        Ok(Self(file))
    }

    fn start(&self, cpu: usize) -> Result<()> {
        let mut start = feed::Start {
            cpu: i32::try_from(cpu)?,
            ..feed::Start::new(INTERVAL_NS, 0, PAYLOAD)
        };
        self.call(feed::START, &mut start)
            .context("cannot start the packet simulator")
    }

    /// `argument` is the structure of this command.
    fn call<T>(&self, command: libc::Ioctl, argument: &mut T) -> Result<()> {
        // SAFETY: the kernel accesses one structure of the size that it begins with.
        let returned = unsafe { libc::ioctl(self.0.as_raw_fd(), command, argument) };
        Errno::result(returned)?;
        Ok(())
    }
}

fn header(packet: &[u8; SIZE]) -> Result<Option<Header>> {
    let first = packet.first_chunk().context("a packet has a header")?;
    let packet = feed::Packet::from_bytes(first);
    Ok(Some(Header {
        sequence: packet.sequence,
        lost: Some(packet.lost),
        cycles: packet.cycles,
    }))
}

struct Reader(Feed);

impl Source for Reader {
    fn start(&mut self, cpu: usize) -> Result<()> {
        self.0.start(cpu)
    }

    fn receive(&mut self, packet: &mut [u8; SIZE]) -> Result<()> {
        let read = self.0.0.read(packet)?;
        ensure!(read == SIZE, "a packet has {read} bytes instead of {SIZE}");
        Ok(())
    }

    fn header(&mut self, packet: &[u8; SIZE]) -> Result<Option<Header>> {
        header(packet)
    }
}

struct Mapped {
    feed: Feed,
    consumer: Consumer<Mapping>,
}

impl Source for Mapped {
    fn start(&mut self, cpu: usize) -> Result<()> {
        self.feed.start(cpu)
    }

    fn receive(&mut self, packet: &mut [u8; SIZE]) -> Result<()> {
        if self.consumer.has_unreleased() {
            self.consumer.release();
        }
        // No pause instruction, see source.rs.
        let mut polls = 0;
        while !self.consumer.poll(polls) {
            polls = polls.saturating_add(1);
        }
        let length = self.consumer.peek()?.context("a record vanished")?;
        ensure!(
            length as usize == SIZE,
            "a packet has {length} bytes instead of {SIZE}"
        );
        let (memory, at) = (self.consumer.memory(), self.consumer.bytes());
        for (index, bytes) in (0..).zip(packet.chunks_exact_mut(4)) {
            let word = memory.word(at + 4 * index).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.consumer.advance(length);
        Ok(())
    }

    fn header(&mut self, packet: &[u8; SIZE]) -> Result<Option<Header>> {
        header(packet)
    }
}
