// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publishing in a feed from any context and on several processors, with consumers that come and go: every packet is
//! received once or counted as lost. And the modules that publish, and the order in which they are unloaded.

use std::ffi::CStr;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, unshare};
use serde::de::DeserializeOwned;

use crate::registry::{Context, topic};
use crate::support::channel::read_nowait;
use crate::support::check::{expect, note, skip};
use crate::support::child::{Child, spawn, spawn_keeping};
use crate::support::feed::{
    Account, CONSUMER_NONE, Consumer, IRQ, LARGEST, NAME, NMI, Packet, Publisher, Sleep, TASK,
    claim_by_read, expect_growth, info_by_name, open, open_node_with, read_packet, read_present,
    wait_reading,
};
use crate::support::kernel::{
    LoadedModule, UnloadedModule, expect_module_in_use, expect_no_objects, expect_no_page_leak,
};
use crate::support::proc::{self, Call};
use crate::support::time::eventually;

topic!(
    "feed_publish",
    fifo: [],
    pipe_only: [
        packets_from_hard_interrupts,
        packets_from_all_processors_at_once,
        packets_from_threads_and_from_interrupts_in_them,
        packets_from_nmi,
        packets_too_fast_for_the_ring,
        the_state_by_name_is_consistent_while_packets_are_published,
        a_publish_without_a_consumer_succeeds,
        a_reader_killed_while_packets_are_published,
        a_mapping_consumer_killed_while_packets_are_published,
        unloading_the_publisher_ends_live_consumers,
        a_consumer_outlives_the_publisher,
        the_modules_are_unloaded_in_any_possible_order,
        consumers_leak_no_page,
        the_sample_publishes_received_frames,
    ],
);

/// Consumes until the end of the feed.
fn consume(end: OwnedFd, sleep: Option<Sleep>) -> Result<Account> {
    let mut account = Account::from(0);
    let Some(sleep) = sleep else {
        while let Some(packet) = read_packet(&end)? {
            account.add(&packet)?;
        }
        return Ok(account);
    };
    let mut consumer = Consumer::claim(end)?;
    while let Some(packet) = consumer.take_sleeping(sleep)? {
        account.add(&packet)?;
    }
    Ok(account)
}

/// Received and lost packets, contexts and processors.
type Summary = (u64, u64, Vec<u32>, usize);

/// A context, the number of packets, and their length.
type Run<'a> = (&'a str, usize, usize);

/// Publishes while a consumer in a child receives, by each way of receiving, and checks that all packets are
/// accounted for.
fn account_for(context: &Context, parameters: &CStr, run: Run) -> Result<Vec<Summary>> {
    let ways = [None, Some(Sleep::Wait), Some(Sleep::Poll)];
    let account = |way| {
        let summary = account_by(way, context, parameters, run);
        summary.with_context(|| format!("{way:?}"))
    };
    ways.into_iter().map(account).collect()
}

fn account_by(
    way: Option<Sleep>,
    context: &Context,
    parameters: &CStr,
    (kind, packets, length): Run,
) -> Result<Summary> {
    let publisher = Publisher::load(context, parameters)?.context("loading the publisher")?;
    let end = open(NAME)?;
    let consumer: Child<Summary> = spawn_keeping("a consumer", &[end.as_fd()], || {
        let account = consume(end.try_clone()?, way)?;
        let contexts = account.contexts();
        Ok((
            account.received,
            account.lost,
            contexts,
            account.processors(),
        ))
    })?;
    consumer.wait_asleep_in(match way {
        None => Call::Read,
        Some(Sleep::Wait) => Call::Ioctl,
        Some(Sleep::Poll) => Call::Poll,
    })?;
    publisher.publish(kind, packets, length)?;
    // A packet more, which reports what was lost at the end.
    let consumer = wait_until_empty(consumer)?;
    publisher.publish("task", 1, length)?;
    let results = publisher.results()?;
    let state = info_by_name(NAME)?.1;
    expect(
        "publishes",
        state.sequence,
        results.delivered + results.lost,
    )?;
    expect("delivered", state.published, results.delivered)?;
    let consumer = wait_until_empty(consumer)?;
    publisher.unload()?;
    drop(end);
    let summary = consumer.finish()?;
    let seen = (summary.0, summary.1);
    let expected = (results.delivered, results.lost);
    expect("received and lost", seen, expected)?;
    Ok(summary)
}

