// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tachyon: a ring in shared memory for one sender and one receiver, with the capacity of Sluice's ring. The receiver
//! always spins, which its polling mode announces to the sender; or it sleeps on a futex, after the spins of the library's
//! documentation (hybrid) or at once. Sending into a full ring fails at once in all of them, so the sender never sleeps: it
//! tries again, and beside a receiver that sleeps it yields before.

use std::hint::spin_loop;
use std::rc::Rc;
use std::thread::yield_now;

use anyhow::{Context, Result};
use sluice_testkit::workers::Pair;
use tachyon_ipc::{Bus, TachyonError};

use super::link::{MarksEnd, Read, Write, await_peer, copy};
use super::own_program::{Role, Run, own_program};
use super::temp_paths::TempPaths;
use super::{Batching, Link, Mechanism, Receiver, Sender, Workload, bytes_in_flight};
use crate::harness::waiting::Waiting;

/// In bytes, as the default of Sluice's ring.
const CAPACITY: usize = 4 << 20;
/// Streams of long messages are faster with one or the other, depending on the caches. 16 MiB are no faster than this.
const LARGE_CAPACITY: usize = 8 << 20;
const LONG: usize = 1 << 10;
/// The receiver releases space after this number of messages, so a ring must hold more.
const RELEASE_BATCH: usize = 32;
const HEADER: usize = 64;

#[derive(Clone, Copy)]
struct Mode {
    label: &'static str,
    waiting: Waiting,
    /// Of the receiver, before it sleeps.
    spins: u32,
    capacity: usize,
}

const FOREVER: u32 = u32::MAX;

#[rustfmt::skip]
const MODES: [Mode; 4] = [
    Mode { label: "tachyon (spins)", waiting: Waiting::Spin, spins: FOREVER, capacity: CAPACITY },
    Mode { label: "tachyon (spins, 8 MiB)", waiting: Waiting::Spin, spins: FOREVER, capacity: LARGE_CAPACITY },
    // As the default of Sluice's ring, which spins before it sleeps.
    Mode { label: "tachyon (hybrid)", waiting: Waiting::Spin, spins: 10_000, capacity: CAPACITY },
    Mode { label: "tachyon (futex)", waiting: Waiting::Sleep, spins: 0, capacity: CAPACITY },
];

pub fn mechanisms() -> [Mechanism; 4] {
    MODES.map(mechanism)
}

/// The capacity of a ring for messages of this size.
fn least_capacity(size: usize) -> usize {
    ((RELEASE_BATCH + 2) * (size + 2 * HEADER)).next_power_of_two()
}

fn mechanism(mode: Mode) -> Mechanism {
    let (polls, is_large) = (mode.spins == FOREVER, mode.capacity == LARGE_CAPACITY);
    let capacity = move |size| least_capacity(size).max(mode.capacity);
    // The sockets over which the memory is passed.
    let paths = Rc::new(TempPaths::in_directory(std::env::temp_dir()));
    Mechanism {
        own_program: (polls && !is_large).then(|| own_program(&paths, bench_ipc)),
        label: mode.label.into(),
        batching: Some(Batching::Together),
        in_flight: Box::new(move |size| bytes_in_flight(capacity(size), HEADER)(size)),
        in_place: true,
        never_sleeps: polls,
        unsupported_reason: Box::new(move |task| {
            let is_stream = matches!(task.workload, Workload::Stream | Workload::InPlace);
            let differs = task.size >= LONG && least_capacity(task.size) < LARGE_CAPACITY;
            (is_large && !(is_stream && differs))
                .then(|| "its larger ring is measured with streams of long messages".into())
        }),
        ..Mechanism::new("tachyon", mode.waiting, move |size| {
            let connection = Connection {
                path: paths.next_path()?.display().to_string(),
                capacity: capacity(size),
                polls,
            };
            Ok(Link::new(
                connection,
                move |connection| {
                    let bus = connection.connect()?;
                    Ok(MarksEnd(Sending { bus, polls }))
                },
                move |connection| {
                    Ok(Receiving {
                        bus: connection.listen()?,
                        spins: mode.spins,
                        ended: false,
                    })
                },
            ))
        })
    }
}

