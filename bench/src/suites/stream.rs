// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pair that streams messages of one size in one direction at full speed. Each message that is long enough begins with its
//! number, which the receiver checks, so that nothing is counted that was lost, repeated or not written.

use std::hint::black_box;
use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_testkit::clock;
use sluice_testkit::workers::{Pair, Start};

use super::setup::{self, PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Job, Measurement};
use crate::mechanisms::{Mechanism, Receiver, Sender};

/// Bytes between two readings of the clock, so that their cost is negligible.
const BYTES_PER_CLOCK_READ: usize = 64 * 1024;
const LEAST_CHECKED_MESSAGES: usize = 16;
/// The number of a message.
const HEADER_LEN: usize = size_of::<u64>();

#[derive(Clone)]
pub struct Stream {
    pub setup: Setup,
    /// Messages per call; None for one at a time.
    pub batch: Option<usize>,
    pub length: Length,
    pub data: Data,
}

/// What the two sides do with the bytes of a message, beside what the mechanism does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// The sender writes the number of the message, and the receiver reads it.
    Untouched,
    /// The sender writes all bytes before each message, and the receiver reads all of them.
    Touched,
    /// The same, in memory of the mechanism. Not in batches.
    InPlace,
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
        let messages = checked_messages(&self.setup.mechanism, self.setup.size);
        let pair = self.setup.pair(
            |sender, start| self.send_pattern(sender, start, messages),
            |receiver, start| self.receive_pattern(receiver, start, messages),
        )?;
        setup::run(pair, PROCESS_TIMEOUT).map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let mut pair = self.start()?;
        pair.go()?;
        let streamed = self.finish(pair)?;
        Ok(Measurement {
            messages: streamed.messages,
            bytes: streamed.messages * self.setup.size as u64,
            elapsed_ns: streamed.end.saturating_sub(streamed.begin),
            cpu_ns: streamed.cpu_ns,
            ..Measurement::default()
        })
    }
}

/// What a pair did.
pub struct Streamed {
    pub messages: u64,
    /// When the first message was sent, and the last one received, on the monotonic clock.
    pub begin: u64,
    pub end: u64,
    pub cpu_ns: u64,
}

impl Stream {
    /// One message at a time, of which only the number is used.
    pub fn new(setup: Setup, length: Length) -> Self {
        Self {
            setup,
            batch: None,
            length,
            data: Data::Untouched,
        }
    }

    /// A pair that streams when it is told to go.
    pub fn start(&self) -> Result<Pair> {
        self.setup.pair(
            |sender, start| self.send(sender, start),
            |receiver, start| self.receive(receiver, start),
        )
    }

    pub fn finish(&self, pair: Pair) -> Result<Streamed> {
        let [sent, received] = pair.finish(self.length.limit())?;
        let [messages, begin, sender_cpu] = sent[..].try_into()?;
        let [bytes, end, receiver_cpu]: [u64; 3] = received[..].try_into()?;
        let size = self.setup.size;
        ensure!(
            bytes == messages * size as u64,
            "{messages} messages of {size} bytes were sent, but {bytes} bytes arrived"
        );
        Ok(Streamed {
            messages,
            begin,
            end,
            cpu_ns: sender_cpu + receiver_cpu,
        })
    }

