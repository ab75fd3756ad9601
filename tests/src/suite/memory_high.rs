// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process whose cgroup is above its memory.high sleeps for up to 2 s each time it has allocated some memory, also
//! within a system call. With each kind of channel it must hold nothing then that another process needs.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::unistd::{Pid, read, write};

use crate::registry::{Context, topic};
use crate::support::bus::{self, DROP, skip_without_long_messages, with_policy};
use crate::support::check::note;
use crate::support::child::spawn_keeping;
use crate::support::ctl::{
    BOTH, CREATE, Ctl, KIND_BUS, KIND_MAP, KIND_PIPE, KIND_RING, NONBLOCK, OWN, Open, READ, WRITE,
    access_of,
};
use crate::support::event::Event;
use crate::support::ioctl::{self, SET_CAPACITY};
use crate::support::map::{self, Op, STEP_SET, Step};
use crate::support::memcg::{Accounts, lock_memory, set_memory_high};
use crate::support::memory::PAGE;
use crate::support::shared_channels::{open_shared, unless_blocked};
use crate::support::time::{eventually, scaled};

topic!(
    "memory_high",
    fifo: [],
    pipe_only: [
        a_pipe_is_read_beside_a_slow_writer,
        a_bus_is_used_beside_a_slow_sender,
        a_map_is_used_beside_a_slow_writer,
        channels_are_created_and_listed_beside_a_slow_creator,
    ],
);

const MIB: u64 = 1 << 20;
const SCRATCH: usize = 2 << 20;
/// Far below what the processes have.
const HIGH: u64 = 256 << 10;
/// A sleep for memory takes up to 2 s.
const DELAY_MAX: Duration = Duration::from_millis(500);
/// Several sleeps for memory.
const WINDOW: Duration = Duration::from_secs(6);
/// So many slow calls can have other reasons, such as a pause of the machine.
const OTHER_DELAYS: usize = 1;

/// Both processes have the same endpoints.
struct Channels {
    ctl: Ctl,
    pipe: OwnedFd,
    sender: OwnedFd,
    subscriber: OwnedFd,
    map: OwnedFd,
}

impl Channels {
    fn new() -> Result<Self> {
        let ctl = Ctl::new()?;
        let open = |kind, flags, params, capacity| open_shared(&ctl, kind, flags, params, capacity);
        let policy = with_policy(DROP);
        let policy = std::ptr::from_ref(&policy) as u64;
        Ok(Channels {
            pipe: open(KIND_PIPE, BOTH, 0, MIB)?,
            sender: open(KIND_BUS, WRITE, 0, 4 * MIB)?,
            subscriber: open(KIND_BUS, READ, policy, 4 * MIB)?,
            map: open(KIND_MAP, BOTH, 0, 64 * MIB)?,
            ctl,
        })
    }

    fn fds(&self) -> [BorrowedFd<'_>; 5] {
        let Channels {
            ctl,
            pipe,
            sender,
            subscriber,
            map,
        } = self;
        [
            ctl.as_fd(),
            pipe.as_fd(),
            sender.as_fd(),
            subscriber.as_fd(),
            map.as_fd(),
        ]
    }
}

/// Memory of a process that is present: it is slowed down for that of channels only.
type Scratch = [u8];

type Operation = fn(&Channels, &mut Scratch) -> nix::Result<()>;

/// Fills a pipe whose pages are new. Other writers of a pipe wait meanwhile, as those of pipe(2).
fn fill_pipe(channels: &Channels, scratch: &mut Scratch) -> nix::Result<()> {
    for capacity in [PAGE as u64, MIB] {
        // It may have too many bytes, or be in use.
        let _ = ioctl::set(&channels.pipe, SET_CAPACITY, capacity);
    }
    unless_blocked(write(&channels.pipe, &scratch[..MIB as usize])).map(drop)
}

fn read_pipe(channels: &Channels, scratch: &mut Scratch) -> nix::Result<()> {
    unless_blocked(read(&channels.pipe, scratch)).map(drop)
}

fn send_long(channels: &Channels, scratch: &mut Scratch) -> nix::Result<()> {
    unless_blocked(write(&channels.sender, &scratch[..bus::longest()])).map(drop)
}

