// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tachyon: a ring in shared memory for one sender and one receiver, with the capacity of Sluice's ring. The receiver
//! always spins, which its polling mode announces to the sender; or it sleeps on a futex, after the spins of the library's
//! documentation (hybrid) or at once. Sending into a full ring fails at once in all of them, so the sender never sleeps: it
//! tries again, and beside a receiver that sleeps it yields before.

mod program;

use std::hint::spin_loop;
use std::path::PathBuf;
use std::rc::Rc;
use std::thread::yield_now;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tachyon_ipc::{Bus, RxGuard, TachyonError};

use super::link::{Read, Write, ensure_fits};
use super::mechanism::{bytes_in_flight, never_sleeping, no_file};
use super::temp_paths::TempPaths;
use super::{Batching, Link, Mechanism, Receiver, Sender, Task, Workload, own_program};
use crate::harness::server::START_TIMEOUT;
use crate::harness::waiting::Waiting;
use program::BenchIpc;

/// In bytes, as the default of Sluice's ring.
pub const CAPACITY: usize = 4 << 20;
/// Streams of long messages are faster with one or the other, depending on the caches. Where processors share one, the 16 MiB of
/// the library's own benchmark are no faster than this.
pub const LARGE_CAPACITY: usize = 8 << 20;
const LONG: usize = 1 << 10;
/// The receiver releases space after this number of messages, so a ring must hold more.
const RELEASE_BATCH: usize = 32;
/// The header of each message.
const HEADER: usize = 64;
/// The time limit for the receiver to listen.
const CONNECT_TIMEOUT: Duration = START_TIMEOUT;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Polling,
    Hybrid,
    Futex,
}

impl Mode {
    /// The number of spins before the receiver sleeps.
    fn spins(self) -> u32 {
        match self {
            Self::Polling => u32::MAX,
            Self::Hybrid => 10_000,
            Self::Futex => 0,
        }
    }
}

/// The capacity of a ring for messages of this size.
fn least_capacity(size: usize) -> usize {
    ((RELEASE_BATCH + 2) * (size + 2 * HEADER)).next_power_of_two()
}

fn long_streams_only(task: &Task) -> Option<String> {
    let is_stream = matches!(task.workload, Workload::Stream | Workload::InPlace);
    let differs = task.size >= LONG && least_capacity(task.size) < LARGE_CAPACITY;
    match is_stream && differs {
        true => never_sleeping(task),
        false => Some("its larger ring is measured with streams of long messages".into()),
    }
}

/// The reason of a sender that cannot sleep.
fn sender_never_sleeps(task: &Task) -> Option<String> {
    match task.workload {
        Workload::Stalled => Some("its sender never sleeps, so its pairs cannot be stalled".into()),
        _ => no_file(task),
    }
}

/// With rings of this capacity, or more if messages need it: LARGE_CAPACITY only with polling.
pub fn mechanism(mode: Mode, capacity: usize) -> Mechanism {
    let is_large = capacity == LARGE_CAPACITY;
    let waiting = match mode {
        // As the default of Sluice's ring, which spins before it sleeps.
        Mode::Polling | Mode::Hybrid => Waiting::Spin,
        Mode::Futex => Waiting::Sleep,
    };
    let capacity = move |size| least_capacity(size).max(capacity);
    // The sockets over which the memory is passed.
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    let own_program = match mode {
        Mode::Polling if !is_large => own_program::erased(BenchIpc(Rc::clone(&paths))),
        _ => None,
    };
    Mechanism {
        own_program,
        label: match mode {
            Mode::Polling if is_large => "tachyon (spins, 8 MiB)".into(),
            Mode::Polling => "tachyon (spins)".into(),
            Mode::Hybrid => "tachyon (hybrid)".into(),
            Mode::Futex => "tachyon (futex)".into(),
        },
        batching: Some(Batching::Together),
        in_flight: Box::new(move |size| bytes_in_flight(capacity(size), HEADER)(size)),
        in_place: true,
        unsupported_reason: Box::new(match mode {
            Mode::Polling if is_large => long_streams_only,
            Mode::Polling => never_sleeping,
            Mode::Hybrid | Mode::Futex => sender_never_sleeps,
        }),
        ..Mechanism::new("tachyon", waiting, move |size| {
            let connection = Connection {
                path: paths.next_path()?,
                capacity: capacity(size),
                mode,
            };
            Ok(Link::new(
                connection,
                Connection::sender,
                Connection::receiver,
            ))
        })
    }
}

