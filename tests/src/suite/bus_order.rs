// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many senders and subscribers at the same time: each subscriber gets the messages of each sender in order, and knows
//! how many it has lost.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::registry::{Context, topic};
use crate::support::bus::{
    BATCHED, BLOCK, Buses, DROP, EVICT, MAPPED, MMAP_DATA, Message, Params, SET_SPIN, broadcast,
    content, framed, id, list, mappable, multicast, parse_batch, receive_mapped, send, send_to,
    state, unicast,
};
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::event::Event;
use crate::support::ioctl;
use crate::support::memory::{GuardedBuffer, Mapping, write_at};
use crate::support::ring::{READ_ONLY, Region};
use crate::support::time::{Deadline, eventually};

topic!(
    "bus_order",
    fifo: [],
    pipe_only: [
        each_blocking_subscriber_gets_all_messages_in_order,
        each_dropping_subscriber_gets_or_counts_all_messages,
        a_message_is_not_overwritten_while_it_is_received,
        policies_mixed,
        formats_mixed,
        mapped_subscribers_get_all_messages_in_order,
        each_message_of_a_multicast_bus_is_received_once,
        each_message_of_a_unicast_bus_is_received_once,
        addressed_messages_are_received_or_counted,
        messages_from_absent_memory_keep_their_order,
        a_failed_send_of_another_hides_no_message,
        a_message_to_another_target_hides_no_message,
        subscribers_come_and_go,
        killed_senders_send_whole_messages,
        killed_receivers_hold_nobody,
    ],
);

const CAPACITY: usize = 1 << 14;
const BUFFER: usize = 1 << 16;
const SENDERS: usize = 3;
/// Messages of each sender.
const EACH: u64 = 600;

/// The bytes of message `number` of a sender: its number and bytes that follow from both.
fn payload(sender: u64, number: u64) -> Vec<u8> {
    let length = ((sender * 31 + number * 7) % 400) as usize;
    [
        &number.to_ne_bytes()[..],
        &content(sender << 32 | number, length),
    ]
    .concat()
}

/// What a subscriber has seen.
#[derive(Default, Serialize, Deserialize)]
struct Tally {
    received: u64,
    lost: u64,
    /// The next number of each sender.
    next: HashMap<u64, u64>,
    next_sequence: Option<u64>,
}

impl Tally {
    /// Checks a message; a number may only be skipped if something was lost before, or `may_skip`.
    fn add(&mut self, message: &Message, may_skip: bool) -> Result<()> {
        let frame = message.frame;
        let number = message.bytes.first_chunk().context("a short message")?;
        let number = u64::from_ne_bytes(*number);
        let expected = payload(frame.sender, number);
        expect_bytes("the bytes", &message.bytes, &expected)?;
        self.lost += frame.lost;
        self.received += 1;
        let next = self.next.entry(frame.sender).or_default();
        ensure!(
            number == *next || (number > *next && (may_skip || self.lost > 0)),
            "message {number} of sender {} follows {next} (lost {})",
            frame.sender,
            self.lost
        );
        *next = number + 1;
        if let Some(sequence) = self.next_sequence {
            let seen = frame.sequence;
            ensure!(seen >= sequence, "sequence {seen} follows {sequence}");
        }
        self.next_sequence = Some(frame.sequence + 1);
        Ok(())
    }
}

/// A child that sends `EACH` messages, numbered from 0.
fn spawn_sender(end: OwnedFd) -> Result<Child<()>> {
    set_blocking(&end)?;
    let from = id(&end)?;
    spawn_keeping("a sender", &[end.as_fd()], || {
        for number in 0..EACH {
            send(&end, &payload(from, number))
                .with_context(|| format!("sending message {number}"))?;
        }
        Ok(())
    })
}

fn spawn_senders(buses: &Buses) -> Result<Vec<Child<()>>> {
    (0..SENDERS)
        .map(|_| spawn_sender(buses.sender()?))
        .collect()
}

