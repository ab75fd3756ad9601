// SPDX-License-Identifier: MIT OR Apache-2.0
//! A consumer that maps a feed: regions and rights, the claim, fresh pages for each consumer, invalid positions, lost
//! packets, sleep and wake-up, and the end.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

use crate::registry::{Context, topic};
use crate::support::channel::read_nowait;
use crate::support::check::expect;
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{Ctl, READ};
use crate::support::event::Event;
use crate::support::feed::{
    Account, CONSUMER_MAPS, CONSUMER_NONE, Consumer, IRQ, LARGEST, NAME, Publisher, Results, Sleep,
    claim_by_read, info, open, open_node_with, request,
};
use crate::support::ioctl::raw;
use crate::support::memory::PAGE;
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::ring::{FOREVER, READ_ONLY, READ_WRITE, Region, expect_not_executable, wait};
use crate::support::signals;
use sluice_abi::ring::{CLOSED, MMAP_CONSUMER, MMAP_DATA, MMAP_PRODUCER, REJECTED};
use sluice_abi::{RING_WAIT, RING_WAIT_SIZE_VER0, RingWait};

topic!(
    "feed_map",
    fifo: [],
    pipe_only: [
        packets_arrive_through_memory,
        packets_arrive_unchanged_across_the_end_of_the_ring,
        each_region_is_mapped_as_a_whole,
        a_consumer_cannot_write_to_the_regions_of_the_kernel,
        an_endpoint_opened_for_reading_cannot_map,
        the_data_is_mapped_twice,
        a_consumer_that_maps_may_not_read,
        a_consumer_that_reads_may_not_map,
        a_second_consumer_is_ebusy,
        a_refused_mapping_claims_nothing,
        a_mapping_keeps_the_claim_after_the_close,
        a_new_consumer_starts_with_zeroed_pages_and_the_next_packet,
        a_full_ring_loses_packets_and_counts_them_in_the_next_one,
        room_is_used_as_soon_as_it_is_released,
        an_invalid_position_ends_the_consumer,
        a_waiting_consumer_with_an_invalid_position_is_woken,
        a_position_within_the_published_records_is_accepted,
        a_wait_ends_with_a_packet,
        a_wait_with_an_old_sequence_number_returns,
        a_wait_without_a_claim_is_einval,
        invalid_waits_are_einval,
        a_wait_times_out,
        a_signal_ends_a_wait_with_eintr,
        a_consumer_that_does_not_sleep_is_not_woken,
        poll_reports_a_wake_up_until_it_is_acknowledged,
        an_edge_triggered_epoll_reports_each_wake_up,
        no_wake_up_is_lost_in_wait,
        no_wake_up_is_lost_in_poll,
        the_end_is_seen_after_the_rest,
        mapping_a_feed_that_has_ended_is_epipe,
    ],
);

/// The feed with the smallest capacity, and its consumer.
fn small(context: &Context) -> Result<(Publisher, Consumer)> {
    let publisher = Publisher::small(context)?;
    let consumer = Consumer::claim(open(NAME)?)?;
    Ok((publisher, consumer))
}

const CAPACITY: u64 = 16384;

fn packets_arrive_through_memory(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    expect("the consumer", info(&consumer)?.consumer, CONSUMER_MAPS)?;
    let mut account = Account::from(0);
    for length in [16, 17, 1000, 4096] {
        publisher.publish("task", 1, length)?;
        let packet = consumer.take()?.context("no packet")?;
        expect("bytes", packet.bytes.len(), length)?;
        account.add(&packet)?;
        expect(
            "the published position",
            consumer.published(),
            consumer.pos(),
        )?;
    }
    expect("a further packet", consumer.take()?, None)?;
    expect("lost packets", account.lost, 0)
}

fn packets_arrive_unchanged_across_the_end_of_the_ring(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    let mut account = Account::from(0);
    for round in 0..300 {
        let length = 16 + round * 977 % 4000;
        publisher.publish("task", 3, length)?;
        for _ in 0..3 {
            let packet = consumer.take()?.context("no packet")?;
            expect("bytes", packet.bytes.len(), length)?;
            account.add(&packet)?;
        }
        expect("a further packet", consumer.take()?, None)?;
    }
    expect(
        "received and lost",
        (account.received, account.lost),
        (900, 0),
    )
}

