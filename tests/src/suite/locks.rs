// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which locks of the module an operation takes, as reported by lockdep's tracepoint. Only the debug kernel has it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use anyhow::{Context as _, Result, ensure};
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::unistd::Pid;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::{CAPACITY, Channel, PIPE_BUF, read_all, write_all};
use crate::support::check::{expect, expect_bytes};
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{BOTH, CREATE, Ctl, Open};
use crate::support::event::Event;
use crate::support::lock_trace::{LOCKS_FOR_ALL, Lock, LockTrace, locks_of_pipes};
use crate::support::poll;
use crate::support::proc::{Call, wait_asleep_in};

topic!(
    "locks",
    fifo: [],
    pipe_only: [
        moving_data_takes_no_lock_of_another_scope,
    ],
);

const ROUNDS: usize = 8;
const MESSAGE: &[u8] = b"there and back";
/// More than the capacity: the writer blocks until some of it is read.
const OVERFLOW: usize = CAPACITY + PIPE_BUF;

/// A step that all processes execute at the same time.
struct Stage {
    go: Event,
    done: Event,
}

impl Stage {
    fn new() -> Result<Self> {
        Ok(Stage {
            go: Event::new()?,
            done: Event::new()?,
        })
    }

    fn run<T>(&self, body: impl FnOnce() -> Result<T>) -> Result<T> {
        self.go.wait("the stage begins")?;
        let result = body()?;
        self.done.notify()?;
        Ok(result)
    }
}

struct Stages {
    open: Stage,
    warm_up: Stage,
    moving: Stage,
    /// All endpoints stay open until this stage: closing takes the same locks as opening.
    end: Stage,
}

impl Stages {
    fn new() -> Result<Self> {
        Ok(Stages {
            open: Stage::new()?,
            warm_up: Stage::new()?,
            moving: Stage::new()?,
            end: Stage::new()?,
        })
    }

    fn spawn(&self, what: &str, body: impl FnOnce() -> Result<()>) -> Result<Child<()>> {
        let all = [&self.open, &self.warm_up, &self.moving, &self.end];
        let keep: Vec<_> = all
            .into_iter()
            .flat_map(|stage| [stage.go.fds(), stage.done.fds()].concat())
            .collect();
        spawn_keeping(what, &keep, body)
    }
}

/// The pipes of one scope: the default pipe leads from near to far, a named pipe back.
struct Ends {
    there: OwnedFd,
    back: OwnedFd,
}

impl Ends {
    fn open(channel: &Channel) -> Result<Self> {
        let back = Ctl::new()?.open(Open::new("back", BOTH | CREATE));
        Ok(Ends {
            there: channel.open_read_write()?,
            back: back.context("opening the named pipe")?,
        })
    }

    fn answer(&self) -> Result<()> {
        write_all(&self.back, &read_all(&self.there, MESSAGE.len())?)
    }

    /// The far process answers, blocking in a different call each time, and then writes more than the capacity.
    fn far(&self) -> Result<()> {
        for _ in 0..ROUNDS {
            self.answer()?;
        }
        poll::wait(&self.there, poll::IN, -1).context("poll")?;
        self.answer()?;
        let epoll = poll::epoll_on(&self.there, EpollFlags::EPOLLIN)?;
        poll::epoll_event(&epoll, EpollTimeout::NONE).context("epoll_wait")?;
        self.answer()?;
        write_all(&self.back, &[b'.'; OVERFLOW])
    }

    /// The near process wakes the far one in each of its calls.
    fn near(&self, far: Pid) -> Result<()> {
        let waits = [Call::Read; ROUNDS].into_iter();
        for call in waits.chain([Call::Poll, Call::Epoll]) {
            wait_asleep_in(far, call)?;
            write_all(&self.there, MESSAGE)?;
            expect_bytes("the answer", &read_all(&self.back, MESSAGE.len())?, MESSAGE)?;
        }
        wait_asleep_in(far, Call::Write)?;
        expect_bytes(
            "the bytes beyond the capacity",
            &read_all(&self.back, OVERFLOW)?,
            &[b'.'; OVERFLOW],
        )
    }
}

/// Two processes in one cgroup.
struct Pair {
    near: Child<()>,
    far: Child<()>,
}

