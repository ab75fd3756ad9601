// SPDX-License-Identifier: MIT OR Apache-2.0
//! A consumer that reads a feed: one packet per read, the fields of a packet, waiting, several readers, faults, and the
//! end.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::sys::uio::readv;
use nix::unistd::read;

use crate::registry::{Context, topic};
use crate::support::channel::{read_nowait, read_some, set_nonblocking};
use crate::support::check::expect;
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::fault_blocked::spawn_fault_blocked_keeping;
use crate::support::feed::{
    Account, CONSUMER_MAPS, CONSUMER_NONE, CONSUMER_READS, Header, LARGEST, NAME, PACKET_MAX,
    Packet, Publisher, Results, TASK, claim_as, claim_by_read, info, info_by_name, open,
    read_packet, read_present, wait_reading,
};
use crate::support::memory::{GuardedBuffer, read_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::signals;
use crate::support::uring::{REQUEST, Ring, poll_for, read_into};
use sluice_testkit::clock::now_ns;

topic!(
    "feed_read",
    fifo: [],
    pipe_only: [
        each_read_returns_one_packet,
        a_packet_without_bytes_is_its_header,
        a_packet_of_more_than_4096_bytes_is_refused,
        a_read_into_several_buffers_returns_one_packet,
        a_short_buffer_is_emsgsize_and_keeps_the_packet,
        a_read_of_nothing_returns_at_once_and_claims_nothing,
        a_read_that_must_not_block_claims_nothing,
        a_claim_is_for_reading_or_for_mapping,
        packets_arrive_unchanged_across_the_end_of_the_ring,
        sequence_time_and_cycles_increase,
        lost_packets_are_counted_in_the_next_one,
        the_first_packet_is_the_next_after_the_claim,
        a_nonblocking_read_without_a_packet_is_eagain,
        a_read_waits_for_a_packet,
        a_signal_ends_a_read_with_eintr,
        a_read_is_restarted_after_a_signal,
        several_readers_get_each_packet_once,
        a_fault_in_the_buffer_loses_no_packet,
        a_reader_killed_in_a_page_fault_loses_no_packet,
        a_read_that_waits_for_a_page_stops_no_publisher,
        poll_reports_a_packet,
        poll_before_the_claim_reports_a_packet,
        packets_after_an_unread_one_are_no_event,
        a_read_of_uring_completes_with_a_packet,
        a_poll_of_uring_completes_with_a_packet,
        a_pending_read_of_uring_can_be_cancelled,
        the_end_comes_after_the_rest,
        a_waiting_reader_sees_the_end,
        an_endpoint_without_a_claim_sees_the_end,
        another_endpoint_is_ebusy_until_the_consumer_closes,
    ],
);

/// The feed with the smallest capacity, and its consumer.
fn small(context: &Context) -> Result<(Publisher, OwnedFd)> {
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    Ok((publisher, end))
}

fn each_read_returns_one_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    const LENGTHS: [usize; 5] = [16, 17, 1000, 4096, 16];
    for length in LENGTHS {
        publisher.publish("task", 1, length)?;
    }
    let mut account = Account::from(0);
    for length in LENGTHS {
        let packet = read_present(&end)?;
        expect("bytes of the packet", packet.bytes.len(), length)?;
        expect("its context", packet.origin()?.context, TASK)?;
        account.add(&packet)?;
    }
    expect("lost packets", account.lost, 0)?;
    let seen = read_nowait(&end, LARGEST);
    expect("a read after all of them", seen, Err(Errno::EAGAIN))
}

fn a_packet_without_bytes_is_its_header(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 2, 0)?;
    for sequence in [0, 1] {
        let packet = read_present(&end)?;
        expect("bytes", packet.bytes, vec![])?;
        expect("sequence", packet.header.sequence, sequence)?;
    }
    Ok(())
}

fn a_packet_of_more_than_4096_bytes_is_refused(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 1, PACKET_MAX as usize + 1)?;
    publisher.publish("task", 1, PACKET_MAX as usize)?;
    let packet = read_present(&end)?;
    expect("bytes", packet.bytes.len(), PACKET_MAX as usize)?;
    expect("sequence", packet.header.sequence, 0)?;
    let expected = Results {
        delivered: 1,
        lost: 0,
        too_long: 1,
    };
    expect("results", publisher.results()?, expected)
}