/// A child that receives until the bus is destroyed or it is evicted.
fn spawn_receiver(end: OwnedFd, may_skip: bool, slow: bool) -> Result<Child<Tally>> {
    set_blocking(&end)?;
    spawn_keeping("a receiver", &[end.as_fd()], || {
        let mut tally = Tally::default();
        let mut random = Rng::with_seed(7);
        loop {
            let bytes = match read_some(&end, BUFFER) {
                Err(Errno::EPIPE | Errno::ESHUTDOWN) => return Ok(tally),
                bytes => bytes.context("receiving")?,
            };
            for message in parse_batch(&bytes)? {
                tally.add(&message, may_skip)?;
            }
            if slow && random.u32(0..50) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
}

/// Waits until all is received by the subscribers that are there, and destroys the bus.
fn finish(buses: &Buses, senders: Vec<Child<()>>) -> Result<()> {
    for sender in senders {
        sender.finish()?;
    }
    let mut lag = 0;
    eventually("all is received", || {
        lag = buses.info().context("asking by name")?.1.lag;
        Ok((lag == 0).then_some(()))
    })
    .with_context(|| format!("{lag} messages are left"))?;
    buses.destroy().context("destroying it")
}

const ALL: u64 = SENDERS as u64 * EACH;

fn expect_all(tally: &Tally, all: u64) -> Result<()> {
    expect("received", tally.received, all)?;
    expect("lost", tally.lost, 0)
}

fn each_blocking_subscriber_gets_all_messages_in_order(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let receivers: Vec<_> = (0..3)
        .map(|index| spawn_receiver(buses.subscribe(framed(BLOCK))?, false, index == 0))
        .collect::<Result<_>>()?;
    let senders = spawn_senders(&buses)?;
    finish(&buses, senders)?;
    for receiver in receivers {
        expect_all(&receiver.finish()?, ALL)?;
    }
    Ok(())
}

/// A last message tells each subscriber what it has lost.
fn end_losses(buses: &Buses) -> Result<()> {
    let last = buses.sender()?;
    set_blocking(&last)?;
    send(&last, &payload(id(&last)?, 0)).context("sending the last message")
}

fn each_dropping_subscriber_gets_or_counts_all_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let receivers: Vec<_> = [false, true, true]
        .into_iter()
        .map(|slow| spawn_receiver(buses.subscribe(framed(DROP))?, false, slow))
        .collect::<Result<_>>()?;
    for sender in spawn_senders(&buses)? {
        sender.finish()?;
    }
    end_losses(&buses)?;
    finish(&buses, vec![])?;
    let mut lost = 0;
    for receiver in receivers {
        let tally = receiver.finish()?;
        expect("received and lost", tally.received + tally.lost, ALL + 1)?;
        lost += tally.lost;
    }
    ensure!(lost > 0, "nothing was lost");
    expect("the count of the bus", state(&keeper)?.lost, lost)
}

/// The receiver spends most of its time in copies, while the sender overwrites what was not received.
fn a_message_is_not_overwritten_while_it_is_received(_: &Context) -> Result<()> {
    const LENGTH: usize = 60_000;
    const COUNT: u64 = 1500;
    let buses = Buses::new()?;
    let sender = buses.create_sized(broadcast(), 1 << 18)?;
    let end = buses.subscribe(framed(DROP))?;
    let child = spawn_keeping("a sender", &[sender.as_fd()], || {
        for number in 0..COUNT {
            let bytes = number.to_ne_bytes().repeat(LENGTH / 8);
            send(&sender, &bytes).context("sending")?;
        }
        Ok(())
    })?;
    let (mut received, mut lost) = (0, 0);
    let deadline = Deadline::for_event();
    while received + lost < COUNT {
        let bytes = match read_some(&end, BUFFER) {
            Err(Errno::EAGAIN) if !deadline.passed() => continue,
            bytes => bytes.context("receiving")?,
        };
        let message = parse_batch(&bytes)?.remove(0);
        received += 1;
        lost += message.frame.lost;
        let sequence = message.frame.sequence;
        expect("its sequence", sequence, received + lost - 1)?;
        let expected = sequence.to_ne_bytes().repeat(LENGTH / 8);
        expect_bytes("its bytes", &message.bytes, &expected)?;
    }
    expect("the count", state(&end)?.own_lost, lost)?;
    ensure!(lost > 0, "nothing was lost");
    child.finish()
}

fn policies_mixed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let blocking = spawn_receiver(buses.subscribe(framed(BLOCK))?, false, true)?;
    let dropping = spawn_receiver(buses.subscribe(framed(DROP))?, false, true)?;
    let stalled = buses.subscribe(framed(DROP))?;
    let evicted = buses.subscribe(framed(EVICT))?;
    let senders = spawn_senders(&buses)?;
    for sender in senders {
        sender.finish()?;
    }
    end_losses(&buses)?;
    let own_lost = state(&stalled)?.own_lost;
    let left = crate::support::bus::drain_framed(&stalled)?;
    expect("of the stalled one", left.len() as u64 + own_lost, ALL + 1)?;
    expect("reported to it", left[0].frame.lost, own_lost)?;
    let seen = crate::support::bus::receive(&evicted);
    expect("the evicted one", seen, Err(Errno::ESHUTDOWN))?;
    finish(&buses, vec![])?;
    expect_all(&blocking.finish()?, ALL + 1)?;
    let tally = dropping.finish()?;
    expect("received and lost", tally.received + tally.lost, ALL + 1)?;
    expect("evicted", state(&keeper)?.evicted, 1)
}

fn formats_mixed(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let batched = Params {
        format: BATCHED,
        ..framed(BLOCK)
    };
    let dropping = Params {
        format: BATCHED,
        ..framed(DROP)
    };
    let receivers = [
        spawn_receiver(buses.subscribe(batched)?, false, true)?,
        spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?,
        spawn_receiver(buses.subscribe(dropping)?, false, true)?,
    ];
    for sender in spawn_senders(&buses)? {
        sender.finish()?;
    }
    end_losses(&buses)?;
    finish(&buses, vec![])?;
    for (receiver, blocks) in receivers.into_iter().zip([true, true, false]) {
        let tally = receiver.finish()?;
        expect("received and lost", tally.received + tally.lost, ALL + 1)?;
        ensure!(!blocks || tally.lost == 0, "{} were lost", tally.lost);
    }
    Ok(())
}

/// A child that receives through its mapping until the bus is destroyed.
fn spawn_mapped(buses: &Buses) -> Result<Child<u64>> {
    let end = buses.subscribe(Params {
        flags: MAPPED,
        ..Params::default()
    })?;
    set_blocking(&end)?;
    let memory = Region::map(&end, MMAP_DATA, 2 * CAPACITY, READ_ONLY).context("mapping")?;
    // In the parent the mapping would keep the subscription.
    let child = spawn_keeping("a mapped receiver", &[end.as_fd()], || {
        let (mut released, mut received) = (0, 0);
        let mut next: HashMap<u64, u64> = HashMap::new();
        loop {
            let entries = match receive_mapped(&end, released, 8) {
                Err(Errno::EPIPE) => return Ok(received),
                entries => entries.context("receiving")?,
            };
            for entry in &entries {
                let bytes = memory.read(entry.offset as usize, entry.length as usize);
                let number = next.entry(entry.sender).or_default();
                expect_bytes("the bytes", &bytes, &payload(entry.sender, *number))?;
                *number += 1;
                received += 1;
                released = entry.sequence + 1;
            }
            if received == ALL {
                receive_mapped(&end, released, 0).context("releasing the last")?;
            }
        }
    })?;
    Ok(child)
}

fn mapped_subscribers_get_all_messages_in_order(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create_sized(mappable(), CAPACITY)?;
    let mapped = [spawn_mapped(&buses)?, spawn_mapped(&buses)?];
    let reading = spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?;
    let senders = spawn_senders(&buses)?;
    finish(&buses, senders)?;
    for child in mapped {
        expect("received", child.finish()?, ALL)?;
    }
    expect_all(&reading.finish()?, ALL)
}

/// Each of the receivers gets some of the messages; all of them together get each one once.
fn expect_each_once(params: Params, policies: &[u32]) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(params, CAPACITY)?;
    let receivers: Vec<_> = policies
        .iter()
        .map(|policy| spawn_receiver(buses.subscribe(framed(*policy))?, true, *policy == DROP))
        .collect::<Result<_>>()?;
    let senders = spawn_senders(&buses)?;
    finish(&buses, senders)?;
    let (mut received, mut lost) = (0, 0);
    for receiver in receivers {
        let tally = receiver.finish()?;
        received += tally.received;
        lost += tally.lost;
    }
    let counted = state(&keeper)?.lost;
    ensure!(
        lost <= counted,
        "{lost} losses were reported, {counted} counted"
    );
    expect("received and lost", received + counted, ALL)
}

