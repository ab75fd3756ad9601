// SPDX-License-Identifier: MIT OR Apache-2.0
//! Durable maps: their parameters, changes that wait for the store, and a map with its keeper.

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::Signal;
use serde::{Serialize, de::DeserializeOwned};

use super::cgroup::{self, Cgroup};
use super::check::expect;
use super::child::{Child, spawn_keeping};
use super::ctl::{BOTH, CREATE, Ctl, OWN, Open};
use super::event::Event;
use super::ioctl::{self, raw_with_result};
use super::keeper::{self, Keeper, LIMIT, UNLINK, answering};
use super::map::{self, DELETE, Maps, Op, Params, SET};
use super::proc::Call;
use super::signals;
use super::time;

pub use sluice_abi::map::{DURABLE, INTERVAL, NOWAIT, REFUSE, SYNC};

/// A deadline that passes during the test, and not while a map is opened.
pub const SHORT_MS: u32 = 500;
/// Bytes of records that are not acknowledged before changes wait.
pub const STREAM_MAX: u64 = 4 << 20;

/// The key of the changes that fill a stream. It is short, so that a change of another key has no room either.
pub const FILLER: &[u8] = b"f";

/// The limit with which this many changes are made: each is admitted only if there is also a number for the expiry of
/// an entry in its way.
pub const fn limit_for(changes: u64) -> u64 {
    changes + 1
}

/// With a deadline that does not pass in a test that succeeds.
pub fn durable(flags: u32) -> Params {
    Params {
        flags: DURABLE | flags,
        deadline_ms: time::event_timeout().as_millis() as u32,
        ..Params::default()
    }
}

pub fn short(flags: u32) -> Params {
    Params {
        deadline_ms: SHORT_MS,
        ..durable(flags)
    }
}

/// The flags of an open that creates a durable map. It waits for the keeper.
pub const NEW: u32 = BOTH | CREATE;

pub fn open(maps: &Maps, flags: u32, params: Params) -> nix::Result<OwnedFd> {
    maps.0.open(map::request(flags, &params))
}

/// As open(), as a child returns it.
pub fn open_result(maps: &Maps, flags: u32, params: Params) -> Result<(), i32> {
    let opened = open(maps, flags, params);
    opened.map(drop).map_err(|errno| errno as i32)
}

/// As the keeper names it: its path from the root of the hierarchy.
pub fn path_of(cgroup: &Cgroup) -> Result<String> {
    let inside = cgroup.path().strip_prefix(cgroup::mount_point()?);
    let path = Path::new("/").join(inside.context("a cgroup is outside of the hierarchy")?);
    Ok(path.display().to_string())
}

// ---- changes ----

/// The result of a change, and the number that is then in version.
pub type Changed = (Result<i32, i32>, u64);

pub fn failed(errno: Errno, version: u64) -> Changed {
    (Err(errno as i32), version)
}

fn change(end: &impl AsFd, command: u64, mut op: Op) -> Changed {
    let result = raw_with_result(end, command, &mut op);
    (result.map_err(|errno| errno as i32), op.version)
}

pub fn set_with(end: &impl AsFd, key: &[u8], value: &[u8], flags: u32) -> Changed {
    let op = Op::set(key, value);
    change(end, SET, Op { flags, ..op })
}

pub fn delete_with(end: &impl AsFd, key: &[u8], flags: u32) -> Changed {
    let op = Op::delete(key);
    change(end, DELETE, Op { flags, ..op })
}

/// Sets a value without waiting for the store; its number.
pub fn post(end: &impl AsFd, key: &[u8], value: &[u8]) -> Result<u64> {
    match set_with(end, key, value, NOWAIT) {
        (Ok(_), number) => Ok(number),
        (Err(errno), _) => Err(Errno::from_raw(errno)).context("setting without waiting"),
    }
}

pub fn sync(end: &impl AsFd, number: u64) -> nix::Result<u64> {
    ioctl::set(end, SYNC, number)
}

/// As sync(), as a child returns it.
pub fn sync_result(end: &impl AsFd, number: u64) -> Result<u64, i32> {
    sync(end, number).map_err(|errno| errno as i32)
}

/// A process that sleeps in the call of `body` on this endpoint.
pub fn blocked<T: Serialize + DeserializeOwned>(
    end: &impl AsFd,
    body: impl FnOnce() -> T,
) -> Result<Child<T>> {
    let child = spawn_keeping("a call that waits", &[end.as_fd()], || Ok(body()))?;
    child.wait_asleep_in(Call::Ioctl)?;
    Ok(child)
}

/// As `blocked`, with a handler for a signal, which is then sent; SA_RESTART if `restart`.
pub fn interrupted<T: Serialize + DeserializeOwned>(
    end: &impl AsFd,
    restart: bool,
    body: impl FnOnce() -> T,
) -> Result<Child<T>> {
    let handled = Event::new()?;
    let child =
        signals::spawn_blocked_keeping(Call::Ioctl, &[end.as_fd()], &handled, restart, || {
            Ok(body())
        })?;
    signals::interrupt(&child, &handled)?;
    Ok(child)
}

