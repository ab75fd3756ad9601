// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits of users, containers, processes and memory with every kind of channel, and large numbers of channels, watchers
//! and pollers, beside a neighbour that measures how long its calls take.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{read, write};
use sluice::Scope;
use sluice_abi::map::{MAPPED, MMAP_TABLE};

use crate::registry::{Context, topic};
use crate::support::cgroup::Cgroup;
use crate::support::channel::read_some;
use crate::support::check::{expect, note};
use crate::support::child::{spawn, spawn_keeping};
use crate::support::container::{User, spawn_in_container};
use crate::support::credentials::{NOBODY, become_user};
use crate::support::ctl::{
    CREATABLE, CREATE, Ctl, KIND_MAP, NONBLOCK, OWN, Open, PERSIST, UNLINK, WRITE, access_of,
};
use crate::support::event::Event;
use crate::support::kernel::expect_no_objects;
use crate::support::map::{self, Maps, Params};
use crate::support::memcg::{Accounts, MemoryMax, lock_memory, memory_current};
use crate::support::memory::PAGE;
use crate::support::parameter::Parameter;
use crate::support::poll;
use crate::support::ring::{self, Region, Role};
use crate::support::sched::pin_to_first_cpu;
use crate::support::shared::SharedWords;
use crate::support::time::event_timeout;

topic!(
    "exhaustion",
    fifo: [],
    pipe_only: [
        each_limit_is_reached_with_every_kind_by_a_user_and_a_container,
        a_process_without_descriptors_creates_nothing,
        a_process_without_address_space_maps_nothing,
        a_process_that_may_lock_nothing_locks_no_ring,
        a_map_at_the_memory_limit_is_enomem_without_oom_kill,
        ten_thousand_channels_are_created_listed_and_freed,
        ten_thousand_watchers_see_a_change,
        ten_thousand_pollers_are_woken,
    ],
);

const MIB: u64 = 1 << 20;
const MANY: usize = 10_000;

fn request(kind: u32, name: impl AsRef<[u8]>, capacity: u64) -> Open {
    Open {
        kind,
        capacity,
        ..Open::new(name, access_of(kind) | CREATE | PERSIST | NONBLOCK)
    }
}

// ---- limits of channels and bytes ----

/// Creates channels of 1 MiB until one is refused, and again after one of them is removed: how many, and the error.
fn create_until_refused(kind: u32) -> Result<(usize, i32)> {
    let ctl = Ctl::new()?;
    let mut created = 0;
    let refused = loop {
        match ctl.open(request(kind, format!("{created}"), MIB)) {
            Ok(_) => created += 1,
            Err(error) => break error,
        }
        ensure!(created < 100, "kind {kind}: nothing was refused");
    };
    ctl.remove(UNLINK, kind, OWN, "0").context("removing one")?;
    let again = ctl.open(request(kind, "0", MIB)).map(drop);
    expect("one more after the removal", again, Ok(()))?;
    for number in 0..created {
        ctl.remove(UNLINK, kind, OWN, number.to_string())
            .context("removing")?;
    }
    Ok((created, refused as i32))
}

fn each_limit_is_reached_with_every_kind_by_a_user_and_a_container(
    context: &Context,
) -> Result<()> {
    let container = context.cgroup()?.create_child("container")?;
    for (limit, value, errno) in [
        ("user_max_channels", 3, Errno::EDQUOT),
        ("user_max_bytes", 3 * MIB + MIB / 2, Errno::EDQUOT),
        ("scope_max_channels", 3, Errno::ENOSPC),
        ("scope_max_bytes", 3 * MIB + MIB / 2, Errno::ENOSPC),
    ] {
        for kind in CREATABLE {
            // What an earlier one has freed counts until the kernel has done so.
            expect_no_objects()?;
            let _limit = Parameter::set(limit, value)?;
            let user = spawn("a user", || {
                become_user(NOBODY)?;
                create_until_refused(kind)
            })?;
            let what = format!("{limit}, kind {kind}");
            expect(&what, user.finish()?, (3, errno as i32))?;
            expect_no_objects()?;
            let root = User::NamespaceRoot;
            let inside = spawn_in_container(&container, root, "a container", &[], || {
                create_until_refused(kind)
            })?;
            expect(&what, inside.finish()?, (3, errno as i32))?;
        }
    }
    Ok(())
}

// ---- limits of a process ----

fn set_limit(resource: Resource, value: u64) -> Result<()> {
    setrlimit(resource, value, value).with_context(|| format!("limiting {resource:?}"))
}

fn a_process_without_descriptors_creates_nothing(_: &Context) -> Result<()> {
    let process = spawn("a process", || {
        let ctl = Ctl::new()?;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
        let mut taken = Vec::new();
        setrlimit(Resource::RLIMIT_NOFILE, 32.min(soft), hard)?;
        while let Ok(fd) = ctl.as_fd().try_clone_to_owned() {
            taken.push(fd);
        }
        for kind in CREATABLE {
            let refused = ctl.open(request(kind, "channel", 0)).map(drop);
            expect("an open", refused, Err(Errno::EMFILE))?;
        }
        taken.clear();
        expect("names", ctl.names(OWN), Ok(vec![]))
    })?;
    process.finish()
}

