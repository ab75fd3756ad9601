// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lower bound: one word of shared memory and the bytes of a message after it, written by one processor and polled by the other. No
//! transfer between two processors can be faster. Each message overwrites the last, so only request and reply are supported. The
//! receiver may map the memory read-only, as in channels whose sides cannot corrupt each other's data: some processors are slower then.

use std::hint::spin_loop;
use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use sluice_testkit::shared::SharedWords;

use super::{Link, Mechanism, Sender, Workload};
use crate::harness::waiting::Waiting;

/// The label of the bound of rings whose receiver cannot write to them.
pub const READ_ONLY: &str = "cacheline (spins, reads only)";

pub fn mechanism(read_only: bool) -> Mechanism {
    let label = match read_only {
        false => "cacheline (spins)",
        true => READ_ONLY,
    };
    Mechanism {
        label: label.into(),
        never_sleeps: true,
        unsupported_reason: Box::new(|task| {
            let is_supported = task.size <= LARGEST && task.workload == Workload::RequestReply;
            (!is_supported)
                .then(|| format!("it carries up to {LARGEST} bytes, one message at a time"))
        }),
        ..Mechanism::new("cacheline", Waiting::Spin, move |_| {
            Ok(Link::new(
                SharedWords::new(1 + LARGEST / 8)?,
                |words| Ok(WordSender { words, count: 0 }),
                move |words| {
                    if read_only {
                        words.make_read_only()?;
                    }
                    Ok(polling(words))
                },
            ))
        })
    }
}

/// With the word, two cache lines.
const LARGEST: usize = 64;

const END: u64 = 0x100;

/// The words are in a page of their own, so that nothing else shares the cache lines: one word, then the bytes of the last message.
/// Bits 9 and up of the word count the messages; the lowest eight are the byte of a message of one byte.
struct WordSender {
    words: SharedWords,
    count: u64,
}

impl WordSender {
    fn put(&mut self, content: u64) {
        self.count += 1;
        let word = self.count << 9 | content;
        self.words.words()[0].store(word, Ordering::Release);
    }
}

impl Sender for WordSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let len = message.len();
        ensure!(len <= LARGEST, "two cache lines do not carry {len} bytes");
        if let [byte] = message {
            self.put((*byte).into());
            return Ok(());
        }
        for (word, bytes) in self.words.words()[1..].iter().zip(message.chunks(8)) {
            let all = bytes.try_into().unwrap_or_else(|_| {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                padded
            });
            word.store(u64::from_ne_bytes(all), Ordering::Relaxed);
        }
        self.put(0);
        Ok(())
    }
}

impl Drop for WordSender {
    fn drop(&mut self) {
        self.put(END);
    }
}

fn polling(words: SharedWords) -> impl FnMut(&mut [u8]) -> Result<usize> {
    let mut count = 0;
    move |message| {
        let words = words.words();
        let content = loop {
            let word = words[0].load(Ordering::Acquire);
            if word >> 9 != count {
                break word;
            }
            spin_loop();
        };
        if content & END == END {
            return Ok(0);
        }
        count = content >> 9;
        if let [byte] = message {
            *byte = content as u8;
            return Ok(1);
        }
        for (word, bytes) in words[1..].iter().zip(message.chunks_mut(8)) {
            let all = word.load(Ordering::Relaxed).to_ne_bytes();
            match <&mut [u8; 8]>::try_from(&mut *bytes) {
                Ok(whole) => *whole = all,
                Err(_) => bytes.copy_from_slice(&all[..bytes.len()]),
            }
        }
        Ok(message.len())
    }
}
