// SPDX-License-Identifier: MIT OR Apache-2.0
//! The naive source of packets that the benchmark compares with. A comparison is only valid if every variant delivers
//! whole packets in order, and if no user can hang or crash the kernel.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, ptr};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::signal::Signal;

use crate::registry::{Context, topic};
use crate::support::channel::{Channel, read_some};
use crate::support::check::expect;
use crate::support::child::{Child, spawn};
use crate::support::event::Event;
use crate::support::hft::{
    self, Layout, MAP_BYTES, MAX_INTERVAL_NS, MAX_PACKET, MIN_INTERVAL_NS, MIN_PACKET, Memory,
    NODE, Packet, RING_BYTES, START, STATS, Start, Stats,
};
use crate::support::ioctl;
use crate::support::kernel::LoadedModule;
use crate::support::memory::{GuardedBuffer, PAGE, read_at};
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::time::{eventually, wait_grace_period};

topic!(
    "hft",
    fifo: [],
    pipe_only: [
        a_reader_gets_packets_in_order,
        a_read_returns_the_newest_packet_once,
        a_read_blocks_and_a_signal_ends_it,
        a_short_or_bad_buffer_is_an_error,
        a_slot_holds_the_newest_packet,
        the_ring_delivers_packets_without_a_gap,
        a_full_ring_drops_packets,
        an_invalid_tail_drops_packets,
        the_simulator_runs_on_the_chosen_cpu,
        it_stops_on_demand_and_with_the_file_that_started_it,
        a_start_checks_its_arguments,
        only_the_whole_memory_can_be_mapped,
        it_unloads_only_when_closed_and_unmapped,
    ],
);

const SIZES: [u32; 3] = [MIN_PACKET as u32, 128, MAX_PACKET as u32];
const SLOTS: [Layout; 2] = [Layout::Slot, Layout::UnalignedSlot];

fn loaded(context: &Context) -> Result<(LoadedModule, Channel)> {
    let module = LoadedModule::load(context.baseline("hft")?, c"hft", c"")?;
    Ok((
        module.context("loading the source of packets")?,
        Channel::new(NODE),
    ))
}

/// Waits until the counters are as expected, and returns them.
fn await_stats(file: &impl AsFd, what: &str, expected: impl Fn(&Stats) -> bool) -> Result<Stats> {
    eventually(what, || {
        let stats = hft::stats(file).context("reading the counters")?;
        Ok(expected(&stats).then_some(stats))
    })
}

fn parse(bytes: &[u8], size: u32) -> Result<Packet> {
    let packet = Packet::parse(bytes).context("the packet is incomplete")?;
    expect("size in the packet", packet.size, size)?;
    expect("bytes of the packet", bytes.len(), size as usize)?;
    Ok(packet)
}

/// Later packets have larger numbers and times.
fn expect_order(packets: &[Packet]) -> Result<()> {
    for pair in packets.windows(2) {
        let in_order = pair[0].sequence < pair[1].sequence
            && pair[0].time_ns < pair[1].time_ns
            && pair[0].tsc < pair[1].tsc;
        ensure!(in_order, "not in order: {:?}, {:?}", pair[0], pair[1]);
    }
    Ok(())
}

fn read_packet(file: &impl AsFd, size: u32) -> Result<Packet> {
    parse(&read_some(file, MAX_PACKET)?, size)
}

fn a_reader_gets_packets_in_order(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_reader()?;
    for size in SIZES {
        let settings = Start {
            size,
            ..Start::for_readers()
        };
        hft::start(&file, &settings).context("starting")?;
        let packets = (0..100).map(|_| read_packet(&file, size));
        expect_order(&packets.collect::<Result<Vec<_>>>()?)?;
        hft::stop(&file).context("stopping")?;
    }
    Ok(())
}

fn waiting_reader(node: &Channel) -> Result<Child<u64>> {
    let reader = spawn("a reader", || {
        Ok(read_packet(&node.open_reader()?, MIN_PACKET as u32)?.sequence)
    })?;
    reader.wait_asleep_in(Call::Read)?;
    Ok(reader)
}

fn a_read_returns_the_newest_packet_once(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_reader()?;
    hft::start(&file, &Start::for_readers()).context("starting")?;
    await_stats(&file, "five packets", |stats| stats.published >= 5)?;
    hft::stop(&file).context("stopping")?;
    let newest = hft::stats(&file)?.published;
    let packet = read_packet(&file, MIN_PACKET as u32)?;
    expect("number of the packet", packet.sequence, newest)?;
    let reader = waiting_reader(&node)?;
    reader.expect_still_asleep_in(Call::Read)?;
    hft::start(&file, &Start::for_readers()).context("starting again")?;
    ensure!(reader.finish()? >= 1, "packets have numbers from 1");
    Ok(())
}

