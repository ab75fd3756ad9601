// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbered messages: the bytes that a sender sends, and the checks of a receiver.

use std::hint::black_box;

use anyhow::{Context, Result, ensure};

use super::conditions::{Conditions, Measured};

/// Each message begins with its number; the last one with this.
pub const END: u64 = u64::MAX;
const HEADER: usize = size_of::<u64>();
const LINE: usize = 64;
/// The bytes of a message depend on its number modulo this.
const PATTERNS: usize = 251;

fn pattern(number: u64) -> impl Iterator<Item = u8> {
    let first = HEADER + number as usize % PATTERNS;
    (first..).map(|at| (at * 7 + at / PATTERNS) as u8)
}

/// Makes the message with this number, and with its bytes if they are compared.
pub fn write(message: &mut [u8], number: u64, compared: bool) {
    let (header, rest) = message.split_at_mut(HEADER);
    header.copy_from_slice(&number.to_ne_bytes());
    if compared {
        let bytes = rest.iter_mut().zip(pattern(number));
        bytes.for_each(|(byte, expected)| *byte = expected);
    }
}

pub struct Seen<'a> {
    conditions: &'a Conditions,
    /// Other receivers may receive the messages between two messages of this receiver.
    to_one: bool,
    compared: bool,
    next: u64,
    pub messages: u64,
    /// Of the numbers of the messages.
    pub sum: u64,
    pub ended: bool,
}

impl<'a> Seen<'a> {
    pub fn new(conditions: &'a Conditions, to_one: bool, compared: bool) -> Self {
        Self {
            conditions,
            to_one,
            compared,
            next: 0,
            messages: 0,
            sum: 0,
            ended: false,
        }
    }

    pub fn visit(&mut self, message: &[u8]) -> Result<()> {
        let parts = message.split_first_chunk();
        let (header, rest) = parts.context("a message has no number")?;
        let number = u64::from_ne_bytes(*header);
        if number == END {
            self.ended = true;
            return Ok(());
        }
        let (length, size) = (message.len(), self.conditions.size);
        ensure!(length == size, "a message has {length} bytes, not {size}");
        let in_order = number == self.next || self.to_one && number > self.next;
        ensure!(in_order, "message {number} follows {}", self.next);
        if self.conditions.what == Measured::Receiving {
            black_box(read_lines(message));
        }
        if self.compared {
            let intact = rest.iter().copied().eq(pattern(number).take(rest.len()));
            ensure!(intact, "message {number} arrived damaged");
        }
        self.messages += 1;
        self.next = number + 1;
        self.sum += number;
        Ok(())
    }
}

fn read_lines(message: &[u8]) -> u64 {
    let words = message.chunks(LINE).filter_map(|line| line.first_chunk());
    words.fold(0, |sum, word| sum ^ u64::from_ne_bytes(*word))
}
