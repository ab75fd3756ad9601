// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pair that streams messages of one size in one direction at full speed.

use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::Start;

use super::setup::{self, PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Job, Measurement};
use crate::mechanisms::{Receiver, Sender};

/// Bytes between two readings of the clock, so that their cost is negligible.
const BYTES_PER_CLOCK_READ: usize = 64 * 1024;
const CHECKED_BYTES: usize = 1 << 20;
const MAX_CHECKED_MESSAGES: usize = 4096;

#[derive(Clone)]
pub struct Stream {
    pub setup: Setup,
    /// Messages per call; None for one at a time.
    pub batch: Option<usize>,
    pub length: Length,
}

/// The length of a stream.
#[derive(Clone, Copy)]
pub enum Length {
    For(Duration),
    Messages(u64),
}

impl Job for Stream {
    /// Sends a pattern in which every byte depends on its position in the stream, and compares every byte.
    fn check(&self) -> Result<()> {
        let messages = (CHECKED_BYTES / self.setup.size).clamp(16, MAX_CHECKED_MESSAGES);
        let pair = self.setup.pair(
            |sender, start| self.send_pattern(sender, start, messages),
            |receiver, start| self.receive_pattern(receiver, start, messages),
        )?;
        setup::run(pair, PROCESS_TIMEOUT).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let pair = self.setup.pair(
            |sender, start| self.send(sender, start),
            |receiver, start| self.receive(receiver, start),
        )?;
        let [sent, received] = setup::run(pair, self.length.limit())?;
        let [sent, begin, sender_cpu] = sent[..].try_into()?;
        let [bytes, end, receiver_cpu]: [u64; 3] = received[..].try_into()?;
        let size = self.setup.size;
        ensure!(
            bytes == sent * size as u64,
            "{sent} messages of {size} bytes were sent, but {bytes} bytes arrived"
        );
        Ok(Measurement {
            messages: sent,
            bytes,
            elapsed_ns: end.saturating_sub(begin),
            cpu_ns: sender_cpu + receiver_cpu,
            ..Measurement::default()
        })
    }
}

impl Stream {
    /// Returns the number of messages, the time of the first one, and the processor time.
    fn send(&self, mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
        let messages_at_once = vec![0xa5; self.buffer_len()];
        let per_clock_read = (BYTES_PER_CLOCK_READ / self.setup.size).clamp(1, 256) as u64;
        start.wait()?;

        let cpu = clock::cpu_ns();
        let begin = clock::now_ns();
        let mut messages = 0;
        loop {
            let next = match self.length {
                Length::For(duration) if clock::now_ns() - begin < duration.as_nanos() as u64 => {
                    per_clock_read
                }
                Length::For(_) => 0,
                Length::Messages(most) => most - messages,
            };
            if next == 0 {
                break;
            }
            self.send_messages(&mut *sender, &messages_at_once, next)?;
            messages += next;
        }
        Ok(vec![messages, begin, clock::cpu_ns() - cpu])
    }

    /// Sends `count` messages, in batches where the stream has them.
    fn send_messages(&self, sender: &mut dyn Sender, messages: &[u8], count: u64) -> Result<()> {
        let Some(batch) = self.batch else {
            return (0..count).try_for_each(|_| sender.send(messages));
        };
        let mut left = count as usize;
        while left > 0 {
            let now = left.min(batch);
            sender.send_batch(&messages[..now * self.setup.size], self.setup.size)?;
            left -= now;
        }
        Ok(())
    }

    /// Receives one message or a batch; returns the number of bytes.
    fn receive_messages(&self, receiver: &mut dyn Receiver, messages: &mut [u8]) -> Result<usize> {
        match self.batch {
            Some(_) => receiver.receive_batch(messages, self.setup.size),
            None => receiver.receive(messages),
        }
    }

    /// The length in bytes of one message or a batch.
    fn buffer_len(&self) -> usize {
        self.setup.size * self.batch.unwrap_or(1)
    }

    /// Returns the number of bytes, the time of the last one, and the processor time.
    fn receive(&self, mut receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
        let mut messages = vec![0; self.buffer_len()];
        start.wait()?;

        let cpu = clock::cpu_ns();
        let mut bytes = 0;
        loop {
            match self.receive_messages(&mut *receiver, &mut messages)? {
                0 => break,
                n => bytes += n as u64,
            }
        }
        Ok(vec![bytes, clock::now_ns(), clock::cpu_ns() - cpu])
    }

