// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring over memfd, without the module: with the default options, and with those that are measured separately.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::{Context, Result};
use sluice::ring::{Consumer, Options, Producer, Socket};

use super::{Batching, Link, Mechanism, Receiver, Sender, Task, Waiting, never_sleeping, no_file};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SluiceRing {
    Default,
    NeverSpins,
    AlwaysSpins,
    /// With the option for throughput.
    Throughput,
    /// Always spins, in memory that the consumer could write to, as in the third-party libraries.
    Unsealed,
}

impl Mechanism for SluiceRing {
    fn name(&self) -> &'static str {
        "sluice-ring-memfd"
    }

    fn waiting(&self) -> Waiting {
        match self {
            Self::NeverSpins => Waiting::Sleep,
            Self::Default | Self::AlwaysSpins | Self::Throughput | Self::Unsealed => Waiting::Spin,
        }
    }

    fn label(&self) -> String {
        let options = match self {
            Self::Default => return self.name().to_string(),
            Self::NeverSpins => "never spins",
            Self::AlwaysSpins => "always spins",
            Self::Throughput => "throughput",
            Self::Unsealed => "always spins, unsealed",
        };
        format!("{} ({options})", self.name())
    }

    fn unsupported_reason(&self, task: &Task) -> Option<String> {
        match self {
            Self::AlwaysSpins | Self::Unsealed => never_sleeping(task),
            Self::Default | Self::NeverSpins | Self::Throughput => no_file(task),
        }
    }

    fn batching(&self) -> Option<Batching> {
        Some(Batching::Together)
    }

    fn link(&self, _size: usize) -> Result<Box<dyn Link>> {
        let (sending, receiving) = Socket::pair()?;
        let unsealed = *self == Self::Unsealed;
        let mut options = Options::new().allow_unsealed(unsealed);
        match self {
            Self::Default => {}
            Self::NeverSpins => options = options.spin(Duration::ZERO),
            Self::Throughput => options = options.throughput(true),
            Self::AlwaysSpins | Self::Unsealed => options = options.spin(Duration::MAX),
        }
        // SAFETY: both ends use this library, in which only the producer writes.
        let options = unsafe { options.unsealed(unsealed) };
        Ok(Box::new(Pair {
            options,
            sending,
            receiving,
        }))
    }
}

struct Pair {
    options: Options,
    sending: Socket,
    receiving: Socket,
}

impl Link for Pair {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        drop(self.receiving);
        let producer = self.options.producer(self.sending);
        Ok(Box::new(producer.context("cannot set up the producer")?))
    }

    fn receiver(self: Box<Self>) -> Result<Box<dyn Receiver>> {
        drop(self.sending);
        let consumer = self.options.consumer(self.receiving);
        Ok(Box::new(consumer.context("cannot set up the consumer")?))
    }
}

impl Sender for Producer {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        Ok(Producer::send(self, message)?)
    }

    fn send_batch(&mut self, messages: &[u8], size: usize) -> Result<()> {
        let mut batch = self.batch();
        for message in messages.chunks_exact(size) {
            batch.send(message)?;
        }
        Ok(())
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Receiver for Consumer {
    fn receive(&mut self, message: &mut [u8]) -> Result<usize> {
        Ok(self.recv(message)?.unwrap_or(0))
    }

    fn receive_batch(&mut self, messages: &mut [u8], size: usize) -> Result<usize> {
        let Some(mut batch) = self.batch()? else {
            return Ok(0);
        };
        let mut bytes = 0;
        for buffer in messages.chunks_exact_mut(size) {
            match batch.recv(buffer)? {
                Some(length) => bytes += length,
                None => break,
            }
        }
        Ok(bytes)
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