fn a_read_into_several_buffers_returns_one_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 2, 100)?;
    let (mut header, mut bytes) = ([0; Header::SIZE], [0; 200]);
    let mut pieces = [
        std::io::IoSliceMut::new(&mut header),
        std::io::IoSliceMut::new(&mut bytes),
    ];
    let count = readv(&end, &mut pieces).context("readv")?;
    expect("bytes read", count, Header::SIZE + 100)?;
    let packet = Packet::parse(&[&header[..], &bytes[..100]].concat())?;
    expect("its number", packet.origin()?.number, 0)?;
    expect("the next", read_present(&end)?.origin()?.number, 1)
}

fn a_read_that_must_not_block_claims_nothing(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    let seen = read_nowait(&end, LARGEST);
    expect("a read before the claim", seen, Err(Errno::EAGAIN))?;
    expect("consumer", info(&end)?.consumer, CONSUMER_NONE)
}

fn a_claim_is_for_reading_or_for_mapping(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let (end, other) = (open(NAME)?, open(NAME)?);
    for value in [CONSUMER_NONE, 3, u32::MAX] {
        let seen = claim_as(&end, value).map(drop);
        expect("another value", seen, Err(Errno::EINVAL))?;
    }
    claim_by_read(&end)?;
    expect("consumer", info(&end)?.consumer, CONSUMER_READS)?;
    claim_by_read(&end).context("again")?;
    for (who, claimed) in [
        ("in the other way", claim_as(&end, CONSUMER_MAPS)),
        ("by another endpoint", claim_as(&other, CONSUMER_READS)),
    ] {
        expect(who, claimed.map(drop), Err(Errno::EBUSY))?;
    }
    Ok(())
}

fn packets_after_an_unread_one_are_no_event(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let epoll = poll::epoll_on(&end, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
    let count = |packets: usize| -> Result<usize> {
        let mut events = 0;
        for _ in 0..packets {
            publisher.publish("task", 1, 16)?;
            while poll::epoll_event(&epoll, EpollTimeout::ZERO)?.is_some() {
                events += 1;
            }
        }
        Ok(events)
    };
    // The endpoint had none before the first packet.
    expect("events of unread packets", count(5)?, 1)?;
    for _ in 0..4 {
        read_present(&end)?;
    }
    expect("with one left", count(1)?, 0)?;
    while read_nowait(&end, LARGEST).is_ok() {}
    expect("after all were read", count(3)?, 1)
}

fn a_short_buffer_is_emsgsize_and_keeps_the_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 2, 100)?;
    for size in [1, Header::SIZE, Header::SIZE + 99] {
        let seen = read_nowait(&end, size);
        expect(&format!("{size} bytes"), seen, Err(Errno::EMSGSIZE))?;
    }
    let exact = read_nowait(&end, Header::SIZE + 100).context("an exact buffer")?;
    let packet = Packet::parse(&exact)?;
    expect("its sequence", packet.header.sequence, 0)?;
    packet.origin()?;
    expect("the next", read_present(&end)?.header.sequence, 1)
}

fn a_read_of_nothing_returns_at_once_and_claims_nothing(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    expect("before the claim", read(&end, &mut []), Ok(0))?;
    expect("the consumer", info(&end)?.consumer, CONSUMER_NONE)?;
    claim_by_read(&end)?;
    expect("without a packet", read(&end, &mut []), Ok(0))?;
    publisher.publish("task", 1, 16)?;
    expect("with a packet", read(&end, &mut []), Ok(0))?;
    expect("the packet", read_present(&end)?.header.sequence, 0)
}

fn packets_arrive_unchanged_across_the_end_of_the_ring(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let mut account = Account::from(0);
    for round in 0..300 {
        let length = 16 + round * 977 % 4000;
        publisher.publish("task", 3, length)?;
        for _ in 0..3 {
            let packet = read_present(&end)?;
            expect("bytes", packet.bytes.len(), length)?;
            account.add(&packet)?;
        }
    }
    expect(
        "received and lost",
        (account.received, account.lost),
        (900, 0),
    )
}

fn sequence_time_and_cycles_increase(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let mut last = Header {
        time_ns: now_ns(),
        ..Header::default()
    };
    for sequence in 0..20 {
        let before = now_ns();
        publisher.publish("task", 1, 16)?;
        let after = now_ns();
        let header = read_present(&end)?.header;
        expect("sequence", header.sequence, sequence)?;
        expect("lost", header.lost, 0)?;
        ensure!(
            (before..=after).contains(&header.time_ns),
            "the time is {}, published between {before} and {after}",
            header.time_ns
        );
        ensure!(
            header.time_ns >= last.time_ns && header.cycles > last.cycles,
            "{header:?} comes after {last:?}"
        );
        last = header;
    }
    Ok(())
}

