// SPDX-License-Identifier: MIT OR Apache-2.0
//! Everybody makes, finds, lists and removes the same few names at once, while their cgroups come and go.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::unistd::write;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::read_some;
use crate::support::check::{expect, skip};
use crate::support::child::{Child, spawn};
use crate::support::ctl::{
    BOTH, CREATE, Ctl, EXCL, KIND_PIPE, NONBLOCK, OWN, Open, PERSIST, PERSISTENT, READ, WRITE,
};
use crate::support::kernel::{expect_nothing_held, mark_log};
use crate::support::time::Deadline;

topic!(
    "ctl_races",
    fifo: [],
    pipe_only: [
        whatever_happens_at_once_nothing_is_left,
        of_two_who_make_it_exclusively_one_does,
        cgroups_whose_removal_is_traced_release_their_channels,
    ],
);

const ROOMS: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const MESSAGE: &[u8] = b"whole message";

fn room(home: &Cgroup, number: usize) -> std::path::PathBuf {
    home.path().join(format!("room-{number}"))
}

/// Fails unless it worked or one of these is why not.
fn expect_any<T>(what: &str, result: nix::Result<T>, fine: &[Errno]) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if fine.contains(&error) => Ok(None),
        Err(error) => Err(error).context(what.to_owned()),
    }
}

/// One who does one thing, over and over, somewhere.
struct Actor<'a> {
    home: &'a Cgroup,
    ctl: Ctl,
    random: Rng,
    deadline: Deadline,
}

impl Actor<'_> {
    fn name(&mut self) -> &'static str {
        NAMES[self.random.usize(..NAMES.len())]
    }

    /// What is worked on is no longer there, or not yet, as often as it is.
    fn each_time(&mut self, mut act: impl FnMut(&mut Self, RawFd) -> Result<()>) -> Result<u64> {
        let mut times = 0;
        while !self.deadline.passed() {
            let number = self.random.usize(..ROOMS);
            if let Ok(directory) = File::open(room(self.home, number)) {
                act(self, directory.as_raw_fd())?;
                times += 1;
            }
        }
        Ok(times)
    }

    fn create(&mut self, scope_fd: RawFd) -> Result<()> {
        let flags = [0, EXCL, PERSIST, EXCL | PERSIST][self.random.usize(..=3)];
        let request = Open::new(self.name(), BOTH | CREATE | NONBLOCK | flags);
        let opened = self.ctl.open(Open {
            scope_fd,
            ..request
        });
        let fine = [Errno::ENOENT, Errno::EEXIST];
        if let Some(end) = expect_any("creating", opened, &fine)? {
            expect_any("writing", write(&end, MESSAGE), &[Errno::EAGAIN])?;
        }
        // Refused or not, one for writing alone makes nothing that stays.
        let request = Open::new(self.name(), WRITE | CREATE | NONBLOCK | flags);
        let opened = self.ctl.open(Open {
            scope_fd,
            ..request
        });
        let fine = [Errno::ENOENT, Errno::EEXIST, Errno::ENXIO];
        expect_any("creating for writing", opened, &fine).map(drop)
    }

    fn attach(&mut self, scope_fd: RawFd) -> Result<()> {
        let side = [READ, BOTH][self.random.usize(..=1)];
        let request = Open::new(self.name(), side | NONBLOCK);
        let opened = self.ctl.open(Open {
            scope_fd,
            ..request
        });
        let Some(end) = expect_any("attaching", opened, &[Errno::ENOENT])? else {
            return Ok(());
        };
        let seen = read_some(&end, MESSAGE.len());
        if let Some(bytes) = expect_any("reading", seen, &[Errno::EAGAIN])? {
            ensure!(
                bytes.is_empty() || bytes == MESSAGE,
                "read {:?}, which nobody wrote",
                bytes.escape_ascii().to_string()
            );
        }
        Ok(())
    }

    fn unlink(&mut self, scope_fd: RawFd) -> Result<()> {
        let name = self.name();
        let unlinked = self.ctl.unlink(scope_fd, name);
        expect_any("unlinking", unlinked, &[Errno::ENOENT]).map(drop)
    }

    fn list(&mut self, scope_fd: RawFd) -> Result<()> {
        let page = self.ctl.page(scope_fd, None, 64);
        for channel in expect_any("listing", page, &[Errno::ENOENT])?.unwrap_or_default() {
            let known = NAMES.iter().any(|name| name.as_bytes() == channel.name());
            let sound = channel.kind == KIND_PIPE && channel.flags & !PERSISTENT == 0;
            ensure!(known && sound, "the list has {channel:?}");
        }
        let name = self.name();
        let info = self.ctl.info(scope_fd, name);
        expect_any("info", info, &[Errno::ENOENT]).map(drop)
    }

    /// A channel never keeps its cgroup from being removed.
    fn remove_and_make_rooms(&mut self) -> Result<u64> {
        let mut times = 0;
        while !self.deadline.passed() {
            let path = room(self.home, self.random.usize(..ROOMS));
            fs::remove_dir(&path).context("removing a cgroup")?;
            fs::create_dir(&path).context("making a cgroup")?;
            times += 1;
            // As short as it takes the others to fill it a little.
            std::thread::sleep(Duration::from_micros(self.random.u64(..3000)));
        }
        Ok(times)
    }
}

