// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process at its `cpu.max` is throttled, also within a system call; a process that gets SIGSTOP stops when its call
//! ends. Neither may hold anything then that another process needs.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{read, write};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::registry::{Context, topic};
use crate::support::bus::{self, DROP, with_policy};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{read_some, set_blocking};
use crate::support::check::{expect, note, skip};
use crate::support::child::{Child, spawn_keeping};
use crate::support::controller::Controller;
use crate::support::ctl::{BOTH, CREATE, Ctl, KIND_BUS, KIND_MAP, KIND_PIPE, Open, READ, WRITE};
use crate::support::event::Event;
use crate::support::ioctl::{bytes_waiting, raw};
use crate::support::map::{self, GET, Op, STEP_SET, Step};
use crate::support::proc::{self, Call};
use crate::support::ring::{self, Rings, Role};
use crate::support::sched::FullPreemption;
use crate::support::shared::SharedWords;
use crate::support::shared_channels::{open_shared, unless_blocked};
use crate::support::signals::{interrupt, spawn_blocked_keeping};
use crate::support::time::{Deadline, eventually};

topic!(
    "stopped_peers",
    fifo: [],
    pipe_only: [
        a_pipe_is_written_beside_a_throttled_reader,
        a_bus_is_used_beside_a_throttled_sender,
        a_bus_is_used_beside_a_throttled_receiver,
        a_map_is_used_beside_a_throttled_writer,
        a_map_is_used_beside_a_throttled_reader,
        an_open_of_a_ring_beside_a_throttled_one_is_interrupted,
        every_kind_is_used_beside_a_stopped_process,
        a_stopped_receiver_leaves_data_to_others,
    ],
);

const MIB: usize = 1 << 20;
/// The longest message that is copied directly into the bus.
const LONG: usize = 60_000;
const SHORT: usize = 64;
const KEYS: u32 = 32;
const VALUE: usize = 200;

// ---- what the processes do ----

/// All processes have the same endpoints, in non-blocking mode.
struct Channels {
    pipe: OwnedFd,
    sender: OwnedFd,
    subscriber: OwnedFd,
    slow_subscriber: OwnedFd,
    map: OwnedFd,
}

impl Channels {
    fn new() -> Result<Self> {
        let ctl = Ctl::new()?;
        let open = |kind, flags, params, capacity: usize| {
            open_shared(&ctl, kind, flags, params, capacity as u64)
        };
        let policy = with_policy(DROP);
        let policy = std::ptr::from_ref(&policy) as u64;
        let map = open(KIND_MAP, BOTH, 0, 16 * MIB)?;
        map::put(&map, b"long", &[7; LONG])?;
        Ok(Channels {
            pipe: open(KIND_PIPE, BOTH, 0, MIB)?,
            sender: open(KIND_BUS, WRITE, 0, 4 * MIB)?,
            subscriber: open(KIND_BUS, READ, policy, 4 * MIB)?,
            slow_subscriber: open(KIND_BUS, READ, policy, 4 * MIB)?,
            map,
        })
    }

    fn fds(&self) -> [BorrowedFd<'_>; 5] {
        let Channels {
            pipe,
            sender,
            subscriber,
            slow_subscriber,
            map,
        } = self;
        [
            pipe.as_fd(),
            sender.as_fd(),
            subscriber.as_fd(),
            slow_subscriber.as_fd(),
            map.as_fd(),
        ]
    }
}

type Operation = fn(&Channels, &mut [u8]) -> nix::Result<()>;

/// All of the capacity at once: the longest calls.
fn write_pipe(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    unless_blocked(write(&channels.pipe, scratch)).map(drop)
}

/// Bytes that are there must be readable: there is no other reader.
fn read_pipe(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    match bytes_waiting(&channels.pipe)? {
        0 => Ok(()),
        _ => read(&channels.pipe, scratch).map(drop),
    }
}

fn send_long(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    unless_blocked(write(&channels.sender, &scratch[..LONG])).map(drop)
}

/// The slow process receives long messages, and is overtaken by the other one.
fn receive_slowly(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    unless_blocked(read(&channels.slow_subscriber, scratch)).map(drop)
}

/// A long message is lost if the bus goes round before it is received; a short one must arrive then at a later attempt.
fn send_and_receive(channels: &Channels, scratch: &mut [u8], length: usize) -> nix::Result<()> {
    let deadline = Deadline::for_event();
    while !deadline.passed() {
        if unless_blocked(write(&channels.sender, &scratch[..length]))?.is_none() {
            continue;
        }
        while let Some(received) = unless_blocked(read(&channels.subscriber, scratch))? {
            if received == length {
                return Ok(());
            }
        }
    }
    Err(Errno::ETIMEDOUT)
}

fn exchange_short(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    send_and_receive(channels, scratch, SHORT)
}