fn lost_packets_are_counted_in_the_next_one(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 100, 1000)?;
    let Results {
        delivered, lost, ..
    } = publisher.results()?;
    ensure!(
        delivered > 10 && delivered + lost == 100,
        "{delivered} were delivered and {lost} lost of 100"
    );
    let state = info(&end)?;
    expect(
        "published and lost",
        (state.published, state.lost),
        (delivered, lost),
    )?;
    expect("sequence of the next packet", state.sequence, 100)?;
    let mut account = Account::from(0);
    for _ in 0..delivered {
        account.add(&read_present(&end)?)?;
    }
    expect("lost between the first packets", account.lost, 0)?;
    publisher.publish("task", 2, 1000)?;
    let packet = read_present(&end)?;
    expect("lost before the next", packet.header.lost, lost)?;
    account.add(&packet)?;
    account.add(&read_present(&end)?)?;
    expect("lost of all", account.lost, lost)
}

fn the_first_packet_is_the_next_after_the_claim(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    publisher.publish("task", 5, 16)?;
    let end = open(NAME)?;
    publisher.publish("task", 5, 16)?;
    claim_by_read(&end)?;
    publisher.publish("task", 1, 16)?;
    let packet = read_present(&end)?;
    expect("its number", packet.origin()?.number, 10)?;
    expect("lost", packet.header.lost, 0)?;
    // Packets that nobody received have no sequence number.
    expect("its sequence number", packet.header.sequence, 0)?;
    publisher.publish("task", 3, 16)?;
    drop(end);
    let end = open(NAME)?;
    claim_by_read(&end)?;
    publisher.publish("task", 1, 16)?;
    let header = read_present(&end)?.header;
    expect(
        "the next consumer's first",
        (header.sequence, header.lost),
        (4, 0),
    )
}

fn a_nonblocking_read_without_a_packet_is_eagain(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    expect("RWF_NOWAIT", read_nowait(&end, LARGEST), Err(Errno::EAGAIN))?;
    set_nonblocking(&end)?;
    expect("O_NONBLOCK", read_some(&end, LARGEST), Err(Errno::EAGAIN))?;
    publisher.publish("task", 1, 16)?;
    expect("a packet", read_packet(&end)?.is_some(), true)?;
    expect("and then", read_some(&end, LARGEST), Err(Errno::EAGAIN))
}

/// A child that reads one packet and returns its sequence number, asleep in the read.
fn waiting_reader(end: &OwnedFd) -> Result<Child<Option<u64>>> {
    let child = spawn_keeping("a reader", &[end.as_fd()], || {
        Ok(read_packet(end)?.map(|packet| packet.header.sequence))
    })?;
    wait_reading(&child)?;
    Ok(child)
}

fn a_read_waits_for_a_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    for sequence in 0..20 {
        let reader = waiting_reader(&end)?;
        publisher.publish(["task", "irq"][sequence % 2], 1, 16)?;
        expect("its packet", reader.finish()?, Some(sequence as u64))?;
    }
    let reader = waiting_reader(&end)?;
    reader.expect_still_asleep_in(Call::Read)?;
    publisher.publish("task", 1, 16)?;
    expect("its packet", reader.finish()?, Some(20))
}

fn a_signal_ends_a_read_with_eintr(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let handled = Event::new()?;
    let keep = end.as_fd();
    let reader = signals::spawn_blocked_keeping(Call::Read, &[keep], &handled, false, || {
        Ok(read(&end, &mut [0; LARGEST]).map_err(|errno| errno as i32))
    })?;
    signals::interrupt(&reader, &handled)?;
    expect("the read", reader.finish()?, Err(Errno::EINTR as i32))?;
    publisher.publish("task", 1, 16)?;
    expect("the next", read_present(&end)?.header.sequence, 0)
}

fn a_read_is_restarted_after_a_signal(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let handled = Event::new()?;
    let keep = end.as_fd();
    let reader = signals::spawn_blocked_keeping(Call::Read, &[keep], &handled, true, || {
        Ok(read(&end, &mut [0; LARGEST]).map_err(|errno| errno as i32))
    })?;
    signals::interrupt(&reader, &handled)?;
    reader.expect_still_asleep_in(Call::Read)?;
    publisher.publish("task", 1, 16)?;
    expect("the read", reader.finish()?, Ok(Header::SIZE + 16))
}

