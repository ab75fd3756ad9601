// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive driver kernel/baseline/hft.c: the report's blocking read, mapped memory ("v2.0", also unaligned), and ring
//! ("v3.1"), also in single pages.

use std::fs::File;
use std::io::Read as _;

use anyhow::{Context, Result, ensure};
use sluice_testkit::hft::{self, Layout, Memory, NODE, Packet, Start};

use super::source::{Header, INTERVAL_NS, SIZE, Source};

pub fn reader() -> Result<Box<dyn Source>> {
    Ok(Box::new(Reader(open()?)))
}

pub fn mapped(layout: Layout) -> Result<Box<dyn Source>> {
    let file = open()?;
    Ok(Box::new(Mapped {
        memory: Memory::map(&file, layout)?,
        file,
        layout,
        received: 0,
    }))
}

pub fn open() -> Result<File> {
    let file = File::options().read(true).write(true).open(NODE);
    file.with_context(|| format!("cannot open {NODE}; run as root"))
}

fn start(file: &File, settings: Start, cpu: usize) -> Result<()> {
    let settings = Start {
        interval_ns: INTERVAL_NS,
        cpu: i32::try_from(cpu)?,
        ..settings
    };
    hft::start(file, &settings).context("cannot start the simulator of hft")
}

fn header(packet: &[u8; SIZE]) -> Option<Header> {
    let packet = Packet::parse(packet)?;
    Some(Header {
        sequence: packet.sequence,
        lost: None,
        cycles: packet.tsc,
    })
}

struct Reader(File);

impl Source for Reader {
    fn start(&mut self, cpu: usize) -> Result<()> {
        start(&self.0, Start::for_readers(), cpu)
    }

    fn receive(&mut self, packet: &mut [u8; SIZE]) -> Result<()> {
        let read = self.0.read(packet)?;
        ensure!(read == SIZE, "a packet has {read} bytes instead of {SIZE}");
        Ok(())
    }

    fn header(&mut self, packet: &[u8; SIZE]) -> Result<Option<Header>> {
        header(packet).context("a packet arrived damaged").map(Some)
    }
}

struct Mapped {
    memory: Memory,
    file: File,
    layout: Layout,
    /// The number of packets received from a ring; the sequence number of the last packet received from a slot.
    received: u64,
}

impl Source for Mapped {
    fn start(&mut self, cpu: usize) -> Result<()> {
        start(&self.file, Start::mapped(self.layout), cpu)
    }

    fn receive(&mut self, packet: &mut [u8; SIZE]) -> Result<()> {
        if matches!(self.layout, Layout::Ring | Layout::RingPages) {
            // The packets before are not needed any more.
            self.memory.set_tail(self.received);
        }
        // No pause instruction, see source.rs.
        while self.memory.head(self.layout) <= self.received {}
        self.memory.copy_packet(self.layout, self.received, packet);
        Ok(())
    }

    fn header(&mut self, packet: &[u8; SIZE]) -> Result<Option<Header>> {
        let header = header(packet);
        match self.layout {
            Layout::Ring | Layout::RingPages => {
                self.received += 1;
                ensure!(header.is_some(), "packet {} arrived damaged", self.received);
            }
            // A packet in a slot may be newer than the number that announced it.
            Layout::Slot | Layout::UnalignedSlot => {
                self.received = header.map_or(self.received, |header| header.sequence);
            }
        }
        Ok(header)
    }
}