impl Pair {
    fn spawn(stages: &Stages, cgroup: &Cgroup, channel: &Channel) -> Result<Self> {
        let role = |name: &str, moves: &dyn Fn(&Ends) -> Result<()>| {
            stages.spawn(name, || {
                cgroup.enter()?;
                let ends = stages.open.run(|| Ends::open(channel))?;
                stages.warm_up.run(|| moves(&ends))?;
                stages.moving.run(|| moves(&ends))?;
                stages.end.run(|| Ok(()))
            })
        };
        let far = role("the far process", &Ends::far)?;
        let pid = far.pid();
        let near = role("the near process", &|ends| ends.near(pid))?;
        Ok(Pair { near, far })
    }

    fn pids(&self) -> [Pid; 2] {
        [self.near.pid(), self.far.pid()]
    }
}

struct Pairs {
    stages: Stages,
    pairs: [Pair; 2],
    trace: LockTrace,
}

impl Pairs {
    fn run(&self, stage: &Stage) -> Result<()> {
        let everyone = self.pairs.iter().flat_map(Pair::pids);
        everyone.clone().try_for_each(|_| stage.go.notify())?;
        everyone
            .clone()
            .try_for_each(|_| stage.done.wait("a process has finished the stage"))
    }

    /// Waits for the children. The error of a child says more than the error that it caused here.
    fn end(self, observed: Result<()>) -> Result<()> {
        for child in self
            .pairs
            .into_iter()
            .flat_map(|pair| [pair.far, pair.near])
        {
            if observed.is_ok() || child.has_ended()? {
                child.finish()?;
            }
        }
        observed
    }

    /// The module's locks that each pair takes in this stage.
    fn locks_of(&self, stage: &Stage) -> Result<[BTreeSet<Lock>; 2]> {
        let [first, second] = self.pairs.each_ref().map(Pair::pids);
        let pids = [first, second].concat();
        let taken = self.trace.during(&pids, || self.run(stage))?;
        let of_pair = |taken: &[BTreeSet<Lock>]| taken.iter().flatten().cloned().collect();
        Ok([of_pair(&taken[..2]), of_pair(&taken[2..])])
    }
}

fn count(locks: &BTreeSet<Lock>, name: &str) -> usize {
    locks.iter().filter(|lock| lock.name == name).count()
}

fn shared(locks: &[BTreeSet<Lock>; 2]) -> BTreeSet<&str> {
    let both = locks[0].intersection(&locks[1]);
    both.map(|lock| lock.name.as_str()).collect()
}

fn observe(pairs: &Pairs) -> Result<()> {
    let opening = pairs.locks_of(&pairs.stages.open)?;
    expect(
        "locks that both pairs took to open",
        shared(&opening),
        BTreeSet::from(LOCKS_FOR_ALL),
    )?;
    pairs.run(&pairs.stages.warm_up)?;
    let moving = pairs.locks_of(&pairs.stages.moving)?;
    expect(
        "locks of the module's that both pairs took to move data",
        shared(&moving),
        BTreeSet::new(),
    )?;
    for locks in &moving {
        for name in LOCKS_FOR_ALL {
            expect(&format!("{name} while data moves"), count(locks, name), 0)?;
        }
        for (name, pipes) in [
            ("&pipe->read_mutex", 2),
            ("&pipe->write_mutex", 2),
            ("&pipe->readable", 1),
            ("&pipe->writable", 1),
        ] {
            let seen = count(locks, name);
            ensure!(
                (pipes..=2).contains(&seen),
                "{name} of {seen} pipes was seen, expected {pipes} to 2: {locks:?}"
            );
        }
    }
    pairs.run(&pairs.stages.end)
}

/// The open stage shows that the trace would reveal a shared lock. The mutexes and wait queues of each pair's two pipes
/// show that it reveals what moving data takes.
fn moving_data_takes_no_lock_of_another_scope(context: &Context) -> Result<()> {
    let trace = LockTrace::for_locks(&locks_of_pipes())?;
    let home = context.cgroup()?;
    let stages = Stages::new()?;
    let pair = |name| Pair::spawn(&stages, &home.create_child(name)?, &context.channel);
    let pairs = [pair("first")?, pair("second")?];
    let pairs = Pairs {
        stages,
        pairs,
        trace,
    };

    let observed = observe(&pairs);
    pairs.end(observed)
}