fn several_readers_get_each_packet_once(context: &Context) -> Result<()> {
    const READERS: usize = 4;
    const PACKETS: usize = 2000;
    let publisher = Publisher::large(context)?;
    let end = open(NAME)?;
    claim_by_read(&end)?;
    let readers: Vec<Child<Vec<u64>>> = (0..READERS)
        .map(|_| {
            spawn_keeping("a reader", &[end.as_fd()], || {
                let mut sequences = Vec::new();
                while let Some(packet) = read_packet(&end)? {
                    packet.origin()?;
                    sequences.push(packet.header.sequence);
                }
                Ok(sequences)
            })
        })
        .collect::<Result<_>>()?;
    for reader in &readers {
        wait_reading(reader)?;
    }
    for _ in 0..PACKETS / 10 {
        publisher.publish("task", 10, 100)?;
    }
    expect("lost packets", publisher.results()?.lost, 0)?;
    publisher.unload()?;
    let mut all = Vec::new();
    for reader in readers {
        let sequences = reader.finish()?;
        ensure!(sequences.is_sorted(), "a reader got packets out of order");
        all.extend(sequences);
    }
    all.sort_unstable();
    let expected: Vec<u64> = (0..PACKETS as u64).collect();
    ensure!(
        all == expected,
        "{} packets were read, each once",
        all.len()
    );
    Ok(())
}

fn a_fault_in_the_buffer_loses_no_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 2, 4096)?;
    for usable in [0, 8, 4000] {
        let buffer = GuardedBuffer::new(usable)?;
        let seen = read_at(&end, buffer.start(), LARGEST);
        expect(&format!("{usable} bytes"), seen, Err(Errno::EFAULT))?;
    }
    expect("the packet", read_present(&end)?.origin()?.number, 0)?;
    expect("the next", read_present(&end)?.origin()?.number, 1)
}

fn a_reader_killed_in_a_page_fault_loses_no_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 2, 4096)?;
    let keep = [end.as_fd()];
    let reader = spawn_fault_blocked_keeping::<(), _>("a reader", &keep, 1, |buffer| {
        let seen = read_at(&end, buffer.start(), LARGEST);
        seen.map(drop).context("read")
    })?;
    let seen = read_nowait(&end, LARGEST);
    expect("a read that may not wait for it", seen, Err(Errno::EAGAIN))?;
    reader.kill()?;
    expect("the packet", read_present(&end)?.origin()?.number, 0)?;
    expect("the next", read_present(&end)?.origin()?.number, 1)
}

/// The record stays in the ring until the read has ended: it must not be overwritten, and leaves no room for others.
fn a_read_that_waits_for_a_page_stops_no_publisher(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 1, 4096)?;
    let reader = spawn_fault_blocked_keeping("a reader", &[end.as_fd()], 1, |buffer| {
        let count = read_at(&end, buffer.start(), buffer.len()).context("read")?;
        Ok(buffer.to_vec(count))
    })?;
    // Two more have room.
    publisher.spawn_publish("task", 2, 4096)?.finish()?;
    publisher.spawn_publish("irq", 3, 4096)?.finish()?;
    publisher.spawn_publish("task", 1, 4096)?.finish()?;
    let expected = Results {
        delivered: 3,
        lost: 4,
        too_long: 0,
    };
    expect("results", publisher.results()?, expected)?;
    let state = info_by_name(NAME)?.1;
    expect("published and lost", (state.published, state.lost), (3, 4))?;
    reader.expect_still_blocked()?;
    let packet = Packet::parse(&reader.resume()?)?;
    expect("the packet", packet.origin()?.number, 0)?;
    expect("the next", read_present(&end)?.origin()?.number, 1)?;
    expect("the last", read_present(&end)?.origin()?.number, 2)?;
    publisher.publish("task", 1, 4096)?;
    expect(
        "lost before a later one",
        read_present(&end)?.header.lost,
        4,
    )
}

fn poll_reports_a_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    expect("without a packet", poll::state(&end)?, "nothing".into())?;
    for context in ["task", "irq"] {
        let poller = spawn_keeping("a poller", &[end.as_fd()], || {
            Ok(poll::name(poll::wait(&end, poll::IN, -1)?))
        })?;
        poller.wait_asleep_in(Call::Poll)?;
        publisher.publish(context, 1, 16)?;
        expect("a waiting poll", poller.finish()?, "IN".into())?;
        expect("with a packet", poll::state(&end)?, "IN".into())?;
        read_present(&end)?;
        expect("afterwards", poll::state(&end)?, "nothing".into())?;
    }
    Ok(())
}