fn each_message_of_a_multicast_bus_is_received_once(_: &Context) -> Result<()> {
    expect_each_once(multicast(), &[BLOCK; 3])?;
    expect_each_once(multicast(), &[BLOCK, DROP, DROP])
}

fn each_message_of_a_unicast_bus_is_received_once(_: &Context) -> Result<()> {
    expect_each_once(unicast(), &[0; 3])
}

/// A child that sends to one after the other of the targets, and to all; the numbers per target are counted.
fn spawn_addressing(buses: &Buses, targets: Vec<u64>) -> Result<Child<Vec<u64>>> {
    let end = buses.framed_sender()?;
    set_blocking(&end)?;
    let from = id(&end)?;
    spawn_keeping("an addressing sender", &[end.as_fd()], || {
        let mut random = Rng::with_seed(from);
        let mut sent = vec![0; targets.len()];
        for number in 0..EACH {
            let to = random.usize(0..targets.len());
            send_to(&end, targets[to], &payload(from, number)).context("sending")?;
            sent[to] += 1;
        }
        Ok(sent)
    })
}

fn addressed_messages_are_received_or_counted(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let mut targets = vec![0];
    let mut receivers = Vec::new();
    for (policy, slow) in [(DROP, true), (BLOCK, false), (DROP, false), (BLOCK, true)] {
        let end = buses.subscribe(framed(policy))?;
        targets.push(id(&end)?);
        receivers.push(spawn_receiver(end, true, slow)?);
    }
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| spawn_addressing(&buses, targets.clone()))
        .collect::<Result<_>>()?;
    let mut sent = vec![0; targets.len()];
    for sender in senders {
        for (all, own) in sent.iter_mut().zip(sender.finish()?) {
            *all += own;
        }
    }
    end_losses(&buses)?;
    finish(&buses, vec![])?;
    for (index, receiver) in receivers.into_iter().enumerate() {
        let tally = receiver.finish()?;
        let all = sent[0] + sent[index + 1] + 1;
        expect("received and lost", tally.received + tally.lost, all)?;
    }
    Ok(())
}