struct Connection {
    path: String,
    capacity: usize,
    polls: bool,
}

impl Connection {
    fn connect(&self) -> Result<Bus> {
        await_peer("receiver", || Ok(Bus::connect(&self.path).ok()))
    }

    fn listen(&self) -> Result<Bus> {
        let bus = Bus::listen(&self.path, self.capacity)
            .with_context(|| format!("cannot listen at {}", self.path))?;
        if self.polls {
            bus.set_polling_mode(1);
        }
        Ok(bus)
    }
}

/// Type ids are free for applications.
const MESSAGE: u32 = 1;

struct Sending {
    bus: Bus,
    /// The receiver has a processor of its own.
    polls: bool,
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
        match self.polls {
            true => spin_loop(),
            false => yield_now(),
        }
    }
}

impl Sender for Sending {
    #[inline(always)]
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

struct Receiving {
    bus: Bus,
    spins: u32,
    ended: bool,
}

impl Receiver for Receiving {
    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let batch = self.bus.drain_batch(messages.len() / size, self.spins)?;
        let mut bytes = 0;
        for message in &batch {
            self.ended |= message.data().is_empty();
            bytes += copy(message.data(), &mut messages[bytes..])?;
        }
        batch.commit()?;
        Ok(bytes)
    }

    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        if self.ended {
            return Ok(0);
        }
        let received = self.bus.acquire_rx(self.spins)?;
        self.ended = received.data().is_empty();
        if self.ended {
            return Ok(0);
        }
        read(received.data())?;
        received.commit()?;
        Ok(1)
    }
}

const OWN_CAPACITY: usize = 1 << 24;

/// As the library's own benchmark, bench_ipc: rings of 16 MiB, requests by send(), replies written from ring to ring, and
/// a receiver that never sleeps. Streams are the send() and acquire_rx() of its introduction; their receiver announces that it
/// never sleeps, which makes short messages about five times as fast, and which does not make round trips faster.
fn bench_ipc(paths: &Rc<TempPaths>, run: &Run) -> Result<Pair> {
    let connection = || -> Result<_> {
        Ok(Connection {
            path: paths.next_path()?.display().to_string(),
            capacity: OWN_CAPACITY,
            polls: run.round_trips.is_none(),
        })
    };
    let connections = [connection()?, connection()?];
    run.start(connections, |[forward, backward], role, process| {
        let payload = vec![0xab; run.size];
        match role {
            Role::Requester => {
                let (ping, pong) = (forward.connect()?, backward.connect()?);
                process.request(|| {
                    ping.send(&payload, MESSAGE)?;
                    Ok(pong.acquire_rx(FOREVER)?.commit()?)
                })
            }
            Role::Replier => {
                let (ping, pong) = (forward.listen()?, backward.listen()?);
                process.reply(|| {
                    let received = ping.acquire_rx(FOREVER)?;
                    let slot = pong.acquire_tx(received.actual_size)?;
                    slot.write(received.data());
                    let (len, type_id) = (received.actual_size, received.type_id);
                    received.commit()?;
                    slot.commit(len, type_id)?;
                    Ok(1)
                })
            }
            Role::Source => {
                let bus = forward.connect()?;
                process.send(|| {
                    loop {
                        match bus.send(&payload, MESSAGE) {
                            Err(TachyonError::BufferFull) => spin_loop(),
                            other => return other.context("cannot send a message"),
                        }
                    }
                })
            }
            Role::Sink => {
                let bus = forward.listen()?;
                process.receive(|| {
                    bus.acquire_rx(FOREVER)?.commit()?;
                    Ok(1)
                })
            }
        }
    })
}
