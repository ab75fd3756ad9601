// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring in a channel of the module, and over memfd, without the module. Its variants are measured separately. All
//! channels have the same name: each link uses its own cgroup, which both processes enter to open the ring, and may then
//! leave, because an endpoint stays with the ring on which it was opened.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice::Ring;
use sluice::ring::{Consumer, Producer, SetupError, Socket, SocketOptions};
use sluice_testkit::cgroup::{Cgroup, Tree};

use super::link::{Read, Write};
use super::{Batching, Link, Mechanism, Receiver, Sender, bytes_in_flight};
use crate::harness::waiting::Waiting;

/// The names of all variants in the results.
pub const NAME: &str = "sluice-ring";
pub const MEMFD: &str = "sluice-ring-memfd";
const CHANNEL: &str = "bench";

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    Default,
    NeverSpins,
    AlwaysSpins,
    /// Always spins, in memory that the consumer could write to, as in the third-party libraries. Only over memfd.
    Unsealed,
}

/// The default.
const CAPACITY: usize = 4 << 20;
const LARGEST_MESSAGE: usize = CAPACITY / 2 - 8;

impl Variant {
    fn mechanism(
        self,
        name: &'static str,
        link: impl Fn(usize) -> Result<Link> + 'static,
    ) -> Mechanism {
        let (waiting, label) = match self {
            Self::Default => (Waiting::Spin, name.into()),
            Self::NeverSpins => (Waiting::Sleep, format!("{name} (never spins)")),
            Self::AlwaysSpins => (Waiting::Spin, format!("{name} (always spins)")),
            Self::Unsealed => (Waiting::Spin, format!("{name} (always spins, unsealed)")),
        };
        Mechanism {
            label,
            batching: Some(Batching::Together),
            in_place: true,
            never_sleeps: matches!(self, Self::AlwaysSpins | Self::Unsealed),
            // The overhead is the header of a record.
            in_flight: bytes_in_flight(CAPACITY, 8),
            ..Mechanism::new(name, waiting, link)
        }
    }

    /// None: the default of the library.
    fn spin(self) -> Option<Duration> {
        match self {
            Self::Default => None,
            Self::NeverSpins => Some(Duration::ZERO),
            Self::AlwaysSpins | Self::Unsealed => Some(Duration::MAX),
        }
    }

    /// The options of both sides over memfd.
    fn options(self, size: usize) -> SocketOptions {
        let options = SocketOptions::new().capacity(capacity(size));
        match self.spin() {
            Some(limit) => options.spin_limit(limit),
            None => options,
        }
    }

    /// The options of both sides in the module. A producer may close its side before the consumer opens the ring, which must not end
    /// with it then.
    fn named(self, size: usize) -> sluice::Options<Ring> {
        let ring = Ring::named(CHANNEL).create(true).persistent(true);
        let ring = ring.capacity(capacity(size));
        match self.spin() {
            Some(limit) => ring.spin_limit(limit),
            None => ring,
        }
    }
}

/// The default, unless messages of this size do not fit.
fn capacity(size: usize) -> u64 {
    let bytes = match size > LARGEST_MESSAGE {
        true => (4 * size).next_power_of_two(),
        false => CAPACITY,
    };
    bytes as u64
}

pub fn mechanism(tree: &Rc<Tree>, variant: Variant) -> Mechanism {
    let own_cgroups = Some(Rc::clone(tree));
    let tree = Rc::clone(tree);
    Mechanism {
        own_cgroups,
        ..variant.mechanism(NAME, move |size| {
            Ok(Link::new(
                (tree.create_temporary()?, variant.named(size)),
                |(cgroup, ring)| open(&cgroup, || ring.producer()),
                |(cgroup, ring)| open(&cgroup, || ring.consumer()),
            ))
        })
    }
}

/// Opens one side; the first of the two creates the ring.
fn open<T>(cgroup: &Cgroup, side: impl FnOnce() -> Result<T, SetupError>) -> Result<T> {
    cgroup.enter()?;
    side().context(
        "cannot open a ring; check that the module is loaded and cgroup v2 is mounted; see 'dmesg | tail'",
    )
}

pub fn over_memfd(variant: Variant) -> Mechanism {
    variant.mechanism(MEMFD, move |size| {
        let unsealed = variant == Variant::Unsealed;
        let options = variant.options(size).allow_unsealed(unsealed);
        // SAFETY: both ends use this library, in which only the producer writes.
        let options = unsafe { options.unsealed(unsealed) };
        let (sending, receiving) = Socket::pair()?;
        Ok(Link::new(
            (options, sending, receiving),
            |(options, sending, receiving)| {
                drop(receiving);
                Ok(options.producer(sending)?)
            },
            |(options, sending, receiving)| {
                drop(sending);
                Ok(options.consumer(receiving)?)
            },
        ))
    })
}

impl Sender for Producer {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        Ok(Producer::send(self, message)?)
    }

    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut batch = Producer::send_batch(self);
        for message in messages.chunks_exact(size) {
            batch.send(message)?;
        }
        Ok(())
    }

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let mut room = self.reserve(len)?;
        write(&mut room);
        room.commit();
        Ok(())
    }
}

impl Receiver for Consumer {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        Ok(self.recv_into(message)?.unwrap_or(0))
    }

    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        let Some(mut batch) = self.recv_batch()? else {
            return Ok(0);
        };
        let mut bytes = 0;
        for buffer in messages.chunks_exact_mut(size) {
            match batch.recv_into(buffer)? {
                Some(length) => bytes += length,
                None => break,
            }
        }
        Ok(bytes)
    }

    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        let Some(record) = self.recv()? else {
            return Ok(0);
        };
        // SAFETY: the producer's process is one of the benchmark, which does not write to a record after its commit.
        read(unsafe { record.as_slice() })?;
        Ok(1)
    }
}