/// Waits until the consumer has received all packets, and returns it. Fails with its error if it has ended, and if it
/// receives nothing for long: how long all of them take depends on their number.
fn wait_until_empty<T: DeserializeOwned>(consumer: Child<T>) -> Result<Child<T>> {
    let mut unread = u64::MAX;
    while unread > 0 {
        let look = || {
            let has_ended = consumer.has_ended()?;
            let left = info_by_name(NAME)?.0.bytes;
            Ok((has_ended || left < unread).then_some((has_ended, left)))
        };
        let state = eventually("the consumer receives what is left", look);
        let (has_ended, left) = state.with_context(|| proc::describe(consumer.pid()))?;
        if has_ended {
            consumer.finish()?;
            bail!("the consumer has ended before the feed");
        }
        unread = left;
    }
    Ok(consumer)
}

fn packets_from_hard_interrupts(context: &Context) -> Result<()> {
    for (_, lost, contexts, _) in account_for(context, c"", ("irq", 500, 64))? {
        expect("lost", lost, 0)?;
        expect("contexts", contexts, vec![TASK, IRQ])?;
    }
    Ok(())
}

fn packets_from_all_processors_at_once(context: &Context) -> Result<()> {
    for (received, lost, contexts, processors) in account_for(context, c"", ("cpus", 3000, 100))? {
        ensure!(contexts.contains(&IRQ), "contexts: {contexts:?}");
        ensure!(processors > 1, "all packets came from one processor");
        note(format!("{received} received, {lost} lost"));
    }
    Ok(())
}

fn packets_from_threads_and_from_interrupts_in_them(context: &Context) -> Result<()> {
    for (received, lost, contexts, processors) in account_for(context, c"", ("nested", 3000, 100))?
    {
        expect("contexts", contexts, vec![TASK, IRQ])?;
        ensure!(processors > 1, "all packets came from one processor");
        note(format!("{received} received, {lost} lost"));
    }
    Ok(())
}

/// A packet that finds the lock taken in NMI is lost and counted.
fn packets_from_nmi(context: &Context) -> Result<()> {
    if !cfg!(target_arch = "x86_64") {
        return Err(skip("the publisher sends NMIs on x86-64 only"));
    }
    let parameters = c"capacity=16777216";
    for (received, lost, contexts, _) in account_for(context, parameters, ("nmi", 50, 100))? {
        expect("contexts", contexts, vec![TASK, NMI])?;
        note(format!("{received} received, {lost} lost"));
    }
    Ok(())
}

fn packets_too_fast_for_the_ring(context: &Context) -> Result<()> {
    for (received, lost, ..) in account_for(context, c"capacity=1", ("cpus", 2000, 2000))? {
        ensure!(lost > 0, "nothing was lost, {received} received");
        note(format!("{received} received, {lost} lost"));
    }
    Ok(())
}

fn the_state_by_name_is_consistent_while_packets_are_published(context: &Context) -> Result<()> {
    const PACKETS: u64 = 50_000;
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    let (_, mut last) = info_by_name(NAME)?;
    let (mut before, mut states, mut packets) = ([0; 2], 0, 0);
    while states < 20 {
        let publishing = publisher.spawn_publish("task", PACKETS as usize, 1000)?;
        packets += PACKETS;
        while !publishing.has_reported()? {
            let (common, now) = info_by_name(NAME)?;
            expect_growth(&last, &now)?;
            expect("the ends", (common.readers, common.writers), (1, 1))?;
            ensure!(common.bytes <= common.capacity, "{} bytes", common.bytes);
            // The common counts are read at another time of the call than `now`.
            let counts = [common.messages, common.lost];
            let (from, to) = ([last.published, last.lost], [now.published, now.lost]);
            for at in 0..2 {
                let grown = from[at] <= counts[at] && before[at] <= to[at];
                ensure!(grown, "{from:?}, {before:?}; then {counts:?}, {to:?}");
            }
            states += u64::from(now.sequence > last.sequence);
            (last, before) = (now, counts);
            // There is room for a packet again.
            let _ = read_nowait(&end, LARGEST);
        }
        publishing.finish()?;
    }
    let (common, state) = info_by_name(NAME)?;
    expect("the next number", state.sequence, packets)?;
    expect("published and lost", state.published + state.lost, packets)?;
    let counts = (common.messages, common.lost);
    expect("common counts", counts, (state.published, state.lost))?;
    drop(end);
    publisher.unload()
}

