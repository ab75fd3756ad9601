// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes of a storm tell each other, in shared memory, which outlives each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::roles::Role;
use crate::support::shared::SharedWords;

/// The number of cgroups.
pub const HOMES: usize = 2;

const OVER: usize = 0;
const LONGEST: usize = OVER + HOMES;
const ISSUED: usize = LONGEST + 2;
const ACKNOWLEDGED: usize = ISSUED + HOMES;
const PEERS: usize = ACKNOWLEDGED + HOMES;
const STEPS: usize = PEERS + HOMES * ROLES;
const ROLES: usize = Role::ALL.len();

/// Of which the longest is kept.
#[derive(Clone, Copy)]
pub enum Time {
    /// From a kill to the end of the process.
    End,
    /// From the end of its peers to the end of a survivor.
    Wait,
}

pub struct Board(SharedWords);

impl Board {
    pub fn new() -> Result<Self> {
        Ok(Board(SharedWords::new(STEPS + ROLES)?))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.words()[index]
    }

    pub fn begin(&self) {
        (0..HOMES).for_each(|home| self.0.set(OVER + home, 0));
    }

    /// The processes of this home are to end.
    pub fn end(&self, home: usize) {
        self.0.set(OVER + home, 1);
    }

    pub fn is_over(&self, home: usize) -> bool {
        self.0.get(OVER + home) != 0
    }

    /// A process has made a step.
    pub fn count(&self, role: Role) {
        self.word(STEPS + role as usize)
            .fetch_add(1, Ordering::Relaxed);
    }

    pub fn steps(&self, role: Role) -> u64 {
        self.0.get(STEPS + role as usize)
    }

    /// The process of this role has, or had, a peer in its current episode.
    pub fn set_peer(&self, home: usize, role: Role, met: bool) {
        self.0.set(PEERS + home * ROLES + role as usize, met.into());
    }

    pub fn has_peer(&self, home: usize, role: Role) -> bool {
        self.0.get(PEERS + home * ROLES + role as usize) != 0
    }

    pub fn keep_longest(&self, of: Time, time: Duration) {
        let micros = time.as_micros() as u64;
        self.word(LONGEST + of as usize)
            .fetch_max(micros, Ordering::Relaxed);
    }

    pub fn longest(&self) -> [Duration; 2] {
        [Time::End, Time::Wait].map(|of| Duration::from_micros(self.0.get(LONGEST + of as usize)))
    }

    /// The next number to set in the durable map of this home.
    pub fn issue(&self, home: usize) -> u64 {
        self.word(ISSUED + home).fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn acknowledge(&self, home: usize, number: u64) {
        self.0.set(ACKNOWLEDGED + home, number);
    }

    /// The last number that was acknowledged, and the last one that was set.
    pub fn durable(&self, home: usize) -> (u64, u64) {
        (self.0.get(ACKNOWLEDGED + home), self.0.get(ISSUED + home))
    }
}