    fn send_pattern(
        &self,
        mut sender: Box<dyn Sender>,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        start.wait()?;
        let at_once = self.batch.unwrap_or(1);
        for number in (0..messages).step_by(at_once) {
            let count = at_once.min(messages - number);
            let some = pattern(number * self.setup.size, count * self.setup.size);
            self.send_messages(&mut *sender, &some, count as u64)?;
        }
        Ok(Vec::new())
    }

    fn receive_pattern(
        &self,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        messages: usize,
    ) -> Result<Vec<u64>> {
        start.wait()?;
        let mut some = vec![0; self.buffer_len()];
        let mut number = 0;
        while number < messages {
            let n = self.receive_messages(&mut *receiver, &mut some)?;
            ensure!(
                n > 0 && n % self.setup.size == 0,
                "message {number} of {messages} has {} bytes instead of {}",
                n % self.setup.size,
                self.setup.size
            );
            ensure!(
                some[..n] == pattern(number * self.setup.size, n),
                "message {number} of {messages} arrived damaged"
            );
            number += n / self.setup.size;
        }
        ensure!(
            number == messages && self.receive_messages(&mut *receiver, &mut some)? == 0,
            "more bytes arrived than were sent"
        );
        Ok(Vec::new())
    }
}

impl Length {
    /// The time limit of the stream.
    fn limit(self) -> Duration {
        match self {
            Self::For(duration) => duration + PROCESS_TIMEOUT,
            Self::Messages(_) => 4 * PROCESS_TIMEOUT,
        }
    }
}

/// The bytes from `offset` of a stream that does not repeat: each is a hash of its position.
fn pattern(offset: usize, len: usize) -> Vec<u8> {
    (offset..offset + len).map(|at| mix(at as u64)).collect()
}

fn mix(at: u64) -> u8 {
    let spread = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((spread ^ (spread >> 29)).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::harness::waiting::Waiting;
    use crate::mechanisms::sluice_ring::Variant;
    use crate::mechanisms::stream::{StreamReceiver, StreamSender};
    use crate::mechanisms::{Link, Mechanism, pipe, sluice_ring_memfd};
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    fn over(mechanism: Mechanism) -> Stream {
        Stream {
            setup: setup(mechanism, 1000),
            batch: None,
            length: Length::For(Duration::from_millis(20)),
        }
    }

    #[test]
    fn the_requested_number_of_messages_is_sent() {
        let _serial = serial();
        let stream = Stream {
            length: Length::Messages(1234),
            ..over(pipe::mechanism())
        };
        assert_eq!(stream.measure().unwrap().messages, 1234);
    }

    #[test]
    fn a_pipe_delivers_all_that_was_sent() {
        let _serial = serial();
        over(pipe::mechanism()).check().unwrap();
        let measurement = over(pipe::mechanism()).measure().unwrap();
        assert!(measurement.messages > 0);
        assert_eq!(measurement.bytes, measurement.messages * 1000);
    }

    #[test]
    fn batches_arrive_completely_with_and_without_a_batch_interface() {
        let _serial = serial();
        let together = sluice_ring_memfd::mechanism(Variant::NeverSpins);
        for mechanism in [together, pipe::mechanism()] {
            // Neither number is a multiple of the batch.
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
    fn the_pattern_differs_at_nearby_offsets() {
        assert_eq!(pattern(3, 64), pattern(0, 67)[3..]);
        for shift in 1..5000 {
            assert_ne!(pattern(0, 16), pattern(shift, 16), "shift {shift}");
        }
    }

    /// A pipe that swaps two bytes.
    fn faulty() -> Mechanism {
        Mechanism::new("faulty", Waiting::Sleep, |_| {
            let (receiver, sender) = std::io::pipe()?;
            Ok(Link::new(
                (receiver, sender),
                |(_, sender)| Ok(StreamSender(OwnedFd::from(sender).into())),
                |(receiver, _)| {
                    let receiver = StreamReceiver(OwnedFd::from(receiver).into());
                    Ok(FaultyReceiver(receiver))
                },
            ))
        })
    }

    struct FaultyReceiver(StreamReceiver);

    impl Receiver for FaultyReceiver {
        fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
            let n = self.0.receive(message)?;
            if n > 1 {
                message.swap(0, 1);
            }
            Ok(n)
        }
    }

    #[test]
    fn a_damaged_message_is_detected() {
        let _serial = serial();
        let error = over(faulty()).check().unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
    }
}
