// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that work together. They are forked, so that they inherit pipes and shared memory without a name. Each reports
//! that it is ready, all start together, and each returns its numbers.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::wait::WaitStatus;
use nix::unistd::pipe2;

use crate::process::{self, Fork, Process};
use crate::time::Deadline;
use crate::{clock, interrupt, poll, proc};

const READY: u8 = b'r';
const DONE: u8 = b'd';
const FAILED: u8 = b'f';
/// A wait looks for an interrupt this often.
const INTERRUPT_INTERVAL: Duration = Duration::from_millis(200);
/// For a process after the failure of its peer.
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    First,
    Second,
}

/// Reports that a process is set up, and waits until all are.
pub struct Start {
    report: File,
    go: File,
}

impl Start {
    pub fn wait(&mut self) -> Result<()> {
        self.report.write_all(&[READY])?;
        self.go
            .read_exact(&mut [0])
            .context("the benchmark ended before the start")
    }
}

/// One of the processes; killed when dropped.
pub struct Worker {
    process: Process,
    report: File,
    go: File,
}

impl Worker {
    fn fork<T>(
        shared: &mut Option<T>,
        role: impl FnOnce(T, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<Self> {
        let (report, report_out) = pipe2(OFlag::O_CLOEXEC)?;
        let (go_in, go) = pipe2(OFlag::O_CLOEXEC)?;
        match process::fork()? {
            Fork::Child => {
                drop((report, go));
                let start = Start {
                    report: report_out.into(),
                    go: go_in.into(),
                };
                run_child(
                    start,
                    || {
                        shared
                            .take()
                            .context("the shared state is taken once in each process")
                    },
                    role,
                )
            }
            Fork::Parent(process) => Ok(Self {
                process,
                report: report.into(),
                go: go.into(),
            }),
        }
    }

    fn await_ready(&mut self, deadline: &Deadline) -> Result<()> {
        match self.next_byte(deadline)? {
            READY => Ok(()),
            _ => Err(self.failure()),
        }
    }

    fn go(&mut self) -> Result<()> {
        self.go
            .write_all(&[1])
            .context("a measured process ended before it was started")
    }

    fn finish(&mut self, deadline: &Deadline) -> Result<Vec<u64>> {
        if self.next_byte(deadline)? != DONE {
            return Err(self.failure());
        }
        let values = decode(&self.read_rest(deadline)?)?;
        // The end of the report is not success: the process may have been killed in the middle.
        match self.process.wait(deadline)? {
            Some(WaitStatus::Exited(_, 0)) => Ok(values),
            Some(status) => {
                bail!("a measured process failed after its report: {status:?}; see 'dmesg | tail'")
            }
            None => bail!("a measured process did not end after its report; see 'dmesg | tail'"),
        }
    }

    /// What is left of the report.
    fn read_rest(&mut self, deadline: &Deadline) -> Result<Vec<u8>> {
        poll::read_to_end(&self.report, |report| {
            await_readable(&[report], deadline).map(drop)
        })
    }

    fn next_byte(&mut self, deadline: &Deadline) -> Result<u8> {
        await_readable(&[&self.report], deadline)?;
        let mut byte = [0];
        self.report
            .read_exact(&mut byte)
            .context("a measured process died without a report; see 'dmesg | tail'")?;
        Ok(byte[0])
    }

    /// Fails if the process has ended.
    fn expect_alive(&mut self) -> Result<()> {
        let report = PollFd::new(self.report.as_fd(), PollFlags::POLLIN);
        if nix::poll::poll(&mut [report], PollTimeout::ZERO)? == 0 {
            return Ok(());
        }
        match self.next_byte(&Deadline::after(EXIT_TIMEOUT))? {
            FAILED => Err(self.failure()),
            _ => bail!("a measured process ended too early"),
        }
    }

    fn failure(&mut self) -> anyhow::Error {
        match self.read_rest(&Deadline::after(EXIT_TIMEOUT)) {
            Ok(text) => anyhow!("{}", String::from_utf8_lossy(&text)),
            Err(error) => {
                anyhow!("a measured process failed; cannot read the reason: {error:#}")
            }
        }
    }

    fn context_switches(&self) -> Result<u64> {
        let switches = proc::context_switches(self.process.pid())?;
        Ok(switches.voluntary + switches.involuntary)
    }

    fn cpu_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(self.process.pid())
    }
}

/// The body of a forked process.
fn run_child<T>(
    mut start: Start,
    take: impl FnOnce() -> Result<T>,
    role: impl FnOnce(T, &mut Start) -> Result<Vec<u64>>,
) -> ! {
    let outcome = process::outcome(|| {
        interrupt::restore()?;
        set_pdeathsig(Signal::SIGKILL)?;
        role(take()?, &mut start)
    });
    let message = match outcome {
        Ok(values) => encode(&values),
        Err(text) => failure_message(&text),
    };
    process::exit(i32::from(start.report.write_all(&message).is_err()))
}

fn encode(values: &[u64]) -> Vec<u8> {
    let mut message = vec![DONE];
    message.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    message
}

fn decode(bytes: &[u8]) -> Result<Vec<u64>> {
    let values = bytes.chunks(size_of::<u64>()).map(|value| {
        let value = value.try_into();
        value.map(u64::from_le_bytes)
    });
    values
        .collect::<Result<_, _>>()
        .context("the report of a measured process is cut off; see 'dmesg | tail'")
}

fn failure_message(text: &str) -> Vec<u8> {
    [&[FAILED], text.as_bytes()].concat()
}

/// The index of the first file that is readable.
fn await_readable(files: &[&File], deadline: &Deadline) -> Result<usize> {
    loop {
        interrupt::check()?;
        if deadline.passed() {
            bail!(
                "a measured process timed out and was killed; if this repeats, see 'dmesg | tail' for a stuck peer"
            );
        }
        let step = deadline.remaining().min(INTERRUPT_INTERVAL).as_millis() as u16 + 1;
        let mut polled: Vec<PollFd> = files
            .iter()
            .map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
            .collect();
        match nix::poll::poll(&mut polled, PollTimeout::from(step)) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(index) = polled.iter().position(|one| one.any() == Some(true)) {
            return Ok(index);
        }
    }
}

/// Starts a process for each of these, which its role gets. Returns when all are set up; none has started.
fn start_all<K, T>(
    each: impl IntoIterator<Item = K>,
    shared: T,
    limit: Duration,
    role: impl Fn(K, T, &mut Start) -> Result<Vec<u64>>,
) -> Result<Vec<Worker>> {
    let mut shared = Some(shared);
    let mut workers = each
        .into_iter()
        .map(|one| Worker::fork(&mut shared, |shared, start| role(one, shared, start)))
        .collect::<Result<Vec<_>>>()?;
    // An end left open here would hide end of file from the others.
    drop(shared);
    let deadline = Deadline::after(limit);
    for worker in &mut workers {
        worker.await_ready(&deadline)?;
    }
    Ok(workers)
}

/// Two processes that share what was created before the fork.
pub struct Pair {
    workers: [Worker; 2],
}

impl Pair {
    /// Returns when both are set up; neither has started. `role` runs in each of the two processes.
    pub fn start<T>(
        shared: T,
        limit: Duration,
        role: impl Fn(Side, T, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<Self> {
        let workers = start_all([Side::First, Side::Second], shared, limit, role)?;
        Ok(Self {
            workers: workers.try_into().ok().expect("a process for each side"),
        })
    }

    pub fn go(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(Worker::go)
    }

    /// The numbers of the first and of the second process.
    pub fn finish(mut self, limit: Duration) -> Result<[Vec<u64>; 2]> {
        let reports = [&self.workers[0].report, &self.workers[1].report];
        let earlier = await_readable(&reports, &Deadline::after(limit))?;
        let outcome = self.workers[earlier].finish(&Deadline::after(limit));
        interrupt::check()?;
        // After a failure, not every mechanism notifies the other process, which would wait for the whole timeout.
        let limit = if outcome.is_ok() { limit } else { EXIT_TIMEOUT };
        let other = self.workers[1 - earlier].finish(&Deadline::after(limit));
        match earlier {
            0 => both(outcome, other),
            _ => both(other, outcome),
        }
    }

    /// For pairs that run until they are dropped.
    pub fn expect_alive(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(Worker::expect_alive)
    }
}

/// Several processes that share what was created before the fork.
pub struct Group {
    workers: Vec<Worker>,
}

impl Group {
    /// Returns when all are set up; none has started. `role` runs in each process, with its number.
    pub fn start<T>(
        count: usize,
        shared: T,
        limit: Duration,
        role: impl Fn(usize, T, &mut Start) -> Result<Vec<u64>>,
    ) -> Result<Self> {
        let workers = start_all(0..count, shared, limit, role)?;
        Ok(Self { workers })
    }

    pub fn go(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(Worker::go)
    }

    /// The numbers of each process.
    pub fn finish(mut self, limit: Duration) -> Result<Vec<Vec<u64>>> {
        let deadline = Deadline::after(limit);
        let mut workers = self.workers.iter_mut();
        workers.try_fold(Vec::new(), |mut all, worker| {
            all.push(worker.finish(&deadline)?);
            Ok(all)
        })
    }

    /// For groups that run until they are dropped.
    pub fn expect_alive(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(Worker::expect_alive)
    }

    /// Context switches of all processes, voluntary or not.
    pub fn context_switches(&self) -> Result<u64> {
        self.workers.iter().map(Worker::context_switches).sum()
    }

    /// Processor time of all processes.
    pub fn cpu_ns(&self) -> Result<u64> {
        self.workers.iter().map(Worker::cpu_ns).sum()
    }
}

/// The failure of one side is often a consequence of the other's, so both are reported.
fn both(first: Result<Vec<u64>>, second: Result<Vec<u64>>) -> Result<[Vec<u64>; 2]> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok([first, second]),
        (Err(first), Err(second)) => bail!("{second:#} (and the other side: {first:#})"),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
    }
}

/// Serializes the unit tests that fork: a concurrent fork would inherit pipe ends, and hide end of file.
pub fn serial() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn values_survive_encoding() {
        let values = [0, 1, u64::MAX, 0x0102_0304_0506_0708];
        let message = encode(&values);
        assert_eq!(message[0], DONE);
        assert_eq!(decode(&message[1..]).unwrap(), values);
        assert!(decode(&message[2..]).is_err());
    }

    #[test]
    fn a_report_before_a_failure_is_no_success() {
        let _serial = serial();
        let limit = Duration::from_secs(20);
        let ending = |_, (), start: &mut Start| {
            start.wait()?;
            start.report.write_all(&encode(&[1]))?;
            process::exit(3)
        };
        let mut pair = Pair::start((), limit, ending).unwrap();
        pair.go().unwrap();
        let error = pair.finish(limit).unwrap_err().to_string();
        assert!(error.contains("failed after its report"), "{error}");
    }

    #[test]
    fn a_group_has_a_number_for_each_process() {
        let _serial = serial();
        let limit = Duration::from_secs(20);
        let role = |number, base: u64, start: &mut Start| {
            start.wait()?;
            Ok(vec![base + number as u64])
        };
        let mut group = Group::start(3, 10, limit, role).unwrap();
        group.go().unwrap();
        assert_eq!(group.finish(limit).unwrap(), [[10], [11], [12]]);
    }
}
