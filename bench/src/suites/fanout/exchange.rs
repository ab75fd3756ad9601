// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process that sends, and several that receive. The sender is alone on the first processor, the receivers share the second one,
//! except where throughput to several receivers is measured: the scheduler then uses both for all. Costs are measured in bursts, each of
//! which fits into every channel. The sender waits for the receivers after each burst, and only the burst itself is counted.

use std::hint::spin_loop;
use std::thread::{sleep, yield_now};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Group, Side, Start};

use super::channel::{CAPACITY, Channel, Create, End, FanoutMechanism, Receive, Sender};
use super::conditions::{Conditions, Measured};
use super::messages::{self, END, Seen};
use crate::harness::rounds::{Job, Measurement};
use crate::suites::counters::Counters;
use crate::suites::setup::{Confinement, PROCESS_TIMEOUT};

/// Messages and bytes of a burst at most. Bytes are a quarter of the capacity.
const BURST: usize = 256;
const BURST_BYTES: usize = CAPACITY / 4;
/// From the reception of a message until the receiver certainly sleeps.
const FALLING_ASLEEP: Duration = Duration::from_micros(200);
const CHECKED_BURSTS: u64 = 3;
const CHECKED_MESSAGES_ASLEEP: u64 = 32;
/// Pauses between two looks of the sender, which would otherwise delay the receivers.
const PAUSES: usize = 200;
/// Between two looks of a sender that leaves its processor to the receivers.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

pub struct Exchange {
    pub mechanism: FanoutMechanism,
    pub create: Create,
    pub confinement: Confinement,
    pub conditions: Conditions,
    pub duration: Duration,
}

struct Shared {
    /// The number of messages to send, of which all bytes are compared. None: it sends until the measured time is over.
    messages: Option<u64>,
    released: Counters,
    received: Counters,
}

impl Job for Exchange {
    fn check(&self) -> Result<()> {
        let messages = match self.conditions.what {
            Measured::Asleep => CHECKED_MESSAGES_ASLEEP,
            _ => CHECKED_BURSTS * self.burst(),
        };
        self.run(Some(messages)).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(None)
    }
}

impl Exchange {
    fn burst(&self) -> u64 {
        match self.conditions.what {
            Measured::Asleep => 1,
            _ => (BURST_BYTES / self.conditions.size).clamp(1, BURST) as u64,
        }
    }

    fn streams(&self) -> bool {
        self.conditions.what == Measured::Streaming
    }

    fn deliveries(&self, messages: u64) -> u64 {
        match self.mechanism.to_one {
            true => messages,
            false => messages * self.conditions.receivers as u64,
        }
    }

    /// Sends for the measured time, or at least this many messages and compares all bytes. Fails if a receiver has missed a message.
    fn run(&self, messages: Option<u64>) -> Result<Measurement> {
        let receivers = self.conditions.receivers;
        let shared = Shared {
            messages,
            released: Counters::new(1)?,
            received: Counters::new(receivers)?,
        };
        let channel = (self.create)(&self.conditions)?;
        let role = |process: usize, channel: Channel, start: &mut Start| match channel(
            process.checked_sub(1),
        )? {
            End::Sender(sender) => self.send(&shared, sender, start),
            End::Receiver(receive) => self.receive(&shared, receive, process - 1, start),
        };
        let mut group = Group::start(1 + receivers, channel, PROCESS_TIMEOUT, role)?;
        group.go()?;
        let reports = group.finish(self.duration + PROCESS_TIMEOUT)?;
        let (sender, receivers) = reports.split_first().context("there is no sender")?;
        let [sent, begin, sender_cpu] = sender[..].try_into()?;
        let (mut received, mut sums, mut last, mut receiver_cpu) = (0, 0, 0, 0);
        for receiver in receivers {
            let [messages, sum, end, cpu] = receiver[..].try_into()?;
            ensure!(
                messages == sent || self.mechanism.to_one,
                "{sent} messages were sent, but a receiver has received {messages}"
            );
            received += messages;
            sums += sum;
            last = end.max(last);
            receiver_cpu += cpu;
        }
        let expected = [sent, (0..sent).sum()].map(|one| self.deliveries(one));
        ensure!(
            [received, sums] == expected,
            "the receptions and the sum of the numbers of messages are {:?}, not {expected:?}",
            [received, sums]
        );
        Ok(Measurement {
            messages: sent,
            bytes: received * self.conditions.size as u64,
            elapsed_ns: last.saturating_sub(begin),
            cpu_ns: match self.conditions.what {
                Measured::Receiving => receiver_cpu / receivers.len() as u64,
                _ => sender_cpu,
            },
            ..Measurement::default()
        })
    }

