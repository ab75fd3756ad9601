// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that wait in a call of every kind, and what ends each wait.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context as _, Result, ensure};
use io_uring::squeue;
use nix::errno::Errno;
use nix::sys::epoll::{EpollFlags, EpollTimeout};
use nix::unistd::{read, write};

use super::bus::{self, Buses, broadcast};
use super::channel::{fill, read_all, set_blocking, set_nonblocking};
use super::check::expect;
use super::child::{Child, spawn_keeping};
use super::ctl::{BOTH, CREATE, Ctl, NONBLOCK, Open, READ, WRITE, padded};
use super::durable::{self, Durable, set_with};
use super::feed;
use super::map::{self, Maps, NOW, put, watch};
use super::netlink::Socket;
use super::poll::{self, epoll_event, epoll_on};
use super::proc::Call;
use super::ring::{FOREVER, Rings, Side, wait};
use super::time::wait_grace_period;
use super::uring::{REQUEST, Ring, read_into};

const READ_OF_EVENTS: &str = "a read of events";
const EVENTS_OVER_NETLINK: &str = "a read of events over netlink";
const POLL_OF_A_MAP: &str = "a poll of a map";
/// The waiters for any change of the map.
pub const WAIT_FOR_THE_MAP: [&str; 3] = [READ_OF_EVENTS, EVENTS_OVER_NETLINK, POLL_OF_A_MAP];
const DURABLE_SET: &str = "a set of a durable map";

/// A child that waits in a call, and what ends its wait.
pub struct Waiter<'a> {
    pub name: &'static str,
    pub child: Child<bool>,
    pub wake: Box<dyn FnOnce() -> Result<()> + 'a>,
}

/// What the waiters wait for.
pub struct Awaited {
    empty: OwnedFd,
    empty_of_ring: OwnedFd,
    full: OwnedFd,
    producer: Side,
    consumer: Side,
    sender: OwnedFd,
    subscriber: OwnedFd,
    polled_subscriber: OwnedFd,
    subscriber_of_ring: OwnedFd,
    full_bus: OwnedFd,
    slow: OwnedFd,
    feed: OwnedFd,
    map: OwnedFd,
    watcher: OwnedFd,
    socket: Socket,
    polled: OwnedFd,
    durable: Durable,
    _channels: (Ctl, Buses, Maps),
}

impl Awaited {
    pub fn new() -> Result<Self> {
        let ctl = Ctl::new()?;
        let pipe = |name: &str| ctl.open(Open::new(name, BOTH | CREATE));
        let (empty, empty_of_ring, full) = (pipe("empty")?, pipe("of ring")?, pipe("full")?);
        set_nonblocking(&full)?;
        fill(&full, b'f')?;
        set_blocking(&full)?;
        let (producer, consumer) = Rings::new()?.sides("ring")?;
        let buses = Buses::new()?;
        let sender = buses.create(broadcast())?;
        let subscribe = || -> Result<OwnedFd> {
            let subscriber = buses.subscribe(bus::Params::default())?;
            set_blocking(&subscriber)?;
            Ok(subscriber)
        };
        let (full_bus, slow) = full_bus(&ctl)?;
        let feed = feed::open_node()?;
        set_blocking(&feed)?;
        let maps = Maps::new()?;
        let map = maps.create()?;
        let (watcher, polled) = (maps.attach()?, maps.attach()?);
        for end in [&watcher, &polled] {
            watch(end, NOW).context("watching")?;
        }
        set_blocking(&watcher)?;
        let socket = Socket::new()?;
        socket.watch(socket.open(map::NAME, BOTH)?, NOW)?;
        let durable = Durable::named("durable", durable::durable(0))?;
        Ok(Self {
            empty,
            empty_of_ring,
            full,
            producer,
            consumer,
            sender,
            subscriber: subscribe()?,
            polled_subscriber: subscribe()?,
            subscriber_of_ring: subscribe()?,
            full_bus,
            slow,
            feed,
            map,
            watcher,
            socket,
            polled,
            durable,
            _channels: (ctl, buses, maps),
        })
    }

    fn send(&self) -> Result<()> {
        Ok(bus::send(&self.sender, b"wake")?)
    }

    fn change_map(&self) -> Result<()> {
        put(&self.map, b"key", b"value").map(drop)
    }