/// The bus goes round often.
fn exchange_long(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    send_and_receive(channels, scratch, LONG)
}

/// Overwrites short values in place.
fn set_many(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    scratch[0] = scratch[0].wrapping_add(1);
    let value = [scratch[0]; VALUE];
    let keys: Vec<_> = (0..KEYS).map(u32::to_ne_bytes).collect();
    let step = |key: &[u8; 4]| Step::new(STEP_SET, &Op::set(key, &value));
    let mut steps: Vec<_> = keys.iter().map(step).collect();
    match map::batch(&channels.map, &mut steps) {
        // SIGSTOP ends a batch between its steps.
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error),
    }
    map::set(&channels.map, b"long", &scratch[..LONG]).map(drop)
}

/// Of a long value, which is there.
fn get_many(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    (0..KEYS).try_for_each(|_| raw(&channels.map, GET, &mut Op::get(b"long", scratch)))
}

/// Overwrites values in place, because that needs no memory: a set of a map without room would wait for all gets in
/// progress, also for a throttled one. EILSEQ: the value is a mixture of several changes.
fn set_and_get(channels: &Channels, scratch: &mut [u8]) -> nix::Result<()> {
    let key = u32::from(scratch[0]) % KEYS;
    scratch[0] = scratch[0].wrapping_add(1);
    let key = key.to_ne_bytes();
    map::set(&channels.map, &key, &[scratch[0]; VALUE])?;
    let value = map::get(&channels.map, &key)?;
    let whole = value.iter().all(|byte| *byte == value[0]);
    if whole && value.len() == VALUE {
        Ok(())
    } else {
        Err(Errno::EILSEQ)
    }
}

// ---- a process with a limit of CPU time ----

/// Microseconds per period of 100 ms. A process that overruns its share, by up to a tick, is throttled for many.
const CPU_MAX: &str = "1000 100000";
const PERIOD: u64 = 100_000_000;
const PAUSES: u64 = 12;

/// A cgroup that can have a `cpu.max`, on a kernel that throttles also within a call, until this is dropped.
struct Throttling {
    limited: Cgroup,
    _controller: Controller,
    _preemption: FullPreemption,
}

impl Throttling {
    fn begin(home: &Cgroup) -> Result<Self> {
        let controller = Controller::enable_for_children(home, "cpu")?;
        let limited = home.create_child("limited")?;
        if !limited.path().join("cpu.max").exists() {
            return Err(skip("cgroups have no cpu.max (CONFIG_CFS_BANDWIDTH)"));
        }
        Ok(Throttling {
            limited,
            _controller: controller,
            _preemption: FullPreemption::begin()?,
        })
    }
}

/// Nanoseconds since a moment that the processes share.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Span {
    begin: u64,
    end: u64,
}

impl Span {
    fn length(self) -> u64 {
        self.end - self.begin
    }

    fn common(self, other: Span) -> u64 {
        let end = self.end.min(other.end);
        end.saturating_sub(self.begin.max(other.begin))
    }
}

/// Words that the processes share.
const DONE: usize = 0;
const SLOW_CALLS: usize = 1;
const SLOW_PAUSES: usize = 2;
const CALLS: usize = 3;

struct Shared {
    words: SharedWords,
    since: Instant,
}

impl Shared {
    fn new() -> Result<Self> {
        Ok(Shared {
            words: SharedWords::new(4)?,
            since: Instant::now(),
        })
    }