    /// Returns the number of messages, the time of the first one, and the processor time.
    fn send(&self, mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
        let mut messages_at_once = vec![0xa5; self.buffer_len()];
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
            self.send_numbered(&mut *sender, &mut messages_at_once, messages, next)?;
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

    /// As send_messages(), with their numbers, of which this is the first.
    fn send_numbered(
        &self,
        sender: &mut dyn Sender,
        messages: &mut [u8],
        first: u64,
        count: u64,
    ) -> Result<()> {
        let size = self.setup.size;
        if self.data == Data::InPlace {
            return (first..first + count).try_for_each(|next| {
                sender.send_in_place(size, &mut |message| {
                    message.fill(next as u8);
                    number(message, size, next);
                })
            });
        }
        let at_once = self.batch.unwrap_or(1) as u64;
        let mut done = 0;
        while done < count {
            let now = at_once.min(count - done);
            if self.data == Data::Touched {
                messages.fill(done as u8);
            }
            number(messages, size, first + done);
            self.send_messages(sender, messages, now)?;
            done += now;
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

    /// Shows everything that is received to the function, until the end of the stream; in `messages` if it is not in place.
    fn receive_all(
        &self,
        receiver: &mut dyn Receiver,
        messages: &mut [u8],
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if self.data == Data::InPlace {
            while receiver.receive_in_place(&mut take)? > 0 {}
            return Ok(());
        }
        loop {
            match self.receive_messages(receiver, messages)? {
                0 => return Ok(()),
                n => take(&messages[..n])?,
            }
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
        let (mut bytes, mut next) = (0, 0);
        self.receive_all(&mut *receiver, &mut messages, |received| {
            next = check_numbers(received, self.setup.size, next)?;
            if self.data != Data::Untouched {
                black_box(sum(received));
            }
            bytes += received.len() as u64;
            Ok(())
        })?;
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
            match self.data {
                Data::InPlace => sender.send_in_place(self.setup.size, &mut |message| {
                    message.copy_from_slice(&some);
                })?,
                _ => self.send_messages(&mut *sender, &some, count as u64)?,
            }
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
        self.receive_all(&mut *receiver, &mut some, |received| {
            let n = received.len();
            ensure!(
                n > 0 && n % self.setup.size == 0,
                "message {number} of {messages} has {} bytes instead of {}",
                n % self.setup.size,
                self.setup.size
            );
            ensure!(
                *received == pattern(number * self.setup.size, n),
                "message {number} of {messages} arrived damaged"
            );
            number += n / self.setup.size;
            Ok(())
        })?;
        ensure!(
            number == messages,
            "{number} messages arrived of {messages}"
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

/// Reads each byte, eight at a time where there are as many.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(size_of::<u64>());
    let rest = words.remainder().iter().map(|&byte| u64::from(byte));
    let words = words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    words.chain(rest).fold(0, u64::wrapping_add)
}

/// Messages of this size that pass each place of a buffer three times.
fn checked_messages(mechanism: &Mechanism, size: usize) -> usize {
    (3 * (mechanism.in_flight)(size)).max(LEAST_CHECKED_MESSAGES)
}

/// Writes the numbers of consecutive messages into those that have the space.
fn number(messages: &mut [u8], size: usize, first: u64) {
    if size < HEADER_LEN {
        return;
    }
    for (number, message) in (first..).zip(messages.chunks_exact_mut(size)) {
        message[..HEADER_LEN].copy_from_slice(&number.to_ne_bytes());
    }
}

/// Returns the number after that of the last message.
fn check_numbers(messages: &[u8], size: usize, first: u64) -> Result<u64> {
    let mut expected = first;
    for message in messages.chunks(size) {
        if let Some(header) = message.first_chunk::<HEADER_LEN>() {
            let number = u64::from_ne_bytes(*header);
            ensure!(
                number == expected,
                "message {number} arrived instead of {expected}"
            );
        }
        expected += 1;
    }
    Ok(expected)
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
    use crate::mechanisms::{Link, Mechanism, bytes_in_flight, pipe, sluice_ring_memfd};
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    fn over(mechanism: Mechanism) -> Stream {
        Stream::new(
            setup(mechanism, 1000),
            Length::For(Duration::from_millis(20)),
        )
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

    #[test]
    fn a_check_uses_each_place_of_a_buffer_three_times() {
        let mechanism = Mechanism {
            in_flight: bytes_in_flight(1 << 20, 8),
            ..pipe::mechanism()
        };
        for size in [1, 8, 64, 1024, 65_536, 1 << 20] {
            let messages = checked_messages(&mechanism, size);
            assert!(
                messages * (size + 8) >= 3 << 20,
                "{messages} of {size} bytes"
            );
            assert!(messages >= LEAST_CHECKED_MESSAGES);
        }
    }

    #[test]
    fn a_message_out_of_order_is_detected() {
        let mut messages = [0; 3 * 10];
        number(&mut messages, 10, 5);
        assert_eq!(check_numbers(&messages, 10, 5).unwrap(), 8);
        assert!(check_numbers(&messages[10..], 10, 5).is_err());
        messages[20] += 1;
        let error = check_numbers(&messages, 10, 5).unwrap_err().to_string();
        assert!(error.contains("message 8 arrived instead of 7"), "{error}");
        // Shorter ones have none.
        number(&mut messages, 4, 5);
        assert_eq!(check_numbers(&messages[..8], 4, 1).unwrap(), 3);
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