/// Their first copy is cancelled, and their second one as well if the page is taken again.
fn messages_from_absent_memory_keep_their_order(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let receivers = [
        spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?,
        spawn_receiver(buses.subscribe(framed(DROP))?, false, true)?,
    ];
    let mut senders = Vec::new();
    for _ in 0..SENDERS {
        let end = buses.sender()?;
        set_blocking(&end)?;
        let from = id(&end)?;
        senders.push(spawn_keeping("a sender", &[end.as_fd()], || {
            // Shared, so that the content outlives its pages.
            let memory = Mapping::with_flags(4096, libc::MAP_SHARED)?;
            for number in 0..EACH {
                let bytes = payload(from, number);
                for (at, byte) in bytes.iter().enumerate() {
                    // SAFETY: within our own mapping, to which no Rust reference exists.
                    unsafe { memory.start().add(at).write_volatile(*byte) };
                }
                memory.discard_pages()?;
                let sent = write_at(&end, memory.start(), bytes.len());
                expect("bytes sent", sent, Ok(bytes.len()))?;
            }
            Ok(())
        })?);
    }
    for sender in senders {
        sender.finish()?;
    }
    end_losses(&buses)?;
    finish(&buses, vec![])?;
    for receiver in receivers {
        let tally = receiver.finish()?;
        expect("received and lost", tally.received + tally.lost, ALL + 1)?;
    }
    Ok(())
}

/// Sends one short message after the other, each after the receiver, which sleeps, has got the one before. Meanwhile
/// another sender runs `disturb` all the time.
fn expect_prompt(
    buses: &Buses,
    sender: &OwnedFd,
    end: &OwnedFd,
    target: u64,
    disturb: impl Fn() -> Result<()>,
    keep: &OwnedFd,
) -> Result<()> {
    const ROUNDS: u64 = 1000;
    for end in [sender, end] {
        set_blocking(end)?;
    }
    ioctl::set(end, SET_SPIN, 0).context("switching spinning off")?;
    let received = Event::new()?;
    let other: Child<()> = spawn_keeping("another sender", &[keep.as_fd()], || {
        loop {
            disturb()?;
        }
    })?;
    let keep = [&[end.as_fd()][..], &received.fds()].concat();
    let receiver = spawn_keeping("a receiver", &keep, || {
        for _ in 0..ROUNDS {
            read_some(end, BUFFER).context("receiving")?;
            received.notify()?;
        }
        Ok(())
    })?;
    for round in 0..ROUNDS {
        send_to(sender, target, &round.to_ne_bytes()).context("sending")?;
        received.wait(&format!("message {round} is received"))?;
    }
    receiver.finish()?;
    other.kill()?;
    expect(
        "senders and subscribers are there",
        buses.info().is_ok(),
        true,
    )
}

/// A message behind the reservation of a send that fails must wake its receivers at the latest when it has failed.
fn a_failed_send_of_another_hides_no_message(_: &Context) -> Result<()> {
    const LENGTH: usize = 60_000;
    let buses = Buses::new()?;
    let failing = buses.create_sized(broadcast(), 1 << 20)?;
    let sender = buses.framed_sender()?;
    // Whose messages cannot be lost; the failing sender may find the bus full.
    let end = buses.subscribe(framed(BLOCK))?;
    let memory = GuardedBuffer::new(LENGTH)?;
    // Present, so that the copy takes long before it fails.
    let fail = || match write_at(&failing, memory.start(), LENGTH + 1) {
        Err(Errno::EFAULT | Errno::EAGAIN) => Ok(()),
        sent => bail!("a send: {sent:?}"),
    };
    expect_prompt(&buses, &sender, &end, 0, fail, &failing)
}

