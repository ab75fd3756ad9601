// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feed of Sluice's packet simulator: by read(2) that never spins, and by a mapped ring on which the consumer always
//! spins.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice::feed::{self, Feed, Simulation};
use sluice_ring::{Consumer, Memory as _};
use sluice_testkit::clock;

use super::memory::Mapping;
use super::source::{self, Header, INTERVAL, SIZE, Source};

pub fn reader(cpu: usize) -> Result<Source> {
    let feed = Feed::simulator()?;
    feed.set_spin_limit(Duration::ZERO)?;
    start(&feed, cpu)?;
    Ok(source::reader(OwnedFd::from(feed).into(), header))
}

pub fn mapped(cpu: usize) -> Result<Source> {
    let feed = Feed::simulator()?;
    let mut consumer = Consumer::new(Mapping::new(&feed, feed.info()?.capacity)?);
    start(&feed, cpu)?;
    Ok(Box::new(move || {
        // The simulator ends when its feed is closed.
        let _running = &feed;
        if consumer.has_unreleased() {
            consumer.release();
        }
        let mut packet = [0; SIZE];
        // No pause instruction, see source.rs.
        let mut polls = 0;
        while !consumer.poll(polls) {
            polls = polls.saturating_add(1);
        }
        let length = consumer.peek()?.context("a record vanished")?;
        ensure!(
            length as usize == SIZE,
            "a packet has {length} bytes instead of {SIZE}"
        );
        let (memory, at) = (consumer.memory(), consumer.bytes());
        for (index, bytes) in (0..).zip(packet.chunks_exact_mut(4)) {
            let word = memory.word(at + 4 * index).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        consumer.advance(length);
        Ok((clock::cycles(), header(&packet)))
    }))
}

fn start(feed: &Feed, cpu: usize) -> Result<()> {
    let simulation = Simulation {
        length: (SIZE - feed::Header::LEN) as u32,
        cpu: Some(u32::try_from(cpu)?),
        ..Simulation::every(INTERVAL)
    };
    let started = feed.start(&simulation);
    started.context("cannot start the packet simulator")
}

fn header(packet: &[u8; SIZE]) -> Option<Header> {
    let packet = sluice_abi::feed::Packet::from_bytes(packet.first_chunk()?);
    Some(Header {
        sequence: packet.sequence,
        lost: Some(packet.lost),
        cycles: packet.cycles,
    })
}