fn each_region_is_mapped_as_a_whole(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    let data = 2 * CAPACITY as usize;
    let map = |offset, len| Region::map(&end, offset, len, READ_ONLY).map(drop);
    for (offset, len) in [
        (MMAP_PRODUCER, PAGE),
        (MMAP_CONSUMER, PAGE),
        (MMAP_DATA, data),
    ] {
        expect("a region", map(offset, len), Ok(()))?;
    }
    for (offset, len) in [
        (MMAP_PRODUCER, 2 * PAGE),
        (MMAP_PRODUCER + PAGE as u64, PAGE),
        (MMAP_CONSUMER, 2 * PAGE),
        (MMAP_DATA, data / 2),
        (MMAP_DATA, data - PAGE),
        (MMAP_DATA, data + PAGE),
        (MMAP_DATA + PAGE as u64, PAGE),
        (1 << 40, PAGE),
    ] {
        let what = format!("{len} bytes at {offset:#x}");
        expect(&what, map(offset, len), Err(Errno::EINVAL))?;
    }
    let private = Region::map_with(&end, MMAP_PRODUCER, PAGE, READ_ONLY, libc::MAP_PRIVATE);
    expect("a private mapping", private.map(drop), Err(Errno::EINVAL))
}

fn a_consumer_cannot_write_to_the_regions_of_the_kernel(context: &Context) -> Result<()> {
    const NO: nix::Result<()> = Err(Errno::EACCES);
    let (_publisher, consumer) = small(context)?;
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let data = 2 * CAPACITY as usize;
    for (offset, len) in [(MMAP_PRODUCER, PAGE), (MMAP_DATA, data)] {
        let map = |rights| Region::map(&consumer, offset, len, rights).map(drop);
        expect("writable", map(READ_WRITE), NO)?;
        expect("only writable", map(libc::PROT_WRITE), NO)?;
        expect_not_executable("a mapping", map(executable))?;
    }
    for area in [&consumer.producer.0, &consumer.data] {
        expect("writable later", area.protect(READ_WRITE), NO)?;
        expect("executable later", area.protect(executable), NO)?;
    }
    expect(
        "its own, executable",
        consumer.own.0.protect(executable),
        NO,
    )
}

fn an_endpoint_opened_for_reading_cannot_map(_: &Context) -> Result<()> {
    let end = open_node_with(nix::fcntl::OFlag::O_RDONLY).context("opening the node")?;
    let own = |access| Region::map(&end, MMAP_CONSUMER, PAGE, access).map(drop);
    expect("its own page", own(READ_WRITE), Err(Errno::EACCES))?;
    expect("it, to read", own(READ_ONLY), Err(Errno::EINVAL))?;
    expect("the consumer", info(&end)?.consumer, CONSUMER_NONE)
}

fn the_data_is_mapped_twice(context: &Context) -> Result<()> {
    let (publisher, consumer) = small(context)?;
    publisher.publish("task", 3, 4000)?;
    let half = CAPACITY as usize;
    let (first, second) = (consumer.data.read(0, half), consumer.data.read(half, half));
    ensure!(first == second, "the halves of the mapping differ");
    ensure!(first.iter().any(|byte| *byte != 0), "they contain nothing");
    Ok(())
}

fn a_consumer_that_maps_may_not_read(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    publisher.publish("task", 1, 16)?;
    let seen = read_nowait(&consumer, LARGEST);
    expect("a read", seen, Err(Errno::EBUSY))?;
    expect("its packet", consumer.take()?.is_some(), true)
}

fn a_consumer_that_reads_may_not_map(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    let mapped = Region::map(&end, MMAP_PRODUCER, PAGE, READ_ONLY).map(drop);
    expect("a mapping", mapped, Err(Errno::EBUSY))?;
    let result = wait(&end, 0, FOREVER);
    expect("a wait", result, Err(Errno::EINVAL))
}