/// The endpoint works on.
fn a_process_without_address_space_maps_nothing(_: &Context) -> Result<()> {
    const CAPACITY: usize = 32 << 20;
    const TABLE: usize = 16 << 20;
    let process = spawn("a process", || {
        let ctl = Ctl::new()?;
        let end = ctl.open(Open {
            capacity: CAPACITY as u64,
            ..ring::request("ring", WRITE | CREATE)
        })?;
        let table = Params {
            flags: MAPPED,
            table: TABLE as u64,
            cell: 128,
            ..Params::default()
        };
        let map = Maps::new()?.create_with(table, 2 * TABLE as u64)?;
        let used = std::fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = used.split(' ').next().context("no size")?.parse()?;
        set_limit(Resource::RLIMIT_AS, pages * PAGE as u64 + 8 * MIB)?;
        let mapped = Region::map(&end, ring::MMAP_DATA, 2 * CAPACITY, ring::READ_WRITE).map(drop);
        expect("the data of a ring", mapped, Err(Errno::ENOMEM))?;
        let mapped = Region::map(&map, MMAP_TABLE, TABLE, ring::READ_ONLY).map(drop);
        expect("a table", mapped, Err(Errno::ENOMEM))?;
        let page = Region::ctrl(&end, Role::Producer, ring::READ_WRITE).map(drop);
        expect("a control page", page, Ok(()))?;
        map::put(&map, b"key", b"value").map(drop)
    })?;
    process.finish()
}

/// The pages of a ring are the kernel's, which count for no limit of locked memory until a process locks its mapping.
fn a_process_that_may_lock_nothing_locks_no_ring(_: &Context) -> Result<()> {
    let process = spawn("a process", || {
        become_user(NOBODY)?;
        set_limit(Resource::RLIMIT_MEMLOCK, 0)?;
        let end = Ctl::new()?.open(ring::request("ring", WRITE | CREATE))?;
        let flags = libc::MAP_SHARED | libc::MAP_LOCKED;
        let length = 2 * ring::CAPACITY;
        let locked = Region::map_with(&end, ring::MMAP_DATA, length, ring::READ_WRITE, flags);
        expect("locked", locked.map(drop), Err(Errno::EPERM))?;
        let plain = Region::map(&end, ring::MMAP_DATA, length, ring::READ_WRITE).map(drop);
        expect("not locked", plain, Ok(()))
    })?;
    process.finish()
}

fn a_map_at_the_memory_limit_is_enomem_without_oom_kill(context: &Context) -> Result<()> {
    let accounts = Accounts::new(context)?;
    let child = accounts.creator.spawn("the creator", || {
        let maps = Maps::new()?;
        let end = maps.create_with(Params::default(), 64 << 20)?;
        let value = vec![7; 60_000];
        map::put(&end, b"first", &value)?;
        lock_memory()?;
        let max = MemoryMax::open(&accounts.creator)?;
        let limit = memory_current(&accounts.creator)? + 4 * MIB;
        max.set(limit)?;
        let set = |number: &u32| map::set(&end, &number.to_ne_bytes(), &value);
        let refused = (0..1000).find_map(|number| Some((number, set(&number).err()?)));
        let (count, error) = refused.context("nothing was refused")?;
        expect("a set", error, Errno::ENOMEM)?;
        for number in 0..count {
            let deleted = map::delete(&end, &number.to_ne_bytes()).map(drop);
            expect("a delete", deleted, Ok(()))?;
        }
        max.set(limit + 64 * MIB)?;
        expect(
            "what was there",
            map::get(&end, b"first"),
            Ok(value.clone()),
        )?;
        map::put(&end, b"again", &value).map(drop)
    })?;
    child.finish()?;
    accounts.expect_no_kill()
}

// ---- a neighbour ----

/// How long the pings of a neighbour took.
struct Pings {
    median: Duration,
    longest: Duration,
}

/// Two processes of another cgroup send each other a byte over pipes for as long as `body` runs.
fn ping_while(cgroup: &Cgroup, body: impl FnOnce() -> Result<()>) -> Result<Pings> {
    let (stop, ready) = (SharedWords::new(1)?, Event::new()?);
    let pinging = spawn_keeping("the neighbour", &ready.fds(), || {
        cgroup.enter()?;
        // A ping between processors takes many times as long in a virtual machine.
        pin_to_first_cpu()?;
        let ctl = Ctl::new()?;
        let pipes = [ctl.create("there")?, ctl.create("back")?];
        let keep = pipes.each_ref().map(|pipe| pipe.as_fd());
        let echo = spawn_keeping("its peer", &keep, || -> Result<()> {
            loop {
                read(&pipes[0], &mut [0])?;
                write(&pipes[1], b"x")?;
            }
        })?;
        ready.notify()?;
        let mut times = Vec::new();
        while stop.get(0) == 0 || times.len() < 100 {
            let since = Instant::now();
            write(&pipes[0], b"x")?;
            read(&pipes[1], &mut [0])?;
            times.push(since.elapsed());
        }
        echo.kill()?;
        times.sort_unstable();
        Ok([times[times.len() / 2], times[times.len() - 1]])
    })?;
    ready.wait("the neighbour is there")?;
    let done = body();
    stop.set(0, 1);
    let [median, longest] = pinging.finish()?;
    done.map(|()| Pings { median, longest })
}