    /// All of them, asleep. `begin` runs first in each.
    pub fn waiters(&self, begin: impl Fn() -> Result<()> + Copy) -> Result<Vec<Waiter<'_>>> {
        let mut waiters = Vec::new();
        let mut add = |name, call, keep: &[BorrowedFd], body: &dyn Fn() -> Result<bool>, wake| {
            let child = spawn_keeping(name, keep, || {
                begin()?;
                body()
            })?;
            child
                .wait_asleep_in(call)
                .with_context(|| name.to_owned())?;
            waiters.push(Waiter { name, child, wake });
            anyhow::Ok(())
        };
        let mut room = [0; 4096];
        let room: *mut [u8; 4096] = &raw mut room;
        // SAFETY: each child has its own copy of this array.
        let room = || unsafe { &mut *room };
        add(
            "a read of a pipe",
            Call::Read,
            &[self.empty.as_fd()],
            &|| Ok(read(&self.empty, room())? == 1),
            Box::new(|| expect("written", write(&self.empty, b"x"), Ok(1))),
        )?;
        add(
            "a write to a pipe",
            Call::Write,
            &[self.full.as_fd()],
            &|| Ok(write(&self.full, b"y")? == 1),
            Box::new(|| read_all(&self.full, 8192).map(drop)),
        )?;
        add(
            "a read of a pipe by io_uring",
            Call::UringEnter,
            &[self.empty_of_ring.as_fd()],
            &|| Ok(complete(read_into(&self.empty_of_ring, room()))? == 1),
            Box::new(|| expect("written", write(&self.empty_of_ring, b"x"), Ok(1))),
        )?;
        let seq = self.consumer.seq();
        add(
            "a wait of a ring",
            Call::Ioctl,
            &[self.consumer.end.as_fd()],
            &|| {
                uninterrupted(|| wait(&self.consumer, seq, FOREVER))?;
                Ok(true)
            },
            Box::new(|| Ok(self.producer.notify()?)),
        )?;
        add(
            "a read of a bus",
            Call::Read,
            &[self.subscriber.as_fd()],
            &|| Ok(read(&self.subscriber, room())? == 4),
            Box::new(|| self.send()),
        )?;
        add(
            "a read of a bus by io_uring",
            Call::UringEnter,
            &[self.subscriber_of_ring.as_fd()],
            &|| Ok(complete(read_into(&self.subscriber_of_ring, room()))? == 4),
            Box::new(|| self.send()),
        )?;
        add(
            "an epoll of a bus",
            Call::Epoll,
            &[self.polled_subscriber.as_fd()],
            &|| {
                let epoll = epoll_on(&self.polled_subscriber, EpollFlags::EPOLLIN)?;
                Ok(uninterrupted(|| epoll_event(&epoll, EpollTimeout::NONE))?.is_some())
            },
            Box::new(|| self.send()),
        )?;
        add(
            "a write to a bus",
            Call::Write,
            &[self.full_bus.as_fd()],
            &|| Ok(write(&self.full_bus, b"more")? == 4),
            Box::new(|| bus::drain(&self.slow).map(drop)),
        )?;
        add(
            "a read of a feed",
            Call::Read,
            &[self.feed.as_fd()],
            &|| Ok(read(&self.feed, room())? > 0),
            Box::new(|| Ok(feed::start(&self.feed, feed::Start::new(1_000_000, 1, 16))?)),
        )?;
        add(
            READ_OF_EVENTS,
            Call::Read,
            &[self.watcher.as_fd()],
            &|| Ok(read(&self.watcher, room())? > 0),
            Box::new(|| self.change_map()),
        )?;
        add(
            EVENTS_OVER_NETLINK,
            Call::Read,
            &[self.socket.as_fd()],
            &|| Ok(read(&self.socket, room())? > 0),
            Box::new(|| self.change_map()),
        )?;
        add(
            POLL_OF_A_MAP,
            Call::Poll,
            &[self.polled.as_fd()],
            &|| Ok(poll::wait(&self.polled, libc::POLLIN, -1)? != 0),
            Box::new(|| self.change_map()),
        )?;
        // Its change is made, also if its wait is interrupted: it is not repeated.
        add(
            DURABLE_SET,
            Call::Ioctl,
            &[self.durable.end.as_fd()],
            &|| match set_with(&self.durable.end, b"key", b"value", 0) {
                (Ok(_), number) => Ok(number == 1),
                (Err(errno), number) if errno == Errno::EINTR as i32 => Ok(number == 1),
                (Err(errno), _) => Err(Errno::from_raw(errno).into()),
            },
            Box::new(|| self.durable.store(1)),
        )?;
        Ok(waiters)
    }
}

/// A sender that waits for a slow subscriber, and that one.
fn full_bus(ctl: &Ctl) -> Result<(OwnedFd, OwnedFd)> {
    let open = |flags, params: &bus::Params| {
        ctl.open(Open {
            name: padded("full"),
            ..bus::request(flags | NONBLOCK, params)
        })
    };
    let sender = open(WRITE | CREATE, &broadcast()).context("creating a bus")?;
    let slow = open(READ, &bus::with_policy(bus::BLOCK)).context("a slow subscriber")?;
    bus::fill(&sender, 100)?;
    set_blocking(&sender)?;
    Ok((sender, slow))
}

/// Repeats a wait that the kernel never restarts.
fn uninterrupted<T>(wait: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    loop {
        match wait() {
            Err(Errno::EINTR) => {}
            waited => return waited,
        }
    }
}

/// The result of a request to io_uring, for which this sleeps.
fn complete(request: squeue::Entry) -> Result<i32> {
    let mut ring = Ring::new()?;
    ring.submit(request, REQUEST)?;
    Ok(ring.wait_result(REQUEST)??)
}

pub fn expect_woken(waiters: Vec<Waiter>) -> Result<()> {
    for waiter in waiters {
        (waiter.wake)().with_context(|| format!("waking {}", waiter.name))?;
        let woken = waiter.child.finish();
        expect(waiter.name, woken.with_context(|| waiter.name)?, true)?;
    }
    Ok(())
}

/// A frozen call may go on as restart_syscall(2), so its number is not compared. An interrupted set of a durable map has
/// ended.
pub fn expect_waiting(waiters: &[Waiter]) -> Result<()> {
    wait_grace_period();
    for waiter in waiters {
        let ended = waiter.child.has_ended()?;
        ensure!(
            !ended || waiter.name == DURABLE_SET,
            "{} has ended",
            waiter.name
        );
    }
    Ok(())
}