fn a_second_consumer_is_ebusy(context: &Context) -> Result<()> {
    let (publisher, consumer) = small(context)?;
    let other = open(NAME)?;
    let map = |end: &OwnedFd| Region::map(end, MMAP_PRODUCER, PAGE, READ_ONLY).map(drop);
    let seen = read_nowait(&other, LARGEST);
    expect("a read by another", seen, Err(Errno::EBUSY))?;
    expect("a mapping by another", map(&other), Err(Errno::EBUSY))?;
    drop(consumer);
    claim_by_read(&other)?;
    let third = open(NAME)?;
    expect("a mapping by a third", map(&third), Err(Errno::EBUSY))?;
    drop(other);
    expect("after the close", map(&third), Ok(()))?;
    publisher.unload()
}

fn a_refused_mapping_claims_nothing(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let (end, other) = (open(NAME)?, open(NAME)?);
    let short = Region::map(&end, MMAP_DATA, PAGE, READ_ONLY).map(drop);
    expect("a part of a region", short, Err(Errno::EINVAL))?;
    let writable = Region::map(&end, MMAP_PRODUCER, PAGE, READ_WRITE).map(drop);
    expect("a region of the kernel", writable, Err(Errno::EACCES))?;
    expect("the consumer", info(&end)?.consumer, CONSUMER_NONE)?;
    claim_by_read(&other)
}

fn a_mapping_keeps_the_claim_after_the_close(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let (end, other) = (open(NAME)?, open(NAME)?);
    let mapping = Region::map(&end, MMAP_PRODUCER, PAGE, READ_ONLY).context("mapping")?;
    drop(end);
    publisher.publish("task", 1, 16)?;
    let seen = read_nowait(&other, LARGEST);
    expect("while it is mapped", seen, Err(Errno::EBUSY))?;
    drop(mapping);
    claim_by_read(&other)
}

fn a_new_consumer_starts_with_zeroed_pages_and_the_next_packet(context: &Context) -> Result<()> {
    let (publisher, mut first) = small(context)?;
    publisher.publish("task", 3, 4000)?;
    first.take()?.context("no packet")?;
    first.prepare_sleep();
    let next = open(NAME)?;
    drop(first);
    publisher.publish("task", 2, 16)?;
    let mut second = Consumer::claim(next)?;
    for area in [&second.own.0, &second.producer.0, &second.data] {
        ensure!(area.is_zero(), "its pages are not zeroed");
    }
    publisher.publish("task", 1, 16)?;
    let packet = second.take()?.context("no packet")?;
    expect("its number", packet.origin()?.number, 5)?;
    let header = packet.header;
    expect("sequence and lost", (header.sequence, header.lost), (3, 0))
}

fn a_full_ring_loses_packets_and_counts_them_in_the_next_one(context: &Context) -> Result<()> {
    // With 984 bytes the sixteenth record would end at the end of the room, which leaves none for the state of the
    // record after it.
    for (length, fit) in [(1000, 15), (984, 15), (976, 16)] {
        fill(context, length, fit).with_context(|| format!("packets of {length} bytes"))?;
    }
    Ok(())
}

fn fill(context: &Context, length: usize, fit: u64) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    publisher.publish("task", 100, length)?;
    let Results {
        delivered, lost, ..
    } = publisher.results()?;
    expect("delivered and lost", (delivered, lost), (fit, 100 - fit))?;
    let mut account = Account::from(0);
    while let Some(packet) = consumer.take()? {
        account.add(&packet)?;
    }
    expect(
        "received and lost",
        (account.received, account.lost),
        (fit, 0),
    )?;
    publisher.publish("task", 2, length)?;
    for expected in [lost, 0] {
        let packet = consumer.take()?.context("no packet")?;
        expect("lost before it", packet.header.lost, expected)?;
        account.add(&packet)?;
    }
    let state = info(&consumer)?;
    expect("lost in the state", state.lost, lost)?;
    expect("published in the state", state.published, fit + 2)?;
    publisher.unload()
}

fn room_is_used_as_soon_as_it_is_released(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    publisher.publish("task", 100, 1000)?;
    for _ in 0..50 {
        let before = publisher.results()?;
        publisher.publish("task", 1, 1000)?;
        expect("lost", publisher.results()?.lost, before.lost + 1)?;
        consumer.take()?.context("no packet")?;
        publisher.publish("task", 1, 1000)?;
        let after = publisher.results()?;
        expect("delivered", after.delivered, before.delivered + 1)?;
    }
    Ok(())
}

