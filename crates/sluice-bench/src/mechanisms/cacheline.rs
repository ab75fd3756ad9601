// SPDX-License-Identifier: MIT OR Apache-2.0
//! The floor: one word of shared memory, written by one processor and watched by the other. Nothing that crosses between
//! two processors can be faster. It carries single bytes, each overwriting the last, so it is only good for question and answer.
//!
//! Who watches may have the word mapped for reading only, as it is where neither side can harm the other: with some processors a line
//! takes longer then.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, ensure};

use super::{Link, Mechanism, Receiver, Sender, Shape, Task, Waiting, spinning_alone};
use crate::harness::shared::SharedWords;

pub struct Cacheline {
    read_only: bool,
}

impl Cacheline {
    pub const SHARED: Self = Self { read_only: false };
    pub const READ_ONLY: Self = Self { read_only: true };
}

impl Mechanism for Cacheline {
    fn name(&self) -> &'static str {
        "cacheline"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn label(&self) -> String {
        let manner = match self.read_only {
            false => "spins",
            true => "spins, reads only",
        };
        format!("{} ({manner})", self.name())
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        if task.size > 1 || task.shape != Shape::Question {
            Some("it carries single bytes, one at a time".into())
        } else {
            spinning_alone(task)
        }
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        Ok(Box::new(Word::shared(self.read_only)?))
    }
}

/// In place of a byte: nothing more will come.
const END: u64 = 0x1ff;

/// In a page of its own, so that nothing else shares the cache line. Bits 9 and up count the messages; below is the byte.
#[derive(Clone)]
struct Word {
    page: Rc<SharedWords>,
    read_only: bool,
}

impl Word {
    fn shared(read_only: bool) -> Result<Self> {
        let page = Rc::new(SharedWords::new()?);
        Ok(Self { page, read_only })
    }

    fn atomic(&self) -> &AtomicU64 {
        self.page.word(0)
    }
}

impl Link for Word {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        Ok(Box::new(End {
            word: *self,
            count: 0,
        }))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        if self.read_only {
            self.page.only_read()?;
        }
        Ok(Box::new(Watch {
            word: *self,
            count: 0,
        }))
    }
}

struct End {
    word: Word,
    count: u64,
}

impl End {
    fn put(&mut self, content: u64) {
        self.count += 1;
        self.word
            .atomic()
            .store(self.count << 9 | content, Ordering::Release);
    }
}

impl Sender for End {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        ensure!(
            message.len() == 1,
            "a cache line carries messages of 1 byte, not of {}",
            message.len()
        );
        self.put(message[0].into());
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.put(END);
    }
}

struct Watch {
    word: Word,
    count: u64,
}

impl Receiver for Watch {
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
        // Shared within a process as it otherwise is between two.
        let mut sender = End {
            word: word.clone(),
            count: 0,
        };
        let mut receiver = Watch { word, count: 0 };
        let mut byte = [0];
        sender.send(&[0xff]).unwrap();
        assert_eq!(receiver.receive(&mut byte).unwrap(), 1);
        assert_eq!(byte, [0xff]);
        sender.put(END);
        assert_eq!(receiver.receive(&mut byte).unwrap(), 0);
        assert_eq!(receiver.receive(&mut byte).unwrap(), 0);
    }

    #[test]
    fn messages_of_other_sizes_are_refused() {
        let mut sender = Box::new(Word::shared(false).unwrap()).sender().unwrap();
        assert!(sender.send(b"two").is_err());
    }
}
