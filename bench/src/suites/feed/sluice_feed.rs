// SPDX-License-Identifier: MIT OR Apache-2.0
//! The feed of Sluice's packet simulator: by read(2) that never spins, and by a mapped ring on which the consumer always
//! spins.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::unistd::{SysconfVar, sysconf};
use sluice::feed::{self, Feed, Simulation, Simulator};
use sluice_abi::ring::{MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER};
use sluice_ring::sync::AtomicU32;
use sluice_ring::{Capacity, Consumer, Ctrl, Memory};
use sluice_testkit::clock;

use super::latency::{Header, INTERVAL, SIZE, Sampler, packets, read_packets};

pub fn reader(cpu: usize) -> Result<Sampler> {
    let feed = Simulator::open()?;
    feed.set_spin_limit(Duration::ZERO)?;
    start(&feed, cpu)?;
    read_packets(OwnedFd::from(Feed::from(feed)).into(), header)
}

pub fn mapped(cpu: usize) -> Result<Sampler> {
    let feed = Simulator::open()?;
    let mut consumer = Consumer::new(Mapping::new(&feed, feed.info()?.capacity)?);
    start(&feed, cpu)?;
    packets(move || {
        // The simulator ends when its feed is closed.
        let _running = &feed;
        if consumer.has_unreleased() {
            consumer.release();
        }
        let mut packet = [0; SIZE];
        // No pause instruction, see latency.rs.
        let mut polls = 0;
        while !consumer.poll(polls) {
            polls = polls.saturating_add(1);
        }
        let length = consumer.peek()?.context("a record vanished")?;
        ensure!(length as usize == SIZE, "a packet has {length} bytes");
        let (memory, at) = (consumer.memory(), consumer.bytes());
        for (index, bytes) in (0..).zip(packet.chunks_exact_mut(4)) {
            let word = memory.word(at + 4 * index).load(Ordering::Relaxed);
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        consumer.advance(length);
        Ok((clock::cycles(), header(&packet)))
    })
}

fn start(feed: &Simulator, cpu: usize) -> Result<()> {
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

/// The ring of a feed, mapped by its consumer. It is never unmapped: a process maps it once, and ends after the measurement.
struct Mapping {
    capacity: Capacity,
    producer: &'static Ctrl,
    consumer: &'static Ctrl,
    /// Mapped twice in a row.
    data: NonNull<u8>,
}

impl Mapping {
    fn new(feed: &Feed, capacity: u64) -> Result<Self> {
        let page = sysconf(SysconfVar::PAGE_SIZE)?.context("the page size is unknown")? as u64;
        let capacity = Capacity::exactly(capacity, page)?;
        let (read, write) = (ProtFlags::PROT_READ, ProtFlags::PROT_WRITE);
        let producer = map(feed, MMAP_PRODUCER, page, read)?.cast();
        let consumer = map(feed, MMAP_CONSUMER, page, read | write)?.cast();
        // SAFETY: each is a page that stays mapped, and its beginning is only accessed as a Ctrl of atomics.
        let (producer, consumer) = unsafe { (producer.as_ref(), consumer.as_ref()) };
        Ok(Self {
            capacity,
            producer,
            consumer,
            data: map(feed, MMAP_DATA, 2 * capacity.bytes(), read)?,
        })
    }

    fn at(&self, position: u64) -> NonNull<u8> {
        let offset = position & (self.capacity.bytes() - 1);
        // SAFETY: the offset is below the capacity.
        unsafe { self.data.add(offset as usize) }
    }
}

/// Faults in all pages, so that no packet waits for it.
fn map(feed: &Feed, offset: u64, bytes: u64, access: ProtFlags) -> Result<NonNull<u8>> {
    let bytes = usize::try_from(bytes)?.try_into()?;
    let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
    // SAFETY: the kernel chooses the address, so the new mapping aliases nothing.
    let start = unsafe { mmap(None, bytes, access, flags, feed, offset as i64) };
    Ok(start.context("cannot map the ring of the feed")?.cast())
}

impl Memory for Mapping {
    fn capacity(&self) -> Capacity {
        self.capacity
    }

    fn producer(&self) -> &Ctrl {
        self.producer
    }

    fn consumer(&self) -> &Ctrl {
        self.consumer
    }

    fn word(&self, position: u64) -> &AtomicU32 {
        // SAFETY: it is within the mapping and aligned.
        unsafe { self.at(position & !3).cast().as_ref() }
    }

    #[cfg(target_arch = "x86_64")]
    fn prefetch(&self, position: u64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect on memory, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(self.at(position).as_ptr().cast()) }
    }

    /// Not an access of Rust, where it would race with the producer's.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    fn touch(&self, position: u64) {
        let line = self.at(position).as_ptr();
        // SAFETY: it is within the mapping, which has a second copy of the data after the last byte.
        unsafe {
            std::arch::asm!("mov {value:e}, dword ptr [{line}]", line = in(reg) line, value = out(reg) _,
                options(nostack, preserves_flags, readonly));
        }
    }
}
