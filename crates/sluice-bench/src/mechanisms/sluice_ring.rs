// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring over memfd, without the module: with the default options, and with those that are measured separately.

use std::time::Duration;

use anyhow::{Context, Result};
use sluice::ring::{Consumer, Options, Producer, Socket};

use super::mechanism::{never_sleeping, no_file};
use super::{Batching, Link, Mechanism, Receiver, Sender};
use crate::harness::waiting::Waiting;

/// The name of all variants in the results.
pub const NAME: &str = "sluice-ring-memfd";

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

pub fn mechanism(ring: SluiceRing) -> Mechanism {
    let waiting = match ring {
        SluiceRing::NeverSpins => Waiting::Sleep,
        _ => Waiting::Spin,
    };
    let label = match ring {
        SluiceRing::Default => NAME.into(),
        SluiceRing::NeverSpins => format!("{NAME} (never spins)"),
        SluiceRing::AlwaysSpins => format!("{NAME} (always spins)"),
        SluiceRing::Throughput => format!("{NAME} (throughput)"),
        SluiceRing::Unsealed => format!("{NAME} (always spins, unsealed)"),
    };
    Mechanism {
        label,
        batching: Some(Batching::Together),
        unsupported_reason: Box::new(match ring {
            SluiceRing::AlwaysSpins | SluiceRing::Unsealed => never_sleeping,
            SluiceRing::Default | SluiceRing::NeverSpins | SluiceRing::Throughput => no_file,
        }),
        ..Mechanism::new(NAME, waiting, move |_| link(ring))
    }
}

fn link(ring: SluiceRing) -> Result<Link> {
    let unsealed = ring == SluiceRing::Unsealed;
    let options = Options::new().allow_unsealed(unsealed);
    let options = match ring {
        SluiceRing::Default => options,
        SluiceRing::NeverSpins => options.spin(Duration::ZERO),
        SluiceRing::Throughput => options.throughput(true),
        SluiceRing::AlwaysSpins | SluiceRing::Unsealed => options.spin(Duration::MAX),
    };
    // SAFETY: both ends use this library, in which only the producer writes.
    let options = unsafe { options.unsealed(unsealed) };
    let (sending, receiving) = Socket::pair()?;
    Ok(Link::new(
        (options, sending, receiving),
        |(options, sending, receiving)| {
            drop(receiving);
            options
                .producer(sending)
                .context("cannot set up the producer")
        },
        |(options, sending, receiving)| {
            drop(sending);
            options
                .consumer(receiving)
                .context("cannot set up the consumer")
        },
    ))
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
}
