// SPDX-License-Identifier: MIT OR Apache-2.0
//! The clock of the day set by a year while maps, waits and the daemon run; times to live and limits of waits of every
//! size; and numbers near the end of 32 and of 63 bits.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use sluice::map::{SetOptions, WatchFrom};
use sluice::{Bus, Map};

use crate::registry::{Context, topic};
use crate::support::check::expect;
use crate::support::child::{Child, spawn_keeping};
use crate::support::cli::sluice;
use crate::support::ctl::{BOTH, OWN};
use crate::support::daemon::{Daemon, open_jobs};
use crate::support::durable::{Durable, NOWAIT, failed, set_with, short};
use crate::support::ioctl::raw;
use crate::support::keeper::{self, Keeper, Stored, stored_map};
use crate::support::map::{
    EXPIRED, Maps, NAME, NOW, Op, Params, SET, STEP_SET, Step, batch, dump, events, get, get_entry,
    put, set_for, state, watch,
};
use crate::support::netlink::{Attrs, Socket, attr, command};
use crate::support::poll;
use crate::support::proc::Call;
use crate::support::ring::{self, Rings, wait, wake};
use crate::support::time::{event_timeout, eventually, scaled};
use crate::support::wrong_clock::WrongClock;

topic!(
    "clock",
    fifo: [],
    pipe_only: [
        times_to_live_do_not_follow_the_clock,
        limits_of_waits_do_not_follow_the_clock,
        a_deadline_of_a_durable_map_does_not_follow_the_clock,
        a_daemon_works_while_the_clock_is_set,
        a_daemon_of_a_boot_in_1970_keeps_what_was_stored_later,
        times_to_live_of_every_size,
        times_to_live_of_every_size_are_restored,
        limits_of_waits_of_every_size,
        a_durable_map_counts_over_32_bits,
        a_durable_map_ends_with_its_last_number,
    ],
);

const HOUR: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(500);

type SetClock = fn() -> Result<WrongClock>;
const CLOCKS: [SetClock; 2] = [WrongClock::ahead, WrongClock::behind];

fn boottime() -> Result<u64> {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    Ok(now.as_nanos() as u64)
}

fn expect_an_hour(left: u64) -> Result<()> {
    let left = Duration::from_nanos(left);
    ensure!(
        left <= HOUR && left > HOUR - 2 * event_timeout(),
        "{left:?} of an hour are left"
    );
    Ok(())
}

// ---- the clock is set ----

fn times_to_live_do_not_follow_the_clock(_: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let (end, watcher) = (maps.create()?, maps.attach()?);
    watch(&watcher, NOW).context("watching")?;
    for set_clock in CLOCKS {
        set_for(&end, b"hour", b"v", HOUR).context("setting")?;
        let began = Instant::now();
        set_for(&end, b"short", b"v", SHORT).context("setting")?;
        let _clock = set_clock()?;
        let found = get(&end, b"short");
        if began.elapsed() < SHORT {
            expect("before its time", found, Ok(b"v".to_vec()))?;
        }
        let expired = eventually("it expires", || {
            let events = events(&watcher)?;
            Ok(events.into_iter().find(|event| event.change == EXPIRED))
        })?;
        let took = began.elapsed();
        ensure!(took >= SHORT, "it has expired after {took:?}");
        expect("what has expired", expired.key, b"short".to_vec())?;
        expect_an_hour(get_entry(&end, b"hour").context("getting")?.ttl_ns)?;
    }
    Ok(())
}

/// The wait must end `SHORT` after its begin, while the clock is set.
fn expect_limit(what: &str, call: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    expect_end(what, Instant::now(), SHORT, call)
}

/// The call must end `limit` after `began`, while the clock is set.
fn expect_end(
    what: &str,
    began: Instant,
    limit: Duration,
    call: impl FnOnce() -> Result<()> + Send,
) -> Result<()> {
    let (result, took) = thread::scope(|scope| {
        let waiting = scope.spawn(|| (call(), began.elapsed()));
        WrongClock::flip_while(SHORT / 10, || !waiting.is_finished())?;
        anyhow::Ok(waiting.join().expect("a wait does not panic"))
    })?;
    result.with_context(|| what.to_owned())?;
    ensure!(
        took >= limit * 9 / 10 && took < limit + event_timeout(),
        "{what}: it took {took:?} instead of {limit:?}"
    );
    Ok(())
}

