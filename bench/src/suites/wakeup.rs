// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wake-up latency: from sending a message to the first instruction of the receiver that slept, in the receive call of
//! the mechanism, in epoll_wait(2), or in io_uring_enter(2).

use std::io;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use io_uring::{IoUring, opcode, squeue, types};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sluice_testkit::clock;
use sluice_testkit::shared::SharedWords;
use sluice_testkit::time::Deadline;
use sluice_testkit::workers::Start;

use super::plan::{Plan, Scale};
use super::setup::{PROCESS_TIMEOUT, Setup, existing};
use super::stream::expect_all;
use crate::harness::pinning::Placement;
use crate::harness::rounds::{Case, Job, Measurement, Metric, Skipped};
use crate::harness::samples::Samples;
use crate::mechanisms::{Receiver, Sender, Task, Workload, pipe};

/// Longer than any adaptive spinning, so that the receiver sleeps.
const PAUSE: Duration = Duration::from_millis(1);
/// Not counted: caches warm up first.
const WARM_UP: usize = 10;
const CHECKED: u64 = 50;
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// The send time and the number of the message.
type Message = [[u8; 8]; 2];
const SIZE: usize = size_of::<Message>();

/// The call in which the receiver sleeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Receive,
    Epoll,
    IoUring,
}

const CALLS: [(&str, Call); 3] = [
    ("plain", Call::Receive),
    ("epoll", Call::Epoll),
    ("io_uring", Call::IoUring),
];

const NO_URING: &str = "io_uring is disabled; check 'sysctl kernel.io_uring_disabled' and the seccomp profile of the container";

fn task(call: Call, placement: Placement) -> Task {
    let is_file = call != Call::Receive;
    Task {
        size: SIZE,
        placement,
        workload: if is_file {
            Workload::File
        } else {
            Workload::RequestReply
        },
    }
}

