// SPDX-License-Identifier: MIT OR Apache-2.0
//! Senders and receivers of a bus whose memory is not present, slow to become present, or inaccessible.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::libc;

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, BLOCK, Buses, CAPACITY, DROP, EVICT, Frame, LARGEST, MESSAGES, Message, Params,
    UNICAST, broadcast, content, drain, framed, id, longest, multicast, parse_batch, receive,
    receive_framed, receive_present, send, send_numbered, send_to, skip_without_long_messages,
    state, unicast, with_frame, with_policy,
};
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::fault_blocked::{
    FAULT_BYTE, FaultBlocked, FaultingBuffer, spawn_fault_blocked_keeping, spawn_faulting_keeping,
};
use crate::support::memory::{GuardedBuffer, Mapping, PAGE, read_at, write_at};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::time::Deadline;
use crate::support::userfault::UserFault;

topic!(
    "bus_faults",
    fifo: [],
    pipe_only: [
        a_message_in_absent_memory_is_sent,
        a_large_message_in_absent_memory_is_sent,
        a_message_is_received_into_absent_memory,
        a_large_message_is_received_into_absent_memory,
        a_message_in_inaccessible_memory_is_efault,
        a_failed_send_is_no_message_and_no_loss,
        a_failed_send_to_nobody_is_not_noticed,
        a_failed_send_leaves_its_target_empty,
        failed_sends_fill_no_bus,
        a_sleeping_receiver_passes_failed_sends,
        a_sender_waits_until_failed_sends_are_passed,
        a_message_for_inaccessible_memory_stays,
        memory_behind_the_message_is_not_accessed,
        a_failed_receive_reports_its_loss_later,
        a_failed_receive_makes_no_room,
        a_batch_ends_before_inaccessible_memory,
        a_batch_ends_before_padding_that_is_absent,
        a_slow_sender_delays_nobody,
        a_slow_sender_of_a_large_message_delays_nobody,
        a_slow_receiver_delays_nobody,
        a_slow_receiver_of_a_queue_leaves_the_message_to_others,
        a_slow_receiver_of_a_queue_wakes_the_next_one,
        a_slow_receiver_that_drops_loses_what_is_overtaken,
        a_receiver_of_long_messages_is_not_overtaken_for_ever,
        an_overtaken_receiver_without_memory_loses_a_message,
        the_buffer_of_a_batch_does_not_grow,
        a_sender_killed_in_a_fault_sends_nothing,
        a_receiver_killed_in_a_fault_leaves_the_bus,
        a_bus_destroyed_during_a_fault_is_epipe,
    ],
);

fn send_from(end: &OwnedFd, memory: &Mapping, length: usize) -> nix::Result<usize> {
    write_at(end, memory.start(), length)
}

fn a_message_in_absent_memory_is_sent(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        for length in [1, 100, LARGEST] {
            let memory = Mapping::new(1)?;
            let sent = send_from(&sender, &memory, length);
            expect("bytes sent", sent, Ok(length))?;
            let seen = receive(&subscriber).context("receiving")?;
            expect_bytes("the message", &seen, &vec![0; length])?;
        }
        expect("one more", receive(&subscriber), Err(Errno::EAGAIN))?;
    }
    Ok(())
}

/// Around 64 KiB, above which a message is copied through a buffer, and 1 MiB.
fn large_lengths() -> impl Iterator<Item = usize> {
    let lengths = [65535, 65536, 65537, 1 << 20];
    lengths.into_iter().filter(|length| *length <= longest())
}

fn a_large_message_in_absent_memory_is_sent(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 4 << 20)?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    for length in large_lengths() {
        let memory = Mapping::new(length.div_ceil(PAGE))?;
        // One page is present.
        let bytes = content(1, PAGE);
        // SAFETY: within our own mapping, to which no reference exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.start(), PAGE) };
        expect(
            "bytes sent",
            send_from(&sender, &memory, length),
            Ok(length),
        )?;
        let seen = read_some(&subscriber, length).context("receiving")?;
        expect_bytes("its first page", &seen[..PAGE], &bytes)?;
        expect(
            "the rest is zero",
            seen[PAGE..].iter().all(|byte| *byte == 0),
            true,
        )?;
        expect("its length", seen.len(), length)?;
    }
    Ok(())
}