fn send_and_receive(channels: &Channels, scratch: &mut Scratch) -> nix::Result<()> {
    unless_blocked(write(&channels.sender, &scratch[..64]))?;
    unless_blocked(read(&channels.subscriber, scratch)).map(drop)
}

fn set_many(channels: &Channels, scratch: &mut Scratch) -> nix::Result<()> {
    let keys: Vec<_> = (0..64_u32).map(u32::to_ne_bytes).collect();
    let step = |key: &[u8; 4]| Step::new(STEP_SET, &Op::set(key, &scratch[..60_000]));
    let mut steps: Vec<_> = keys.iter().map(step).collect();
    map::batch(&channels.map, &mut steps)?;
    keys.iter()
        .try_for_each(|key| map::delete(&channels.map, key).map(drop))
}

fn set_one(channels: &Channels, _: &mut Scratch) -> nix::Result<()> {
    map::set(&channels.map, b"short", b"value")?;
    map::get(&channels.map, b"short").map(drop)
}

/// Creates a channel of this process alone, and lists the names of the scope.
fn create(channels: &Channels, kind: u32, capacity: u64) -> nix::Result<()> {
    let name = format!("own-{}", Pid::this());
    let request = Open::new(name, access_of(kind) | CREATE | NONBLOCK);
    let created = channels.ctl.open(Open {
        kind,
        capacity,
        ..request
    });
    let _end = created?;
    channels.ctl.names(OWN).map(drop)
}

/// Whether the process sleeps for memory, in a system call or at its end.
fn is_slowed_down(pid: Pid) -> Option<()> {
    let stack = fs::read_to_string(format!("/proc/{pid}/stack")).ok()?;
    stack.contains("over_high").then_some(())
}

/// The longest calls of the other process, the first one without those that may have other reasons.
fn delays(channels: &Channels, short: Operation) -> Result<[Duration; 2]> {
    let mut scratch = vec![7; SCRATCH];
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < WINDOW || times.len() < 100 {
        let since = Instant::now();
        short(channels, &mut scratch).context("a short call")?;
        times.push(since.elapsed());
    }
    times.sort_unstable_by(|a, b| b.cmp(a));
    Ok([times[OTHER_DELAYS], times[0]])
}

/// The slow process repeats `allocating`, and another one `short`.
fn beside(context: &Context, allocating: Operation, short: Operation) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let other = spawn_keeping("the other process", &[], || {
        accounts.creator.enter()?;
        let channels = Channels::new()?;
        let ready = Event::new()?;
        let keep = [&channels.fds()[..], &ready.fds()].concat();
        let slow = spawn_keeping("the slow process", &keep, || -> Result<()> {
            let mut scratch = vec![7; SCRATCH];
            lock_memory()?;
            ready.notify()?;
            loop {
                allocating(&channels, &mut scratch)?;
            }
        })?;
        accounts.other.enter()?;
        ready.wait("the slow process has its own memory")?;
        set_memory_high(&accounts.creator, HIGH)?;
        eventually("it is slowed down", || Ok(is_slowed_down(slow.pid())))?;
        let delays = delays(&channels, short)?;
        slow.kill()?;
        Ok(delays)
    })?;
    let [delay, longest] = other.finish()?;
    note(format!(
        "the longest calls take {longest:?}, and {delay:?} without {OTHER_DELAYS}"
    ));
    let limit = scaled(DELAY_MAX).min(Duration::from_millis(1500));
    ensure!(
        delay < limit,
        "more than {OTHER_DELAYS} call took {delay:?}"
    );
    Ok(())
}

fn a_pipe_is_read_beside_a_slow_writer(context: &Context) -> Result<()> {
    beside(context, fill_pipe, read_pipe)
}

fn a_bus_is_used_beside_a_slow_sender(context: &Context) -> Result<()> {
    // Shorter ones need no memory.
    skip_without_long_messages()?;
    beside(context, send_long, send_and_receive)
}

fn a_map_is_used_beside_a_slow_writer(context: &Context) -> Result<()> {
    beside(context, set_many, set_one)
}

fn channels_are_created_and_listed_beside_a_slow_creator(context: &Context) -> Result<()> {
    beside(
        context,
        |channels, _| create(channels, KIND_RING, 8 * MIB),
        |channels, _| create(channels, KIND_PIPE, 0),
    )
}
