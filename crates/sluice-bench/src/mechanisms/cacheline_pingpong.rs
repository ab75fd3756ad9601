// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lower bound: one word of shared memory, written by one processor and polled by the other. No transfer between
//! two processors can be faster. It carries single bytes, each of which overwrites the last, so only request and reply
//! are supported.
//!
//! The receiver may map the word read-only, as in channels whose sides cannot corrupt each other's data: on some
//! processors the transfer of a cache line takes longer then.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};
use sluice_testkit::shared::SharedWords;

use super::{Link, Mechanism, Receiver, Sender, Task, Waiting, Workload, spinning_on_one_cpu};

pub struct CachelinePingPong {
    read_only: bool,
}

impl CachelinePingPong {
    pub const SHARED: Self = Self { read_only: false };
    pub const READ_ONLY: Self = Self { read_only: true };
}

impl Mechanism for CachelinePingPong {
    fn name(&self) -> &'static str {
        "cacheline"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn label(&self) -> String {
        let variant = match self.read_only {
            false => "spins",
            true => "spins, reads only",
        };
        format!("{} ({variant})", self.name())
    }

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        if task.size > 1 || task.workload != Workload::RequestReply {
            Some("it carries single bytes, one at a time".into())
        } else {
            spinning_on_one_cpu(task)
        }
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Word::shared(self.read_only)?))
    }
}

/// The end of the stream.
const END: u64 = 0x1ff;

/// In its own page, so that nothing else shares the cache line. Bits 9 and up count the messages; the bits below are
/// the byte.
#[derive(Clone)]
struct Word {
    page: Rc<SharedWords>,
    read_only: bool,
}

impl Word {
    fn shared(read_only: bool) -> Result<Self> {
        let page = Rc::new(SharedWords::new(1)?);
        Ok(Self { page, read_only })
    }

    fn atomic(&self) -> &AtomicU64 {
        &self.page.words()[0]
    }
}

impl Link for Word {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(WordSender {
            word: *self,
            count: 0,
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        if self.read_only {
            self.page.make_read_only()?;
        }
        Ok(Box::new(PollingReceiver {
            word: *self,
            count: 0,
        }))
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

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
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

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_arrives_once_and_then_the_end() {
        let word = Word::shared(false).unwrap();
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
        let mut sender = Box::new(Word::shared(false).unwrap()).sender().unwrap();
        assert!(sender.send(b"two").is_err());
    }
}