/// Stores a position and publishes until the ring is full, which is when the kernel reads it.
fn reject(publisher: &Publisher, consumer: &Consumer, pos: u64) -> Result<()> {
    consumer.set_pos(pos);
    publisher.publish("task", 20, 1000)?;
    expect("the reason of the end", consumer.closed(), REJECTED)
}

fn an_invalid_position_ends_the_consumer(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    type Lie = fn(&Consumer) -> u64;
    let lies: [(&str, Lie); 6] = [
        ("beyond the published records", |consumer| {
            consumer.published() + (1 << 20)
        }),
        ("the largest", |_| u64::MAX - 7),
        ("not aligned", |consumer| consumer.pos() + 4),
        ("before an earlier one", |_| 0),
        ("negative", |consumer| consumer.pos().wrapping_sub(1 << 40)),
        ("just beyond", |consumer| consumer.published() + CAPACITY),
    ];
    for (number, (what, lie)) in lies.into_iter().enumerate() {
        let mut consumer = Consumer::claim(open(NAME)?)?;
        // So that the kernel knows a position above 0.
        publisher.publish("task", 20, 1000)?;
        while consumer.take()?.is_some() {}
        publisher.publish("task", 20, 1000)?;
        reject(&publisher, &consumer, lie(&consumer)).with_context(|| what.to_owned())?;
        expect("violations", info(&consumer)?.violations, number as u64 + 1)?;
        expect("the state", poll::state(&consumer)?, "IN|ERR|HUP".into())?;
        let result = wait(&consumer, consumer.wake_seq(), FOREVER);
        expect("a wait", result, Err(Errno::EPROTO))?;
        let (published, results) = (consumer.published(), publisher.results()?);
        publisher.publish("task", 5, 1000)?;
        expect(
            "what is published afterwards",
            consumer.published(),
            published,
        )?;
        let delivered = publisher.results()?.delivered;
        expect("publishes that succeed", delivered, results.delivered + 5)?;
        let busy = read_nowait(&open(NAME)?, LARGEST);
        expect("another consumer", busy, Err(Errno::EBUSY))?;
    }
    let mut consumer = Consumer::claim(open(NAME)?)?;
    publisher.publish("task", 1, 16)?;
    expect(
        "whether the next one gets packets",
        consumer.take()?.is_some(),
        true,
    )
}

fn a_waiting_consumer_with_an_invalid_position_is_woken(context: &Context) -> Result<()> {
    for sleep in [Sleep::Wait, Sleep::Poll] {
        let publisher = Publisher::small(context)?;
        let consumer = Consumer::claim(open(NAME)?)?;
        consumer.set_pos(4);
        let child = spawn_keeping("a consumer", &[consumer.as_fd()], || {
            Ok(match sleep {
                Sleep::Wait => format!("{:?}", wait(&consumer, 0, FOREVER)),
                Sleep::Poll => poll::name(poll::wait(&consumer, poll::IN, -1)?),
            })
        })?;
        child.wait_asleep_in(match sleep {
            Sleep::Wait => Call::Ioctl,
            Sleep::Poll => Call::Poll,
        })?;
        publisher.publish("irq", 20, 1000)?;
        let expected = match sleep {
            Sleep::Wait => "Err(EPROTO)",
            Sleep::Poll => "IN|ERR|HUP",
        };
        expect("what it sees", child.finish()?, expected.to_owned())?;
        drop(consumer);
        publisher.unload()?;
    }
    Ok(())
}

/// The kernel trusts no position, but one that only skips records harms nobody else.
fn a_position_within_the_published_records_is_accepted(context: &Context) -> Result<()> {
    let (publisher, consumer) = small(context)?;
    publisher.publish("task", 100, 1000)?;
    for pos in [8, 1000, consumer.published() - 8, consumer.published()] {
        consumer.set_pos(pos);
        publisher.publish("task", 20, 1000)?;
        expect("the reason of an end", consumer.closed(), 0)?;
    }
    expect("violations", info(&consumer)?.violations, 0)
}

