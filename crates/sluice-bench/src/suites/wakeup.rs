// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the moment a message is handed over to the first instruction of the one who slept until it came: in the mechanism's
//! own call, in epoll_wait(2), or in io_uring_enter(2).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use io_uring::{IoUring, opcode, types};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::{PATIENCE, Plan, Room, Scale};
use crate::harness::clock;
use crate::harness::pinning::Placement;
use crate::harness::process::{Pair, Side, Start};
use crate::harness::rounds::{Cell, Contender, Headline, Job, Measurement, Skip};
use crate::mechanisms::{Link, Mechanism, Receiver, Shape, Task};

/// Longer than anybody spins, so that the receiver sleeps by then.
const PAUSE: Duration = Duration::from_millis(1);
/// Not counted, while caches fill.
const WARM_UP: usize = 10;
const CHECKED: u64 = 50;
/// When it was sent, and its number.
const SIZE: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Epoll,
    IoUring,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::Epoll, Self::IoUring];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }

    fn shape(self) -> Shape {
        match self {
            Self::Plain => Shape::Question,
            Self::Epoll | Self::IoUring => Shape::File,
        }
    }

    /// Many containers forbid io_uring.
    fn is_allowed(self) -> bool {
        self != Self::IoUring || IoUring::new(1).is_ok()
    }
}

pub fn cells(plan: &Plan) -> Result<Vec<Cell>> {
    let ways = match plan.scale {
        Scale::Quick => &Way::ALL[..1],
        Scale::Standard | Scale::Full | Scale::Peers => &Way::ALL,
    };
    let placements = match plan.scale {
        Scale::Full => plan.placements.clone(),
        Scale::Quick | Scale::Standard | Scale::Peers => vec![plan.one_placement()],
    };
    let conditions = ways
        .iter()
        .flat_map(|&way| placements.iter().map(move |&placement| (way, placement)));
    conditions
        .map(|(way, placement)| cell(plan, way, placement))
        .collect()
}

fn cell(plan: &Plan, way: Way, placement: Placement) -> Result<Cell> {
    let (mut mechanisms, mut skips) = plan.rivals(&Task {
        size: SIZE,
        placement,
        shape: way.shape(),
    });
    if !way.is_allowed() {
        mechanisms.clear();
        skips = vec![Skip::circumstance(
            "io_uring",
            "the kernel refuses it here; 'sysctl kernel.io_uring_disabled' or the container's seccomp profile says why",
        )];
    }
    let room = plan.room(placement)?;
    let contender = |mechanism: Rc<dyn Mechanism>| {
        Contender::pair(
            &*mechanism,
            Box::new(WakeUp {
                mechanism: Rc::clone(&mechanism),
                room: room.clone(),
                way,
                duration: plan.duration,
            }),
        )
    };
    Ok(Cell {
        suite: "wakeup",
        title: format!("{} {}", way.name(), placement.name()),
        size: Some(SIZE),
        placement,
        headline: Headline::Latency,
        contenders: mechanisms.into_iter().map(contender).collect(),
        skips,
    })
}

/// What it takes to wake a process that sleeps on another processor, by pipe(2): in nanoseconds, the median. None with one
/// processor.
pub fn waking_cost(plan: &Plan) -> Result<Option<u64>> {
    if Placement::TwoCpus.cpus()?.is_none() {
        return Ok(None);
    }
    let probe = WakeUp {
        mechanism: Rc::new(crate::mechanisms::Pipe),
        room: plan.room(Placement::TwoCpus)?,
        way: Way::Plain,
        duration: Duration::from_millis(200),
    };
    let summary = crate::harness::samples::summarize(probe.measure()?.samples);
    Ok(summary.map(|summary| summary.p50))
}

struct WakeUp {
    mechanism: Rc<dyn Mechanism>,
    room: Room,
    way: Way,
    duration: Duration,
}

impl Job for WakeUp {
    fn check(&self) -> Result<()> {
        let received = self.run(CHECKED, PATIENCE)?.samples.len() + WARM_UP;
        ensure!(
            received == CHECKED as usize,
            "{received} of {CHECKED} messages arrived"
        );
        Ok(())
    }

    fn measure(&self) -> Result<Measurement> {
        self.run(u64::MAX, self.duration)
    }
}

impl WakeUp {
    fn run(&self, most: u64, duration: Duration) -> Result<Measurement> {
        let link = self.mechanism.link(SIZE)?;
        let mut pair = Pair::start(link, PATIENCE, |side, link, start| match side {
            Side::First => self.send(link, start, most, duration),
            Side::Second => self.receive(link, start),
        })?;
        pair.go()?;
        let [sent, mut samples] = pair.finish(duration + PATIENCE)?;
        ensure!(
            samples.len() as u64 == sent[0],
            "{} messages were sent, and {} arrived",
            sent[0],
            samples.len()
        );
        let samples = samples.split_off(samples.len().min(WARM_UP));
        Ok(Measurement {
            messages: samples.len() as u64,
            bytes: (samples.len() * SIZE) as u64,
            samples,
            elapsed_ns: sent[1],
            cpu_ns: 0,
            ..Measurement::default()
        })
    }

