// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processors and memory that are taken offline and brought online, and processes that are frozen, while every kind is
//! waited for and used.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::unistd::{read, write};
use sluice::bus::Policy;
use sluice::map::{SetOptions, WatchFrom};
use sluice::{Bus, Map, Ring};

use crate::registry::{Context, topic};
use crate::support::bus::{self, Buses, broadcast};
use crate::support::channel::{fill, read_all, set_blocking, set_nonblocking};
use crate::support::check::{expect, note, skip};
use crate::support::child::{Child, spawn_keeping};
use crate::support::ctl::{BOTH, CREATE, Ctl, Open};
use crate::support::durable::{Durable, set_with};
use crate::support::feed;
use crate::support::map::{self, EXPIRED, Maps, NOW, put, set_for, watch};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::ring::{FOREVER, Rings, Side, wait};
use crate::support::sched::{Processor, pin_to_cpu};
use crate::support::time::{event_timeout, eventually, wait_grace_period};

topic!(
    "hotplug",
    fifo: [],
    pipe_only: [
        waiters_survive_while_their_processor_is_offline,
        every_kind_is_used_while_a_processor_is_taken_offline,
        every_kind_is_used_while_memory_is_taken_offline,
        waiters_survive_a_frozen_cgroup,
        waiters_survive_the_freezer_of_a_suspend,
    ],
);

// ---- waiters of every kind ----

const READ_OF_EVENTS: &str = "a read of events";
const POLL_OF_A_MAP: &str = "a poll of a map";
const DURABLE_SET: &str = "a set of a durable map";

/// A child that waits in a call, and what ends its wait.
struct Waiter<'a> {
    name: &'static str,
    child: Child<bool>,
    wake: Box<dyn FnOnce() -> Result<()> + 'a>,
}

/// What the waiters wait for.
struct Awaited {
    empty: OwnedFd,
    full: OwnedFd,
    producer: Side,
    consumer: Side,
    sender: OwnedFd,
    subscriber: OwnedFd,
    feed: OwnedFd,
    map: OwnedFd,
    watcher: OwnedFd,
    polled: OwnedFd,
    durable: Durable,
    _channels: (Ctl, Buses, Maps),
}

impl Awaited {
    fn new() -> Result<Self> {
        let ctl = Ctl::new()?;
        let pipe = |name: &str| ctl.open(Open::new(name, BOTH | CREATE));
        let (empty, full) = (pipe("empty")?, pipe("full")?);
        set_nonblocking(&full)?;
        fill(&full, b'f')?;
        set_blocking(&full)?;
        let (producer, consumer) = Rings::new()?.sides("ring")?;
        let buses = Buses::new()?;
        let sender = buses.create(broadcast())?;
        let subscriber = buses.subscribe(bus::Params::default())?;
        set_blocking(&subscriber)?;
        let feed = feed::open_node()?;
        set_blocking(&feed)?;
        let maps = Maps::new()?;
        let map = maps.create()?;
        let (watcher, polled) = (maps.attach()?, maps.attach()?);
        for end in [&watcher, &polled] {
            watch(end, NOW).context("watching")?;
        }
        set_blocking(&watcher)?;
        let durable = Durable::named("durable", crate::support::durable::durable(0))?;
        Ok(Self {
            empty,
            full,
            producer,
            consumer,
            sender,
            subscriber,
            feed,
            map,
            watcher,
            polled,
            durable,
            _channels: (ctl, buses, maps),
        })
    }