fn a_read_blocks_and_a_signal_ends_it(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let handled = Event::new()?;
    let reader = signals::spawn_blocked_with_handler(Call::Read, &handled, false, || {
        let read = read_some(&node.open_reader()?, MAX_PACKET);
        Ok(read.map_err(|errno| errno as c_int))
    })?;
    reader.expect_still_asleep_in(Call::Read)?;
    reader.signal(Signal::SIGUSR1)?;
    expect("result", reader.finish()?, Err(Errno::EINTR as c_int))?;

    waiting_reader(&node)?.kill()?;
    let file = node.open_reader()?;
    hft::start(&file, &Start::for_readers()).context("starting")?;
    read_packet(&file, MIN_PACKET as u32)?;
    Ok(())
}

fn a_short_or_bad_buffer_is_an_error(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_reader()?;
    for len in [0, MIN_PACKET - 1] {
        let read = read_some(&file, len).map(|bytes| bytes.len());
        expect("a short buffer", read, Err(Errno::EINVAL))?;
    }
    let settings = Start {
        size: 128,
        ..Start::for_readers()
    };
    hft::start(&file, &settings).context("starting")?;
    let read = read_some(&file, 127).map(|bytes| bytes.len());
    expect("a buffer shorter than a packet", read, Err(Errno::EINVAL))?;
    let edge = GuardedBuffer::new(100)?;
    expect(
        "a buffer that ends in the packet",
        read_at(&file, edge.start(), MAX_PACKET),
        Err(Errno::EFAULT),
    )?;
    read_packet(&file, 128)?;
    Ok(())
}

/// The newest packet in the slot, if it is not the one with number `last`.
fn newest_in_slot(memory: &Memory, layout: Layout, size: u32, last: u64) -> Option<Packet> {
    let head = memory.head(layout);
    if head == last {
        return None;
    }
    let mut bytes = vec![0; size as usize];
    memory.copy_packet(layout, 0, &mut bytes);
    // The next packet may have begun to overwrite it.
    Packet::parse(&bytes).filter(|packet| packet.sequence == head && memory.head(layout) == head)
}

fn with_sizes(layout: Layout) -> [(Layout, u32); 3] {
    SIZES.map(|size| (layout, size))
}

fn a_slot_holds_the_newest_packet(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let memory = Memory::map(&file, Layout::Slot)?;
    for (layout, size) in SLOTS.into_iter().flat_map(with_sizes) {
        let settings = Start {
            size,
            ..Start::mapped(layout)
        };
        hft::start(&file, &settings).context("starting")?;
        let mut packets: Vec<Packet> = Vec::new();
        while packets.len() < 100 {
            let last = packets.last().map_or(0, |packet| packet.sequence);
            packets.push(eventually("a new packet", || {
                Ok(newest_in_slot(&memory, layout, size, last))
            })?);
        }
        expect_order(&packets)?;
        hft::stop(&file).context("stopping")?;
        let published = hft::stats(&file)?.published;
        let newest = newest_in_slot(&memory, layout, size, 0).context("the last packet")?;
        expect("number of the last packet", newest.sequence, published)?;
        expect("size of the last packet", newest.size, size)?;
    }
    Ok(())
}

/// Reads the ring as its only consumer.
struct Consumer<'a> {
    memory: &'a Memory,
    size: u32,
    packets: Vec<Packet>,
}

impl<'a> Consumer<'a> {
    fn new(memory: &'a Memory, size: u32) -> Self {
        Self {
            memory,
            size,
            packets: Vec::new(),
        }
    }

    fn take_all(&mut self) -> Result<()> {
        let head = self.memory.head(Layout::Ring);
        let mut bytes = vec![0; self.size as usize];
        for number in self.packets.len() as u64..head {
            self.memory.copy_packet(Layout::Ring, number, &mut bytes);
            self.packets.push(parse(&bytes, self.size)?);
        }
        self.memory.set_tail(head);
        Ok(())
    }
}