/// Compares pings beside `body` with pings beside as much work of this process that uses no channel.
fn beside_a_neighbour(
    context: &Context,
    what: &str,
    mut body: impl FnMut() -> Result<()>,
) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("neighbour")?;
    let limit = event_timeout() / 10;
    let mut longest = compare_pings(&cgroup, what, &mut body)?;
    if longest >= limit {
        // The host may have stopped the machine once, but not twice.
        longest = compare_pings(&cgroup, what, &mut body)?;
    }
    ensure!(longest < limit, "a ping took {longest:?}");
    Ok(())
}

/// The longest ping beside `body`.
fn compare_pings(
    cgroup: &Cgroup,
    what: &str,
    body: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let alone = ping_while(cgroup, || {
        std::thread::sleep(Duration::from_millis(500));
        Ok(())
    })?;
    let mut busy = Duration::ZERO;
    let beside = ping_while(cgroup, || {
        let since = Instant::now();
        body()?;
        busy = since.elapsed();
        Ok(())
    })?;
    note(format!(
        "{what} in {busy:?}: a ping of a neighbour takes {:?} beside it, {:?} alone, ratio {:.2}; longest {:?} and {:?}",
        beside.median,
        alone.median,
        beside.median.as_secs_f64() / alone.median.as_secs_f64(),
        beside.longest,
        alone.longest,
    ));
    Ok(beside.longest)
}

/// Permits this process so many descriptors.
fn permit_descriptors(count: usize) -> Result<()> {
    set_limit(Resource::RLIMIT_NOFILE, count as u64 + 100)
}

fn ten_thousand_channels_are_created_listed_and_freed(context: &Context) -> Result<()> {
    let _channels = Parameter::set("scope_max_channels", 2 * MANY as u64)?;
    let _bytes = Parameter::set("scope_max_bytes", 1 << 40)?;
    let cgroup = context.cgroup()?;
    beside_a_neighbour(context, "10,000 channels", || {
        let full = cgroup.create_child("full")?;
        let process = full.spawn("their creator", || {
            let ctl = Ctl::new()?;
            for number in 0..MANY {
                let kind = CREATABLE[number % CREATABLE.len()];
                // A map has no memory for its capacity.
                let capacity = if kind == KIND_MAP { 0 } else { 4096 };
                ctl.open(request(kind, number.to_string(), capacity))
                    .with_context(|| format!("channel {number}"))?;
            }
            let listed = sluice::list(&Scope::own())?.collect::<sluice::Result<Vec<_>>>()?;
            expect("channels", listed.len(), MANY)
        })?;
        process.finish()?;
        full.remove()
    })?;
    expect_no_objects()
}

fn ten_thousand_watchers_see_a_change(context: &Context) -> Result<()> {
    permit_descriptors(MANY)?;
    let maps = Maps::new()?;
    let end = maps.create()?;
    let watchers = (0..MANY)
        .map(|_| {
            let watcher = maps.attach()?;
            map::watch(&watcher, map::NOW).context("watching")?;
            Ok(watcher)
        })
        .collect::<Result<Vec<OwnedFd>>>()?;
    beside_a_neighbour(context, "100 changes read by 10,000 watchers", || {
        for number in 0..100 {
            map::put(&end, b"key", &[number])?;
        }
        watchers
            .iter()
            .try_for_each(|watcher| expect("events", map::events(watcher)?.len(), 100))
    })
}

/// Each is an epoll of its own, so that a wake-up visits all of them.
fn ten_thousand_pollers_are_woken(context: &Context) -> Result<()> {
    permit_descriptors(MANY)?;
    let maps = Maps::new()?;
    let map = maps.create()?;
    let watcher = maps.attach()?;
    map::watch(&watcher, map::NOW).context("watching")?;
    let pipe = Ctl::new()?.create("pipe")?;
    let pollers = (0..MANY)
        .map(|_| {
            let poller = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            for end in [pipe.as_fd(), watcher.as_fd()] {
                poller.add(end, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
            }
            Ok(poller)
        })
        .collect::<Result<Vec<Epoll>>>()?;
    beside_a_neighbour(context, "100 wake-ups of 10,000 pollers", || {
        for number in 0..50 {
            write(&pipe, b"x")?;
            read_some(&pipe, 1)?;
            map::put(&map, b"key", &[number])?;
        }
        write(&pipe, b"x")?;
        Ok(())
    })?;
    for poller in &pollers {
        let mut events = [EpollEvent::empty(); 2];
        let count = poller.wait(&mut events, EpollTimeout::ZERO)?;
        expect("events of a poller", count, 2)?;
    }
    expect(
        "events of the pipe",
        poll::wait(&pipe, poll::IN, 0)?,
        poll::IN,
    )
}
