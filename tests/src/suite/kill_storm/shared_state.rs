// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the processes of a storm tell each other, in shared memory, which outlives each of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;

use super::roles::Role;
use crate::support::shared::SharedWords;

/// The number of keys of a durable map. A number is set under its remainder, so that the next KEYS - 1 numbers do not hide its loss.
pub const KEYS: usize = 4096;
/// The number of cgroups.
pub const CGROUPS: usize = 2;

const ENDED: usize = 0;
const LONGEST: usize = ENDED + CGROUPS;
const ISSUED: usize = LONGEST + 2;
const ACKNOWLEDGED: usize = ISSUED + CGROUPS;
const PEERS: usize = ACKNOWLEDGED + CGROUPS * KEYS;
const STEPS: usize = PEERS + CGROUPS * ROLES;
const ROLES: usize = Role::ALL.len();

/// Of which the longest is kept.
#[derive(Clone, Copy)]
pub enum Time {
    /// From a kill to the end of the process.
    End,
    /// From the end of its peers to the end of a survivor.
    Wait,
}

pub struct SharedState(SharedWords);

impl SharedState {
    pub fn new() -> Result<Self> {
        Ok(SharedState(SharedWords::new(STEPS + ROLES)?))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0.words()[index]
    }

    pub fn begin(&self) {
        (0..CGROUPS).for_each(|cgroup| self.0.set(ENDED + cgroup, 0));
    }

    /// The processes of this cgroup are to end.
    pub fn end(&self, cgroup: usize) {
        self.0.set(ENDED + cgroup, 1);
    }

    pub fn has_ended(&self, cgroup: usize) -> bool {
        self.0.get(ENDED + cgroup) != 0
    }

    /// A process has made a step.
    pub fn count(&self, role: Role) {
        self.word(STEPS + role as usize)
            .fetch_add(1, Ordering::Relaxed);
    }

    pub fn steps(&self, role: Role) -> u64 {
        self.0.get(STEPS + role as usize)
    }

    /// The process of this role has, or had, a peer in its current iteration.
    pub fn set_peer(&self, cgroup: usize, role: Role, met: bool) {
        self.0
            .set(PEERS + cgroup * ROLES + role as usize, met.into());
    }

    pub fn has_peer(&self, cgroup: usize, role: Role) -> bool {
        self.0.get(PEERS + cgroup * ROLES + role as usize) != 0
    }

    pub fn keep_longest(&self, of: Time, time: Duration) {
        let micros = time.as_micros() as u64;
        self.word(LONGEST + of as usize)
            .fetch_max(micros, Ordering::Relaxed);
    }

    pub fn longest(&self) -> [Duration; 2] {
        [Time::End, Time::Wait].map(|of| Duration::from_micros(self.0.get(LONGEST + of as usize)))
    }

    /// The next number to set in the durable map of this cgroup.
    pub fn issue(&self, cgroup: usize) -> u64 {
        self.word(ISSUED + cgroup).fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The last number that was issued.
    pub fn issued(&self, cgroup: usize) -> u64 {
        self.0.get(ISSUED + cgroup)
    }

    pub fn acknowledge(&self, cgroup: usize, number: u64) {
        let key = number as usize % KEYS;
        self.0.set(ACKNOWLEDGED + cgroup * KEYS + key, number);
    }

    /// The last number that was acknowledged under the key; 0: none.
    pub fn acknowledged(&self, cgroup: usize, key: usize) -> u64 {
        self.0.get(ACKNOWLEDGED + cgroup * KEYS + key)
    }
}
