// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes create, open, list and unlink the same few names concurrently, while their cgroups are removed and
//! created.

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
use crate::support::kernel::{expect_no_objects, mark_log};
use crate::support::time::Deadline;
use sluice_testkit::host::Host;

topic!(
    "ctl_races",
    fifo: [],
    pipe_only: [
        concurrent_operations_leak_nothing,
        one_of_two_exclusive_creators_succeeds,
        traced_cgroup_removals_free_their_channels,
    ],
);

const CGROUPS: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const MESSAGE: &[u8] = b"whole message";

fn cgroup_path(home: &Cgroup, number: usize) -> std::path::PathBuf {
    home.path().join(format!("cgroup-{number}"))
}

/// Fails unless the call succeeded or failed with one of these errnos.
fn expect_any<T>(what: &str, result: nix::Result<T>, allowed: &[Errno]) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if allowed.contains(&error) => Ok(None),
        Err(error) => Err(error).context(what.to_owned()),
    }
}

/// A process that repeats one operation in random cgroups.
struct Worker<'a> {
    home: &'a Cgroup,
    ctl: Ctl,
    random: Rng,
    deadline: Deadline,
}

impl Worker<'_> {
    fn name(&mut self) -> &'static str {
        NAMES[self.random.usize(..NAMES.len())]
    }

    /// The cgroup may be missing at any time.
    fn repeat(&mut self, mut task: impl FnMut(&mut Self, RawFd) -> Result<()>) -> Result<u64> {
        let mut times = 0;
        while !self.deadline.passed() {
            let number = self.random.usize(..CGROUPS);
            if let Ok(directory) = File::open(cgroup_path(self.home, number)) {
                task(self, directory.as_raw_fd())?;
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
        let allowed = [Errno::ENOENT, Errno::EEXIST];
        if let Some(end) = expect_any("creating", opened, &allowed)? {
            expect_any("writing", write(&end, MESSAGE), &[Errno::EAGAIN])?;
        }
        // An open for writing alone leaves no channel, whether it fails or not.
        let request = Open::new(self.name(), WRITE | CREATE | NONBLOCK | flags);
        let opened = self.ctl.open(Open {
            scope_fd,
            ..request
        });
        let allowed = [Errno::ENOENT, Errno::EEXIST, Errno::ENXIO];
        expect_any("creating for writing", opened, &allowed).map(drop)
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
                "read {:?}, which was not written",
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
            let valid = channel.kind == KIND_PIPE && channel.flags & !PERSISTENT == 0;
            ensure!(known && valid, "the list has {channel:?}");
        }
        let name = self.name();
        let info = self.ctl.info(scope_fd, name);
        expect_any("info", info, &[Errno::ENOENT]).map(drop)
    }

    /// A channel does not prevent the removal of its cgroup.
    fn recreate_cgroups(&mut self) -> Result<u64> {
        let mut times = 0;
        while !self.deadline.passed() {
            let path = cgroup_path(self.home, self.random.usize(..CGROUPS));
            fs::remove_dir(&path).context("removing a cgroup")?;
            fs::create_dir(&path).context("creating a cgroup")?;
            times += 1;
            // Long enough for the other processes to create some channels.
            std::thread::sleep(Duration::from_micros(self.random.u64(..3000)));
        }
        Ok(times)
    }
}

type Task = fn(&mut Worker) -> Result<u64>;

const TASKS: [(&str, Task); 6] = [
    ("the first creator", |worker| worker.repeat(Worker::create)),
    ("the second creator", |worker| worker.repeat(Worker::create)),
    ("the opener", |worker| worker.repeat(Worker::attach)),
    ("the unlinker", |worker| worker.repeat(Worker::unlink)),
    ("the lister", |worker| worker.repeat(Worker::list)),
    ("the remover of cgroups", |worker| worker.recreate_cgroups()),
];

/// As `Child::finish`, for children that run until their own deadline.
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

fn concurrent_operations_leak_nothing(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let created: io::Result<()> =
        (0..CGROUPS).try_for_each(|number| fs::create_dir(cgroup_path(home, number)));
    created.context("creating the first cgroups")?;
    let mut children = Vec::new();
    for (seed, (what, task)) in TASKS.iter().enumerate() {
        children.push(spawn(what, || {
            task(&mut Worker {
                home,
                ctl: Ctl::new()?,
                random: Rng::with_seed(seed as u64),
                deadline: Deadline::after(context.durations.races),
            })
        })?);
    }
    let times = finish_all(children, context.durations.races)?;
    mark_log(&format!("times: {times:?}"));
    expect(
        "processes without any operation",
        times.iter().filter(|&&n| n == 0).count(),
        0,
    )?;
    (0..CGROUPS).try_for_each(|number| {
        fs::remove_dir(cgroup_path(home, number)).context("removing the last cgroups")
    })?;
    expect_no_objects()?;
    home.expect_dying(dying)
}

/// Enables the tracing of cgroup events: the kernel then reports a removal while it holds a lock of its own.
struct TracedCgroups {
    before: String,
}

impl TracedCgroups {
    const ENABLE: &str = "/sys/kernel/tracing/events/cgroup/enable";

    /// Skips the test where that would patch the code of a kernel whose processors are emulated: one of them now and then
    /// executes what was there before, for ever. tests/guest/suite enables the events on kernels with checkers.
    fn enable() -> Result<Self> {
        let before = match fs::read_to_string(Self::ENABLE) {
            Ok(before) => before,
            Err(error) => return Err(skip(format!("{} cannot be read: {error}", Self::ENABLE))),
        };
        if !before.starts_with('1') && Host::probe().is_emulated() {
            return Err(skip("the processors are emulated; see the debug kernel"));
        }
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
        // If tracing stays enabled, tests/guest/suite reports it.
        let _ = fs::write(Self::ENABLE, value);
    }
}

/// Each reported removal looks up a scope. Meanwhile other processes create and free scopes, and cgroups become empty,
/// which is reported from interrupt context.
fn traced_cgroup_removals_free_their_channels(context: &Context) -> Result<()> {
    const ROUNDS: usize = 15;
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let traced = TracedCgroups::enable()?;
    let run = |number: usize| {
        spawn("a creator and remover of cgroups", move || {
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
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn one_of_two_exclusive_creators_succeeds(context: &Context) -> Result<()> {
    const ROUNDS: usize = 500;
    // Both use the same names, one per round; the channels stay until both have finished.
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
    expect_no_objects()
}