/// Otherwise the caller would wait for a packet that no one keeps for it.
fn poll_before_the_claim_reports_a_packet(context: &Context) -> Result<()> {
    let _publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    expect("before the claim", poll::state(&end)?, "IN".into())?;
    set_nonblocking(&end)?;
    expect("a read", read_some(&end, LARGEST), Err(Errno::EAGAIN))?;
    expect("after the claim", poll::state(&end)?, "nothing".into())
}

fn a_read_of_uring_completes_with_a_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let mut ring = Ring::new()?;
    let mut buffer = vec![0; LARGEST];
    for number in 0..3 {
        ring.submit(read_into(&end, &mut buffer), REQUEST)?;
        ring.expect_pending()?;
        publisher.publish("task", 1, 16)?;
        let count = Header::SIZE + 16;
        expect("result", ring.result(REQUEST)?, Ok(count as i32))?;
        let packet = Packet::parse(&buffer[..count])?;
        expect("its number", packet.origin()?.number, number)?;
    }
    publisher.publish("task", 1, 16)?;
    ring.submit(read_into(&end, &mut buffer[..16]), REQUEST)?;
    expect(
        "a short buffer",
        ring.result(REQUEST)?,
        Err(Errno::EMSGSIZE),
    )?;
    ring.submit(read_into(&end, &mut buffer), REQUEST)?;
    let count = Header::SIZE as i32 + 16;
    expect("a packet that is there", ring.result(REQUEST)?, Ok(count))?;
    ring.submit(read_into(&end, &mut buffer), REQUEST)?;
    ring.expect_pending()?;
    publisher.unload()?;
    expect("the end", ring.result(REQUEST)?, Ok(0))
}

fn a_poll_of_uring_completes_with_a_packet(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let mut ring = Ring::pending(poll_for(&end, libc::POLLIN))?;
    publisher.publish("irq", 1, 16)?;
    expect("result", ring.result(REQUEST)?, Ok(libc::POLLIN.into()))
}

fn a_pending_read_of_uring_can_be_cancelled(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let mut buffer = vec![0; LARGEST];
    let mut ring = Ring::pending(read_into(&end, &mut buffer))?;
    ring.cancel()?;
    publisher.publish("task", 1, 16)?;
    expect("its number", read_present(&end)?.origin()?.number, 0)
}

fn the_end_comes_after_the_rest(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    publisher.publish("task", 3, 100)?;
    publisher.unload()?;
    let ended = "IN|RDHUP".to_owned();
    expect("the state", poll::state(&end)?, ended.clone())?;
    for number in 0..3 {
        expect("a packet", read_present(&end)?.origin()?.number, number)?;
    }
    for _ in 0..2 {
        expect("the end", read_packet(&end)?, None)?;
    }
    set_nonblocking(&end)?;
    expect("without waiting", read_some(&end, 1), Ok(vec![]))?;
    expect("the state", poll::state(&end)?, ended)
}

fn a_waiting_reader_sees_the_end(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let reader = waiting_reader(&end)?;
    let poller = spawn_keeping("a poller", &[end.as_fd()], || {
        Ok(poll::name(poll::wait(&end, poll::RDHUP, -1)?))
    })?;
    poller.wait_asleep_in(Call::Poll)?;
    publisher.unload()?;
    expect("the read", reader.finish()?, None)?;
    let ended = "RDHUP".to_owned();
    expect("the poll", poller.finish()?, ended)
}

fn an_endpoint_without_a_claim_sees_the_end(context: &Context) -> Result<()> {
    let publisher = Publisher::small(context)?;
    let end = open(NAME)?;
    publisher.unload()?;
    expect("the state", poll::state(&end)?, "IN".into())?;
    expect("a read", read_packet(&end)?, None)
}

fn another_endpoint_is_ebusy_until_the_consumer_closes(context: &Context) -> Result<()> {
    let (publisher, end) = small(context)?;
    let other = open(NAME)?;
    publisher.publish("task", 1, 16)?;
    for _ in 0..2 {
        expect("another", read_nowait(&other, LARGEST), Err(Errno::EBUSY))?;
    }
    expect("the consumer", read_present(&end)?.header.sequence, 0)?;
    expect("readers", info_by_name(NAME)?.0.readers, 1)?;
    drop(end);
    claim_by_read(&other)?;
    publisher.publish("task", 1, 16)?;
    expect("the other", read_present(&other)?.header.sequence, 1)?;
    let flags = nix::fcntl::fcntl(&other, nix::fcntl::FcntlArg::F_GETFL)?;
    let access = OFlag::from_bits_truncate(flags) & OFlag::O_ACCMODE;
    expect("its access mode", access, OFlag::O_RDWR)
}
