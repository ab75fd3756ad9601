// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up latency: from sending a message to the first instruction of the receiver that slept, in the receive call of
//! the mechanism, in epoll_wait(2), or in io_uring_enter(2).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use io_uring::{IoUring, opcode, types};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::workers::Start;

use super::setup::{self, PROCESS_TIMEOUT, Setup};
use super::{Plan, Scale};
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped};
use crate::harness::samples::Samples;
use crate::mechanisms::{Receiver, Sender, Task, Workload, pipe};

/// Longer than any adaptive spinning, so that the receiver sleeps.
const PAUSE: Duration = Duration::from_millis(1);
/// Not counted: caches warm up first.
const WARM_UP: usize = 10;
const CHECKED: u64 = 50;
/// The time limit for a message to arrive.
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The send time and the number of the message.
const SIZE: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitMethod {
    Plain,
    Epoll,
    IoUring,
}

impl WaitMethod {
    const ALL: [Self; 3] = [Self::Plain, Self::Epoll, Self::IoUring];

    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }

    fn workload(self) -> Workload {
        match self {
            Self::Plain => Workload::RequestReply,
            Self::Epoll | Self::IoUring => Workload::File,
        }
    }

    /// Many containers disable io_uring.
    fn is_allowed(self) -> bool {
        self != Self::IoUring || IoUring::new(1).is_ok()
    }
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let methods = match plan.scale {
        Scale::Quick => &WaitMethod::ALL[..1],
        Scale::Standard | Scale::Full | Scale::ThirdParty => &WaitMethod::ALL,
    };
    let placements = match plan.scale {
        Scale::Full => plan.placements.clone(),
        Scale::Quick | Scale::Standard | Scale::ThirdParty => vec![plan.one_placement()],
    };
    let conditions = methods
        .iter()
        .flat_map(|&method| placements.iter().map(move |&placement| (method, placement)));
    conditions
        .map(|(method, placement)| case(plan, method, placement))
        .collect()
}

fn case(plan: &Plan, method: WaitMethod, placement: Placement) -> Result<Case> {
    let title = format!("{} {}", method.name(), placement.name());
    let task = Task {
        size: SIZE,
        placement,
        workload: method.workload(),
    };
    let job = |setup| WakeUp {
        setup,
        method,
        duration: plan.duration,
    };
    let mut case = plan.case("wakeup", title, Metric::Latency, task, job)?;
    if !method.is_allowed() {
        case.subjects.clear();
        case.skipped = vec![Skipped::unavailable(
            "io_uring",
            "io_uring is disabled; check 'sysctl kernel.io_uring_disabled' and the seccomp profile of the container",
        )];
    }
    Ok(case)
}

/// The median wake-up latency of pipe(2) in nanoseconds, with the sleeper on another processor. None with a single
/// processor.
pub fn wakeup_cost(plan: &Plan) -> Result<Option<u64>> {
    if Placement::TwoCpus.cpus()?.is_none() {
        return Ok(None);
    }
    let probe = WakeUp {
        setup: Setup {
            mechanism: Rc::new(pipe::mechanism()),
            confinement: plan.confinement(Placement::TwoCpus)?,
            size: SIZE,
        },
        method: WaitMethod::Plain,
        duration: Duration::from_millis(200),
    };
    let samples = Samples::from_iter(probe.measure()?.samples);
    Ok((!samples.is_empty()).then(|| samples.percentile(0.5)))
}

struct WakeUp {
    setup: Setup,
    method: WaitMethod,
    duration: Duration,
}

impl Job for WakeUp {
    fn check(&self) -> Result<()> {
        let received = self.run(CHECKED, PROCESS_TIMEOUT)?.samples.len() + WARM_UP;
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
    fn run(&self, max: u64, duration: Duration) -> Result<Measurement> {
        let taken = Taken::new()?;
        let pair = self.setup.pair(
            |sender, start| send(sender, start, &taken, max, duration),
            |receiver, start| self.receive(receiver, start, &taken),
        )?;
        let [sent, mut samples] = setup::run(pair, duration + PROCESS_TIMEOUT)?;
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
            ..Measurement::default()
        })
    }

    /// Returns the latency of each message.
    fn receive(
        &self,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        taken: &Taken,
    ) -> Result<Vec<u64>> {
        let mut sleeper = Sleeper::new(self.method, receiver.as_ref())?;
        start.wait()?;
        let mut samples = Vec::new();
        while let Some((woken, sent, number)) = sleeper.next(receiver.as_mut())? {
            ensure!(
                number == samples.len() as u64 && sent <= woken,
                "message {} arrived damaged",
                samples.len()
            );
            samples.push(woken - sent);
            taken.set(samples.len() as u64);
        }
        Ok(samples)
    }
}

