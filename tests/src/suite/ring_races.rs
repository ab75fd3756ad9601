// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes open, map, use, detach, close and unlink the same few rings concurrently; some are killed, and cgroups are
//! removed meanwhile.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use nix::errno::Errno;
use nix::sys::signal::Signal;

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::check::{expect, note};
use crate::support::child::{Child, spawn};
use crate::support::ctl::{CREATE, EXCL, Open, PERSIST, READ, WRITE};
use crate::support::kernel::{expect_module_in_use, expect_no_objects, expect_no_page_leak};
use crate::support::memory::PAGE;
use crate::support::poll;
use crate::support::ring::{
    CAPACITY, MMAP_DATA, READ_ONLY, ROLE_DESTROYED, Region, Rings, Role, Side, detach, info,
    request, spawn_side, wait, wake,
};
use crate::support::shared::SharedWords;
use crate::support::time::Deadline;

topic!(
    "ring_races",
    fifo: [],
    pipe_only: [
        concurrent_operations_leak_nothing,
        racing_openers_of_both_roles_share_a_session,
        one_of_two_racing_openers_gets_the_role,
        a_racing_detach_and_death_end_a_role_once,
        racing_mappings_of_a_detached_endpoint_are_complete_or_refused,
        an_open_endpoint_keeps_the_module_loaded,
        a_persistent_ring_keeps_the_module_loaded_until_it_is_unlinked,
        a_removed_cgroup_frees_its_persistent_rings,
        an_endpoint_of_a_removed_cgroup_works_until_it_is_closed,
        many_sessions_leak_no_page,
    ],
);

const NAME: &str = "ring";
const CGROUPS: usize = 2;
const NAMES: [&str; 3] = ["a", "b", "c"];

fn cgroup_path(home: &Cgroup, number: usize) -> PathBuf {
    home.path().join(format!("cgroup-{number}"))
}

/// The value, or none if the call failed with one of these errnos.
fn allow<T>(what: &str, result: nix::Result<T>, allowed: &[Errno]) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if allowed.contains(&error) => Ok(None),
        Err(error) => Err(error).context(what.to_owned()),
    }
}

/// A process that uses rings at random.
struct User<'a> {
    home: &'a Cgroup,
    rings: Rings,
    random: Rng,
}