type Act = fn(&mut Actor) -> Result<u64>;

const ACTS: [(&str, Act); 6] = [
    ("one who creates", |actor| actor.each_time(Actor::create)),
    ("another who creates", |actor| {
        actor.each_time(Actor::create)
    }),
    ("one who attaches", |actor| actor.each_time(Actor::attach)),
    ("one who unlinks", |actor| actor.each_time(Actor::unlink)),
    ("one who lists", |actor| actor.each_time(Actor::list)),
    ("one who removes cgroups", |actor| {
        actor.remove_and_make_rooms()
    }),
];

/// As `Child::finish`, for children that go on until a deadline of their own.
fn finish_all(children: Vec<Child<u64>>, length: Duration) -> Result<Vec<u64>> {
    let deadline = Deadline::after(length);
    while !deadline.passed()
        && !children
            .iter()
            .any(|child| child.has_ended().unwrap_or(true))
    {
        std::thread::sleep(Duration::from_millis(10));
    }
    children.into_iter().map(Child::finish).collect()
}

fn whatever_happens_at_once_nothing_is_left(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let rooms: io::Result<()> =
        (0..ROOMS).try_for_each(|number| fs::create_dir(room(home, number)));
    rooms.context("making the first cgroups")?;
    let mut children = Vec::new();
    for (seed, (what, act)) in ACTS.iter().enumerate() {
        children.push(spawn(what, || {
            act(&mut Actor {
                home,
                ctl: Ctl::new()?,
                random: Rng::with_seed(seed as u64),
                deadline: Deadline::after(context.lengths.races),
            })
        })?);
    }
    let times = finish_all(children, context.lengths.races)?;
    mark_log(&format!("times: {times:?}"));
    expect(
        "how many did nothing",
        times.iter().filter(|&&n| n == 0).count(),
        0,
    )?;
    (0..ROOMS).try_for_each(|number| {
        fs::remove_dir(room(home, number)).context("removing the last cgroups")
    })?;
    expect_nothing_held()?;
    home.expect_dying(dying)
}

/// The events of cgroups, traced while this lives: the kernel then reports a removal under a lock of its own.
struct TracedCgroups {
    before: String,
}

impl TracedCgroups {
    const ENABLE: &str = "/sys/kernel/tracing/events/cgroup/enable";

    fn enable() -> Result<Self> {
        let before = match fs::read_to_string(Self::ENABLE) {
            Ok(before) => before,
            Err(error) => return Err(skip(format!("{} cannot be read: {error}", Self::ENABLE))),
        };
        let traced = TracedCgroups { before };
        fs::write(Self::ENABLE, "1").context("tracing cgroups")?;
        Ok(traced)
    }
}

impl Drop for TracedCgroups {
    fn drop(&mut self) {
        let value = if self.before.starts_with('1') {
            "1"
        } else {
            "0"
        };
        // What stays traced fails the run (tests/guest/suite); there is nobody to tell here.
        let _ = fs::write(Self::ENABLE, value);
    }
}

/// Each removal, as it is reported, looks up a scope, while others make and free scopes and become idle, which is reported
/// from interrupts.
fn cgroups_whose_removal_is_traced_release_their_channels(context: &Context) -> Result<()> {
    const ROUNDS: usize = 15;
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let traced = TracedCgroups::enable()?;
    let run = |number: usize| {
        spawn("one that makes and removes cgroups", move || {
            let ctl = Ctl::new()?;
            for round in 0..ROUNDS {
                let cgroup = home.create_child(&format!("cgroup-{number}-{round}"))?;
                let directory = cgroup.directory()?;
                for name in NAMES {
                    ctl.persist(directory.as_raw_fd(), name).context(name)?;
                }
                let inside = cgroup.spawn("a process inside", || {
                    Ctl::new()?
                        .attach(OWN, NAMES[0])
                        .map(drop)
                        .context("attaching")
                })?;
                inside.finish()?;
                cgroup.remove()?;
            }
            Ok(())
        })
    };
    let children: Result<Vec<Child<()>>> = (0..3).map(run).collect();
    children?.into_iter().try_for_each(Child::finish)?;
    drop(traced);
    expect_nothing_held()?;
    home.expect_dying(dying)
}

fn of_two_who_make_it_exclusively_one_does(context: &Context) -> Result<()> {
    const ROUNDS: usize = 500;
    // The same channels for both; each is told by its number, and stays until both are done.
    let run = || {
        let ctl = Ctl::new()?;
        let mut made = 0;
        for round in 0..ROUNDS {
            let opened = ctl.open(Open::new(
                format!("{round}"),
                BOTH | CREATE | EXCL | PERSIST,
            ));
            made += u64::from(expect_any("creating", opened, &[Errno::EEXIST])?.is_some());
        }
        Ok(made)
    };
    let cgroup = context.cgroup()?.create_child("both")?;
    let children = [cgroup.spawn("one", run)?, cgroup.spawn("other", run)?];
    let mut made = 0;
    for child in children {
        made += child.finish()?;
    }
    expect("channels that were made", made, ROUNDS as u64)?;
    let directory = cgroup.directory()?;
    let names = Ctl::new()?.names(directory.as_raw_fd());
    expect("names", names.map(|names| names.len()), Ok(ROUNDS))?;
    drop(directory);
    cgroup.remove()?;
    expect_nothing_held()
}