pub fn blocked_set(end: &OwnedFd, key: &[u8], value: &[u8]) -> Result<Child<Changed>> {
    blocked(end, || set_with(end, key, value, 0))
}

/// Kills a process that sleeps in a call, and waits until it is gone.
pub fn kill<T: DeserializeOwned>(child: Child<T>) -> Result<()> {
    child.signal(Signal::SIGKILL)?;
    child.wait_end().map(drop)
}

// ---- a map ----

/// Opens a new map in this scope, with room for several of the longest values, and answers with these parameters and
/// this limit. The open itself has time: its deadline is not that of the map.
pub fn create_in(
    ctl: &Ctl,
    scope_fd: RawFd,
    keeper: &Keeper,
    params: Params,
    limit: u64,
) -> Result<(OwnedFd, u64)> {
    create_named_in(map::NAME, ctl, scope_fd, keeper, params, limit)
}

fn create_named_in(
    name: &str,
    ctl: &Ctl,
    scope_fd: RawFd,
    keeper: &Keeper,
    params: Params,
    limit: u64,
) -> Result<(OwnedFd, u64)> {
    let patient = Params {
        deadline_ms: durable(0).deadline_ms,
        ..params
    };
    let request = Open {
        scope_fd,
        name: sluice_abi::padded(name),
        capacity: 32 << 20,
        ..map::request(NEW, &patient)
    };
    let decide = |map: &mut keeper::Map| map.deadline_ms = params.deadline_ms;
    let answer = || keeper.answer_open_with(limit, decide);
    let (opened, stream) = answering(|| ctl.open(request), answer)?;
    Ok((opened.context("creating a durable map")?, stream))
}

/// A durable map in the cgroup of the test, and its keeper. The endpoint is in blocking mode.
pub struct Durable {
    pub end: OwnedFd,
    pub stream: u64,
    pub maps: Maps,
    pub keeper: Keeper,
}

impl Durable {
    /// A map whose changes wait until they are stored.
    pub fn always() -> Result<Self> {
        Self::new(durable(0))
    }

    /// A map whose changes do not wait.
    pub fn interval() -> Result<Self> {
        Self::new(durable(INTERVAL))
    }

    pub fn new(params: Params) -> Result<Self> {
        Self::with_limit(params, LIMIT)
    }

    /// With these numbers.
    pub fn with_limit(params: Params, limit: u64) -> Result<Self> {
        Self::create(map::NAME, params, limit)
    }

    /// Beside another map.
    pub fn named(name: &str, params: Params) -> Result<Self> {
        Self::create(name, params, LIMIT)
    }

    fn create(name: &str, params: Params, limit: u64) -> Result<Self> {
        let (maps, keeper) = (Maps::new()?, Keeper::new()?);
        let ctl = &maps.0;
        let (end, stream) = create_named_in(name, ctl, OWN, &keeper, params, limit)?;
        Ok(Durable {
            end,
            stream,
            maps,
            keeper,
        })
    }

    /// Unlinks the map. The keeper ends its stream, and acknowledges nothing before.
    pub fn unlink(&self) -> Result<()> {
        let maps = &self.maps;
        let (unlinked, ()) = answering(
            || maps.unlink(),
            || {
                while self.keeper.next()?.kind != UNLINK {}
                self.keeper.unlinked(self.stream).context("END")
            },
        )?;
        expect("the unlink", unlinked, Ok(()))
    }

    /// One more endpoint, in non-blocking mode.
    pub fn attach(&self) -> Result<OwnedFd> {
        self.maps.attach()
    }

    /// An endpoint, in non-blocking mode, that watches later changes.
    pub fn watcher(&self) -> Result<OwnedFd> {
        let end = self.attach()?;
        map::watch(&end, map::NOW).context("watching")?;
        Ok(end)
    }

    pub fn ack(&self, number: u64) -> Result<()> {
        self.keeper.ack(self.stream, number)
    }

    /// Reads this many changes and acknowledges them.
    pub fn store(&self, count: usize) -> Result<()> {
        let records = self.keeper.records(self.stream, count)?;
        match records.last() {
            Some(last) => self.ack(last.sequence),
            None => Ok(()),
        }
    }

    /// Sets values of 64 KiB, then shorter ones, without waiting until no change has room in the stream. The number of
    /// the last one.
    pub fn fill(&self) -> Result<u64> {
        let mut last = 0;
        for length in [64 << 10, 1 << 10, 0] {
            last = self.fill_with(length)?.max(last);
        }
        Ok(last)
    }

    /// Sets values of this length until the first one has no room. The number of the last one, or 0.
    pub fn fill_with(&self, length: usize) -> Result<u64> {
        let value = vec![7; length];
        let mut last = 0;
        for _ in 0..=STREAM_MAX / 1024 {
            match set_with(&self.end, FILLER, &value, NOWAIT) {
                (Ok(_), number) => last = number,
                (Err(errno), _) if errno == Errno::EAGAIN as i32 => return Ok(last),
                (Err(errno), _) => {
                    return Err(Errno::from_raw(errno)).context("filling the stream");
                }
            }
        }
        bail!("{last} values of {length} bytes, and the stream is not full")
    }
}