/// A message behind the reservation of one to another target must wake its receiver at the latest when that is sent.
fn a_message_to_another_target_hides_no_message(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let _creator = buses.create_sized(multicast(), 1 << 20)?;
    let (sender, disturbing) = (buses.framed_sender()?, buses.framed_sender()?);
    let end = buses.subscribe(framed(BLOCK))?;
    let stalled = buses.subscribe(framed(DROP))?;
    let (to, other) = (id(&end)?, id(&stalled)?);
    let long = [0; 60_000];
    let disturb = || match send_to(&disturbing, other, &long) {
        Ok(()) | Err(Errno::EAGAIN) => Ok(()),
        sent => bail!("sending to the other: {sent:?}"),
    };
    expect_prompt(&buses, &sender, &end, to, disturb, &disturbing)
}

fn have_ended(children: &[Child<()>]) -> Result<bool> {
    let ended: Vec<bool> = children
        .iter()
        .map(Child::has_ended)
        .collect::<Result<_>>()?;
    Ok(ended.into_iter().all(|has_ended| has_ended))
}

fn subscribers_come_and_go(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let steady = spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?;
    let senders = spawn_senders(&buses)?;
    let mut random = Rng::with_seed(5);
    while !have_ended(&senders)? {
        let policy = [DROP, BLOCK, EVICT][random.usize(0..3)];
        let before = state(&keeper)?.sent;
        let end = buses.subscribe(framed(policy))?;
        let mut tally = Tally::default();
        for _ in 0..random.usize(0..30) {
            let bytes = match read_some(&end, BUFFER) {
                Err(Errno::EAGAIN | Errno::ESHUTDOWN) => break,
                bytes => bytes.context("receiving")?,
            };
            for message in parse_batch(&bytes)? {
                ensure!(message.frame.sequence >= before, "a message of before");
                let is_new = !tally.next.contains_key(&message.frame.sender);
                tally.add(&message, is_new)?;
            }
        }
    }
    finish(&buses, senders)?;
    expect_all(&steady.finish()?, ALL)?;
    expect("subscribers", state(&keeper)?.subscribers, 0)
}

/// Senders that are killed at any point have sent whole messages in order, and hold nobody.
fn killed_senders_send_whole_messages(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let receivers = [
        spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?,
        spawn_receiver(buses.subscribe(framed(DROP))?, false, true)?,
    ];
    let steady = spawn_sender(buses.sender()?)?;
    let mut random = Rng::with_seed(3);
    for _ in 0..30 {
        let end = buses.sender()?;
        set_blocking(&end)?;
        let from = id(&end)?;
        let victim: Child<()> = spawn_keeping("a sender", &[end.as_fd()], || {
            for number in 0.. {
                send(&end, &payload(from, number)).context("sending")?;
            }
            bail!("there are enough numbers")
        })?;
        drop(end);
        std::thread::sleep(Duration::from_micros(random.u64(0..3000)));
        victim.kill()?;
    }
    steady.finish()?;
    end_losses(&buses)?;
    finish(&buses, vec![])?;
    let sent = state(&keeper)?.sent;
    for receiver in receivers {
        let tally = receiver.finish()?;
        expect("received and lost", tally.received + tally.lost, sent)?;
    }
    Ok(())
}

/// Receivers of every policy that are killed at any point.
fn killed_receivers_hold_nobody(_: &Context) -> Result<()> {
    let buses = Buses::new()?;
    let keeper = buses.create_sized(broadcast(), CAPACITY)?;
    let steady = spawn_receiver(buses.subscribe(framed(BLOCK))?, false, false)?;
    let senders = spawn_senders(&buses)?;
    let mut random = Rng::with_seed(4);
    for _ in 0..30 {
        let policy = [DROP, BLOCK, EVICT][random.usize(0..3)];
        let victim = spawn_receiver(buses.subscribe(framed(policy))?, true, false)?;
        std::thread::sleep(Duration::from_micros(random.u64(0..3000)));
        victim.kill()?;
    }
    finish(&buses, senders)?;
    expect_all(&steady.finish()?, ALL)?;
    eventually("all subscriptions have ended", || {
        Ok(list(&keeper, 0, 64)
            .context("listing")?
            .is_empty()
            .then_some(()))
    })
}
