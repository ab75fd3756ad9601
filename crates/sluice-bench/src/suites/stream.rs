// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pair that streams messages of one size from one process to the other, as fast as it can.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::{PATIENCE, Room};
use crate::harness::clock;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::Measurement;
use crate::mechanisms::{Errand, Link, Mechanism, Programs, Receiver, Sender};

/// The clock is looked at after so many bytes, or it would be part of what is measured.
const BYTES_PER_LOOK: usize = 64 * 1024;
const CHECKED_BYTES: usize = 1 << 20;
const MOST_CHECKED_MESSAGES: usize = 4096;

#[derive(Clone)]
pub struct Stream {
    pub mechanism: Rc<dyn Mechanism>,
    pub room: Room,
    pub size: usize,
    /// How many messages are handed over at once; None for one at a time.
    pub batch: Option<usize>,
    pub length: Length,
}

/// When the sender stops.
#[derive(Clone, Copy)]
pub enum Length {
    For(Duration),
    Messages(u64),
}

impl Stream {
    pub fn measure(&self) -> Result<Measurement> {
        let mut pair = self.start()?;
        pair.go()?;
        let [sent, received] = pair.finish(self.length.limit())?;
        let ([sent, begin, sender_cpu], [bytes, end, receiver_cpu]) =
            (figures(&sent)?, figures(&received)?);
        ensure!(
            bytes == sent * self.size as u64,
            "{sent} messages of {} bytes were sent, but {bytes} bytes arrived",
            self.size
        );
        Ok(Measurement {
            samples: Vec::new(),
            messages: sent,
            bytes,
            elapsed_ns: end.saturating_sub(begin),
            cpu_ns: sender_cpu + receiver_cpu,
            ..Measurement::default()
        })
    }

    fn start(&self) -> Result<Pair> {
        if let Length::For(duration) = self.length
            && let Some(programs) = self.programs(Errand::Stream { duration })?
        {
            return self.room.start_programs(programs);
        }
        let link = self.mechanism.link(self.size)?;
        Pair::start(link, PATIENCE, |side, link, start| match side {
            Side::First => self.send(link, start),
            Side::Second => self.receive(link, start),
        })
    }

    fn programs(&self, errand: Errand) -> Result<Option<Box<dyn Programs>>> {
        self.mechanism.programs(self.size, errand)
    }

    /// Returns the number of messages, when the first was sent, and the processor time.
    fn send(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        let messages_at_once = vec![0xa5; self.room_for_messages()];
        let between_looks = (BYTES_PER_LOOK / self.size).clamp(1, 256) as u64;
        start.wait()?;

        let cpu = clock::cpu_ns();
        let begin = clock::now_ns();
        let mut messages = 0;
        loop {
            let next = match self.length {
                Length::For(duration) if clock::now_ns() - begin < duration.as_nanos() as u64 => {
                    between_looks
                }
                Length::For(_) => 0,
                Length::Messages(most) => most - messages,
            };
            if next == 0 {
                break;
            }
            self.hand_over(&mut *sender, &messages_at_once, next)?;
            messages += next;
        }
        Ok(vec![messages, begin, clock::cpu_ns() - cpu])
    }

    /// Sends so many messages, of which as many are given as go at once.
    fn hand_over(&self, sender: &mut dyn Sender, messages: &[u8], count: u64) -> Result<()> {
        let Some(batch) = self.batch else {
            return (0..count).try_for_each(|_| sender.send(messages));
        };
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(batch);
            sender.send_batch(&messages[..now * self.size], self.size)?;
            left -= now;
        }
        Ok(())
    }

    /// One message or several; returns how many bytes they have.
    fn take_over(&self, receiver: &mut dyn Receiver, messages: &mut [u8]) -> Result<usize> {
        match self.batch {
            Some(_) => receiver.receive_batch(messages, self.size),
            None => receiver.receive(messages),
        }
    }

    /// In bytes, for all that go at once.
    fn room_for_messages(&self) -> usize {
        self.size * self.batch.unwrap_or(1)
    }

    /// Returns the number of bytes, when the last came, and the processor time.
    fn receive(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        let mut messages = vec![0; self.room_for_messages()];
        start.wait()?;

        let cpu = clock::cpu_ns();
        let mut bytes = 0;
        loop {
            match self.take_over(&mut *receiver, &mut messages)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
        Ok(vec![bytes, clock::now_ns(), clock::cpu_ns() - cpu])
    }

    /// Sends a pattern in which every byte depends on its place in the stream, and looks at each one.
    pub fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.size).clamp(16, MOST_CHECKED_MESSAGES);
        let mut pair = match self.programs(Errand::Pattern { messages })? {
            Some(programs) => self.room.start_programs(programs)?,
            None => {
                let link = self.mechanism.link(self.size)?;
                Pair::start(link, PATIENCE, |side, link, start| match side {
                    Side::First => self.send_pattern(link, start, messages),
                    Side::Second => self.receive_pattern(link, start, messages),
                })?
            }
        };
        pair.go()?;
        pair.finish(PATIENCE).map(drop)
    }

    fn send_pattern(
        &self,
        link: Box<dyn Link>,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        start.wait()?;
        let at_once = self.batch.unwrap_or(1);
        for number in (0..messages).step_by(at_once) {
            let count = at_once.min(messages - number);
            let some = pattern(number * self.size, count * self.size);
            self.hand_over(&mut *sender, &some, count as u64)?;
        }
        Ok(Vec::new())
    }

    fn receive_pattern(
        &self,
        link: Box<dyn Link>,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        start.wait()?;
        let mut some = vec![0; self.room_for_messages()];
        let mut number = 0;
        while number < messages {
            let n = self.take_over(&mut *receiver, &mut some)?;
            ensure!(
                n > 0 && n % self.size == 0,
                "message {number} of {messages} has {} bytes instead of {}",
                n % self.size,
                self.size
            );
            ensure!(
                some[..n] == pattern(number * self.size, n),
                "message {number} of {messages} arrived damaged"
            );
            number += n / self.size;
        }
        ensure!(
            number == messages && self.take_over(&mut *receiver, &mut some)? == 0,
            "more arrived than was sent"
        );
        Ok(Vec::new())
    }
}