    /// Returns how many it sent, and the time it took.
    fn send(
        &self,
        link: Box<dyn Link>,
        start: &mut Start,
        most: u64,
        duration: Duration,
    ) -> Result<Vec<u64>> {
        let mut sender = link.sender()?;
        self.room.enter(Side::First)?;
        start.wait()?;
        let begin = clock::now_ns();
        let end = begin + duration.as_nanos() as u64;
        let mut number = 0;
        while number < most && (clock::now_ns() < end || number <= WARM_UP as u64) {
            std::thread::sleep(PAUSE);
            sender.send(&message(clock::now_ns(), number))?;
            number += 1;
        }
        Ok(vec![number, clock::now_ns() - begin])
    }

    /// Returns how long each message took.
    fn receive(&self, link: Box<dyn Link>, start: &mut Start) -> Result<Vec<u64>> {
        let mut receiver = link.receiver()?;
        self.room.enter(Side::Second)?;
        let mut sleeper = Sleeper::new(self.way, receiver.as_ref())?;
        start.wait()?;
        let mut samples = Vec::new();
        while let Some((woken, sent, number)) = sleeper.next(receiver.as_mut())? {
            ensure!(
                number == samples.len() as u64 && sent <= woken,
                "message {} arrived damaged",
                samples.len()
            );
            samples.push(woken - sent);
        }
        Ok(samples)
    }
}

fn message(sent: u64, number: u64) -> [u8; SIZE] {
    let mut message = [0; SIZE];
    message[..8].copy_from_slice(&sent.to_ne_bytes());
    message[8..].copy_from_slice(&number.to_ne_bytes());
    message
}

/// What the receiver sleeps in.
enum Sleeper {
    Plain,
    Epoll(Epoll),
    // A ring is several times as large as the others.
    IoUring(Box<IoUring>),
}

impl Sleeper {
    fn new(way: Way, receiver: &dyn Receiver) -> Result<Self> {
        Ok(match way {
            Way::Plain => Self::Plain,
            Way::Epoll => {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                epoll
                    .add(file(receiver)?, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                    .context("epoll does not take it")?;
                Self::Epoll(epoll)
            }
            Way::IoUring => Self::IoUring(Box::new(IoUring::new(2)?)),
        })
    }

    /// When it woke, and what the message says; None at the end.
    fn next(&mut self, receiver: &mut dyn Receiver) -> Result<Option<(u64, u64, u64)>> {
        let mut bytes = [0; SIZE];
        let (woken, n) = match self {
            Self::Plain => {
                let n = receiver.receive(&mut bytes)?;
                (clock::now_ns(), n)
            }
            Self::Epoll(epoll) => {
                epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE)?;
                let woken = clock::now_ns();
                (woken, receiver.receive(&mut bytes)?)
            }
            Self::IoUring(ring) => {
                let n = read_through(ring, file(receiver)?, &mut bytes)?;
                (clock::now_ns(), n)
            }
        };
        match n {
            0 => Ok(None),
            SIZE => Ok(Some((woken, word(&bytes[..8])?, word(&bytes[8..])?))),
            _ => bail!("{n} bytes of a message of {SIZE} arrived"),
        }
    }
}

fn file(receiver: &dyn Receiver) -> Result<BorrowedFd<'_>> {
    receiver.file().context("it has no file to wait for")
}

fn word(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(bytes.try_into()?))
}

fn read_through(ring: &mut IoUring, fd: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize> {
    let fd = types::Fd(fd.as_raw_fd());
    let read = opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).build();
    // SAFETY: the buffer is ours until the one completion of the one request has been seen, which is before this returns.
    unsafe { ring.submission().push(&read) }?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    let completion = ring.completion().next().context("no completion")?;
    let result = completion.result();
    ensure!(
        result >= 0,
        "io_uring's read failed: {}",
        std::io::Error::from_raw_os_error(-result)
    );
    Ok(result as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::Pipe;

    #[test]
    fn a_pipe_wakes_in_each_way() {
        let cpus = Placement::SameCpu.cpus().unwrap().unwrap();
        for way in Way::ALL.into_iter().filter(|way| way.is_allowed()) {
            let wake_up = WakeUp {
                mechanism: Rc::new(Pipe),
                room: Room { home: None, cpus },
                way,
                duration: Duration::from_millis(30),
            };
            wake_up.check().unwrap();
            let measurement = wake_up.measure().unwrap();
            assert!(!measurement.samples.is_empty(), "{way:?}");
        }
    }
}