fn limits_of_waits_do_not_follow_the_clock(_: &Context) -> Result<()> {
    let (_producer, consumer) = Rings::new()?.sides("ring")?;
    let nanoseconds = SHORT.as_nanos() as u64;
    expect_limit("a wait of a ring", || {
        let waited = wait(&consumer, consumer.seq(), nanoseconds);
        expect("the wait", waited, Err(Errno::ETIMEDOUT))
    })?;
    let maps = Maps::new()?;
    let _end = maps.create()?;
    let watcher = maps.attach()?;
    watch(&watcher, NOW).context("watching")?;
    expect_limit("a poll of a map", || {
        let ready = poll::wait(&watcher, libc::POLLIN, SHORT.as_millis() as i32)?;
        expect("events", ready, 0)
    })?;
    let bus = Bus::named("bus").create(true);
    let (mut subscriber, _sender) = (bus.subscriber()?, bus.sender()?);
    expect_limit("a receiver of the library", || {
        let late = subscriber.recv_timeout(SHORT).map(drop);
        ensure!(late.is_err(), "{late:?}");
        Ok(())
    })?;
    let map = Map::named("library").create(true).open()?;
    let mut watcher = map.watch(WatchFrom::Now)?;
    expect_limit("a watcher of the library", || {
        let late = watcher.recv_timeout(SHORT);
        ensure!(late.is_err(), "{late:?}");
        Ok(())
    })
}

/// Its deadline is as long as SHORT.
fn a_deadline_of_a_durable_map_does_not_follow_the_clock(_: &Context) -> Result<()> {
    // The call has to begin before it.
    let deadline = scaled(4 * SHORT);
    let mut map = Durable::new(Params {
        deadline_ms: deadline.as_millis() as u32,
        ..short(0)
    })?;
    // The deadline counts from the keeper's stop.
    let stopped = Instant::now();
    map.keeper.stop();
    expect_end("a set without a keeper", stopped, deadline, || {
        let refused = set_with(&map.end, b"key", b"value", 0);
        expect("the set", refused, failed(Errno::ETIMEDOUT, 1))
    })?;
    map.keeper.start()
}

// ---- the daemon ----

fn set(map: &Map, key: &str, time: Duration) -> Result<u64> {
    let options = SetOptions::new().time_to_live(time);
    Ok(map.set_with(key, "value", options)?.version)
}

fn left(map: &Map, key: &str) -> Result<u64> {
    let entry = map.get(key)?.with_context(|| format!("{key} is gone"))?;
    let left = entry.time_to_live.context("it lives for ever")?;
    Ok(left.as_nanos() as u64)
}

fn a_daemon_works_while_the_clock_is_set(context: &Context) -> Result<()> {
    const CHANGES: u64 = 200;
    let daemon = Daemon::start(context)?;
    let map = open_jobs(context)?;
    set(&map, "hour", HOUR)?;
    let mut watcher = map.watch(WatchFrom::Now)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let flipping = scope.spawn(|| {
            let interval = Duration::from_millis(5);
            WrongClock::flip_while(interval, || !done.load(Ordering::Relaxed))
        });
        let changing = (1..=CHANGES).try_for_each(|number| {
            let version = set(&map, &format!("{}", number % 7), HOUR)?;
            let event = watcher.recv_timeout(event_timeout())?;
            expect("the event", (event.version, event.missed), (version, 0))
        });
        done.store(true, Ordering::Relaxed);
        flipping.join().expect("the thread does not panic")?;
        changing
    })?;
    drop(watcher);
    drop(map);
    daemon.run("detach --all")?;
    drop(daemon);
    for set_clock in CLOCKS {
        let _clock = set_clock()?;
        let daemon = Daemon::start(context)?;
        let map = open_jobs(context)?;
        expect_an_hour(left(&map, "hour")?)?;
        expect("its entries", map.info()?.entries, 8)?;
        drop(map);
        daemon.finish()?;
    }
    Ok(())
}

/// Programs take this for another boot, until this is dropped.
struct OtherBoot;

const BOOT: &str = "/proc/sys/kernel/random/boot_id";

fn run(command: &mut Command) -> Result<()> {
    let status = command.status()?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

impl OtherBoot {
    fn begin(context: &Context, number: u32) -> Result<Self> {
        let file = context.scratch.join("boot");
        fs::write(&file, format!("00000000-0000-4000-8000-{number:012}\n"))?;
        run(Command::new("mount").arg("--bind").arg(&file).arg(BOOT))?;
        Ok(Self)
    }
}

impl Drop for OtherBoot {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(BOOT).status();
    }
}

/// A change that stores the daemon's clock, which is stored once a second. An implausible boot continues from it, and
/// prolongs entries that were set later by the difference.
fn store_clock(map: &Map) -> Result<()> {
    thread::sleep(Duration::from_secs(1));
    Ok(map.set("never", "value").map(drop)?)
}

