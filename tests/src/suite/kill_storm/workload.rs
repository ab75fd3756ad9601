// SPDX-License-Identifier: MIT OR Apache-2.0
//! The storm in one cgroup: a process of each role, any of which is killed at any time and replaced.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use nix::sys::signal::Signal;

use super::roles::{self, Role};
use super::shared_state::{SharedState, Time};
use crate::support::child::{Child, spawn};
use crate::support::proc;
use crate::support::time::{Deadline, eventually};

/// The longest time between two rounds of kills, in microseconds.
const PAUSE: u64 = 2000;
/// The most processes that are killed at a time.
const AT_ONCE: usize = 8;

struct Process {
    role: Role,
    child: Child<()>,
}

pub struct Workload<'a> {
    number: usize,
    random: Rng,
    shared: &'a SharedState,
    processes: Vec<Process>,
}

impl<'a> Workload<'a> {
    pub fn new(number: usize, seed: u64, shared: &'a SharedState) -> Self {
        Workload {
            number,
            random: Rng::with_seed(seed),
            shared,
            processes: Vec::new(),
        }
    }

    pub fn run(mut self, kills: usize) -> Result<()> {
        for role in Role::ALL {
            self.start(role)?;
        }
        let mut left = kills;
        while left > 0 {
            std::thread::sleep(Duration::from_micros(self.random.u64(0..=PAUSE)));
            let count = self.random.usize(1..=AT_ONCE).min(left);
            for role in self.kill(count)? {
                self.start(role)?;
            }
            left -= count;
        }
        self.await_steps()?;
        self.end()
    }

    fn start(&mut self, role: Role) -> Result<()> {
        let (cgroup, seed, shared) = (self.number, self.random.u64(..), self.shared);
        let child = spawn(&format!("{role:?}"), || {
            yield_to_daemon();
            roles::run(role, cgroup, seed, shared)
        })?;
        self.processes.push(Process { role, child });
        Ok(())
    }

    /// Kills so many at the same time, waits for their ends, and returns their roles.
    fn kill(&mut self, count: usize) -> Result<Vec<Role>> {
        self.expect_all_running()?;
        self.random.shuffle(&mut self.processes);
        let killed = self.processes.split_off(self.processes.len() - count);
        end_all(killed, self.shared)
    }

    /// No process ends before the storm: one that did tells why.
    fn expect_all_running(&mut self) -> Result<()> {
        for index in 0..self.processes.len() {
            if self.processes[index].child.has_ended()? {
                let ended = self.processes.swap_remove(index);
                ended.child.finish()?;
                bail!("{:?} ended before the storm", ended.role);
            }
        }
        Ok(())
    }

    /// Otherwise the storm has tested little.
    fn await_steps(&mut self) -> Result<()> {
        let mut missing = Vec::new();
        let all = eventually("each role makes a step", || {
            self.expect_all_running()?;
            missing = Role::ALL.to_vec();
            missing.retain(|role| self.shared.steps(*role) == 0);
            Ok(missing.is_empty().then_some(()))
        });
        all.with_context(|| format!("without a step: {missing:?}"))
    }

    /// Kills one side of each kind, whose other side must learn of it. What waits without regard to the ends of others
    /// ends with the channel.
    fn end(mut self) -> Result<()> {
        self.expect_all_running()?;
        self.shared.end(self.number);
        let side = self.number;
        let (killed, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.processes)
            .into_iter()
            .partition(|process| process.role.is_killed_last(side));
        end_all(killed, self.shared)?;
        let (notified, others) = others
            .into_iter()
            .partition(|process| process.role.ends_with_peer());
        let deadline = Deadline::for_event();
        self.await_ends(notified, &deadline, |role| self.provide_peer(role))?;
        self.await_ends(others, &deadline, |_| roles::destroy_all())?;
        roles::destroy_all()
    }

    /// A first peer for a process that may wait for one. A process that had a peer has to learn of its end without
    /// another one, which would wake it.
    fn provide_peer(&self, role: Role) -> Result<()> {
        // A producer may fill a ring that never had a consumer.
        if role == Role::RingProducer || !self.shared.has_peer(self.number, role) {
            roles::open_and_close_peer(role)?;
        }
        Ok(())
    }

    fn await_ends(
        &self,
        survivors: Vec<Process>,
        deadline: &Deadline,
        help: impl Fn(Role) -> Result<()>,
    ) -> Result<()> {
        let since = Instant::now();
        for survivor in survivors {
            let (role, child) = (survivor.role, survivor.child);
            while !child.has_ended()? {
                ensure!(
                    !deadline.passed(),
                    "{role:?} did not end within {:?}: {}",
                    deadline.span(),
                    proc::describe(child.pid())
                );
                help(role)?;
                std::thread::sleep(Duration::from_micros(500));
            }
            self.shared.keep_longest(Time::Wait, since.elapsed());
            child.finish()?;
        }
        Ok(())
    }
}

/// Beside so many processes the daemon would hardly have started when it is killed again.
fn yield_to_daemon() {
    // SAFETY: takes a number only.
    unsafe { libc::nice(10) };
}

fn end_all(processes: Vec<Process>, shared: &SharedState) -> Result<Vec<Role>> {
    let since = Instant::now();
    for process in &processes {
        process.child.signal(Signal::SIGKILL)?;
    }
    processes
        .into_iter()
        .map(|process| {
            process.child.wait_end()?;
            shared.keep_longest(Time::End, since.elapsed());
            Ok(process.role)
        })
        .collect()
}