    /// All of them, asleep. `begin` runs first in each.
    fn waiters(&self, begin: impl Fn() -> Result<()> + Copy) -> Result<Vec<Waiter<'_>>> {
        let mut waiters = Vec::new();
        let mut add =
            |name, call, keep: &[BorrowedFd], body: &dyn Fn() -> nix::Result<bool>, wake| {
                let child = spawn_keeping(name, keep, || {
                    begin()?;
                    Ok(body()?)
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
        let seq = self.consumer.seq();
        // A wait is never restarted.
        add(
            "a wait of a ring",
            Call::Ioctl,
            &[self.consumer.end.as_fd()],
            &|| loop {
                match wait(&self.consumer, seq, FOREVER) {
                    Err(Errno::EINTR) => {}
                    waited => return waited.map(|()| true),
                }
            },
            Box::new(|| Ok(self.producer.notify()?)),
        )?;
        add(
            "a read of a bus",
            Call::Read,
            &[self.subscriber.as_fd()],
            &|| Ok(read(&self.subscriber, room())? == 4),
            Box::new(|| Ok(bus::send(&self.sender, b"wake")?)),
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
            Box::new(|| put(&self.map, b"key", b"value").map(drop)),
        )?;
        add(
            POLL_OF_A_MAP,
            Call::Poll,
            &[self.polled.as_fd()],
            &|| Ok(poll::wait(&self.polled, libc::POLLIN, -1)? != 0),
            Box::new(|| put(&self.map, b"key", b"value").map(drop)),
        )?;
        // Its change is made, also if its wait is interrupted: it is not repeated.
        add(
            DURABLE_SET,
            Call::Ioctl,
            &[self.durable.end.as_fd()],
            &|| match set_with(&self.durable.end, b"key", b"value", 0) {
                (Ok(_), number) => Ok(number == 1),
                (Err(errno), number) if errno == Errno::EINTR as i32 => Ok(number == 1),
                (Err(errno), _) => Err(Errno::from_raw(errno)),
            },
            Box::new(|| self.durable.store(1)),
        )?;
        Ok(waiters)
    }
}

fn expect_woken(waiters: Vec<Waiter>) -> Result<()> {
    for waiter in waiters {
        (waiter.wake)().with_context(|| format!("waking {}", waiter.name))?;
        let woken = waiter.child.finish();
        expect(waiter.name, woken.with_context(|| waiter.name)?, true)?;
    }
    Ok(())
}

/// A frozen call may go on as restart_syscall(2), so its number is not compared. An interrupted set of a durable map has
/// ended.
fn expect_waiting(waiters: &[Waiter]) -> Result<()> {
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

// ---- processors ----

fn waiters_survive_while_their_processor_is_offline(_: &Context) -> Result<()> {
    let processor = Processor::last()?;
    for is_online in [false, true] {
        let awaited = Awaited::new()?;
        let waiters = awaited.waiters(|| pin_to_cpu(processor.number()))?;
        processor.set_online(false)?;
        if is_online {
            processor.set_online(true)?;
        }
        expect_waiting(&waiters)?;
        expect_woken(waiters)?;
        processor.set_online(true)?;
    }
    Ok(())
}

/// Bytes, records, messages, changes and packets, each counted and checked, until `done`.
struct Traffic {
    done: AtomicBool,
    counts: [AtomicU64; 5],
}

impl Traffic {
    fn each(&self, kind: usize, mut body: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut number = 0;
        while !self.done.load(Ordering::Relaxed) {
            body(number).with_context(|| format!("{} after {number}", KINDS[kind]))?;
            number += 1;
            self.counts[kind].store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}

const KINDS: [&str; 5] = ["pipe", "ring", "bus", "map", "feed"];

/// Runs `disturb` while traffic of every kind goes on, which must make progress and lose nothing that is not counted as
/// lost.
fn disturbed(disturb: impl FnOnce() -> Result<()>) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.open(Open::new("pipe", BOTH | CREATE))?;
    let ring = Ring::named("ring").create(true).capacity(1 << 16);
    let (mut producer, mut consumer) = (ring.producer()?, ring.consumer()?);
    let bus = Bus::named("bus").create(true).policies([Policy::Block]);
    let (sender, mut subscriber) = (bus.sender()?, bus.subscriber()?);
    let map = Map::named("map").create(true).open()?;
    let mut watcher = map.watch(WatchFrom::Now)?;
    let node = feed::open_node()?;
    set_blocking(&node)?;
    feed::claim_by_read(&node)?;
    feed::start(&node, feed::Start::new(200_000, 0, 16))?;
    let traffic = Traffic {
        done: AtomicBool::new(false),
        counts: Default::default(),
    };
    let limit = event_timeout();
    let result = thread::scope(|scope| {
        let mut workers = Vec::new();
        workers.push(scope.spawn(|| {
            traffic.each(0, |number| {
                let bytes = number.to_ne_bytes();
                write(&pipe, &bytes)?;
                expect("bytes", read_all(&pipe, 8)?, bytes.to_vec())
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(1, |number| {
                producer.send_timeout(&number.to_ne_bytes(), limit)?;
                let record = consumer
                    .recv_timeout(limit)?
                    .context("the ring has ended")?;
                expect("a record", record.to_vec(), number.to_ne_bytes().to_vec())
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(2, |number| {
                sender.send_timeout(&number.to_ne_bytes(), limit)?;
                let message = subscriber.recv_timeout(limit)?;
                expect("lost", message.lost, 0)?;
                expect("a message", message.bytes(), &number.to_ne_bytes()[..])
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(3, |number| {
                let options = SetOptions::new().time_to_live(Duration::from_secs(3600));
                let version = map
                    .set_with(format!("{}", number % 64), "v", options)?
                    .version;
                let event = watcher.recv_timeout(limit)?;
                expect("the event", (event.version, event.missed), (version, 0))
            })
        }));
        workers.push(scope.spawn(|| {
            let mut next = None;
            traffic.each(4, |_| {
                let packet = feed::read_packet(&node)?.context("the feed has ended")?;
                let (sequence, lost) = (packet.header.sequence, packet.header.lost);
                let expected = next.map_or(sequence, |next: u64| next + lost);
                next = Some(sequence + 1);
                expect("the packet", sequence, expected)
            })
        }));
        let disturbed = disturb();
        let before: Vec<u64> = counts(&traffic);
        let goes_on = eventually("all goes on", || {
            let now = counts(&traffic);
            let all = now.iter().zip(&before).all(|(now, before)| now > before);
            Ok(all.then_some(now))
        });
        traffic.done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("traffic does not panic")?;
        }
        disturbed?;
        goes_on
    })?;
    note(format!("{KINDS:?}: {result:?}"));
    feed::stop(&node).or_else(|error| match error {
        Errno::EINVAL => Ok(()),
        error => Err(error),
    })?;
    Ok(())
}

fn counts(traffic: &Traffic) -> Vec<u64> {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    traffic.counts.iter().map(load).collect()
}

fn every_kind_is_used_while_a_processor_is_taken_offline(_: &Context) -> Result<()> {
    const TIMES: usize = 10;
    let processor = Processor::last()?;
    disturbed(|| {
        for _ in 0..TIMES {
            processor.set_online(false)?;
            thread::sleep(Duration::from_millis(50));
            processor.set_online(true)?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    })
}

// ---- memory ----

/// A block of memory, which is brought online when this is dropped.
struct Block(PathBuf);

impl Block {
    fn set(&self, state: &str) -> std::io::Result<()> {
        fs::write(self.0.join("state"), state)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let _ = self.set("online");
    }
}

fn every_kind_is_used_while_memory_is_taken_offline(_: &Context) -> Result<()> {
    const BLOCKS: &str = "/sys/devices/system/memory";
    let none = || skip("no memory can be taken offline (CONFIG_MEMORY_HOTREMOVE)");
    let entries = fs::read_dir(BLOCKS).map_err(|_| none())?;
    let blocks: Vec<Block> = entries
        .filter_map(|entry| Some(Block(entry.ok()?.path())))
        .filter(|block| block.0.join("state").exists())
        .collect();
    if blocks.is_empty() {
        return Err(none());
    }
    let times = AtomicU64::new(0);
    disturbed(|| {
        // The kernel refuses a block with memory that cannot be moved, such as that of the objects here.
        for block in blocks.iter().rev() {
            if block.set("offline").is_ok() {
                times.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(50));
                block.set("online").context("bringing memory online")?;
            }
        }
        Ok(())
    })?;
    let (times, blocks) = (times.into_inner(), blocks.len());
    if times == 0 {
        return Err(skip(format!(
            "the kernel cannot move any of {blocks} blocks"
        )));
    }
    note(format!("{times} of {blocks} blocks were offline"));
    Ok(())
}

// ---- frozen processes ----

fn waiters_survive_a_frozen_cgroup(context: &Context) -> Result<()> {
    let cgroup = context.cgroup()?.create_child("frozen")?;
    let freeze = |state: &str| -> Result<()> {
        fs::write(cgroup.path().join("cgroup.freeze"), state)?;
        let line = format!("frozen {state}");
        eventually("the cgroup follows", || {
            let events = fs::read_to_string(cgroup.path().join("cgroup.events"))?;
            Ok(events.contains(&line).then_some(()))
        })
    };
    for is_woken_frozen in [false, true] {
        let awaited = Awaited::new()?;
        let waiters = awaited.waiters(|| Ok(()))?;
        for waiter in &waiters {
            cgroup.adopt(waiter.child.pid())?;
        }
        freeze("1")?;
        if is_woken_frozen {
            let mut woken = Vec::new();
            for waiter in waiters {
                (waiter.wake)().with_context(|| format!("waking {}", waiter.name))?;
                woken.push((waiter.name, waiter.child));
            }
            freeze("0")?;
            for (name, child) in woken {
                expect(name, child.finish().context(name)?, true)?;
            }
        } else {
            freeze("0")?;
            expect_waiting(&waiters)?;
            expect_woken(waiters)?;
        }
    }
    cgroup.remove()
}

const PM_TEST: &str = "/sys/power/pm_test";
const PM_STATE: &str = "/sys/power/state";

/// A suspend that only freezes all processes, for five seconds, and thaws them.
struct FreezerOnly;

impl FreezerOnly {
    fn new() -> Result<Self> {
        let can_freeze = Path::new(PM_TEST).exists()
            && fs::read_to_string(PM_STATE).is_ok_and(|states| states.contains("freeze"));
        if !can_freeze {
            return Err(skip(
                "the kernel cannot test a suspend (CONFIG_PM_SLEEP_DEBUG)",
            ));
        }
        fs::write(PM_TEST, "freezer").context("choosing the test of a suspend")?;
        Ok(Self)
    }

    fn suspend(&self) -> Result<()> {
        fs::write(PM_STATE, "freeze").context("suspending")
    }
}

impl Drop for FreezerOnly {
    fn drop(&mut self) {
        let _ = fs::write(PM_TEST, "none");
    }
}

fn waiters_survive_the_freezer_of_a_suspend(_: &Context) -> Result<()> {
    let freezer = FreezerOnly::new()?;
    let awaited = Awaited::new()?;
    let maps = Maps::new()?;
    let (end, watcher) = (maps.attach()?, maps.attach()?);
    watch(&watcher, NOW).context("watching")?;
    let waiters = awaited.waiters(|| Ok(()))?;
    let began = Instant::now();
    set_for(&end, b"short", b"v", Duration::from_secs(1)).context("setting")?;
    freezer.suspend()?;
    let took = began.elapsed();
    expect("the entry", map::get(&end, b"short"), Err(Errno::ENOENT))?;
    eventually("its event", || {
        let events = map::events(&watcher)?;
        Ok(events
            .iter()
            .any(|event| event.change == EXPIRED)
            .then_some(()))
    })?;
    // The waiters for events of the map have those of the entry.
    let (woken, waiting): (Vec<Waiter>, Vec<Waiter>) = waiters
        .into_iter()
        .partition(|waiter| [READ_OF_EVENTS, POLL_OF_A_MAP].contains(&waiter.name));
    expect("waiters for events", woken.len(), 2)?;
    for Waiter { name, child, .. } in woken {
        expect(name, child.finish().context(name)?, true)?;
    }
    expect_waiting(&waiting)?;
    expect_woken(waiting)?;
    note(format!("frozen for {took:?}"));
    Ok(())
}
