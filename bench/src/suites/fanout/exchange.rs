// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process that sends, and several that receive. The sender is alone on the first processor, the receivers share the
//! second one, except where throughput to several receivers is measured: the scheduler then uses both for all.
//!
//! Costs are measured in bursts, each of which fits into every channel. The sender waits for the receivers after each
//! burst, and only the burst itself is counted, so its cost contains no waiting for room.

use std::rc::Rc;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side, Start};

use super::channel::{Channel, Delivery, Resources, Sender, Shape, Way};
use super::progress::{LOOK_INTERVAL, Progress};
use crate::harness::rounds::{Job, Measurement, ReceiverState};
use crate::reports::fanout::{Conditions, Cost};
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

/// Messages and bytes of a burst at most. Bytes are a quarter of the capacity.
const BURST: usize = 256;
const BURST_BYTES: usize = super::channel::CAPACITY / 4;
/// From the reception of a message until the receiver certainly sleeps.
const FALLING_ASLEEP: Duration = Duration::from_micros(200);
const CHECKED_BURSTS: u64 = 3;
const CHECKED_MESSAGES_ASLEEP: u64 = 32;
/// Each message begins with its number; the last one with this.
const HEADER: usize = 8;
const END: u64 = u64::MAX;
/// Bytes of a cache line.
const LINE: usize = 64;
/// The bytes of a message depend on its number modulo this.
const PATTERNS: usize = 251;

pub struct Exchange {
    pub way: Way,
    pub resources: Rc<Resources>,
    pub confinement: Confinement,
    pub conditions: Conditions,
    pub duration: Duration,
}

/// When the sender stops, and whether all bytes are compared.
#[derive(Clone, Copy)]
enum Extent {
    For(Duration),
    Checked(u64),
}

impl Extent {
    fn includes(self, sent: u64, begin: u64) -> bool {
        match self {
            Self::For(duration) => clock::now_ns() - begin < duration.as_nanos() as u64,
            Self::Checked(messages) => sent < messages,
        }
    }

    fn is_checked(self) -> bool {
        matches!(self, Self::Checked(_))
    }
}

/// What the sender returns.
struct Sent {
    messages: u64,
    begin: u64,
    cpu: u64,
}

/// What a receiver returns.
struct Received {
    messages: u64,
    /// Of the numbers of the messages.
    sum: u64,
    end: u64,
    cpu: u64,
}

impl Job for Exchange {
    fn check(&self) -> Result<()> {
        let messages = match self.conditions.state {
            ReceiverState::Asleep => CHECKED_MESSAGES_ASLEEP,
            _ => CHECKED_BURSTS * self.burst(),
        };
        let (sent, received) = self.run(Extent::Checked(messages))?;
        ensure!(sent.messages >= messages, "too few messages were sent");
        let expected = (0..sent.messages).sum::<u64>() * self.deliveries();
        let sum: u64 = received.iter().map(|one| one.sum).sum();
        ensure!(
            sum == expected,
            "the numbers of the received messages add up to {sum}, not {expected}"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        let (sent, received) = self.run(Extent::For(self.duration))?;
        let end = received.iter().map(|one| one.end).max();
        let receiver_cpu: u64 = received.iter().map(|one| one.cpu).sum();
        Ok(Measurement {
            messages: sent.messages,
            bytes: sent.messages * self.deliveries() * self.conditions.size as u64,
            elapsed_ns: end.unwrap_or(0).saturating_sub(sent.begin),
            cpu_ns: match self.conditions.cost {
                Cost::Sender => sent.cpu,
                Cost::Receiver => receiver_cpu / self.conditions.receivers as u64,
            },
            ..Measurement::default()
        })
    }
}

impl Exchange {
    fn burst(&self) -> u64 {
        match self.conditions.state {
            ReceiverState::Asleep => 1,
            _ => (BURST_BYTES / self.conditions.size).clamp(1, BURST) as u64,
        }
    }

    /// Receptions of each message.
    fn deliveries(&self) -> u64 {
        match self.way.delivery {
            Delivery::All => self.conditions.receivers as u64,
            Delivery::One => 1,
        }
    }

