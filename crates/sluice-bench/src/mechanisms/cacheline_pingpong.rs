// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lower bound: one word of shared memory, written by one processor and polled by the other. No transfer between
//! two processors can be faster. It carries single bytes, each of which overwrites the last, so only request and reply
//! are supported.
//!
//! The receiver may map the word read-only, as in channels whose sides cannot corrupt each other's data: on some
//! processors the transfer of a cache line takes longer then.

use std::hint::spin_loop;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use sluice_testkit::shared::SharedWords;

use super::mechanism::spinning_on_one_cpu;
use super::{Link, Mechanism, Receiver, Sender, Workload};
use crate::harness::waiting::Waiting;

/// With `read_only`, the receiver cannot write to the word.
pub fn mechanism(read_only: bool) -> Mechanism {
    let label = match read_only {
        false => "cacheline (spins)",
        true => "cacheline (spins, reads only)",
    };
    Mechanism {
        label: label.into(),
        unsupported_reason: Box::new(|task| {
            match task.size > 1 || task.workload != Workload::RequestReply {
                true => Some("it carries single bytes, one at a time".into()),
                false => spinning_on_one_cpu(task),
            }
        }),
        ..Mechanism::new("cacheline", Waiting::Spin, move |_| {
            let receiver = move |word: Word| {
                if read_only {
                    word.0.make_read_only()?;
                }
                Ok(PollingReceiver { word, count: 0 })
            };
            let sender = |word| Ok(WordSender { word, count: 0 });
            Ok(Link::new(Word::new()?, sender, receiver))
        })
    }
}

/// The end of the stream.
const END: u64 = 0x1ff;

/// In its own page, so that nothing else shares the cache line. Bits 9 and up count the messages; the bits below are
/// the byte.
#[derive(Clone)]
struct Word(Rc<SharedWords>);

impl Word {
    fn new() -> Result<Self> {
        Ok(Self(Rc::new(SharedWords::new(1)?)))
    }

    fn atomic(&self) -> &AtomicU64 {
        &self.0.words()[0]
    }
}

struct WordSender {
    word: Word,
    count: u64,
}

impl WordSender {
    fn put(&mut self, content: u64) {
        self.count += 1;
        self.word
            .atomic()
            .store(self.count << 9 | content, Ordering::Release);
    }
}

impl Sender for WordSender {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() == 1,
            "a cache line carries 1 byte, not {}",
            message.len()
        );
        self.put(message[0].into());
        Ok(())
    }
}

impl Drop for WordSender {
    fn drop(&mut self) {
        self.put(END);
    }
}

struct PollingReceiver {
    word: Word,
    count: u64,
}

impl Receiver for PollingReceiver {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let word = loop {
            let word = self.word.atomic().load(Ordering::Acquire);
            if word >> 9 != self.count {
                break word;
            }
            spin_loop();
        };
        if word & END == END {
            return Ok(0);
        }
        self.count = word >> 9;
        message[0] = word as u8;
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_arrives_once_and_then_the_end() {
        let word = Word::new().unwrap();
        // Shared within one process here.
        let mut sender = WordSender {
            word: word.clone(),
            count: 0,
        };
        let mut receiver = PollingReceiver { word, count: 0 };
        let mut byte = [0];
        sender.send(&[0xff]).unwrap();
        assert_eq!(receiver.receive(&mut byte).unwrap(), 1);
        assert_eq!(byte, [0xff]);
        sender.put(END);
        assert_eq!(receiver.receive(&mut byte).unwrap(), 0);
        assert_eq!(receiver.receive(&mut byte).unwrap(), 0);
    }

    #[test]
    fn messages_of_other_sizes_are_rejected() {
        let word = Word::new().unwrap();
        let mut sender = WordSender { word, count: 0 };
        assert!(sender.send(b"two").is_err());
    }
}