impl User<'_> {
    fn name(&mut self) -> &'static str {
        NAMES[self.random.usize(..NAMES.len())]
    }

    /// A directory of a cgroup, unless it is being removed.
    fn directory(&mut self) -> Option<File> {
        let number = self.random.usize(..CGROUPS);
        File::open(cgroup_path(self.home, number)).ok()
    }

    fn step(&mut self) -> Result<()> {
        let Some(directory) = self.directory() else {
            return Ok(());
        };
        let name = self.name();
        let role = Role::ALL[self.random.usize(..2)];
        let flags = [0, CREATE, CREATE | PERSIST, CREATE | EXCL][self.random.usize(..4)];
        let capacity = [PAGE, CAPACITY, 16 * PAGE][self.random.usize(..3)];
        let opened = self.rings.open(Open {
            scope_fd: directory.as_raw_fd(),
            capacity: capacity as u64,
            ..request(name, role.flag() | flags)
        });
        let refused = [Errno::EBUSY, Errno::ENOENT, Errno::EEXIST, Errno::EPIPE];
        if let Some(end) = allow("opening", opened, &refused)? {
            self.use_end(end)?;
        }
        match self.random.u8(..8) {
            0 => {
                let name = self.name();
                let unlinked = self.rings.unlink_in(directory.as_raw_fd(), name);
                allow("unlinking", unlinked, &[Errno::ENOENT])?;
            }
            1 => {
                let page = self.rings.0.page(directory.as_raw_fd(), None, 8);
                for channel in allow("listing", page, &[Errno::ENOENT])?.unwrap_or_default() {
                    ensure!(
                        channel.bytes <= channel.capacity,
                        "the list has {channel:?}"
                    );
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Some of these endpoints are never mapped.
    fn use_end(&mut self, end: OwnedFd) -> Result<()> {
        if self.random.u8(..4) == 0 {
            return allow("detaching", detach(&end), &[]).map(drop);
        }
        let side = Side::of(end)?;
        for _ in 0..self.random.usize(1..12) {
            self.use_side(&side)?;
        }
        if self.random.u8(..4) == 0 {
            // Its mappings hold the role until it ends.
            let child = spawn("a child with the mappings", || {
                side.own.set_closed(1);
                Ok(())
            })?;
            drop(side);
            child.finish()?;
        }
        Ok(())
    }

    fn use_side(&mut self, side: &Side) -> Result<()> {
        let ended = [Errno::EPIPE];
        match self.random.u8(..9) {
            0 => allow("waking", wake(side), &ended).map(drop),
            1 => allow("notifying", side.notify(), &ended).map(drop),
            2 => {
                let timeout = self.random.u64(..200_000);
                let waited = wait(side, side.seq(), timeout);
                allow("waiting", waited, &[Errno::ETIMEDOUT, Errno::EPIPE]).map(drop)
            }
            3 => allow("polling", poll::wait(side, poll::IN, 0), &[]).map(drop),
            4 => {
                let position = self.random.u64(..1 << 20);
                side.own.pos().store(position, Ordering::Relaxed);
                Ok(())
            }
            5 => {
                let again = Region::map(side, MMAP_DATA, side.data.len(), READ_ONLY);
                allow("mapping", again, &ended).map(drop)
            }
            6 => {
                let state = info(side).context("info")?;
                let known = |state| state <= ROLE_DESTROYED;
                ensure!(
                    known(state.producer) && known(state.consumer),
                    "info says {state:?}"
                );
                Ok(())
            }
            7 => side.data.advise(libc::MADV_DONTNEED).context("advice"),
            _ if self.random.u8(..8) == 0 => allow("detaching", detach(side), &ended).map(drop),
            _ => {
                side.data.read(0, 8);
                Ok(())
            }
        }
    }
}

fn spawn_user(home: &Cgroup, seed: u64, steps: &SharedWords) -> Result<Child<()>> {
    spawn(&format!("user {seed}"), || {
        let mut user = User {
            home,
            rings: Rings::new()?,
            random: Rng::with_seed(seed),
        };
        loop {
            user.step()?;
            steps.words()[0].fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn concurrent_operations_leak_nothing(context: &Context) -> Result<()> {
    const USERS: usize = 4;
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    for number in 0..CGROUPS {
        fs::create_dir(cgroup_path(home, number)).context("creating a cgroup")?;
    }
    let steps = SharedWords::new(1)?;
    let mut seeds = 0..;
    let mut spawn_next = || spawn_user(home, seeds.next().context("seeds never end")?, &steps);
    let mut users = (0..USERS)
        .map(|_| spawn_next())
        .collect::<Result<Vec<_>>>()?;
    let mut random = Rng::with_seed(u64::MAX);
    let deadline = Deadline::after(context.durations.races);
    // On a busy machine 100 steps take longer than the deadline.
    while !deadline.passed() || steps.get(0) <= 100 {
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        let index = random.usize(..USERS);
        // A user ends by itself only if it failed.
        if users[index].has_ended()? {
            users.swap_remove(index).finish()?;
        }
        users[index].signal(Signal::SIGKILL)?;
        std::mem::replace(&mut users[index], spawn_next()?).wait_end()?;
        if random.u8(..4) == 0 {
            let path = cgroup_path(home, random.usize(..CGROUPS));
            fs::remove_dir(&path).context("removing a cgroup")?;
            fs::create_dir(&path).context("creating a cgroup")?;
        }
    }
    users.into_iter().try_for_each(Child::kill)?;
    note(format!("{} steps", steps.get(0)));
    for number in 0..CGROUPS {
        fs::remove_dir(cgroup_path(home, number)).context("removing the last cgroups")?;
    }
    expect_no_objects()?;
    home.expect_dying(dying)
}

/// An old session has endpoints, so there is memory for one new session only: the second opener joins that of the first.
fn racing_openers_of_both_roles_share_a_session(_: &Context) -> Result<()> {
    const ROUNDS: usize = 100;
    let rings = Rings::new()?;
    for round in 0..ROUNDS {
        let name = format!("{round}");
        rings.persist(&name)?;
        let (old_producer, old_consumer) = rings.sides(&name)?;
        for old in [&old_producer, &old_consumer] {
            detach(old).context("detaching")?;
        }
        let opened = std::thread::scope(|scope| {
            let producer = scope.spawn(|| rings.attach(&name, Role::Producer));
            let consumer = rings.attach(&name, Role::Consumer);
            let producer = producer.join().expect("the thread does not panic");
            Ok::<_, Errno>((producer?, consumer?))
        });
        let (producer, consumer) = opened.with_context(|| format!("round {round}"))?;
        let (producer, consumer) = (Side::of(producer)?, Side::of(consumer)?);
        producer.publish(b"shared");
        expect("data", consumer.data.read(0, 6), b"shared".to_vec())?;
        rings.unlink(&name).context("unlinking")?;
    }
    expect_no_objects()
}

/// Both use the same names, one per round.
fn one_of_two_racing_openers_gets_the_role(context: &Context) -> Result<()> {
    const ROUNDS: usize = 300;
    let cgroup = context.cgroup()?.create_child("both")?;
    let run = || {
        let rings = Rings::new()?;
        let mut taken = Vec::with_capacity(ROUNDS);
        for round in 0..ROUNDS {
            let role = Role::ALL[round % 2];
            let opened = rings.open(Open {
                capacity: PAGE as u64,
                ..request(format!("{round}"), role.flag() | CREATE | PERSIST)
            });
            let end = allow("opening", opened, &[Errno::EBUSY])?;
            if let Some(end) = end {
                // Mapped, so that the role stays taken.
                taken.push(Region::ctrl(&end, role, READ_ONLY).context("mapping")?);
            }
        }
        let count = taken.len();
        // The other one may still try.
        std::mem::forget(taken);
        Ok(count)
    };
    let children = [cgroup.spawn("one", run)?, cgroup.spawn("other", run)?];
    let mut taken = 0;
    for child in children {
        taken += child.finish()?;
    }
    ensure!(taken >= ROUNDS, "{taken} of {ROUNDS} roles were taken");
    cgroup.remove()?;
    expect_no_objects()
}

fn a_racing_detach_and_death_end_a_role_once(_: &Context) -> Result<()> {
    const ROUNDS: usize = 50;
    let rings = Rings::new()?;
    let mut random = Rng::with_seed(3);
    let mut seen = [0; 3];
    for round in 0..ROUNDS {
        let role = Role::ALL[round % 2];
        let delay = random.u64(..300);
        let peer = rings.side(NAME, role.peer())?;
        let victim: Child<()> = spawn_side(NAME, role, |side| {
            std::thread::sleep(Duration::from_micros(delay));
            detach(side).context("detaching")?;
            loop {
                std::thread::park();
            }
        })?;
        std::thread::sleep(Duration::from_micros(random.u64(..300)));
        victim.kill()?;
        let closed = peer.peer.closed() as usize;
        ensure!(closed == 1 || closed == 2, "closed is {closed}");
        seen[closed] += 1;
        let events = poll::state(&peer)?;
        let expected = ["", "IN|RDHUP", "IN|ERR|HUP"][closed];
        expect("events", events.as_str(), expected)?;
    }
    note(format!("{} detached, {} died", seen[1], seen[2]));
    expect_no_objects()
}

/// A thread maps while another one detaches.
fn racing_mappings_of_a_detached_endpoint_are_complete_or_refused(_: &Context) -> Result<()> {
    const ROUNDS: usize = 100;
    let rings = Rings::new()?;
    for round in 0..ROUNDS {
        let role = Role::ALL[round % 2];
        let peer = rings.side(NAME, role.peer())?;
        let end = rings.role(NAME, role)?;
        let mapped = std::thread::scope(|scope| {
            let mapper = scope.spawn(|| Region::ctrl(&end, role, READ_ONLY));
            let detached = detach(&end);
            let mapped = mapper.join().expect("the thread does not panic");
            detached.map(|()| mapped)
        });
        let mapped = allow("mapping", mapped.context("detaching")?, &[Errno::EPIPE])?;
        // A side that was mapped has closed; one that was not has given its role back.
        let expected = u32::from(mapped.is_some());
        expect("closed", peer.peer.closed(), expected)?;
        drop((mapped, end));
        expect("closed afterwards", peer.peer.closed(), expected)?;
    }
    Ok(())
}

fn an_open_endpoint_keeps_the_module_loaded(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    for role in Role::ALL {
        let end = rings.role(NAME, role)?;
        rings.unlink(NAME).context("unlinking")?;
        expect_module_in_use()?;
        drop(end);
    }
    Ok(())
}

fn a_persistent_ring_keeps_the_module_loaded_until_it_is_unlinked(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    // Only the ring itself is left.
    let Rings(ctl) = rings;
    drop(ctl);
    expect_module_in_use()?;
    Rings::new()?.unlink(NAME).context("unlinking")
}

fn a_removed_cgroup_frees_its_persistent_rings(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let cgroup = home.create_child("removed")?;
    let creator = cgroup.spawn("the creator", || {
        let rings = Rings::new()?;
        for (name, role) in [("vacant", None), ("left", Some(Role::Producer))] {
            rings.persist(name)?;
            if let Some(role) = role {
                rings.side(name, role)?.publish(b"records");
            }
        }
        Ok(())
    })?;
    creator.finish()?;
    cgroup.remove()?;
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn an_endpoint_of_a_removed_cgroup_works_until_it_is_closed(context: &Context) -> Result<()> {
    let home = context.cgroup()?;
    let dying = home.dying_descendants()?;
    let cgroup = home.create_child("removed")?;
    let rings = Rings::new()?;
    let directory = cgroup.directory()?;
    let open = |flags| {
        let opened = rings.open(Open {
            scope_fd: directory.as_raw_fd(),
            ..request(NAME, flags | CREATE | PERSIST)
        });
        Side::of(opened.context("opening")?)
    };
    let (producer, consumer) = (open(WRITE)?, open(READ)?);
    cgroup.remove()?;
    producer.publish(b"published");
    producer.notify().context("waking")?;
    expect("events", poll::state(&consumer)?, "IN".to_owned())?;
    expect("data", consumer.data.read(0, 9), b"published".to_vec())?;
    drop(producer);
    expect("closed", consumer.peer.closed(), 2)?;
    drop((consumer, directory));
    expect_no_objects()?;
    home.expect_dying(dying)
}

fn many_sessions_leak_no_page(_: &Context) -> Result<()> {
    let rings = Rings::new()?;
    rings.persist(NAME)?;
    expect_no_page_leak(500, |count| {
        for _ in 0..count {
            let (producer, consumer) = rings.sides(NAME)?;
            producer.publish(b"published");
            drop((producer, consumer));
        }
        Ok(())
    })?;
    rings.unlink(NAME).context("unlinking")
}