    /// Fails if a receiver misses a message, or gets them in another order.
    fn run(&self, extent: Extent) -> Result<(Sent, Vec<Received>)> {
        let shape = Shape {
            size: self.conditions.size,
            receivers: self.conditions.receivers,
            blocking: matches!(
                self.conditions.state,
                ReceiverState::Asleep | ReceiverState::Streaming
            ),
        };
        let channel = (self.way.create)(&shape, &self.resources)?;
        let progress = Progress::new(self.conditions.receivers)?;
        let mut group = Group::start(
            1 + self.conditions.receivers,
            channel,
            PROCESS_TIMEOUT,
            |number, channel, start| match number.checked_sub(1) {
                None => self.send(channel, start, &progress, extent),
                Some(receiver) => self.receive(channel, receiver, start, &progress, extent),
            },
        )?;
        group.go()?;
        let mut numbers = group.finish(self.duration + PROCESS_TIMEOUT)?.into_iter();
        let sent = numbers.next().context("the sender has no result")?;
        let [messages, begin, cpu] = sent[..].try_into()?;
        let sent = Sent {
            messages,
            begin,
            cpu,
        };
        let received = numbers.map(|one| {
            let [messages, sum, end, cpu] = one[..].try_into()?;
            Ok(Received {
                messages,
                sum,
                end,
                cpu,
            })
        });
        let received = received.collect::<Result<Vec<_>>>()?;
        self.expect_all(messages, &received)?;
        Ok((sent, received))
    }

    fn expect_all(&self, sent: u64, received: &[Received]) -> Result<()> {
        let total: u64 = received.iter().map(|one| one.messages).sum();
        let misses = |one: &Received| one.messages != sent;
        let expected = sent * self.deliveries();
        ensure!(
            total == expected
                && !(self.way.delivery == Delivery::All && received.iter().any(misses)),
            "{sent} messages were sent, {expected} receptions expected, but there were {total}"
        );
        Ok(())
    }

    fn enter(&self, side: Side) -> Result<()> {
        match self.conditions.state == ReceiverState::Streaming && self.conditions.receivers > 1 {
            true => self.confinement.enter_any_cpu(),
            false if self.way.own_threads => self.confinement.enter_with_this_thread(side),
            false => self.confinement.enter(side),
        }
    }

    /// Returns the number of messages, the time of the first one, and the processor time of the bursts.
    fn send(
        &self,
        channel: Box<dyn Channel>,
        start: &mut Start,
        progress: &Progress,
        extent: Extent,
    ) -> Result<Vec<u64>> {
        let mut sender = channel.sender()?;
        let patterns = patterns(self.conditions.size);
        let mut message = vec![0xa5; self.conditions.size];
        self.enter(Side::First)?;
        start.wait()?;
        let begin = clock::now_ns();
        let helpers = sender.helpers_ns()?;
        let (mut sent, mut cpu) = (0, 0);
        while extent.includes(sent, begin) {
            let before = clock::thread_cpu_ns();
            for number in sent..sent + self.burst() {
                if extent.is_checked() {
                    message.copy_from_slice(pattern(&patterns, number, self.conditions.size));
                }
                message[..HEADER].copy_from_slice(&number.to_ne_bytes());
                sender.send(&message)?;
            }
            cpu += clock::thread_cpu_ns() - before;
            sent += self.burst();
            self.follow(progress, sent);
        }
        message[..HEADER].copy_from_slice(&END.to_ne_bytes());
        self.end(&mut *sender, &message, progress, sent)?;
        cpu += sender.helpers_ns()?.saturating_sub(helpers);
        Ok(vec![sent, begin, cpu])
    }

    /// Tells each receiver that there are no more messages.
    fn end(
        &self,
        sender: &mut dyn Sender,
        message: &[u8],
        progress: &Progress,
        sent: u64,
    ) -> Result<()> {
        if self.way.delivery == Delivery::One {
            return self.end_one_by_one(sender, progress, sent);
        }
        sender.send(message)?;
        progress.release(sent + 1);
        let all = (sent + 1) * self.deliveries();
        match self.conditions.state {
            // Receivers of ZeroMQ may drop messages when the sender closes its end before they have received them.
            ReceiverState::Streaming => progress.sleep_until_received(all),
            _ => progress.await_received(all),
        }
        Ok(())
    }