/// A child that sleeps in a wait for the packet after those up to `seq`.
fn waiting(consumer: &Consumer, seq: u32) -> Result<Child<Option<i32>>> {
    let child = spawn_keeping("a consumer", &[consumer.as_fd()], || {
        Ok(wait(consumer, seq, FOREVER).err().map(|errno| errno as i32))
    })?;
    child.wait_asleep_in(Call::Ioctl)?;
    Ok(child)
}

fn a_wait_ends_with_a_packet(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    for context in ["task", "irq", "cpus"] {
        let seq = consumer.prepare_sleep();
        let child = waiting(&consumer, seq)?;
        child.expect_still_asleep_in(Call::Ioctl)?;
        publisher.publish(context, 1, 16)?;
        expect("the wait", child.finish()?, None)?;
        ensure!(consumer.wake_seq() != seq, "wake_seq is unchanged");
        while consumer.take()?.is_some() {}
    }
    Ok(())
}

fn a_wait_with_an_old_sequence_number_returns(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    let seq = consumer.prepare_sleep();
    publisher.publish("task", 1, 16)?;
    expect("a wait", wait(&consumer, seq, FOREVER), Ok(()))?;
    let other = consumer.wake_seq().wrapping_sub(5);
    expect("any other number", wait(&consumer, other, FOREVER), Ok(()))
}

fn a_wait_without_a_claim_is_einval(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    expect("a wait", wait(&end, 0, FOREVER), Err(Errno::EINVAL))
}

fn invalid_waits_are_einval(context: &Context) -> Result<()> {
    let (_publisher, consumer) = small(context)?;
    let valid = RingWait::new(0, 0);
    let invalid = [
        RingWait { flags: 1, ..valid },
        RingWait {
            reserved: 1,
            ..valid
        },
        RingWait {
            size: RING_WAIT_SIZE_VER0 - 8,
            ..valid
        },
    ];
    for mut wait in invalid {
        let result = raw(&consumer, RING_WAIT, &mut wait);
        expect(&format!("{wait:?}"), result, Err(Errno::EINVAL))?;
    }
    let nowhere = std::ptr::dangling_mut::<u64>().wrapping_byte_add(1 << 60);
    let result = raw(&consumer, RING_WAIT, nowhere);
    expect("an invalid address", result, Err(Errno::EFAULT))
}

fn a_wait_times_out(context: &Context) -> Result<()> {
    const TIMEOUT: Duration = Duration::from_millis(20);
    let (_publisher, mut consumer) = small(context)?;
    let seq = consumer.prepare_sleep();
    expect(
        "without time",
        wait(&consumer, seq, 0),
        Err(Errno::ETIMEDOUT),
    )?;
    let started = std::time::Instant::now();
    let result = wait(&consumer, seq, TIMEOUT.as_nanos() as u64);
    expect("with some time", result, Err(Errno::ETIMEDOUT))?;
    ensure!(started.elapsed() >= TIMEOUT, "it returned too early");
    Ok(())
}

fn a_signal_ends_a_wait_with_eintr(context: &Context) -> Result<()> {
    let (_publisher, consumer) = small(context)?;
    for restart in [false, true] {
        let handled = Event::new()?;
        let keep = [consumer.as_fd()];
        let child = signals::spawn_blocked_keeping(Call::Ioctl, &keep, &handled, restart, || {
            Ok(wait(&consumer, 0, FOREVER).err().map(|errno| errno as i32))
        })?;
        signals::interrupt(&child, &handled)?;
        expect("the wait", child.finish()?, Some(Errno::EINTR as i32))?;
    }
    Ok(())
}

fn a_consumer_that_does_not_sleep_is_not_woken(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    publisher.publish("task", 3, 16)?;
    expect("without flags", consumer.wake_seq(), 0)?;
    let seq = consumer.prepare_sleep();
    publisher.publish("task", 3, 16)?;
    expect("once per sleep", consumer.wake_seq(), seq + 1)?;
    consumer.finish_sleep();
    publisher.publish("task", 3, 16)?;
    expect("after the sleep", consumer.wake_seq(), seq + 1)?;
    consumer.prepare_sleep();
    publisher.publish("irq", 3, 16)?;
    expect("in the next sleep", consumer.wake_seq(), seq + 2)
}