/// CLOCK_BOOTTIME goes on, so that between these boots only the clock of the day tells how much time has passed.
fn a_daemon_of_a_boot_in_1970_keeps_what_was_stored_later(context: &Context) -> Result<()> {
    const NEW_YEAR: u64 = 1_000_000;
    let daemon = Daemon::start(context)?;
    let map = open_jobs(context)?;
    set(&map, "hour", HOUR)?;
    store_clock(&map)?;
    drop(map);
    daemon.finish()?;
    {
        let _boot = OtherBoot::begin(context, 1)?;
        let _clock = WrongClock::set(NEW_YEAR)?;
        let daemon = Daemon::start(context)?;
        let map = open_jobs(context)?;
        expect_an_hour(left(&map, "hour")?)?;
        expect(
            "never",
            map.get("never")?.map(|entry| entry.time_to_live),
            Some(None),
        )?;
        set(&map, "1970", 2 * HOUR)?;
        store_clock(&map)?;
        drop(map);
        daemon.finish()?;
    }
    // From 1970 to now is more than a clock that is not synchronised is believed.
    let _boot = OtherBoot::begin(context, 2)?;
    let daemon = Daemon::start(context)?;
    let map = open_jobs(context)?;
    expect_an_hour(left(&map, "hour")?)?;
    expect_an_hour(left(&map, "1970")? - HOUR.as_nanos() as u64)?;
    drop(map);
    daemon.finish()
}

// ---- times to live of every size ----

/// When an entry expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    Past,
    Later,
    Never,
}

/// Beyond 2^63 - 1 - now an entry never expires.
fn times() -> Result<Vec<(u64, Expiry)>> {
    let most = i64::MAX as u64;
    let now = boottime()?;
    let minute = 60_000_000_000;
    Ok(vec![
        (1, Expiry::Past),
        (2, Expiry::Past),
        (u64::from(u32::MAX) * 1000, Expiry::Later),
        (most - now - 10 * minute, Expiry::Later),
        (most - now + minute, Expiry::Never),
        (most, Expiry::Never),
        (most + 1, Expiry::Never),
        (u64::MAX - now, Expiry::Never),
        (u64::MAX - 1, Expiry::Never),
        (u64::MAX, Expiry::Never),
    ])
}

fn expiry(end: &impl AsFd, key: &[u8]) -> Result<Expiry> {
    match get_entry(end, key) {
        Err(Errno::ENOENT) => Ok(Expiry::Past),
        Err(error) => Err(error).context("getting"),
        Ok(entry) if entry.ttl_ns == 0 => Ok(Expiry::Never),
        // 0 would be for ever, so the module reports 1 for an entry that has expired and is still there.
        Ok(entry) if entry.ttl_ns == 1 => Ok(Expiry::Past),
        Ok(_) => Ok(Expiry::Later),
    }
}

fn expect_expiry(
    what: &str,
    end: &impl AsFd,
    key: &[u8],
    time: u64,
    expected: Expiry,
) -> Result<()> {
    expect(
        &format!("{what} for {time} ns"),
        expiry(end, key)?,
        expected,
    )
}

/// One call that sets a key for so many nanoseconds.
type SetFor<'a> = Box<dyn Fn(&[u8], u64) -> Result<()> + 'a>;

fn ways<'a>(
    context: &'a Context,
    end: &'a OwnedFd,
    socket: &'a Socket,
    handle: u32,
    map: &'a Map,
) -> Vec<(&'static str, SetFor<'a>)> {
    let op = |key: &[u8], ttl_ns| Op {
        ttl_ns,
        ..Op::set(key, b"value")
    };
    let attrs = |key: &[u8], time| {
        Attrs::new()
            .key(key)
            .value(b"value")
            .u64(attr::TTL_NS, time)
    };
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    vec![
        (
            "an ioctl",
            Box::new(move |key, time| Ok(raw(end, SET, &mut op(key, time))?)),
        ),
        (
            "a batch",
            Box::new(move |key, time| {
                let mut steps = [Step::new(STEP_SET, &op(key, time))];
                batch(end, &mut steps)?;
                expect("its result", steps[0].result >= 0, true)
            }),
        ),
        (
            "netlink",
            Box::new(move |key, time| {
                let attrs = Attrs::new().handle(handle).and(&attrs(key, time));
                socket.must(command::SET, &attrs).map(drop)
            }),
        ),
        (
            "a batch by netlink",
            Box::new(move |key, time| {
                let step = attrs(key, time).u32(attr::COMMAND, STEP_SET);
                let attrs = Attrs::new().handle(handle).step(&step);
                socket.must(command::BATCH, &attrs).map(drop)
            }),
        ),
        (
            "the library",
            Box::new(move |key, time| {
                let options = SetOptions::new().time_to_live(Duration::from_nanos(time));
                Ok(map.set_with(key, "value", options).map(drop)?)
            }),
        ),
        (
            "the command",
            Box::new(move |key, time| {
                let call = format!("map set {NAME} {} value --ttl {time}ns", text(key));
                sluice(context, &call)?.stdout().map(drop)
            }),
        ),
    ]
}

