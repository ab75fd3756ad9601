// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tachyon: a ring in shared memory for one sender and one receiver. The receiver never stops spinning, which its polling mode
//! spares the sender to look after, and the ring is as large as ours is.

use std::hint::spin_loop;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tachyon_ipc::{Bus, RxGuard, TachyonError, TxGuard};

use super::places::Places;
use super::{Batching, Link, Mechanism, Receiver, Sender, Task, Waiting, never_sleeping};

/// In bytes; long messages were slower in a ring of 16 MiB, which does not stay in the processors' caches.
const CAPACITY: usize = 1 << 20;
/// The receiver gives room back after so many messages, and a ring has to hold more than that.
const RETURNED_AT_ONCE: usize = 32;
/// Before each message.
const HEADER: usize = 64;
/// How often the receiver looks before it sleeps: it does not.
const SPINS: u32 = u32::MAX;
/// Until the receiver listens.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Tachyon {
    /// Of the sockets over which the memory is handed.
    places: Places,
}

impl Tachyon {
    pub fn new() -> Self {
        Self {
            places: Places::below(std::env::temp_dir()),
        }
    }
}

impl Mechanism for Tachyon {
    fn name(&self) -> &'static str {
        "tachyon"
    }

    fn waiting(&self) -> Waiting {
        Waiting::Spin
    }

    fn obstacle(&self, task: &Task) -> Option<String> {
        never_sleeping(task)
    }

    fn batching(&self) -> Option<Batching> {
        Some(Batching::Together)
    }

    fn link(&self, size: usize) -> Result<Box<dyn Link>> {
        let least = 2 * RETURNED_AT_ONCE * (size + 2 * HEADER);
        Ok(Box::new(Meeting {
            path: self.places.fresh()?,
            capacity: least.next_power_of_two().max(CAPACITY),
        }))
    }
}

struct Meeting {
    path: PathBuf,
    capacity: usize,
}

impl Meeting {
    fn path(&self) -> Result<&str> {
        let path = self.path.to_str();
        path.context("the temporary directory has a name that is no text; set TMPDIR to another")
    }
}

impl Link for Meeting {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match Bus::connect(self.path()?) {
                Ok(bus) => return Ok(Box::new(Sending { bus })),
                Err(error) if Instant::now() > deadline => {
                    bail!("cannot connect to the receiving side: {error}")
                }
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        let bus = Bus::listen(self.path()?, self.capacity)
            .with_context(|| format!("cannot listen at {}", self.path.display()))?;
        bus.set_polling_mode(1);
        Ok(Box::new(Receiving { bus, ended: false }))
    }
}

/// Types are the caller's to choose.
const MESSAGE: u32 = 1;
/// In place of a message: nothing more will come.
const END: u32 = 2;

struct Sending {
    bus: Bus,
}

impl Sending {
    /// Room for a message. What was sent and not shown to the receiver yet is shown while it waits for some.
    fn room(&self, length: usize) -> Result<TxGuard<'_>> {
        loop {
            match self.bus.acquire_tx(length) {
                Err(TachyonError::BufferFull) => {
                    self.bus.flush();
                    spin_loop();
                }
                other => return other.context("cannot send a message"),
            }
        }
    }
}

impl Sender for Sending {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let room = self.room(message.len())?;
        room.write(message);
        Ok(room.commit(message.len(), MESSAGE)?)
    }

    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        for message in messages.chunks_exact(size) {
            let room = self.room(size)?;
            room.write(message);
            room.commit_unflushed(size, MESSAGE)?;
        }
        self.bus.flush();
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for Sending {
    /// A receiver that does not get it is ended by the harness.
    fn drop(&mut self) {
        if let Ok(room) = self.room(0) {
            let _ = room.commit(0, END);
        }
    }
}

struct Receiving {
    bus: Bus,
    ended: bool,
}

impl Receiver for Receiving {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let received: RxGuard = self.bus.acquire_rx(SPINS)?;
        if received.type_id == END {
            self.ended = true;
            return Ok(0);
        }
        let length = copy(received.data(), message)?;
        received.commit()?;
        Ok(length)
    }

    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let batch = self.bus.drain_batch(messages.len() / size, SPINS)?;
        let mut bytes = 0;
        for message in &batch {
            if message.type_id() == END {
                self.ended = true;
                break;
            }
            bytes += copy(message.data(), &mut messages[bytes..])?;
        }
        batch.commit()?;
        Ok(bytes)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> Result<usize> {
    ensure!(
        from.len() <= to.len(),
        "a message of {} bytes does not fit where {} were expected",
        from.len(),
        to.len()
    );
    to[..from.len()].copy_from_slice(from);
    Ok(from.len())
}