fn a_publish_without_a_consumer_succeeds(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    publisher.publish("cpus", 100, 4096)?;
    let results = publisher.results()?;
    ensure!(results.delivered >= 100, "{results:?}");
    expect("lost", results.lost, 0)?;
    let state = info_by_name(NAME)?.1;
    expect("sequence and lost", (state.sequence, state.lost), (0, 0))?;
    expect("the consumer", state.consumer, CONSUMER_NONE)
}

/// Receives until it is killed.
fn doomed_consumer(sleep: Option<Sleep>) -> Result<Child<u64>> {
    spawn("a consumer", || {
        let account = consume(open(NAME)?, sleep);
        // Another sequence number than 0 is the only error: it is not the first consumer.
        let mut random = account.map(|account| account.received).unwrap_or(0);
        loop {
            random = random.wrapping_add(1);
            std::thread::park();
        }
    })
}

/// Kills consumers at any moment while packets are published; the next one can always claim the feed, and the last one
/// gets all packets.
fn kill_consumers(context: &Context, sleep: Option<Sleep>) -> Result<()> {
    let publisher = Publisher::large(context)?;
    let mut random = Rng::with_seed(3);
    for _ in 0..100 {
        let run = publisher.spawn_publish("nested", 500, 200)?;
        let consumer = doomed_consumer(sleep)?;
        std::thread::sleep(Duration::from_micros(random.u64(..5000)));
        consumer.kill()?;
        run.finish()?;
    }
    let end = open(NAME)?;
    claim_by_read(&end)?;
    publisher.publish("cpus", 50, 200)?;
    let mut account = Account::default();
    let published = info_by_name(NAME)?.1;
    while info_by_name(NAME)?.0.bytes > 0 {
        account.add(&read_present(&end)?)?;
    }
    ensure!(account.received >= 50, "{} received", account.received);
    expect("lost by the last", account.lost, 0)?;
    let all = published.published + published.lost;
    expect("sequence numbers", published.sequence, all)
}

fn a_reader_killed_while_packets_are_published(context: &Context) -> Result<()> {
    kill_consumers(context, None)
}

fn a_mapping_consumer_killed_while_packets_are_published(context: &Context) -> Result<()> {
    kill_consumers(context, Some(Sleep::Wait))
}

/// While packets are published, and while the consumer waits.
fn unloading_the_publisher_ends_live_consumers(context: &Context) -> Result<()> {
    for way in [None, Some(Sleep::Wait), Some(Sleep::Poll)] {
        let publisher = Publisher::large(context)?;
        let end = open(NAME)?;
        let consumer = spawn_keeping("a consumer", &[end.as_fd()], || {
            Ok(consume(end.try_clone()?, way)?.received)
        })?;
        wait_until_claimed()?;
        let run = publisher.spawn_publish("nested", 300, 100)?;
        let unloaded = publisher.unload();
        unloaded.context("unloading while packets are published")?;
        // It was over before, or it is interrupted by the end of the feed.
        run.wait_end()?;
        consumer.finish().with_context(|| format!("{way:?}"))?;
    }
    expect_no_objects()
}

fn wait_until_claimed() -> Result<()> {
    eventually("the consumer claims the feed", || {
        Ok((info_by_name(NAME)?.1.consumer != CONSUMER_NONE).then_some(()))
    })
}

fn a_consumer_outlives_the_publisher(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    let mut publisher = Some(publisher);
    for number in 0..3 {
        let current = match publisher.take() {
            Some(publisher) => publisher,
            None => Publisher::small(context)?,
        };
        current.publish("task", 1, 16)?;
        current.unload()?;
        if number == 0 {
            expect("its packet", read_present(&end)?.header.sequence, 0)?;
        }
        // Another feed of the same name is another feed.
        expect("the end", read_packet(&end)?, None)?;
    }
    Ok(())
}

