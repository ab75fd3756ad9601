// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive driver kernel/baseline/hft.c: the report's blocking read, mapped memory ("v2.0", also unaligned), and ring
//! ("v3.1"), also in single pages.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::hft::{self, Layout, Memory, NODE, Packet, Start};

use super::latency::{Header, INTERVAL, SIZE, Sampler, packets, read_packets};

fn open() -> Result<File> {
    let file = File::options().read(true).write(true).open(NODE);
    file.with_context(|| format!("cannot open {NODE}; run as root"))
}

/// A system call that returns at once: the cost of entering and leaving the kernel.
pub fn null_operation(_: usize) -> Result<Sampler> {
    let file = open()?;
    Ok(Box::new(move || {
        let begin = clock::cycles();
        hft::null(&file).context("the null operation")?;
        Ok([clock::cycles() - begin, 0])
    }))
}

pub fn reader(cpu: usize) -> Result<Sampler> {
    let file = open()?;
    start(&file, Start::for_readers(), cpu)?;
    read_packets(file, header)
}

pub fn mapped(layout: Layout, cpu: usize) -> Result<Sampler> {
    let file = open()?;
    let memory = Memory::map(&file, layout)?;
    start(&file, Start::mapped(layout), cpu)?;
    let is_ring = matches!(layout, Layout::Ring | Layout::RingPages);
    // The number of packets received from a ring; the sequence number of the last packet received from a slot.
    let mut received = 0;
    packets(move || {
        // The simulator ends when its file is closed.
        let _running = &file;
        if is_ring {
            // The packets before are not needed any more.
            memory.set_tail(received);
        }
        let mut packet = [0; SIZE];
        // No pause instruction, see latency.rs.
        while memory.head(layout) <= received {}
        memory.copy_packet(layout, received, &mut packet);
        let now = clock::cycles();
        let header = header(&packet);
        if is_ring {
            received += 1;
            ensure!(header.is_some(), "packet {received} arrived damaged");
        } else {
            // A packet in a slot may be newer than the number that announced it.
            received = header.map_or(received, |header| header.sequence);
        }
        Ok((now, header))
    })
}

fn start(file: &File, settings: Start, cpu: usize) -> Result<()> {
    let settings = Start {
        interval_ns: INTERVAL.as_nanos() as u64,
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
