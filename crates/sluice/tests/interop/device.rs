// SPDX-License-Identifier: MIT OR Apache-2.0
//! Device rings: both sides open the channel by its name, which the other one gets in an environment variable. Either creates it.

use std::process::Command;

use sluice::Ring;
use sluice::ring::{Consumer, Producer};
use sluice_hostile::unused_name;

pub use super::super::options::Options;

/// Fifty laps around a ring of 4096 bytes: Python takes milliseconds per record on an emulated machine.
pub const RECORDS: usize = 200;

/// Fewer, which are still many times the capacity.
pub const MANY: usize = 50;

/// How the other side sleeps, whether it is registered with membarrier(2), and its batch size.
pub const WAITS: [&str; 4] = [
    "--how wait",
    "--how poll",
    "--how wait --unregistered --spins 100",
    "--how poll --unregistered --batch 2",
];

/// With a spinning library, which never sleeps and only wakes the other side.
pub const SLEEPING_WAITS: [&str; 2] = [WAITS[0], WAITS[1]];

/// How the other side can sleep.
pub const HOW: [&str; 2] = ["wait", "poll"];

const CHANNEL: &str = "SLUICE_CHANNEL";

/// The smallest ring, which is full soonest.
pub fn small() -> Options {
    Options::new().capacity(4096)
}

/// What a side is set up with.
#[derive(Debug)]
pub struct End(String);

/// Unlinks the channel, which is persistent: a side may have ended when the other one comes.
#[derive(Debug)]
pub struct Guard(String);

impl Drop for Guard {
    fn drop(&mut self) {
        // It does not exist if both sides failed.
        let _ = Ring::named(&self.0).unlink();
    }
}

impl End {
    /// One for this process, and one for another.
    pub fn pair() -> (Self, Self, Guard) {
        let name = unused_name();
        (Self(name.clone()), Self(name.clone()), Guard(name))
    }

    pub fn give_to(self, process: &mut Command) {
        process.env(CHANNEL, self.0);
    }

    /// The one that this process was given.
    pub fn given() -> Self {
        Self(std::env::var(CHANNEL).expect("no channel"))
    }

    pub fn producer(self, options: &Options) -> Producer {
        let ring = options.named(&self.0).create(true).persistent(true);
        ring.producer().expect("no ring")
    }

    pub fn consumer(self, options: &Options) -> Consumer {
        let ring = options.named(&self.0).create(true).persistent(true);
        ring.consumer().expect("no ring")
    }
}
