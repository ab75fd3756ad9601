// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Sluice's rings over both carriers have in common: the variants that are measured separately, and the two ends.

use std::time::Duration;

use anyhow::Result;
use sluice::ring::{Consumer, Options, Producer};

use super::link::{Read, Write};
use super::mechanism::{bytes_in_flight, never_sleeping, no_file};
use super::{Batching, Link, Mechanism, Receiver, Sender, Task, Workload};
use crate::harness::waiting::Waiting;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// With the default options.
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
    pub fn mechanism(
        self,
        name: &'static str,
        link: impl Fn(usize) -> Result<Link> + 'static,
    ) -> Mechanism {
        let waiting = match self {
            Self::NeverSpins => Waiting::Sleep,
            _ => Waiting::Spin,
        };
        Mechanism {
            label: match self {
                Self::Default => name.into(),
                Self::NeverSpins => format!("{name} (never spins)"),
                Self::AlwaysSpins => format!("{name} (always spins)"),
                Self::Unsealed => format!("{name} (always spins, unsealed)"),
            },
            batching: Some(Batching::Together),
            in_place: true,
            unsupported_reason: Box::new(match self {
                Self::AlwaysSpins | Self::Unsealed => always_spinning,
                Self::Default | Self::NeverSpins => no_file,
            }),
            // The overhead is the header of a record.
            in_flight: bytes_in_flight(CAPACITY, 8),
            ..Mechanism::new(name, waiting, link)
        }
    }

    /// The options of both sides for messages of this size: the defaults, but for the capacity if a message does not fit.
    pub fn options(self, size: usize) -> Options {
        let options = match size > LARGEST_MESSAGE {
            true => Options::new().capacity((4 * size).next_power_of_two() as u64),
            false => Options::new(),
        };
        match self {
            Self::Default => options,
            Self::NeverSpins => options.spin(Duration::ZERO),
            Self::AlwaysSpins | Self::Unsealed => options.spin(Duration::MAX),
        }
    }
}

fn always_spinning(task: &Task) -> Option<String> {
    match task.workload {
        Workload::SharedName => {
            Some("it never sleeps, so pairs that share processors would delay each other".into())
        }
        _ => never_sleeping(task),
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

    fn send_in_place(&mut self, len: usize, write: Write<'_>) -> Result<()> {
        let mut room = self.reserve(len)?;
        write(&mut room);
        room.commit();
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

    fn receive_in_place(&mut self, read: Read<'_>) -> Result<usize> {
        let Some(record) = self.peek()? else {
            return Ok(0);
        };
        // SAFETY: the producer's process is that of the benchmark, which does not write to a record after its commit.
        read(unsafe { record.as_slice() })?;
        record.release();
        Ok(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::sluice_ring_memfd;

    #[test]
    fn only_the_default_has_the_plain_name_and_other_settings_have_their_own() {
        let all = [
            Variant::Default,
            Variant::NeverSpins,
            Variant::AlwaysSpins,
            Variant::Unsealed,
        ];
        let labels = all.map(|one| sluice_ring_memfd::mechanism(one).label);
        assert_eq!(labels[0], sluice_ring_memfd::NAME);
        for (number, label) in labels.iter().enumerate() {
            assert!(!labels[..number].contains(label), "{label} twice");
        }
        let text = |options: Options| format!("{options:?}");
        assert_eq!(text(Variant::Default.options(64)), text(Options::new()));
        for setting in [Variant::NeverSpins, Variant::AlwaysSpins] {
            assert_ne!(text(setting.options(64)), text(Options::new()));
        }
    }
}
