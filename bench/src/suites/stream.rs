// SPDX-License-Identifier: MIT OR Apache-2.0
//! A pair that streams messages of one size in one direction at full speed. Each message that is long enough begins with its
//! number, which the receiver checks, so that nothing is counted that was lost, repeated or not written.

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use fastrand::Rng;
use sluice_testkit::clock;
use sluice_testkit::workers::Start;

use super::setup::{PROCESS_TIMEOUT, Setup};
use crate::harness::rounds::{Job, Measurement};
use crate::mechanisms::{Receiver, Sender};

/// Bytes between two readings of the clock, so that their cost is negligible.
const BYTES_PER_CLOCK_READ: usize = 64 * 1024;
const LEAST_CHECKED_MESSAGES: usize = 16;

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

#[derive(Clone, Copy)]
pub enum Length {
    For(Duration),
    Messages(u64),
}

impl Job for Stream {
    /// Sends messages of random bytes, each with its number as the seed, and compares every byte.
    fn check(&self) -> Result<()> {
        // Enough to pass each place of a buffer three times.
        let in_flight = (self.setup.mechanism.in_flight)(self.setup.size);
        let messages = (3 * in_flight).max(LEAST_CHECKED_MESSAGES) as u64;
        let [_, received] = self.setup.run(
            PROCESS_TIMEOUT,
            |mut sender, start| {
                start.wait()?;
                self.send_messages(&mut *sender, &mut self.buffer(), 0..messages, randomize)?;
                Ok(Vec::new())
            },
            |mut receiver, start| {
                start.wait()?;
                let bytes = self.receive_all(&mut *receiver, &mut self.buffer(), check_random)?;
                Ok(vec![bytes / self.setup.size as u64])
            },
        )?;
        expect_all(messages, received[0])
    }

    fn measure(&self) -> Result<Measurement> {
        let limit = match self.length {
            Length::For(duration) => duration + PROCESS_TIMEOUT,
            Length::Messages(_) => 4 * PROCESS_TIMEOUT,
        };
        let [sent, received] = self.setup.run(
            limit,
            |sender, start| self.send(sender, start),
            |receiver, start| self.receive(receiver, start),
        )?;
        measurement(&sent, &received, self.setup.size)
    }
}