    fn enter(&self, side: Side) -> Result<()> {
        match self.streams() && self.conditions.receivers > 1 {
            true => self.confinement.enter_any_cpu(),
            false => self
                .confinement
                .enter_with(side, self.mechanism.own_threads),
        }
    }

    /// Returns the number of messages, the time of the first one, and the processor time of the bursts.
    fn send(&self, shared: &Shared, mut sender: Sender, start: &mut Start) -> Result<Vec<u64>> {
        let mut message = vec![0xa5; self.conditions.size];
        self.enter(Side::First)?;
        start.wait()?;
        let begin = clock::now_ns();
        let end = begin + self.duration.as_nanos() as u64;
        let helpers = sender.helpers_ns()?;
        let (mut sent, mut cpu) = (0, 0);
        while match shared.messages {
            Some(messages) => sent < messages,
            None => clock::now_ns() < end,
        } {
            let before = clock::thread_cpu_ns();
            for number in sent..sent + self.burst() {
                messages::write(&mut message, number, shared.messages.is_some());
                (sender.send)(&message)?;
            }
            (sender.flush)()?;
            cpu += clock::thread_cpu_ns() - before;
            sent += self.burst();
            self.follow(shared, sent);
        }
        messages::write(&mut message, END, false);
        self.end(shared, &mut sender, &message, sent)?;
        cpu += sender.helpers_ns()?.saturating_sub(helpers);
        Ok(vec![sent, begin, cpu])
    }

    /// After a burst: waits until the receivers are ready for the next one.
    fn follow(&self, shared: &Shared, sent: u64) {
        if self.streams() {
            return;
        }
        shared.released.set(0, sent);
        while shared.received.total() < self.deliveries(sent) {
            pause();
        }
        if self.conditions.what == Measured::Asleep {
            sleep(FALLING_ASLEEP);
        }
    }

    /// Ends the receivers, and waits for all: receivers of ZeroMQ may drop messages when the sender closes its end before.
    fn end(&self, shared: &Shared, sender: &mut Sender, last: &[u8], sent: u64) -> Result<()> {
        let all = self.deliveries(sent) + self.conditions.receivers as u64;
        if !self.mechanism.to_one {
            (sender.send)(last)?;
            (sender.flush)()?;
            shared.released.set(0, sent + 1);
        }
        let mut ends = 0;
        while shared.received.total() < all {
            if self.mechanism.to_one {
                // Which receiver gets the next message is not known: a send that is repeated may pass one over. So ends are sent
                // until each has one. They are short, because those for receivers that have ended stay in the channel.
                (sender.send)(&END.to_ne_bytes())?;
                ends += 1;
                shared.released.set(0, sent + ends);
            }
            match self.streams() || self.mechanism.to_one {
                true => sleep(LOOK_INTERVAL),
                false => pause(),
            }
        }
        Ok(())
    }

    /// Returns the number of messages, the sum of their numbers, the time of the last one, and the processor time.
    fn receive(
        &self,
        shared: &Shared,
        mut receive: Receive,
        number: usize,
        start: &mut Start,
    ) -> Result<Vec<u64>> {
        let is_busy = !self.conditions.blocks();
        let mut seen = Seen::new(
            &self.conditions,
            self.mechanism.to_one,
            shared.messages.is_some(),
        );
        self.enter(Side::Second)?;
        start.wait()?;
        let (mut released, mut cpu, mut burst_cpu) = (0, 0, clock::thread_cpu_ns());
        while !seen.ended {
            let in_turn = !is_busy || seen.messages < released;
            if in_turn && receive(&mut |message| seen.visit(message))? {
                if self.conditions.what == Measured::Asleep {
                    shared.received.set(number, seen.messages);
                }
                continue;
            }
            shared.received.set(number, seen.messages);
            // A message to all that is still on its way is awaited; of one for another receiver nothing is known.
            if is_busy && (self.mechanism.to_one || !in_turn) {
                cpu += clock::thread_cpu_ns() - burst_cpu;
                while shared.released.get(0) <= released {
                    yield_now();
                }
                released = shared.released.get(0);
                burst_cpu = clock::thread_cpu_ns();
            } else {
                yield_now();
            }
        }
        cpu += clock::thread_cpu_ns() - burst_cpu;
        shared.received.set(number, seen.messages + 1);
        Ok(vec![seen.messages, seen.sum, clock::now_ns(), cpu])
    }
}

fn pause() {
    (0..PAUSES).for_each(|_| spin_loop());
}