fn receive_into(end: &OwnedFd, length: usize) -> Result<Vec<u8>> {
    let memory = Mapping::new(length.div_ceil(PAGE).max(1))?;
    let count = read_at(end, memory.start(), length).context("receiving")?;
    // SAFETY: our own readable memory, which is not written meanwhile.
    Ok(unsafe { std::slice::from_raw_parts(memory.start(), count) }.to_vec())
}

fn a_message_is_received_into_absent_memory(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let raw = buses.subscribe(Params::default())?;
        for number in 0..20 {
            let bytes = content(number, number as usize * 100);
            send(&sender, &bytes).context("sending")?;
            expect_bytes("the message", &receive_into(&raw, 8192)?, &bytes)?;
        }
        drop(raw);
        let frames = buses.subscribe(framed(0))?;
        for number in 0..20 {
            let bytes = content(number, number as usize * 100);
            send(&sender, &bytes).context("sending")?;
            let seen = receive_into(&frames, 8192)?;
            let message = parse_batch(&seen)?.remove(0);
            expect("its loss", message.frame.lost, 0)?;
            expect_bytes("the framed message", &message.bytes, &bytes)?;
        }
    }
    Ok(())
}

fn a_large_message_is_received_into_absent_memory(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 4 << 20)?;
    let subscriber = buses.subscribe(framed(BLOCK))?;
    for length in large_lengths() {
        let bytes = content(length as u64, length);
        send(&sender, &bytes).context("sending")?;
        let seen = receive_into(&subscriber, length + Frame::SIZE)?;
        expect_bytes("the message", &seen[Frame::SIZE..], &bytes)?;
    }
    Ok(())
}

/// Sends `length` bytes of which only the first are accessible.
fn send_inaccessible(end: &OwnedFd, accessible: usize, length: usize) -> Result<()> {
    let mut buffer = GuardedBuffer::new(accessible)?;
    buffer.fill_from(&vec![0xAA; accessible]);
    let sent = write_at(end, buffer.start(), length);
    expect("the send", sent, Err(Errno::EFAULT))
}

fn a_message_in_inaccessible_memory_is_efault(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        for (accessible, length) in [(0, 1), (1, 2), (100, LARGEST), (LARGEST - 1, LARGEST)] {
            send_inaccessible(&sender, accessible, length)?;
            expect("what is received", receive(&subscriber), Err(Errno::EAGAIN))?;
            expect("events", poll::state(&subscriber)?, "nothing".to_owned())?;
        }
    }
    Ok(())
}

fn a_failed_send_is_no_message_and_no_loss(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let stalled = buses.subscribe(framed(DROP))?;
    let other = buses.subscribe(framed(BLOCK))?;
    let mut sent = 0;
    for round in 0..50 {
        send_inaccessible(&sender, 10, 20)?;
        send(&sender, &content(round, 10)).context("sending")?;
        sent += 1;
        let message = receive_present(&other)?;
        expect_bytes("a message", &message.bytes, &content(round, 10))?;
        expect("its loss", message.frame.lost, 0)?;
    }
    let lost = state(&stalled)?.own_lost;
    let mut received = 0;
    let mut reported = 0;
    while let Some(message) = receive_framed(&stalled)? {
        received += 1;
        reported += message.frame.lost;
    }
    expect("received and lost", received + lost, sent)?;
    expect("reported and lost", reported, lost)
}

fn a_failed_send_to_nobody_is_not_noticed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let buffer = GuardedBuffer::new(1)?;
    let sent = write_at(&sender, buffer.start(), 2);
    expect("the send", sent, Ok(2))?;
    expect("the count", state(&sender)?.unsubscribed, 1)
}