fn times_to_live_of_every_size(context: &Context) -> Result<()> {
    let maps = Maps::new()?;
    let end = maps.create()?;
    let socket = Socket::new()?;
    let handle = socket.open(NAME, BOTH)?;
    let map = Map::named(NAME).open()?;
    let times = times()?;
    let ways = ways(context, &end, &socket, handle, &map);
    for (number, (way, set)) in ways.iter().enumerate() {
        for (time, expected) in &times {
            let key = format!("{number}-{time}");
            set(key.as_bytes(), *time).with_context(|| format!("{way} for {time} ns"))?;
            expect_expiry(way, &end, key.as_bytes(), *time, *expected)?;
        }
    }
    let longest = Duration::MAX;
    map.set_with("longest", "value", SetOptions::new().time_to_live(longest))?;
    expect("the longest time", expiry(&end, b"longest")?, Expiry::Never)?;
    map.set_with(
        "none",
        "value",
        SetOptions::new().time_to_live(Duration::ZERO),
    )?;
    expect("no time", expiry(&end, b"none")?, Expiry::Past)?;
    // What expires is removed, and the rest is in the dump.
    let staying = times
        .iter()
        .filter(|(_, expiry)| *expiry != Expiry::Past)
        .count()
        * ways.len()
        + 1;
    eventually("the rest", || {
        Ok((state(&end)?.entries == staying as u64).then_some(()))
    })?;
    expect("the dump", dump(&end)?.len(), staying)
}

fn times_to_live_of_every_size_are_restored(_: &Context) -> Result<()> {
    let (keeper, maps) = (Keeper::new()?, Maps::new()?);
    let stream = begin(&keeper, 1000, keeper::LIMIT)?;
    let now = boottime()?;
    let (hour, most) = (HOUR.as_nanos() as u64, i64::MAX as u64);
    let times = [
        (0, Expiry::Never),
        (1, Expiry::Past),
        (now, Expiry::Past),
        (now + hour, Expiry::Later),
        (most - hour, Expiry::Later),
        (most + hour, Expiry::Never),
        (u64::MAX, Expiry::Never),
    ];
    for (number, (expires_ns, _)) in times.iter().enumerate() {
        let entry = Stored {
            expires_ns: *expires_ns,
            ..Stored::new(&[number as u8], b"value", 1 + number as u64)
        };
        keeper.restore(stream, &[entry]).context("RESTORE")?;
    }
    keeper.ready(stream).context("READY")?;
    let end = maps.attach()?;
    for (number, (expires_ns, expected)) in times.iter().enumerate() {
        expect_expiry("an end", &end, &[number as u8], *expires_ns, *expected)?;
    }
    Ok(())
}

// ---- limits of waits of every size ----

/// Expects the waiter asleep, wakes it, and expects success.
fn expect_waits(
    what: &str,
    waiter: Child<bool>,
    call: Call,
    wake: impl FnOnce() -> Result<()>,
) -> Result<()> {
    waiter
        .expect_still_asleep_in(call)
        .with_context(|| what.to_owned())?;
    wake()?;
    expect(what, waiter.finish()?, true)
}