    fn now(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// Repeats the operation, and counts the calls in this word. `called` gets the time when a call begins, and when it
    /// has ended.
    fn repeat(
        &self,
        channels: &Channels,
        operation: Operation,
        word: usize,
        mut called: impl FnMut(Span),
    ) -> Result<()> {
        let (mut scratch, mut count) = (vec![7; MIB], 0);
        while self.words.get(DONE) == 0 {
            let begin = self.now();
            operation(channels, &mut scratch).with_context(|| format!("call {count}"))?;
            let end = self.now();
            called(Span { begin, end });
            count += 1;
            self.words.set(word, count);
        }
        Ok(())
    }

    /// Its pauses, in a call or between two: each from the end of one to that of the next.
    fn slow(&self, channels: &Channels, operation: Operation) -> Result<Child<Vec<Span>>> {
        spawn_keeping("the slow process", &channels.fds(), || {
            let (mut pauses, mut begin) = (Vec::new(), self.now());
            self.repeat(channels, operation, SLOW_CALLS, |call| {
                let pause = Span { begin, ..call };
                if pause.length() >= PERIOD / 2 {
                    pauses.push(pause);
                    self.words.set(SLOW_PAUSES, pauses.len() as u64);
                }
                begin = call.end;
            })?;
            Ok(pauses)
        })
    }

    /// Its calls that a pause of the slow process may have delayed.
    fn other(&self, channels: &Channels, operation: Operation) -> Result<Child<Vec<Span>>> {
        spawn_keeping("the other process", &channels.fds(), || {
            let mut long = Vec::new();
            self.repeat(channels, operation, CALLS, |call| {
                if call.length() >= PERIOD / 8 {
                    long.push(call);
                }
            })?;
            Ok(long)
        })
    }

    /// Waits until this word is at least `count`, and both processes run.
    fn wait<T, U>(&self, word: usize, count: u64, of: (&Child<T>, &Child<U>)) -> Result<()>
    where
        T: DeserializeOwned,
        U: DeserializeOwned,
    {
        eventually("both processes go on", || {
            let ended = of.0.has_reported()? || of.1.has_reported()?;
            Ok((ended || self.words.get(word) >= count).then_some(()))
        })
    }
}

/// Returns how many pauses of the slow process overlap a call of the other one for more than half of the pause.
fn delaying_pauses(limited: &Cgroup, slow: Operation, other: Operation) -> Result<usize> {
    let (channels, shared) = (Channels::new()?, Shared::new()?);
    let slow = shared.slow(&channels, slow)?;
    let other = shared.other(&channels, other)?;
    shared.wait(SLOW_CALLS, 1, (&slow, &other))?;
    limited.adopt(slow.pid())?;
    limited.set("cpu.max", CPU_MAX)?;
    for pauses in 1..=PAUSES {
        shared.wait(SLOW_PAUSES, pauses, (&slow, &other))?;
    }
    shared.words.set(DONE, 1);
    limited.set("cpu.max", "max")?;
    let calls = other.finish()?;
    let pauses = slow.finish()?;
    let delays = |pause: &&Span| {
        let longest = calls.iter().map(|call| call.common(**pause)).max();
        longest.unwrap_or(0) > pause.length() / 2
    };
    let delaying = pauses.iter().filter(delays).count();
    let longest = pauses.iter().map(|pause| pause.length()).max();
    note(format!(
        "a call took half of {delaying} of {} pauses of up to {:?}; {} calls",
        pauses.len(),
        Duration::from_nanos(longest.unwrap_or(0)),
        shared.words.get(CALLS),
    ));
    Ok(delaying)
}

/// The calls of the other process must end while the slow one is throttled. Pauses of the machine delay calls, too:
/// many delays are permitted in one of two attempts, but not in both.
fn beside_throttled(context: &Context, slow: Operation, other: Operation) -> Result<()> {
    const FEW: usize = PAUSES as usize / 4 - 1;
    let Throttling { limited, .. } = &Throttling::begin(context.cgroup()?)?;
    let mut delaying = delaying_pauses(limited, slow, other)?;
    if delaying > FEW {
        delaying = delaying_pauses(limited, slow, other)?;
    }
    ensure!(
        delaying <= FEW,
        "{delaying} of {PAUSES} pauses delayed a call in the second attempt, and more than {FEW} in the first"
    );
    Ok(())
}

fn a_pipe_is_written_beside_a_throttled_reader(context: &Context) -> Result<()> {
    beside_throttled(context, read_pipe, write_pipe)
}

fn a_bus_is_used_beside_a_throttled_sender(context: &Context) -> Result<()> {
    beside_throttled(context, send_long, exchange_short)
}

fn a_bus_is_used_beside_a_throttled_receiver(context: &Context) -> Result<()> {
    beside_throttled(context, receive_slowly, exchange_long)
}

fn a_map_is_used_beside_a_throttled_writer(context: &Context) -> Result<()> {
    beside_throttled(context, set_many, set_and_get)
}

fn a_map_is_used_beside_a_throttled_reader(context: &Context) -> Result<()> {
    beside_throttled(context, get_many, set_and_get)
}

/// The second open waits while the first one, which is throttled, allocates the session. A signal ends the wait.
fn an_open_of_a_ring_beside_a_throttled_one_is_interrupted(context: &Context) -> Result<()> {
    const LARGE: u64 = 64 << 20;
    let home = context.cgroup()?;
    let Throttling { limited, .. } = &Throttling::begin(home)?;
    let directory = home.directory()?;
    let open = |role: Role| -> Result<Result<(), i32>> {
        let request = Open {
            capacity: LARGE,
            scope_fd: directory.as_raw_fd(),
            ..ring::request("large", role.flag() | CREATE)
        };
        Ok(Rings::new()?
            .open(request)
            .map(drop)
            .map_err(|errno| errno as i32))
    };
    let keep = [directory.as_fd()];
    let slow = spawn_keeping("the slow process", &keep, || {
        limited.enter()?;
        limited.set("cpu.max", CPU_MAX)?;
        open(Role::Producer)
    })?;
    eventually("the slow process allocates", || {
        let stack = fs::read_to_string(format!("/proc/{}/stack", slow.pid()))?;
        Ok((stack.contains("ring_attach") || slow.has_reported()?).then_some(()))
    })?;
    let handled = Event::new()?;
    let other =
        spawn_blocked_keeping(Call::Ioctl, &keep, &handled, false, || open(Role::Consumer))?;
    ensure!(
        !slow.has_reported()?,
        "the slow process has opened the ring"
    );
    interrupt(&other, &handled)?;
    let opened = other.finish()?;
    limited.set("cpu.max", "max")?;
    expect("the slow open", slow.finish()?, Ok(()))?;
    expect("the other open", opened, Err(Errno::EINTR as i32))
}

// ---- a process that is stopped ----

const ROUNDS: u64 = 30;

/// Waits until the process is stopped, or has ended.
fn stop<T: DeserializeOwned>(child: &Child<T>, signal: impl FnOnce() -> Result<()>) -> Result<()> {
    signal()?;
    eventually("the process is stopped", || {
        let stopped = proc::stat(child.pid()).is_some_and(|stat| stat.state == 'T');
        Ok((stopped || child.has_reported()?).then_some(()))
    })
}

fn beside_stopped(slow: Operation, other: Operation) -> Result<()> {
    let (channels, shared) = (Channels::new()?, Shared::new()?);
    let slow = shared.slow(&channels, slow)?;
    let other = shared.other(&channels, other)?;
    let more = |word, calls| {
        let count = shared.words.get(word) + calls;
        shared.wait(word, count, (&slow, &other))
    };
    for _ in 0..ROUNDS {
        more(SLOW_CALLS, 2)?;
        stop(&slow, || slow.signal(Signal::SIGSTOP))?;
        more(CALLS, 10)?;
        slow.signal(Signal::SIGCONT)?;
    }
    shared.words.set(DONE, 1);
    other.finish()?;
    slow.finish().map(drop)
}

fn every_kind_is_used_beside_a_stopped_process(_: &Context) -> Result<()> {
    let pairs: [(_, Operation, Operation); 6] = [
        ("a writer of a pipe", write_pipe, read_pipe),
        ("a reader of a pipe", read_pipe, write_pipe),
        ("a sender of a bus", send_long, exchange_short),
        ("a receiver of a bus", receive_slowly, exchange_long),
        ("a writer of a map", set_many, set_and_get),
        ("a reader of a map", get_many, set_and_get),
    ];
    pairs
        .into_iter()
        .try_for_each(|(what, slow, other)| beside_stopped(slow, other).context(what))
}

/// A child that receives messages of 8 bytes, and counts them in this word.
fn receiver(end: &OwnedFd, words: &SharedWords, word: usize) -> Result<Child<()>> {
    spawn_keeping("a receiver", &[end.as_fd()], || -> Result<()> {
        for count in 1.. {
            expect("bytes", read_some(end, 8)?.len(), 8)?;
            words.set(word, count);
        }
        bail!("no more numbers")
    })
}

/// Stops the first of two receivers while data arrives. Either receiver may take that data; only the second one takes
/// the data that arrives later.
fn receive_beside_stopped(sender: &OwnedFd, ends: [&OwnedFd; 2]) -> Result<()> {
    let words = SharedWords::new(2)?;
    let first = receiver(ends[0], &words, 0)?;
    let second = receiver(ends[1], &words, 1)?;
    let send = || bus::send(sender, &[7; 8]).context("sending");
    for round in 0..ROUNDS {
        for child in [&first, &second] {
            child.wait_asleep_in(Call::Read)?;
        }
        stop(&first, || {
            if round % 2 == 0 {
                send()?;
            }
            first.signal(Signal::SIGSTOP)?;
            if round % 3 == 0 {
                send()?;
            }
            Ok(())
        })?;
        eventually("what arrived is taken", || {
            Ok((bytes_waiting(ends[1]).unwrap_or(0) == 0).then_some(()))
        })?;
        second.wait_asleep_in(Call::Read)?;
        let before = words.get(1);
        for number in 1..=4 {
            send()?;
            eventually("the other one receives", || {
                Ok((words.get(1) == before + number).then_some(()))
            })?;
        }
        first.signal(Signal::SIGCONT)?;
    }
    first.kill()?;
    second.kill()
}

fn a_stopped_receiver_leaves_data_to_others(_: &Context) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.open(Open::new("pipe", BOTH | CREATE))?;
    receive_beside_stopped(&pipe, [&pipe, &pipe]).context("a pipe")?;
    let buses = bus::Buses::new()?;
    let sender = buses.create(bus::unicast())?;
    let receiver = || -> Result<OwnedFd> {
        let end = buses.subscribe(bus::Params::default())?;
        set_blocking(&end)?;
        Ok(end)
    };
    receive_beside_stopped(&sender, [&receiver()?, &receiver()?]).context("a unicast bus")
}