fn a_failed_send_leaves_its_target_empty(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for policy in [DROP, BLOCK] {
        let sender = buses.create(multicast())?;
        let limited = Params {
            limit: 100,
            ..with_policy(policy)
        };
        let subscriber = buses.subscribe(limited)?;
        for _ in 0..10 {
            send_inaccessible(&sender, 100, 101)?;
            expect("its lag", state(&subscriber)?.own_lag, 0)?;
        }
        // It is not full.
        expect("sending", send(&sender, &[1; 101]), Ok(()))?;
        expect("its lag", state(&subscriber)?.own_lag, 1)?;
        expect("full", send(&sender, b"x"), Err(Errno::EAGAIN))?;
        receive(&subscriber).context("receiving")?;
        expect("its lag", state(&subscriber)?.own_lag, 0)?;
    }
    Ok(())
}

fn failed_sends_fill_no_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        for number in 0..5 * MESSAGES as u64 {
            send_inaccessible(&sender, 10, LARGEST)?;
            expect("events", poll::state(&subscriber)?, "nothing".to_owned())?;
            send(&sender, &content(number, 100)).context("sending")?;
            let seen = receive(&subscriber).context("receiving")?;
            expect_bytes("the message", &seen, &content(number, 100))?;
        }
    }
    Ok(())
}

/// The capacity of a bus that few of the following sends fill.
const FAILING_CAPACITY: usize = 1 << 20;

/// Sends bytes of which none is accessible, without a buffer of the kernel.
fn fail_to_send(end: &OwnedFd) -> Result<()> {
    const LENGTH: usize = 1 << 16;
    let memory = Mapping::new(LENGTH / PAGE)?;
    memory.unmap_from(0)?;
    let sent = send_from(end, &memory, LENGTH);
    expect("the send", sent, Err(Errno::EFAULT))
}

/// A child asleep in `call`, read(2) or poll(2), that receives the next message.
fn sleeping_receiver(end: &OwnedFd, call: Call) -> Result<Child<Result<Vec<u8>, i32>>> {
    set_blocking(end)?;
    let child = spawn_keeping("a receiver", &[end.as_fd()], || {
        if call == Call::Poll {
            poll::wait(end, poll::IN, -1).context("poll")?;
        }
        Ok(receive(end).map_err(|errno| errno as i32))
    })?;
    child.wait_asleep_in(call)?;
    Ok(child)
}

/// Otherwise they would fill the bus, or the receiver would be evicted, although it has received everything.
fn a_sleeping_receiver_passes_failed_sends(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in [
        (unicast(), 0),
        (broadcast(), BLOCK),
        (broadcast(), DROP),
        (broadcast(), EVICT),
        (multicast(), BLOCK),
    ] {
        for call in [Call::Read, Call::Poll] {
            let sender = buses.create_sized(params, FAILING_CAPACITY)?;
            let child = sleeping_receiver(&buses.subscribe(with_policy(policy))?, call)?;
            for _ in 0..40 {
                fail_to_send(&sender)?;
                child.wait_asleep_in(call)?;
            }
            expect("sending", send(&sender, b"x"), Ok(()))?;
            expect("what it receives", child.finish()?, Ok(b"x".to_vec()))?;
            let seen = state(&sender)?;
            expect("lost and evicted", (seen.lost, seen.evicted), (0, 0))?;
        }
    }
    Ok(())
}

fn a_sender_waits_until_failed_sends_are_passed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for (params, policy) in [(unicast(), 0), (broadcast(), BLOCK)] {
        for call in [Call::Read, Call::Poll] {
            let sender = buses.create_sized(params, FAILING_CAPACITY)?;
            let receiver = sleeping_receiver(&buses.subscribe(with_policy(policy))?, call)?;
            set_blocking(&sender)?;
            let child = spawn_keeping("a sender", &[sender.as_fd()], || {
                for _ in 0..40 {
                    fail_to_send(&sender)?;
                }
                send(&sender, b"x").context("sending")
            })?;
            child.finish()?;
            expect("what is received", receiver.finish()?, Ok(b"x".to_vec()))?;
        }
    }
    Ok(())
}