    /// Which receiver gets the next message is not known: a send that is repeated may pass one over. So ends are sent until
    /// each has one. They are short, because those for receivers that have ended stay in the channel.
    fn end_one_by_one(
        &self,
        sender: &mut dyn Sender,
        progress: &Progress,
        sent: u64,
    ) -> Result<()> {
        let all = sent + self.conditions.receivers as u64;
        let mut ends = 0;
        while progress.received() < all {
            sender.send(&END.to_ne_bytes())?;
            ends += 1;
            progress.release(sent + ends);
            sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// After a burst: waits until the receivers are ready for the next one.
    fn follow(&self, progress: &Progress, sent: u64) {
        if self.conditions.state == ReceiverState::Streaming {
            return;
        }
        progress.release(sent);
        progress.await_received(sent * self.deliveries());
        if self.conditions.state == ReceiverState::Asleep {
            sleep(FALLING_ASLEEP);
        }
    }

    /// Returns the number of messages, the sum of their numbers, the time of the last one, and the processor time of
    /// receptions.
    fn receive(
        &self,
        channel: Box<dyn Channel>,
        number: usize,
        start: &mut Start,
        progress: &Progress,
        extent: Extent,
    ) -> Result<Vec<u64>> {
        let mut receiver = channel.receiver(number)?;
        let mut seen = Seen::new(self, extent.is_checked());
        self.enter(Side::Second)?;
        start.wait()?;
        let (mut released, mut cpu, mut burst_cpu) = (0, 0, clock::thread_cpu_ns());
        while !seen.ended {
            let in_turn = self.conditions.state != ReceiverState::Busy || seen.messages < released;
            if in_turn && receiver.receive(&mut |message| seen.visit(message))? {
                if self.conditions.state == ReceiverState::Asleep {
                    progress.set_received(number, seen.messages);
                }
                continue;
            }
            progress.set_received(number, seen.messages);
            match self.conditions.state {
                // A message that is still on its way is awaited; of one for another receiver nothing is known.
                ReceiverState::Busy if in_turn && self.way.delivery == Delivery::All => yield_now(),
                ReceiverState::Busy => {
                    cpu += clock::thread_cpu_ns() - burst_cpu;
                    released = progress.await_release(released);
                    burst_cpu = clock::thread_cpu_ns();
                }
                _ => yield_now(),
            }
        }
        cpu += clock::thread_cpu_ns() - burst_cpu;
        progress.set_received(number, seen.messages + 1);
        Ok(vec![seen.messages, seen.sum, clock::now_ns(), cpu])
    }
}

/// What a receiver has received.
struct Seen<'a> {
    exchange: &'a Exchange,
    /// The bytes of all messages, if they are compared.
    patterns: Option<Vec<u8>>,
    messages: u64,
    next: u64,
    sum: u64,
    ended: bool,
}

impl<'a> Seen<'a> {
    fn new(exchange: &'a Exchange, checked: bool) -> Self {
        Self {
            exchange,
            patterns: checked.then(|| patterns(exchange.conditions.size)),
            messages: 0,
            next: 0,
            sum: 0,
            ended: false,
        }
    }

    fn visit(&mut self, message: &[u8]) -> Result<()> {
        let size = self.exchange.conditions.size;
        let header = message.first_chunk().context("a message has a number")?;
        let number = u64::from_ne_bytes(*header);
        if number == END {
            self.ended = true;
            return Ok(());
        }
        ensure!(
            message.len() == size,
            "a message has {} bytes instead of {size}",
            message.len()
        );
        let in_order = match self.exchange.way.delivery {
            Delivery::All => number == self.next,
            Delivery::One => number >= self.next,
        };
        ensure!(in_order, "message {number} follows {}", self.next);
        if self.exchange.conditions.cost == Cost::Receiver {
            std::hint::black_box(read_lines(message));
        }
        if let Some(patterns) = &self.patterns {
            let expected = pattern(patterns, number, size);
            ensure!(
                message[HEADER..] == expected[HEADER..],
                "message {number} arrived damaged"
            );
        }
        self.messages += 1;
        self.next = number + 1;
        self.sum += number;
        Ok(())
    }
}

/// A word of each cache line.
fn read_lines(message: &[u8]) -> u64 {
    let words = message.chunks(LINE).filter_map(|line| line.first_chunk());
    words.fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word))
}

/// The bytes from which those of all messages are taken.
fn patterns(size: usize) -> Vec<u8> {
    let bytes = 0..size + PATTERNS;
    bytes.map(|at| (at * 7 + at / PATTERNS) as u8).collect()
}

fn pattern(patterns: &[u8], number: u64, size: usize) -> &[u8] {
    &patterns[number as usize % PATTERNS..][..size]
}