struct Connection {
    path: PathBuf,
    capacity: usize,
    mode: Mode,
}

impl Connection {
    fn path(&self) -> Result<&str> {
        let path = self.path.to_str();
        path.context("the path of the temporary directory is not UTF-8; set TMPDIR")
    }

    fn sender(self) -> Result<Sending> {
        let bus = self.connect()?;
        let mode = self.mode;
        Ok(Sending { bus, mode })
    }

    fn connect(&self) -> Result<Bus> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            match Bus::connect(self.path()?) {
                Ok(bus) => return Ok(bus),
                Err(error) if Instant::now() > deadline => {
                    bail!("cannot connect to the receiver: {error}")
                }
                Err(_) => yield_now(),
            }
        }
    }

    fn listen(&self) -> Result<Bus> {
        let bus = Bus::listen(self.path()?, self.capacity)
            .with_context(|| format!("cannot listen at {}", self.path.display()))?;
        if self.mode == Mode::Polling {
            bus.set_polling_mode(1);
        }
        Ok(bus)
    }

    fn receiver(self) -> Result<Receiving> {
        Ok(Receiving {
            bus: self.listen()?,
            spins: self.mode.spins(),
            ended: false,
        })
    }
}

/// Type ids are free for applications.
const MESSAGE: u32 = 1;
/// The end of the stream.
const END: u32 = 2;

struct Sending {
    bus: Bus,
    mode: Mode,
}

impl Sending {
    /// Repeats an attempt while the ring is full. Measured: if a sender is a few nanoseconds slower than the receiver, so that the
    /// ring is always empty, a stream of short messages has a third of the rate. Therefore nothing here costs a call.
    #[inline(always)]
    fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T, TachyonError>) -> Result<T> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(TachyonError::BufferFull) => self.wait_for_space(),
                Err(error) => return Err(error).context("cannot send a message"),
            }
        }
    }

    /// Unflushed messages are flushed before.
    #[cold]
    fn wait_for_space(&self) {
        self.bus.flush();
        match self.mode {
            Mode::Polling => spin_loop(),
            Mode::Hybrid | Mode::Futex => yield_now(),
        }
    }
}

impl Sender for Sending {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.retry(|| self.bus.send(message, MESSAGE))
    }

    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        for message in messages.chunks_exact(size) {
            let slot = self.retry(|| self.bus.acquire_tx(size))?;
            slot.write(message);
            slot.commit_unflushed(size, MESSAGE)?;
        }
        self.bus.flush();
        Ok(())
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let mut slot = self.retry(|| self.bus.acquire_tx(len))?;
        // SAFETY: as many bytes are reserved, nobody else accesses them before the commit, and any bytes are valid.
        write(&mut unsafe { slot.as_mut_slice() }[..len]);
        Ok(slot.commit(len, MESSAGE)?)
    }
}

impl Drop for Sending {
    /// If the receiver misses the end, the harness kills it.
    fn drop(&mut self) {
        let _ = self.retry(|| self.bus.send(&[], END));
    }
}

struct Receiving {
    bus: Bus,
    spins: u32,
    ended: bool,
}

impl Receiver for Receiving {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        let mut length = 0;
        self.receive_in_place(&mut |bytes| {
            length = copy(bytes, message)?;
            Ok(())
        })?;
        Ok(length)
    }

    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let batch = self.bus.drain_batch(messages.len() / size, self.spins)?;
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

    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let received: RxGuard = self.bus.acquire_rx(self.spins)?;
        if received.type_id == END {
            self.ended = true;
            return Ok(0);
        }
        read(received.data())?;
        received.commit()?;
        Ok(1)
    }
}

fn copy(from: &[u8], to: &mut [u8]) -> Result<usize> {
    ensure_fits(from.len(), to.len())?;
    to[..from.len()].copy_from_slice(from);
    Ok(from.len())
}