fn a_message_for_inaccessible_memory_stays(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        send_numbered(&sender, 0, 2, 1000)?;
        for accessible in [0, 1, 999] {
            let buffer = GuardedBuffer::new(accessible)?;
            let seen = read_at(&subscriber, buffer.start(), 1000);
            expect("the receive", seen, Err(Errno::EFAULT))?;
            expect("the lag", state(&subscriber)?.own_lag, 2)?;
        }
        for number in 0..2 {
            let seen = receive(&subscriber).context("receiving")?;
            expect_bytes("the message", &seen, &content(number, 1000))?;
        }
    }
    Ok(())
}

fn memory_behind_the_message_is_not_accessed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(DROP))?;
    for length in [0, 1, 1000] {
        let bytes = content(1, length);
        send(&sender, &bytes).context("sending")?;
        let buffer = GuardedBuffer::new(length)?;
        let seen = read_at(&subscriber, buffer.start(), CAPACITY);
        expect("the receive", seen, Ok(length))?;
        expect_bytes("the message", &buffer.to_vec(length), &bytes)?;
    }
    Ok(())
}

fn a_failed_receive_reports_its_loss_later(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send_numbered(&sender, 0, 100, 10)?;
    let lost = state(&subscriber)?.own_lost;
    for accessible in [0, 10, 64, 70] {
        let buffer = GuardedBuffer::new(accessible)?;
        let seen = read_at(&subscriber, buffer.start(), 74);
        expect("the receive", seen, Err(Errno::EFAULT))?;
    }
    let message = receive_present(&subscriber)?;
    expect("its loss", message.frame.lost, lost)?;
    expect("its sequence", message.frame.sequence, lost)
}

fn a_failed_receive_makes_no_room(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    send_numbered(&sender, 0, MESSAGES as u64, 100)?;
    let buffer = GuardedBuffer::new(50)?;
    let seen = read_at(&subscriber, buffer.start(), 100);
    expect("the receive", seen, Err(Errno::EFAULT))?;
    expect("sending", send(&sender, b"x"), Err(Errno::EAGAIN))?;
    expect("messages", drain(&subscriber)?.len(), MESSAGES)
}

fn a_batch_ends_before_inaccessible_memory(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params {
        format: BATCHED,
        ..Params::default()
    })?;
    send_numbered(&sender, 0, 5, 24)?;
    // Two messages and a half are accessible.
    let buffer = GuardedBuffer::new(2 * 88 + 40)?;
    let count = read_at(&subscriber, buffer.start(), CAPACITY).context("receiving")?;
    let batch = parse_batch(&buffer.to_vec(count))?;
    expect("messages", batch.len(), 2)?;
    let rest = parse_batch(&receive(&subscriber).context("the rest")?)?;
    let sequences: Vec<u64> = rest.iter().map(|m| m.frame.sequence).collect();
    expect("the rest", sequences, vec![2, 3, 4])
}

/// Otherwise a message that was received would be returned only after the page fault.
fn a_batch_ends_before_padding_that_is_absent(_: &Context) -> Result<()> {
    const LENGTH: usize = 100;
    UserFault::open()?;
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(Params {
        format: BATCHED,
        ..Params::default()
    })?;
    send_numbered(&sender, 0, 2, LENGTH)?;
    let child = spawn_keeping("a receiver", &[subscriber.as_fd()], || {
        let (faults, memory) = (UserFault::open()?, Mapping::new(2)?);
        // Two bytes of the padding are in the first page, which is present.
        let start = memory.start().wrapping_add(PAGE - 2 - LENGTH - Frame::SIZE);
        // SAFETY: within our own mapping, to which no reference exists.
        unsafe { start.write_volatile(0) };
        faults.watch(memory.start().wrapping_add(PAGE), PAGE)?;
        read_at(&subscriber, start, PAGE).context("receiving")
    })?;
    expect("bytes", child.finish()?, LENGTH + Frame::SIZE)?;
    expect("the lag", state(&subscriber)?.own_lag, 1)
}