fn the_ring_delivers_packets_without_a_gap(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    for (layout, size) in [Layout::Ring, Layout::RingPages]
        .into_iter()
        .flat_map(with_sizes)
    {
        let memory = Memory::map(&file, layout)?;
        let settings = Start {
            size,
            interval_ns: 200_000,
            ..Start::mapped(layout)
        };
        hft::start(&file, &settings).context("starting")?;
        // The ring wraps twice.
        let enough = 2 * RING_BYTES / size as usize + 1;
        let mut consumer = Consumer::new(&memory, size);
        eventually("enough packets", || {
            consumer.take_all()?;
            Ok((consumer.packets.len() >= enough).then_some(()))
        })?;
        hft::stop(&file).context("stopping")?;
        consumer.take_all()?;
        expect_order(&consumer.packets)?;
        let stats = hft::stats(&file)?;
        let count = consumer.packets.len() as u64;
        expect("packets received", count, stats.published)?;
        // A machine that stalls for the whole ring drops some.
        let last = consumer.packets.last().context("the last packet")?;
        ensure!(
            last.sequence <= count + stats.dropped,
            "{count} packets up to number {}, but {stats:?}",
            last.sequence
        );
    }
    Ok(())
}

fn a_full_ring_drops_packets(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let memory = Memory::map(&file, Layout::Ring)?;
    let settings = Start {
        size: MAX_PACKET as u32,
        ..Start::mapped(Layout::Ring)
    };
    let slots = (RING_BYTES / MAX_PACKET) as u64;
    hft::start(&file, &settings).context("starting")?;
    let full = await_stats(&file, "dropped packets", |stats| stats.dropped >= 5)?;
    expect("packets in the full ring", full.published, slots)?;
    let mut consumer = Consumer::new(&memory, settings.size);
    consumer.take_all()?;
    let numbers = consumer.packets.iter().map(|packet| packet.sequence);
    ensure!(numbers.eq(1..=slots), "the first packets are overwritten");
    await_stats(&file, "packets after that", |stats| stats.published > slots)?;
    consumer.take_all()?;
    expect_order(&consumer.packets)?;
    let next = consumer.packets[slots as usize].sequence;
    ensure!(next > slots + 5, "packet {next} was dropped");
    Ok(())
}

fn an_invalid_tail_drops_packets(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let memory = Memory::map(&file, Layout::Ring)?;
    hft::start(&file, &Start::mapped(Layout::Ring)).context("starting")?;
    for tail in [1 << 20, 1 << 63, u64::MAX] {
        memory.set_tail(tail);
        let before = hft::stats(&file)?.dropped;
        await_stats(&file, "dropped packets", |stats| stats.dropped > before + 1)?;
    }
    let head = memory.head(Layout::Ring);
    memory.set_tail(head);
    await_stats(&file, "packets again", |stats| stats.published > head)?;
    Ok(())
}

fn the_simulator_runs_on_the_chosen_cpu(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let cpus = std::thread::available_parallelism()?.get();
    for cpu in 0..cpus as i32 {
        let settings = Start {
            cpu,
            ..Start::for_readers()
        };
        hft::start(&file, &settings).context("starting")?;
        let packets = (0..20).map(|_| Ok(read_packet(&file, MIN_PACKET as u32)?.cpu));
        let seen = packets.collect::<Result<BTreeSet<_>>>()?;
        expect("CPUs of the simulator", seen, BTreeSet::from([cpu as u32]))?;
        hft::stop(&file).context("stopping")?;
    }
    Ok(())
}

/// Fails if a packet comes within the grace period.
fn expect_stopped(file: &impl AsFd) -> Result<()> {
    let before = hft::stats(file)?;
    wait_grace_period();
    expect("packets after the stop", hft::stats(file)?, before)
}

fn it_stops_on_demand_and_with_the_file_that_started_it(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let running = |stats: &Stats| stats.published > 0;
    hft::stop(&file).context("stopping what does not run")?;
    hft::start(&file, &Start::for_readers()).context("starting")?;
    await_stats(&file, "a packet", running)?;
    let again = hft::start(&file, &Start::for_readers());
    expect("a second start", again, Err(Errno::EBUSY))?;
    hft::stop(&file).context("stopping")?;
    expect_stopped(&file)?;

    let starter = node.open_read_write()?;
    let memory = Memory::map(&starter, Layout::Slot)?;
    hft::start(&starter, &Start::mapped(Layout::Slot)).context("starting by another file")?;
    drop(starter);
    let before = hft::stats(&file)?.published;
    await_stats(&file, "packets while it is mapped", |stats| {
        stats.published > before + 1
    })?;
    drop(memory);
    expect_stopped(&file)?;
    hft::start(&file, &Start::for_readers()).context("starting after that")
}