pub fn cases(plan: &Plan) -> Result<Vec<Case>> {
    let placements = match plan.scale {
        Scale::Full => plan.placements.clone(),
        _ => vec![plan.one_placement()],
    };
    let mut cases = Vec::new();
    for (name, call) in CALLS {
        for &placement in &placements {
            let title = format!("{name} {}", placement.name());
            let job = |setup| WakeUp::new(setup, call, plan.duration);
            let task = task(call, placement);
            let mut case = plan.case("wakeup", title, Metric::Latency, task, job)?;
            // Many containers disable it.
            if call == Call::IoUring && IoUring::new(1).is_err() {
                case.subjects.clear();
                case.skipped = vec![Skipped::unavailable(name, NO_URING)];
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

/// The median wake-up latency of pipe(2) in nanoseconds, with the sleeper on another processor, if there is one.
pub fn wakeup_cost(plan: &Plan) -> Result<Option<u64>> {
    if Placement::TwoCpus.cpus()?.is_none() {
        return Ok(None);
    }
    let task = task(Call::Receive, Placement::TwoCpus);
    let setup = plan.setup(Rc::new(pipe::mechanism()), &task)?;
    let probe = WakeUp::new(setup, Call::Receive, Duration::from_millis(200));
    let samples = Samples::from_iter(probe.measure()?.samples);
    Ok((!samples.is_empty()).then(|| samples.percentile(0.5)))
}

#[derive(Clone)]
struct WakeUp {
    setup: Setup,
    call: Call,
    /// The run ends after this time or at this number of messages, whichever is first.
    duration: Duration,
    messages: u64,
}

impl Job for WakeUp {
    fn check(&self) -> Result<()> {
        let checked = Self {
            duration: PROCESS_TIMEOUT,
            messages: CHECKED,
            ..self.clone()
        };
        checked.measure().map(drop)
    }

    fn measure(&self) -> Result<Measurement> {
        let taken = SharedWords::new(1)?;
        let [sent, mut samples] = self.setup.run(
            self.duration + PROCESS_TIMEOUT,
            |sender, start| self.send(sender, start, &taken),
            |receiver, start| self.receive(receiver, start, &taken),
        )?;
        let ([sent, elapsed_ns], arrived) = (sent[..].try_into()?, samples.len());
        expect_all(sent, arrived as u64)?;
        samples.drain(..arrived.min(WARM_UP));
        let messages = samples.len() as u64;
        Ok(Measurement {
            messages,
            bytes: messages * SIZE as u64,
            samples,
            elapsed_ns,
            ..Measurement::default()
        })
    }
}

impl WakeUp {
    fn new(setup: Setup, call: Call, duration: Duration) -> Self {
        Self {
            setup,
            call,
            duration,
            messages: u64::MAX,
        }
    }

    /// Returns the number of messages, and the elapsed time. The receiver sleeps again before the next message.
    fn send(
        &self,
        mut sender: Box<dyn Sender>,
        start: &mut Start,
        taken: &SharedWords,
    ) -> Result<Vec<u64>> {
        start.wait()?;
        let begin = clock::now_ns();
        let end = begin + self.duration.as_nanos() as u64;
        let (mut sent, mut last) = (0, 0);
        sleep(PAUSE);
        while sent < self.messages && (clock::now_ns() < end || sent <= WARM_UP as u64) {
            let message = [clock::now_ns(), sent].map(u64::to_ne_bytes);
            sender.send(message.as_flattened())?;
            last = await_sleep(taken, last)
                .with_context(|| format!("message {sent} did not arrive in time"))?;
            sent += 1;
        }
        Ok(vec![sent, clock::now_ns() - begin])
    }

    fn receive(
        &self,
        mut receiver: Box<dyn Receiver>,
        start: &mut Start,
        taken: &SharedWords,
    ) -> Result<Vec<u64>> {
        let mut sleep = sleeper(self.call, &*receiver)?;
        start.wait()?;
        let mut samples = Vec::new();
        let mut message = Message::default();
        loop {
            let (woken, n) = sleep(&mut *receiver, message.as_flattened_mut())?;
            if n == 0 {
                return Ok(samples);
            }
            let [sent, number] = message.map(u64::from_ne_bytes);
            ensure!(
                n == SIZE && number == samples.len() as u64 && sent <= woken,
                "message {} arrived damaged, with {n} of {SIZE} bytes",
                samples.len()
            );
            samples.push(woken - sent);
            taken.set(0, clock::now_ns());
        }
    }
}

/// Waits until the receiver has taken another message than the last one, and sleeps again. `taken` is the time when it took one.
fn await_sleep(taken: &SharedWords, last: u64) -> Option<u64> {
    let deadline = Deadline::after(TAKE_TIMEOUT);
    sleep(PAUSE);
    while taken.get(0) == last {
        if deadline.passed() {
            return None;
        }
        sleep(PAUSE);
    }
    let time = taken.get(0);
    let asleep = time + PAUSE.as_nanos() as u64;
    sleep(Duration::from_nanos(asleep.saturating_sub(clock::now_ns())));
    Some(time)
}

/// Receives a message, or the end. Returns the time of the wake-up, and the number of bytes.
type Sleeper = Box<dyn FnMut(&mut dyn Receiver, &mut [u8]) -> Result<(u64, usize)>>;

fn sleeper(call: Call, receiver: &dyn Receiver) -> Result<Sleeper> {
    Ok(match call {
        Call::Receive => Box::new(|receiver, message| {
            let n = receiver.receive(message)?;
            Ok((clock::now_ns(), n))
        }),
        Call::Epoll => {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, 0);
            let added = epoll.add(existing(receiver.file())?, event);
            added.context("cannot add the file to epoll")?;
            Box::new(move |receiver, message| {
                epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE)?;
                let woken = clock::now_ns();
                Ok((woken, receiver.receive(message)?))
            })
        }
        Call::IoUring => {
            let mut ring = IoUring::new(2)?;
            Box::new(move |receiver, message| {
                let fd = types::Fd(existing(receiver.file())?.as_raw_fd());
                let read = opcode::Read::new(fd, message.as_mut_ptr(), message.len() as u32);
                // SAFETY: the message outlives the call.
                let n = unsafe { complete(&mut ring, &read.build()) }?;
                let n = n.context("io_uring's read failed")?;
                Ok((clock::now_ns(), n))
            })
        }
    })
}

/// # Safety
/// The memory of the request is valid until this returns, which is after its completion.
pub unsafe fn complete(ring: &mut IoUring, request: &squeue::Entry) -> Result<io::Result<usize>> {
    // SAFETY: the caller says so; the only request is awaited below.
    unsafe { ring.submission().push(request) }?;
    ring.submit_and_wait(1).context("io_uring_enter")?;
    let result = ring.completion().next().context("no completion")?.result();
    Ok(usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn the_next_message_waits_until_a_late_receiver_sleeps_again() {
        let taken = SharedWords::new(1).unwrap();
        let late = 5 * PAUSE;
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(late);
                taken.set(0, clock::now_ns());
            });
            assert!(await_sleep(&taken, 0).is_some());
        });
        assert!(begin.elapsed() >= late + PAUSE);
    }
}