/// A child in a page fault of a send of `ready` pages and a missing one.
fn slow_sender(end: &OwnedFd, ready: usize) -> Result<FaultBlocked<Result<usize, i32>>> {
    spawn_fault_blocked_keeping("a sender in a fault", &[end.as_fd()], ready, |buffer| {
        let (start, len) = match ready {
            0 => (buffer.start(), 1000),
            _ => (buffer.start(), buffer.len()),
        };
        Ok(write_at(end, start, len).map_err(|errno| errno as i32))
    })
}

fn receive_slowly(end: &OwnedFd, buffer: &FaultingBuffer) -> Result<Result<Vec<u8>, i32>> {
    let count = read_at(end, buffer.start(), buffer.len());
    Ok(count
        .map(|count| buffer.to_vec(count))
        .map_err(|errno| errno as i32))
}

/// A child in a page fault of a receive into a missing page.
fn slow_receiver(end: &OwnedFd) -> Result<FaultBlocked<Result<Vec<u8>, i32>>> {
    spawn_fault_blocked_keeping("a receiver in a fault", &[end.as_fd()], 0, |buffer| {
        receive_slowly(end, buffer)
    })
}

/// Sends and receives many times the capacity.
fn expect_traffic(sender: &OwnedFd, subscriber: &OwnedFd) -> Result<()> {
    for number in 0..10 * MESSAGES as u64 {
        send(sender, &content(number, 300)).context("sending meanwhile")?;
        let seen = receive(subscriber).context("receiving meanwhile")?;
        expect_bytes("a message meanwhile", &seen, &content(number, 300))?;
    }
    Ok(())
}

fn a_slow_sender_delays_nobody(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let policy = if params.mode == UNICAST { 0 } else { BLOCK };
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(with_policy(policy))?;
        let slow = slow_sender(&buses.sender()?, 0)?;
        expect("events", poll::state(&subscriber)?, "nothing".to_owned())?;
        expect_traffic(&sender, &subscriber)?;
        slow.expect_still_blocked()?;
        expect("the slow one", slow.resume()?, Ok(1000))?;
        let seen = receive(&subscriber).context("receiving its message")?;
        expect_bytes("its message", &seen, &[FAULT_BYTE; 1000])?;
    }
    Ok(())
}

fn a_slow_sender_of_a_large_message_delays_nobody(_: &Context) -> Result<()> {
    skip_without_long_messages()?;
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 1 << 20)?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    // More than is copied in one go.
    let slow = slow_sender(&buses.sender()?, 20)?;
    expect_traffic(&sender, &subscriber)?;
    slow.expect_still_blocked()?;
    expect("the slow one", slow.resume()?, Ok(21 * PAGE))?;
    let seen = read_some(&subscriber, 21 * PAGE).context("receiving its message")?;
    let expected = [vec![0; 20 * PAGE], vec![FAULT_BYTE; PAGE]].concat();
    expect_bytes("its message", &seen, &expected)
}

fn a_slow_receiver_delays_nobody(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let (stalled, other) = (
        buses.subscribe(framed(DROP))?,
        buses.subscribe(with_policy(BLOCK))?,
    );
    send(&sender, &content(0, 100)).context("sending")?;
    receive(&other).context("receiving")?;
    let slow = slow_receiver(&stalled)?;
    expect_traffic(&sender, &other)?;
    slow.expect_still_blocked()?;
    // It gets what is the oldest by then.
    let bytes = slow
        .resume()?
        .map_err(Errno::from_raw)
        .context("the slow one")?;
    let message = parse_batch(&bytes)?.remove(0);
    expect("its loss", message.frame.lost, message.frame.sequence)?;
    expect("its length", message.bytes.len(), 300)?;
    let own_lost = state(&stalled)?.own_lost;
    expect("the count", own_lost, message.frame.lost)
}