/// Of the number of messages, the time of the first one and the processor time; and the bytes, the time of the last one and the same.
pub fn measurement(sent: &[u64], received: &[u64], size: usize) -> Result<Measurement> {
    let [messages, begin, sender_cpu] = sent.try_into()?;
    let [bytes, end, receiver_cpu]: [u64; 3] = received.try_into()?;
    ensure!(
        bytes == messages * size as u64,
        "{messages} messages of {size} bytes were sent, but {bytes} bytes arrived"
    );
    Ok(Measurement {
        messages,
        bytes,
        elapsed_ns: end.saturating_sub(begin),
        cpu_ns: sender_cpu + receiver_cpu,
        ..Measurement::default()
    })
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

    fn send(&self, mut sender: Box<dyn Sender>, start: &mut Start) -> Result<Vec<u64>> {
        let mut buffer = self.buffer();
        // Its memory is there before the measurement.
        buffer.fill(0xa5);
        let per_clock_read = (BYTES_PER_CLOCK_READ / self.setup.size).clamp(1, 256) as u64;
        let write = |message: &mut [u8], number: u64| {
            if self.data != Data::Untouched {
                message.fill(number as u8);
            }
            if let Some(header) = message.first_chunk_mut() {
                *header = number.to_ne_bytes();
            }
        };
        start.wait()?;
        let cpu = clock::cpu_ns();
        let begin = clock::now_ns();
        let is_over = |limit: Duration| clock::now_ns() - begin >= limit.as_nanos() as u64;
        let mut sent = 0;
        loop {
            let next = match self.length {
                Length::For(duration) if is_over(duration) => break,
                Length::For(_) => per_clock_read,
                Length::Messages(most) if sent == most => break,
                Length::Messages(most) => most,
            };
            self.send_messages(&mut *sender, &mut buffer, sent..sent + next, write)?;
            sent += next;
        }
        Ok(vec![sent, begin, clock::cpu_ns() - cpu])
    }

    /// Sends the messages of these numbers, which `write` writes.
    fn send_messages(
        &self,
        sender: &mut dyn Sender,
        buffer: &mut [u8],
        mut numbers: Range<u64>,
        write: impl Fn(&mut [u8], u64),
    ) -> Result<()> {
        let size = self.setup.size;
        if self.data == Data::InPlace {
            return numbers.try_for_each(|number| {
                sender.send_in_place(size, &mut |message| write(message, number))
            });
        }
        let Some(batch) = self.batch else {
            return numbers.try_for_each(|number| {
                write(buffer, number);
                sender.send(buffer)
            });
        };
        while !numbers.is_empty() {
            let count = (batch as u64).min(numbers.end - numbers.start);
            let messages = &mut buffer[..count as usize * size];
            for (message, number) in messages.chunks_mut(size).zip(numbers.by_ref()) {
                write(message, number);
            }
            sender.send_batch(messages, size)?;
        }
        Ok(())
    }

    /// Passes each message with its number to `take`, until the end of the stream. Returns the number of bytes.
    fn receive_all(
        &self,
        receiver: &mut dyn Receiver,
        buffer: &mut [u8],
        take: impl Fn(&[u8], u64) -> Result<()>,
    ) -> Result<u64> {
        let (mut bytes, mut number) = (0, 0);
        let mut take_all = |received: &[u8]| {
            bytes += received.len() as u64;
            for message in received.chunks(self.setup.size) {
                take(message, number)?;
                number += 1;
            }
            Ok(())
        };
        loop {
            let received = match (self.data, self.batch) {
                (Data::InPlace, _) => receiver.receive_in_place(&mut take_all)?,
                (_, Some(_)) => receiver.receive_batch(buffer, self.setup.size)?,
                (_, None) => receiver.receive(buffer)?,
            };
            if received == 0 {
                return Ok(bytes);
            }
            if self.data != Data::InPlace {
                take_all(&buffer[..received])?;
            }
        }
    }

    fn buffer(&self) -> Vec<u8> {
        vec![0; self.setup.size * self.batch.unwrap_or(1)]
    }

    fn receive(&self, mut receiver: Box<dyn Receiver>, start: &mut Start) -> Result<Vec<u64>> {
        let mut buffer = self.buffer();
        start.wait()?;
        let cpu = clock::cpu_ns();
        let bytes = self.receive_all(&mut *receiver, &mut buffer, |message, number| {
            check_number(message, number)?;
            if self.data != Data::Untouched {
                black_box(sum(message));
            }
            Ok(())
        })?;
        Ok(vec![bytes, clock::now_ns(), clock::cpu_ns() - cpu])
    }
}

/// Reads each byte, eight at a time where there are as many.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(size_of::<u64>());
    let rest = words.remainder().iter().map(|&byte| u64::from(byte));
    let words = words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    words.chain(rest).fold(0, u64::wrapping_add)
}

pub fn expect_all(sent: u64, arrived: u64) -> Result<()> {
    ensure!(sent == arrived, "{arrived} of {sent} messages arrived");
    Ok(())
}

/// Compares the number of a message that has the space for one.
pub fn check_number(message: &[u8], number: u64) -> Result<()> {
    let arrived = message.first_chunk().copied().map(u64::from_ne_bytes);
    ensure!(
        arrived.is_none_or(|arrived| arrived == number),
        "message {} arrived instead of {number}",
        arrived.unwrap_or_default()
    );
    Ok(())
}

fn randomize(message: &mut [u8], number: u64) {
    Rng::with_seed(number).fill(message);
}

fn check_random(message: &[u8], number: u64) -> Result<()> {
    let mut sent = vec![0; message.len()];
    randomize(&mut sent, number);
    ensure!(message == sent, "message {number} arrived damaged");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_and_a_wrong_order_are_detected() {
        let mut message = [0; 16];
        randomize(&mut message, 3);
        assert!(check_random(&message, 3).is_ok());
        assert!(check_random(&message, 4).is_err());
        message.swap(0, 1);
        assert!(check_random(&message, 3).is_err());

        message[..8].copy_from_slice(&8_u64.to_ne_bytes());
        assert!(check_number(&message, 8).is_ok() && check_number(&message[..4], 5).is_ok());
        let error = check_number(&message, 7).unwrap_err().to_string();
        assert_eq!(error, "message 8 arrived instead of 7");
    }
}