fn the_modules_are_unloaded_in_any_possible_order(context: &Context) -> Result<()> {
    let file = context.modules.own.as_ref();
    let file =
        file.ok_or_else(|| skip("the module's file was not given; name it with --module"))?;
    // The publisher uses symbols of the module.
    let publisher = Publisher::small(context)?;
    expect_module_in_use()?;
    let (reader, mapping) = (open(NAME)?, open(NAME)?);
    claim_by_read(&reader)?;
    publisher.publish("irq", 3, 16)?;
    // Consumers do not keep the publisher loaded, but the module.
    publisher.unload()?;
    expect_module_in_use()?;
    drop(mapping);
    expect_module_in_use()?;
    drop(reader);
    let unloaded = UnloadedModule::module(file)?;
    let loaded = Publisher::load(context, c"")?;
    expect("without the module", loaded.err(), Some(Errno::ENOENT))?;
    unloaded.load_again()?;
    let publisher = Publisher::small(context)?;
    let consumer = Consumer::claim(open(NAME)?)?;
    publisher.unload()?;
    drop(consumer);
    expect_no_objects()
}

fn consumers_leak_no_page(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    expect_no_page_leak(500, |rounds| {
        for round in 0..rounds {
            let end = open(NAME)?;
            if round % 2 == 0 {
                claim_by_read(&end)?;
            } else {
                drop(Consumer::claim(end)?);
            }
        }
        Ok(())
    })?;
    publisher.unload()
}

/// struct sluice_frame.
struct Frame {
    length: u32,
    ifindex: u32,
    protocol: u16,
}

impl Frame {
    fn of(packet: &Packet) -> Result<Self> {
        let bytes = packet.bytes.first_chunk::<16>();
        let bytes = bytes.with_context(|| format!("{} bytes", packet.bytes.len()))?;
        expect("bytes of a frame", packet.bytes.len(), bytes.len())?;
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(Frame {
            length: word(0),
            ifindex: word(4),
            protocol: u16::from_be_bytes([bytes[12], bytes[13]]),
        })
    }
}

/// Enters a network namespace with nothing but a loopback device, which is up.
fn enter_network_namespace() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("unshare(CLONE_NEWNET)")?;
    let socket = UdpSocket::bind("0.0.0.0:0").context("creating a socket")?;
    // SAFETY: all fields of the structure are integers or arrays of them.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_LOOPBACK) as libc::c_short;
    // SAFETY: the kernel reads one request with a name and flags.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) };
    Errno::result(result).context("enabling the loopback device")?;
    Ok(())
}

/// The next frame of this length on the loopback device of the namespace; those of other devices are skipped.
fn next_frame(end: &OwnedFd, length: u32) -> Result<Frame> {
    const LOOPBACK: u32 = 1;
    loop {
        let frame = Frame::of(&read_packet(end)?.context("the feed has ended")?)?;
        if (frame.ifindex, frame.length) == (LOOPBACK, length) {
            return Ok(frame);
        }
    }
}

fn the_sample_publishes_received_frames(context: &Context) -> Result<()> {
    const HEADERS: usize = 28; // of IPv4 and UDP
    const IPV4: u16 = 0x0800;
    let sample = context.modules.sample.as_ref();
    let sample = sample.ok_or_else(|| skip("no sample was given; name it with --sample"))?;
    let mut sample = LoadedModule::load(sample, c"sluice_frames", c"")?.context("loading it")?;
    enter_network_namespace()?;
    let end = open("frames")?;
    claim_by_read(&end)?;
    let receiver = UdpSocket::bind("127.0.0.1:0").context("binding a socket")?;
    let sender = UdpSocket::bind("127.0.0.1:0").context("binding a socket")?;
    for length in [1, 500, 1234] {
        let address = receiver.local_addr()?;
        sender
            .send_to(&vec![0; length], address)
            .context("sending")?;
        let frame = next_frame(&end, (length + HEADERS) as u32)?;
        expect("the protocol", frame.protocol, IPV4)?;
    }
    let reader = spawn_keeping("a reader", &[end.as_fd()], || {
        while read_packet(&end)?.is_some() {}
        Ok(())
    })?;
    wait_reading(&reader)?;
    // It is unloaded while frames are received.
    for _ in 0..100 {
        sender.send_to(b"x", receiver.local_addr()?)?;
    }
    sample.unload().context("unloading the sample")?;
    reader.finish()?;
    let opened = open_node_with(OFlag::O_RDONLY).map(drop);
    expect("an open of the simulator's feed", opened, Ok(()))?;
    match open("frames") {
        Ok(_) => bail!("the feed of the sample is still there"),
        Err(_) => Ok(()),
    }
}