fn limits_of_waits_of_every_size(_: &Context) -> Result<()> {
    let most = i64::MAX as u64;
    let (producer, consumer) = Rings::new()?.sides("ring")?;
    let seq = || consumer.seq();
    for timeout in [0, 1, 2] {
        let waited = wait(&consumer, seq(), timeout);
        expect("a short wait", waited, Err(Errno::ETIMEDOUT))?;
    }
    for timeout in [most - 1, most, most + 1, u64::MAX - 1, ring::FOREVER] {
        let now = seq();
        let waiter = spawn_keeping("a waiter", &[consumer.as_fd()], || {
            Ok(wait(&consumer, now, timeout).is_ok())
        })?;
        expect_waits(
            &format!("a wait of {timeout} ns"),
            waiter,
            Call::Ioctl,
            || producer.notify().context("waking"),
        )?;
        consumer.drain();
    }
    wake(&producer).context("waking")?;
    let bus = Bus::named("bus").create(true);
    let (mut subscriber, sender) = (bus.subscriber()?, bus.sender()?);
    let late = subscriber.recv_timeout(Duration::from_nanos(1)).map(drop);
    ensure!(late.is_err(), "{late:?}");
    for timeout in [
        Duration::MAX,
        Duration::from_nanos(u64::MAX),
        Duration::from_nanos(most),
        Duration::from_secs(u64::from(u32::MAX)),
    ] {
        thread::scope(|scope| {
            let waiting = scope.spawn(|| subscriber.recv_timeout(timeout).map(drop));
            thread::sleep(SHORT / 10);
            let is_waiting = !waiting.is_finished();
            sender.send(b"wake")?;
            let received = waiting.join().expect("a receiver does not panic");
            ensure!(is_waiting, "{timeout:?}: it has ended with {received:?}");
            Ok(received?)
        })?;
    }
    Ok(())
}

// ---- numbers ----

/// The keeper begins to restore a map whose changes have these numbers; the stream.
fn begin(keeper: &Keeper, sequence: u64, limit: u64) -> Result<u64> {
    let created = keeper.create_at(0, OWN, &stored_map(NAME), sequence, limit);
    created.context("CREATE")
}

/// A map whose last change has this number.
struct Numbered {
    end: OwnedFd,
    stream: u64,
    maps: Maps,
    keeper: Keeper,
}

impl Numbered {
    fn after(sequence: u64, limit: u64) -> Result<Self> {
        let (keeper, maps) = (Keeper::new()?, Maps::new()?);
        let stream = begin(&keeper, sequence, limit)?;
        let entry = Stored::new(b"stored", b"value", sequence);
        keeper.restore(stream, &[entry]).context("RESTORE")?;
        keeper.ready(stream).context("READY")?;
        Ok(Self {
            end: maps.attach()?,
            stream,
            maps,
            keeper,
        })
    }

    /// A change, seen by the keeper, a watcher and a reader; then it is stored.
    fn change(&self, watcher: &OwnedFd, number: u64) -> Result<()> {
        let key = number.to_ne_bytes();
        expect("its number", put(&self.end, &key, b"new")?, number)?;
        let event = events(watcher)?.pop().context("no event")?;
        expect(
            "the event",
            (event.sequence, event.version),
            (number, number),
        )?;
        let records = self.keeper.records(self.stream, 1)?;
        expect("the record", records[0].sequence, number)?;
        expect("its version", get_entry(&self.end, &key)?.version, number)?;
        self.keeper.ack(self.stream, number)
    }
}

fn a_durable_map_counts_over_32_bits(_: &Context) -> Result<()> {
    const BEFORE: u64 = (1 << 32) - 20;
    let map = Numbered::after(BEFORE, keeper::LIMIT)?;
    let watcher = map.maps.attach()?;
    watch(&watcher, NOW).context("watching")?;
    for number in BEFORE + 1..BEFORE + 40 {
        map.change(&watcher, number)?;
    }
    expect("the dump", dump(&map.end)?.len(), 40)?;
    let again = map.maps.attach()?;
    watch(&again, BEFORE + 10).context("watching from there")?;
    let numbers: Vec<u64> = events(&again)?.iter().map(|event| event.sequence).collect();
    expect("its events", numbers, (BEFORE + 11..BEFORE + 40).collect())
}

/// The largest limit of a keeper is 2^63 - 1, and the last number is for the expiry of an entry in the way of a change.
fn a_durable_map_ends_with_its_last_number(_: &Context) -> Result<()> {
    const LAST: u64 = i64::MAX as u64;
    let map = Numbered::after(LAST - 10, LAST)?;
    let watcher = map.maps.attach()?;
    watch(&watcher, NOW).context("watching")?;
    for number in LAST - 9..LAST {
        map.change(&watcher, number)?;
    }
    let refused = set_with(&map.end, b"more", b"", NOWAIT);
    expect("one more", refused, failed(Errno::EAGAIN, 0))?;
    for limit in [LAST + 1, u64::MAX] {
        let ack = keeper::Ack::new(map.stream, 0, limit, 0);
        expect(
            "a limit beyond",
            map.keeper.send_ack(ack),
            Err(Errno::EINVAL),
        )?;
    }
    let info = state(&map.end)?;
    expect("the state", (info.sequence, info.entries), (LAST - 1, 10))?;
    expect("the dump", dump(&map.end)?.len(), 10)
}