impl Length {
    /// After which something hangs.
    fn limit(self) -> Duration {
        match self {
            Self::For(duration) => duration + PATIENCE,
            Self::Messages(_) => 4 * PATIENCE,
        }
    }
}

fn figures(values: &[u64]) -> Result<[u64; 3]> {
    Ok(values.try_into()?)
}

/// The bytes from `place` on of a stream that does not repeat: each is mixed from its place.
fn pattern(place: usize, len: usize) -> Vec<u8> {
    (place..place + len).map(|at| mix(at as u64)).collect()
}

fn mix(at: u64) -> u8 {
    let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((spread ^ (spread >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::pinning::Placement;
    use crate::harness::process::tests::turn;
    use crate::mechanisms::{Pipe, SluiceRing, Waiting};

    fn over(mechanism: Rc<dyn Mechanism>) -> Stream {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        Stream {
            mechanism,
            room: Room { home: None, cpus },
            size: 1000,
            batch: None,
            length: Length::For(Duration::from_millis(20)),
        }
    }

    #[test]
    fn as_many_messages_are_sent_as_were_asked_for() {
        let stream = Stream {
            length: Length::Messages(1234),
            ..over(Rc::new(Pipe))
        };
        assert_eq!(stream.measure().unwrap().messages, 1234);
    }

    #[test]
    fn a_pipe_delivers_all_that_was_sent() {
        let _turn = turn();
        over(Rc::new(Pipe)).check().unwrap();
        let measurement = over(Rc::new(Pipe)).measure().unwrap();
        assert!(measurement.messages > 0);
        assert_eq!(measurement.bytes, measurement.messages * 1000);
    }

    #[test]
    fn batches_arrive_whole_whether_they_go_together_or_not() {
        let _turn = turn();
        let together = Rc::new(SluiceRing::NeverSpins);
        let one_by_one = Rc::new(Pipe);
        for mechanism in [together as Rc<dyn Mechanism>, one_by_one] {
            // Neither the messages nor those that go at once come out even.
            let stream = Stream {
                batch: Some(7),
                ..over(mechanism)
            };
            stream.check().unwrap();
            let measurement = stream.measure().unwrap();
            assert_eq!(measurement.bytes, measurement.messages * 1000);
            let counted = Stream {
                length: Length::Messages(1234),
                ..stream
            };
            assert_eq!(counted.measure().unwrap().messages, 1234);
        }
    }

    #[test]
    fn no_two_places_near_each_other_look_alike() {
        assert_eq!(pattern(3, 64), pattern(0, 67)[3..]);
        for shift in 1..5000 {
            assert_ne!(pattern(0, 16), pattern(shift, 16), "shift {shift}");
        }
    }

    /// A pipe that swaps two bytes once.
    struct Faulty;

    impl Mechanism for Faulty {
        fn name(&self) -> &'static str {
            "faulty"
        }

        fn waiting(&self) -> Waiting {
            Waiting::Sleep
        }

        fn link(&self, size: usize) -> Result<Box<dyn Link>> {
            Ok(Box::new(FaultyLink(Pipe.link(size)?)))
        }
    }

    struct FaultyLink(Box<dyn Link>);

    impl Link for FaultyLink {
        fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
            self.0.sender()
        }

        fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
            Ok(Box::new(FaultyReceiver(self.0.receiver()?)))
        }
    }

    struct FaultyReceiver(Box<dyn Receiver>);

    impl Receiver for FaultyReceiver {
        fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
            let n = self.0.receive(message)?;
            if n > 1 {
                message.swap(0, 1);
            }
            Ok(n)
        }

        fn file(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            None
        }
    }

    #[test]
    fn a_mechanism_that_damages_a_message_is_caught() {
        let _turn = turn();
        let error = over(Rc::new(Faulty)).check().unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