fn poll_reports_a_wake_up_until_it_is_acknowledged(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    for context in ["task", "irq"] {
        consumer.prepare_sleep();
        expect("before", poll::state(&consumer)?, "nothing".into())?;
        let poller = spawn_keeping("a poller", &[consumer.as_fd()], || {
            Ok(poll::name(poll::wait(&consumer, poll::IN, -1)?))
        })?;
        poller.wait_asleep_in(Call::Poll)?;
        publisher.publish(context, 1, 16)?;
        expect("a waiting poll", poller.finish()?, "IN".into())?;
        expect("afterwards", poll::state(&consumer)?, "IN".into())?;
        consumer.take()?.context("no packet")?;
    }
    consumer.prepare_sleep();
    expect("acknowledged", poll::state(&consumer)?, "nothing".into())
}

fn an_edge_triggered_epoll_reports_each_wake_up(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
    let epoll = poll::epoll_on(&consumer, flags)?;
    for _ in 0..10 {
        consumer.prepare_sleep();
        let pending = poll::epoll_event(&epoll, 0_u8.into())?;
        expect("before the packet", pending, None)?;
        publisher.publish("irq", 1, 16)?;
        let event = poll::epoll_event(&epoll, 5000_u16.into())?;
        expect("with the packet", event, Some(EpollFlags::EPOLLIN))?;
        consumer.take()?.context("no packet")?;
    }
    Ok(())
}

/// Packets from interrupts, one at a time and at any moment of the consumer's way to sleep.
fn no_wake_up_is_lost(context: &Context, sleep: Sleep) -> Result<()> {
    const PACKETS: u64 = 800;
    let publisher = Publisher::large(context)?;
    let mut consumer = Consumer::claim(open(NAME)?)?;
    let run = publisher.spawn_publish("irq", PACKETS as usize, 64)?;
    let mut account = Account::from(0);
    let mut random = Rng::with_seed(7);
    while account.received < PACKETS {
        let packet = consumer
            .take_sleeping(sleep)?
            .context("the feed has ended")?;
        account.add(&packet)?;
        for _ in 0..random.u32(..20_000) {
            std::hint::spin_loop();
        }
    }
    expect("lost packets", account.lost, 0)?;
    expect("contexts", account.contexts(), vec![IRQ])?;
    run.finish()
}

fn no_wake_up_is_lost_in_wait(context: &Context) -> Result<()> {
    no_wake_up_is_lost(context, Sleep::Wait)
}

fn no_wake_up_is_lost_in_poll(context: &Context) -> Result<()> {
    no_wake_up_is_lost(context, Sleep::Poll)
}

fn the_end_is_seen_after_the_rest(context: &Context) -> Result<()> {
    let (publisher, mut consumer) = small(context)?;
    publisher.publish("task", 3, 100)?;
    let waiter = waiting(&consumer, consumer.wake_seq())?;
    let poller = spawn_keeping("a poller", &[consumer.as_fd()], || {
        Ok(poll::name(poll::wait(&consumer, poll::RDHUP, -1)?))
    })?;
    poller.wait_asleep_in(Call::Poll)?;
    publisher.unload()?;
    expect("a wait", waiter.finish()?, None)?;
    let ended = "RDHUP".to_owned();
    expect("a poll", poller.finish()?, ended)?;
    expect("the reason of the end", consumer.closed(), CLOSED)?;
    let state = "IN|RDHUP".to_owned();
    expect("the state", poll::state(&consumer)?, state)?;
    for number in 0..3 {
        let packet = consumer.take_sleeping(Sleep::Wait)?.context("no packet")?;
        expect("its number", packet.origin()?.number, number)?;
    }
    expect("after the rest", consumer.take_sleeping(Sleep::Poll)?, None)?;
    let seq = consumer.wake_seq();
    expect("a wait afterwards", wait(&consumer, seq, FOREVER), Ok(()))?;
    // The mapped pages stay.
    consumer.data.protect(READ_ONLY).context("mprotect")
}

fn mapping_a_feed_that_has_ended_is_epipe(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    publisher.unload()?;
    let mapped = Region::map(&end, MMAP_PRODUCER, PAGE, READ_ONLY).map(drop);
    expect("a mapping", mapped, Err(Errno::EPIPE))?;
    let opened = Ctl::new()?.open(request(NAME, READ)).map(drop);
    expect("an open", opened, Err(Errno::ENOENT))
}