fn a_slow_receiver_of_a_queue_leaves_the_message_to_others(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let (first, second) = (
        buses.subscribe(Params::default())?,
        buses.subscribe(Params::default())?,
    );
    send(&sender, b"first").context("sending")?;
    set_blocking(&first)?;
    let slow = slow_receiver(&first)?;
    expect("the other", receive(&second), Ok(b"first".to_vec()))?;
    expect_traffic(&sender, &second)?;
    slow.expect_still_blocked()?;
    send(&sender, b"second").context("sending")?;
    expect("the slow one", slow.resume()?, Ok(b"second".to_vec()))
}

fn a_slow_receiver_of_a_queue_wakes_the_next_one(_: &Context) -> Result<()> {
    const COUNT: u64 = 3;
    let buses = Buses::new()?;
    let sender = buses.create(unicast())?;
    let (first, second) = (
        buses.subscribe(Params::default())?,
        buses.subscribe(Params::default())?,
    );
    for end in [&first, &second] {
        set_blocking(end)?;
    }
    let slow = spawn_faulting_keeping("a receiver", &[first.as_fd()], 0, |buffer| {
        receive_slowly(&first, buffer)
    })?;
    slow.wait_asleep_in(Call::Read)?;
    let other = spawn_keeping("another receiver", &[second.as_fd()], || {
        (0..COUNT)
            .map(|_| receive(&second).context("receiving"))
            .collect::<Result<Vec<_>>>()
    })?;
    other.wait_asleep_in(Call::Read)?;
    send_numbered(&sender, 0, 1, 100)?;
    let slow = slow.wait_blocked()?;
    send_numbered(&sender, 1, COUNT - 1, 100)?;
    let all: Vec<_> = (0..COUNT).map(|number| content(number, 100)).collect();
    expect("the other's", other.finish()?, all)?;
    slow.expect_still_blocked()?;
    send(&sender, b"last").context("sending")?;
    expect("the slow one", slow.resume()?, Ok(b"last".to_vec()))
}

fn a_slow_receiver_that_drops_loses_what_is_overtaken(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let subscriber = buses.subscribe(framed(DROP))?;
    send_numbered(&sender, 0, 1, 10)?;
    let slow = slow_receiver(&subscriber)?;
    send_numbered(&sender, 1, 99, 10)?;
    let bytes = slow
        .resume()?
        .map_err(Errno::from_raw)
        .context("the slow one")?;
    let message = parse_batch(&bytes)?.remove(0);
    let mut received = 1;
    while let Some(message) = receive_framed(&subscriber)? {
        expect("a further loss", message.frame.lost, 0)?;
        received += 1;
    }
    expect("received and lost", received + message.frame.lost, 100)
}

/// The pages of a receiver of a long message.
const PAGES: usize = 20;

/// Senders overtake a receiver of a long message during each page fault, and each page is absent in each attempt. Returns the result of the read
/// and the next message. From this fault on the memory is inaccessible.
fn receive_overtaken(inaccessible_from: usize) -> Result<(nix::Result<usize>, Message)> {
    skip_without_long_messages()?;
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 1 << 18)?;
    let subscriber = buses.subscribe(framed(DROP))?;
    let memory = Mapping::new(PAGES)?;
    let faults = UserFault::open()?;
    faults.watch(memory.start(), memory.len())?;
    let overtake = || send_numbered(&sender, 0, 5, (PAGES - 1) * PAGE);
    overtake()?;
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| read_at(&subscriber, memory.start(), memory.len()));
        let mut count = 0;
        while !receiver.is_finished() && count < 20 * PAGES {
            let Some(page) = faults.next(&Deadline::after(Duration::from_millis(50)))? else {
                continue;
            };
            overtake()?;
            memory.discard_pages()?;
            if count == inaccessible_from {
                memory.protect_from(0, libc::PROT_NONE)?;
            }
            count += 1;
            faults.fill(page, &[0; PAGE])?;
        }
        let is_finished = receiver.is_finished();
        // An attempt without faults ends it in any case.
        drop(faults);
        expect("whether it ends", is_finished, true)?;
        receiver.join().map_err(|_| anyhow::anyhow!("a panic"))
    })?;
    let next = read_some(&subscriber, 2 * memory.len()).context("receiving the next one")?;
    Ok((received, parse_batch(&next)?.remove(0)))
}