fn a_start_checks_its_arguments(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    let good = Start::for_readers();
    let cpus = std::thread::available_parallelism()?.get() as i32;
    #[rustfmt::skip]
    let bad = [
        Start { variant: 5, ..good },
        Start { size: 32, ..good },
        Start { size: 65, ..good },
        Start { size: 512, ..good },
        Start { size: u32::MAX, ..good },
        Start { interval_ns: MIN_INTERVAL_NS - 1, ..good },
        Start { interval_ns: MAX_INTERVAL_NS + 1, ..good },
        Start { interval_ns: u64::MAX, ..good },
        Start { cpu: -2, ..good },
        Start { cpu: i32::MAX, ..good },
        Start { cpu: i32::MIN, ..good },
        Start { reserved: 1, ..good },
    ];
    for settings in bad {
        let started = hft::start(&file, &settings);
        expect(&format!("{settings:?}"), started, Err(Errno::EINVAL))?;
    }
    let absent = hft::start(&file, &Start { cpu: cpus, ..good });
    let refused = matches!(absent, Err(Errno::EINVAL | Errno::ENXIO));
    ensure!(refused, "a CPU that is not there: {absent:?}");
    for command in [START, STATS] {
        let result = ioctl::raw(&file, command, ptr::null_mut::<u8>());
        expect("a null pointer", result, Err(Errno::EFAULT))?;
    }
    let unknown = ioctl::raw(&file, START + 1, ptr::null_mut::<u8>());
    expect("an unknown command", unknown, Err(Errno::ENOTTY))?;
    hft::null(&file).context("the null operation")?;

    let defaults = Start {
        size: 0,
        interval_ns: 0,
        ..good
    };
    hft::start(&file, &defaults).context("starting with the defaults")?;
    read_packet(&file, MIN_PACKET as u32)?;
    Ok(())
}

fn map(file: &OwnedFd, len: usize, flags: MapFlags, offset: usize) -> nix::Result<()> {
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { mmap(None, len, access, flags, file, offset as i64) }?;
    // SAFETY: the mapping that was just made, which nothing uses.
    unsafe { munmap(start, len.get()) }
}

fn only_the_whole_memory_can_be_mapped(context: &Context) -> Result<()> {
    let (_module, node) = loaded(context)?;
    let mode = fs::metadata(NODE)?.permissions().mode();
    expect("mode of the node", mode & 0o7777, 0o600)?;
    let file = node.open_read_write()?;
    let (whole, shared) = (MAP_BYTES.get(), MapFlags::MAP_SHARED);
    map(&file, whole, shared, 0).context("mapping it")?;
    for (len, flags, offset) in [
        (PAGE, shared, 0),
        (whole - PAGE, shared, 0),
        (whole + PAGE, shared, 0),
        (1 << 30, shared, 0),
        (whole, shared, PAGE),
        (PAGE, shared, whole),
        (whole, shared, 1 << 40),
        (whole, MapFlags::MAP_PRIVATE, 0),
    ] {
        expect(
            &format!("mapping {len} bytes from {offset}, {flags:?}"),
            map(&file, len, flags, offset),
            Err(Errno::EINVAL),
        )?;
    }
    let read_only = map(&node.open_reader()?, whole, shared, 0);
    expect(
        "writable, of a file that is not",
        read_only,
        Err(Errno::EACCES),
    )
}

fn it_unloads_only_when_closed_and_unmapped(context: &Context) -> Result<()> {
    let (mut module, node) = loaded(context)?;
    let file = node.open_read_write()?;
    hft::start(&file, &Start::mapped(Layout::Ring)).context("starting")?;
    expect(
        "unloading while it is open",
        module.unload(),
        Err(Errno::EWOULDBLOCK),
    )?;
    let memory = Memory::map(&file, Layout::Ring)?;
    drop(file);
    expect(
        "unloading while it is mapped",
        module.unload(),
        Err(Errno::EWOULDBLOCK),
    )?;
    let before = memory.head(Layout::Ring);
    eventually("packets in the mapped memory", || {
        Ok((memory.head(Layout::Ring) > before).then_some(()))
    })?;
    drop(memory);
    module.unload().context("unloading while it was running")?;
    for trace in [NODE, "/sys/class/misc/hft", "/sys/module/hft"] {
        ensure!(!Path::new(trace).exists(), "{trace} is still there");
    }
    Ok(())
}
