// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two processes of a measurement: their mechanism, their processors, and their cgroup.

use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::Pid;
use sluice_testkit::cgroup::Cgroup;
use sluice_testkit::interrupt;
use sluice_testkit::workers::{Pair, Side, Start};

use crate::harness::pinning;
use crate::harness::server::START_TIMEOUT;
use crate::mechanisms::{Ends, Exchange, Link, Mechanism, Receiver, Sender};

/// The time limit for setting up processes, which may start a server, and for their exit after the measured time.
pub const PROCESS_TIMEOUT: Duration = START_TIMEOUT.saturating_add(Duration::from_secs(30));

#[derive(Clone)]
pub struct Setup {
    pub mechanism: Rc<Mechanism>,
    pub confinement: Confinement,
    pub size: usize,
}

impl Setup {
    /// Runs a sender and a receiver over a new link. Each opens its end, moves to its processor, and then begins with its code.
    pub fn run(
        &self,
        limit: Duration,
        sender: impl Fn(Box<dyn Sender>, &mut Start) -> Result<Vec<u64>>,
        receiver: impl Fn(Box<dyn Receiver>, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<[Vec<u64>; 2]> {
        let link = self.mechanism.link(self.size)?;
        run(link, limit, |side, link: Link, start| match side {
            Side::First => {
                let end = link.sender()?;
                self.enter(side)?;
                sender(end, start)
            }
            Side::Second => {
                let end = link.receiver()?;
                self.enter(side)?;
                receiver(end, start)
            }
        })
    }

    /// Runs two processes over a new link for each direction, or over one connection, in the same way.
    pub fn run_both_ways(
        &self,
        limit: Duration,
        process: impl Fn(Side, Ends, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<[Vec<u64>; 2]> {
        run(self.exchange()?, limit, |side, open: Exchange, start| {
            let ends = open(side)?;
            self.enter(side)?;
            process(side, ends, start)
        })
    }

    fn exchange(&self) -> Result<Exchange> {
        if let Some(exchange) = &self.mechanism.exchange {
            return exchange(self.size);
        }
        let link = || self.mechanism.link(self.size);
        let [forward, backward] = [link()?, link()?];
        Ok(Box::new(|side| match side {
            Side::First => Ok((forward.sender()?, backward.receiver()?)),
            Side::Second => {
                let receiver = forward.receiver()?;
                Ok((backward.sender()?, receiver))
            }
        }))
    }

    pub fn links(&self, count: usize) -> Result<Vec<Link>> {
        (0..count).map(|_| self.mechanism.link(self.size)).collect()
    }

    /// Called in a process once its end is open, and with it the threads of a library have started.
    pub fn enter(&self, side: Side) -> Result<()> {
        self.confinement
            .enter_with(side, self.mechanism.own_threads)
    }
}

/// Runs two processes that share what exists before the fork. Each calls Start::wait() once it is set up. Returns the numbers of both.
pub fn run<T>(
    shared: T,
    limit: Duration,
    process: impl Fn(Side, T, &mut Start) -> Result<Vec<u64>>,
) -> Result<[Vec<u64>; 2]> {
    let mut pair = Pair::start(shared, PROCESS_TIMEOUT, process)?;
    pair.go()?;
    pair.finish(limit)
}

/// Sleeps, but returns an error after an interrupt.
pub fn interruptible_sleep(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        interrupt::check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        sleep(left.min(Duration::from_millis(100)));
    }
}

pub fn existing(file: Option<BorrowedFd<'_>>) -> Result<BorrowedFd<'_>> {
    file.context("this suite needs a mechanism with a file")
}

#[derive(Clone)]
pub struct Confinement {
    pub cgroup: Option<Cgroup>,
    pub cpus: [usize; 2],
}

impl Confinement {
    pub fn enter(&self, side: Side) -> Result<()> {
        self.enter_with(side, false)
    }

    /// `own_threads`: the scheduler places the other threads of this process, which a library has started.
    pub fn enter_with(&self, side: Side, own_threads: bool) -> Result<()> {
        self.enter_cgroup()?;
        let cpu = &[self.cpus[side as usize]];
        match own_threads {
            true => pinning::confine_thread(Pid::from_raw(0), cpu),
            false => pinning::confine(cpu),
        }
    }

    /// For processes outside a pair: the scheduler chooses between both processors.
    pub fn enter_any_cpu(&self) -> Result<()> {
        self.enter_cgroup()?;
        pinning::confine(&self.cpus)
    }

    fn enter_cgroup(&self) -> Result<()> {
        self.cgroup.as_ref().map_or(Ok(()), Cgroup::enter)
    }
}

#[cfg(test)]
pub mod tests {
    use std::sync::mpsc;
    use std::thread::{available_parallelism, spawn};

    use sluice_testkit::workers::serial;

    use super::*;
    use crate::harness::pinning::Placement;
    use crate::mechanisms::pipe;

    pub fn setup(mechanism: Mechanism, size: usize) -> Setup {
        setup_in(Placement::SameCpu, Rc::new(mechanism), size)
    }

    pub fn setup_in(placement: Placement, mechanism: Rc<Mechanism>, size: usize) -> Setup {
        let cpus = placement.cpus().unwrap().unwrap();
        Setup {
            mechanism,
            confinement: Confinement { cgroup: None, cpus },
            size,
        }
    }

    #[test]
    fn threads_of_a_library_are_left_to_the_scheduler() {
        let _serial = serial();
        for own_threads in [false, true] {
            let mechanism = Mechanism {
                own_threads,
                ..pipe::mechanism()
            };
            let setup = setup(mechanism, 1);
            let cpus = || available_parallelism().unwrap().get() as u64;
            let process = |_, (), start: &mut Start| {
                let (tell, told) = mpsc::channel();
                let other = spawn(move || told.recv().map(|()| cpus()));
                setup.enter(Side::First)?;
                start.wait()?;
                tell.send(())?;
                Ok(vec![cpus(), other.join().unwrap()?])
            };
            let [first, _] = run((), PROCESS_TIMEOUT, process).unwrap();
            assert_eq!(first, [1, if own_threads { cpus() } else { 1 }]);
        }
    }
}