fn a_receiver_of_long_messages_is_not_overtaken_for_ever(_: &Context) -> Result<()> {
    let (received, next) = receive_overtaken(usize::MAX)?;
    expect("received", received, Ok(Frame::SIZE + (PAGES - 1) * PAGE))?;
    ensure!(next.frame.lost > 0, "nothing is lost");
    Ok(())
}

/// In the third attempt it receives the message before it copies it.
fn an_overtaken_receiver_without_memory_loses_a_message(_: &Context) -> Result<()> {
    let (received, next) = receive_overtaken(3 * PAGES + PAGES / 2)?;
    expect("received", received, Err(Errno::EFAULT))?;
    // It has been told of no loss, and was always behind.
    expect(
        "lost, and that message",
        next.frame.lost + 1,
        next.frame.sequence,
    )
}

/// A buffer that doubled with each long message could not be allocated for the last ones.
fn the_buffer_of_a_batch_does_not_grow(_: &Context) -> Result<()> {
    skip_without_long_messages()?;
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 4 << 20)?;
    let subscriber = buses.subscribe(Params {
        format: BATCHED,
        ..with_policy(BLOCK)
    })?;
    send_numbered(&sender, 0, 20, 66 << 10)?;
    let batch = read_some(&subscriber, 2 << 20).context("receiving")?;
    expect("messages", parse_batch(&batch)?.len(), 20)
}

fn a_sender_killed_in_a_fault_sends_nothing(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    for params in [broadcast(), multicast(), unicast()] {
        let sender = buses.create(params)?;
        let subscriber = buses.subscribe(Params::default())?;
        let slow = slow_sender(&buses.sender()?, 0)?;
        slow.kill()?;
        expect("what is received", receive(&subscriber), Err(Errno::EAGAIN))?;
        expect_traffic(&sender, &subscriber)?;
        expect("the lag", state(&subscriber)?.own_lag, 0)?;
    }
    Ok(())
}

fn a_receiver_killed_in_a_fault_leaves_the_bus(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let other = buses.subscribe(with_policy(BLOCK))?;
    let killed = buses.subscribe(with_policy(BLOCK))?;
    send(&sender, b"x").context("sending")?;
    receive(&other).context("receiving")?;
    let slow = slow_receiver(&killed)?;
    drop(killed);
    slow.kill()?;
    crate::support::time::eventually("its subscription ends", || {
        Ok((state(&sender)?.subscribers == 1).then_some(()))
    })?;
    expect_traffic(&sender, &other)
}

fn a_bus_destroyed_during_a_fault_is_epipe(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let sender = buses.create(broadcast())?;
    let framer = buses.framed_sender()?;
    let subscriber = buses.subscribe(with_policy(BLOCK))?;
    let slow = slow_sender(&buses.sender()?, 0)?;
    buses.destroy().context("destroying it")?;
    expect("the slow one", slow.resume()?, Err(Errno::EPIPE as i32))?;
    expect("another", send(&sender, b"x"), Err(Errno::EPIPE))?;
    expect(
        "addressed",
        send_to(&framer, id(&subscriber)?, b"x"),
        Err(Errno::EPIPE),
    )?;
    let whole = with_frame(0, b"x");
    expect("framed", send(&framer, &whole), Err(Errno::EPIPE))
}