/// How many messages the receiver has taken, and when the last one.
struct Taken(SharedWords);

impl Taken {
    const TIME: usize = 0;
    const MESSAGES: usize = 1;

    fn new() -> Result<Self> {
        Ok(Self(SharedWords::new(Self::MESSAGES + 1)?))
    }

    fn set(&self, messages: u64) {
        self.0.set(Self::TIME, clock::now_ns());
        self.0.set(Self::MESSAGES, messages);
    }

    /// Returns a pause after this many messages were taken, so that at most one is in flight, and the receiver sleeps again.
    fn pause_until(&self, messages: u64) -> Result<()> {
        let begin = Instant::now();
        sleep(PAUSE);
        while self.0.get(Self::MESSAGES) < messages {
            ensure!(
                begin.elapsed() < TAKE_TIMEOUT,
                "message {} did not arrive in time",
                messages - 1
            );
            sleep(PAUSE);
        }
        let asleep = self.0.get(Self::TIME) + PAUSE.as_nanos() as u64;
        sleep(Duration::from_nanos(asleep.saturating_sub(clock::now_ns())));
        Ok(())
    }
}

/// Returns the number of messages, and the elapsed time.
fn send(
    mut sender: Box<dyn Sender>,
    start: &mut Start,
    taken: &Taken,
    max: u64,
    duration: Duration,
) -> Result<Vec<u64>> {
    start.wait()?;
    let begin = clock::now_ns();
    let end = begin + duration.as_nanos() as u64;
    let mut number = 0;
    taken.pause_until(number)?;
    while number < max && (clock::now_ns() < end || number <= WARM_UP as u64) {
        sender.send(&message(clock::now_ns(), number))?;
        number += 1;
        taken.pause_until(number)?;
    }
    Ok(vec![number, clock::now_ns() - begin])
}

fn message(sent: u64, number: u64) -> [u8; SIZE] {
    let mut message = [0; SIZE];
    message[..8].copy_from_slice(&sent.to_ne_bytes());
    message[8..].copy_from_slice(&number.to_ne_bytes());
    message
}

/// The call in which the receiver sleeps.
enum Sleeper {
    Plain,
    Epoll(Epoll),
    // Boxed, because a ring is several times as large as the other variants.
    IoUring(Box<IoUring>),
}

impl Sleeper {
    fn new(method: WaitMethod, receiver: &dyn Receiver) -> Result<Self> {
        Ok(match method {
            WaitMethod::Plain => Self::Plain,
            WaitMethod::Epoll => {
                let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
                epoll
                    .add(file(receiver)?, EpollEvent::new(EpollFlags::EPOLLIN, 0))
                    .context("cannot add the file to epoll")?;
                Self::Epoll(epoll)
            }
            WaitMethod::IoUring => Self::IoUring(Box::new(IoUring::new(2)?)),
        })
    }

    /// Returns the time of the wake-up, and the contents of the message; None at the end.
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
    receiver
        .file()
        .context("the mechanism has no file to wait for")
}

fn word(bytes: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(bytes.try_into()?))
}

fn read_through(ring: &mut IoUring, fd: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<usize> {
    let fd = types::Fd(fd.as_raw_fd());
    let read = opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).build();
    // SAFETY: the buffer is valid until the completion of the only request, which is awaited below.
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
    use crate::suites::setup::tests::setup;
    use sluice_testkit::workers::serial;

    #[test]
    fn the_next_message_waits_until_a_late_receiver_sleeps_again() {
        let taken = Taken::new().unwrap();
        let late = 5 * PAUSE;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(late);
                taken.set(1);
            });
            taken.pause_until(1).unwrap();
        });
        assert!(begin.elapsed() >= late + PAUSE);
    }

    #[test]
    fn a_pipe_wakes_every_kind_of_sleeper() {
        let _serial = serial();
        for method in WaitMethod::ALL
            .into_iter()
            .filter(|method| method.is_allowed())
        {
            let wake_up = WakeUp {
                setup: setup(pipe::mechanism(), SIZE),
                method,
                duration: Duration::from_millis(30),
            };
            wake_up.check().unwrap();
            let measurement = wake_up.measure().unwrap();
            assert!(!measurement.samples.is_empty(), "{method:?}");
        }
    }
}
