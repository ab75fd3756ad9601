// SPDX-License-Identifier: MIT OR Apache-2.0
//! A keeper of durable maps that stores them in the memory of the test, on top of `sluice_keeper`. A test decides what it answers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use sluice::StoreError;
use sluice_keeper::{
    BUFFER, CallError, Content, Entry, Keeper, Message, Open, ReadError, StoredMap,
};

use super::event::Event;
use super::process::panic_message;

/// The numbers that it reserves.
const LIMIT: u64 = 1 << 40;

/// Path of the cgroup and name.
type Place = (Vec<u8>, Vec<u8>);
/// Version, and value.
type Value = (u64, Vec<u8>);

/// What it answers. All is well by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Neither acknowledgements nor answers to an unlink.
    pub silent: bool,
    /// Changes are refused.
    pub error: Option<StoreError>,
    /// Opens fail.
    pub open_errno: Option<i32>,
    /// Unlinks fail.
    pub unlink_errno: Option<i32>,
}

struct Stored {
    map: StoredMap,
    applied: u64,
    entries: BTreeMap<Vec<u8>, Value>,
}

#[derive(Default)]
struct State {
    plan: Plan,
    ends: bool,
    maps: BTreeMap<Place, Stored>,
    streams: BTreeMap<u64, Stream>,
    /// Of streams.
    unlinks: Vec<u64>,
}

#[derive(Default)]
struct Stream {
    /// None: an earlier test has left it.
    place: Option<Place>,
    /// The last number that was delivered, or 0.
    delivered: u64,
}

pub struct Store {
    keeper: Arc<Keeper>,
    state: Arc<Mutex<State>>,
    changed: Arc<Event>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Store {
    pub fn new() -> Result<Self> {
        let keeper = Arc::new(Keeper::open().context("becoming the keeper")?);
        keeper.set_nonblocking(true)?;
        let mut store = Store {
            keeper,
            state: Arc::default(),
            changed: Arc::new(Event::new()?),
            thread: None,
        };
        let (keeper, state) = (Arc::clone(&store.keeper), Arc::clone(&store.state));
        let changed = Arc::clone(&store.changed);
        store.thread = Some(thread::spawn(move || serve(&keeper, &state, &changed)));
        Ok(store)
    }

    /// From now on.
    pub fn plan(&self, plan: Plan) -> Result<()> {
        lock(&self.state).plan = plan;
        self.changed.notify()
    }

    /// The entries that are stored of the only map, and the number of the last change.
    pub fn stored(&self) -> Result<(u64, BTreeMap<Vec<u8>, Value>)> {
        let state = lock(&self.state);
        let stored = state.maps.values().next().context("no map is stored")?;
        Ok((stored.applied, stored.entries.clone()))
    }

    pub fn maps(&self) -> usize {
        lock(&self.state).maps.len()
    }

    /// Drops all maps from the kernel.
    pub fn detach_all(&self) -> Result<()> {
        for stream in std::mem::take(&mut lock(&self.state).streams).into_keys() {
            self.keeper.detach(stream).context("detaching")?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        lock(&self.state).ends = true;
        self.changed.notify()?;
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(panic)) => Err(anyhow!("the keeper panicked: {}", panic_message(&*panic))),
            Some(Ok(result)) => result.context("the keeper"),
            None => Ok(()),
        }
    }

    /// Ends it, with its errors.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(keeper: &Keeper, state: &Mutex<State>, changed: &Event) -> Result<()> {
    let mut buffer = vec![0; BUFFER];
    let [woken, _] = changed.fds();
    loop {
        let mut fds = [keeper.as_fd(), woken].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        poll(&mut fds, PollTimeout::NONE).context("waiting for messages")?;
        if fds[1].any() == Some(true) {
            changed.wait("a change of the plan")?;
        }
        let mut state = lock(state);
        if state.ends {
            state.plan = Plan::default();
        }
        read_all(keeper, &mut state, &mut buffer)?;
        answer_all(keeper, &mut state)?;
        if state.ends {
            // What is in use ends with its cgroup.
            state
                .streams
                .keys()
                .for_each(|stream| drop(keeper.detach(*stream)));
            return Ok(());
        }
    }
}

fn read_all(keeper: &Keeper, state: &mut State, buffer: &mut [u8]) -> Result<()> {
    loop {
        let messages = match keeper.read(buffer) {
            Err(ReadError::Empty) => return Ok(()),
            other => other.context("reading")?,
        };
        for message in messages {
            take(keeper, state, &message?)?;
        }
    }
}

fn take(keeper: &Keeper, state: &mut State, message: &Message<'_>) -> Result<()> {
    let stream = message.stream;
    match &message.content {
        Content::Open(open) => {
            return tolerate(answer_open(keeper, state, stream, open));
        }
        Content::Set(set) => apply(state, stream, set.number, |entries| {
            entries.insert(set.key.to_vec(), (set.number, set.value.to_vec()));
        }),
        Content::Delete(removal) | Content::Expire(removal) => {
            apply(state, stream, removal.number, |entries| {
                entries.remove(removal.key);
            })
        }
        Content::Resume(_) => drop(state.streams.insert(stream, Stream::default())),
        Content::Unlink => state.unlinks.push(stream),
        Content::Closed => {
            state.streams.remove(&stream);
        }
        Content::Sync(_) => {}
        other => return Err(anyhow!("an unexpected message: {other:?}")),
    }
    Ok(())
}

fn apply(
    state: &mut State,
    stream: u64,
    number: u64,
    change: impl FnOnce(&mut BTreeMap<Vec<u8>, Value>),
) {
    let Some(stream) = state.streams.get_mut(&stream) else {
        return;
    };
    stream.delivered = number;
    let place = stream.place.as_ref();
    if let Some(stored) = place.and_then(|place| state.maps.get_mut(place)) {
        stored.applied = number;
        change(&mut stored.entries);
    }
}

fn answer_open(
    keeper: &Keeper,
    state: &mut State,
    stream: u64,
    open: &Open<'_>,
) -> Result<(), CallError> {
    let path = open.path.as_os_str().as_encoded_bytes().to_vec();
    let place = (path, open.map.name.as_bytes().to_vec());
    if let Some(errno) = state.plan.open_errno {
        return keeper.refuse(stream, errno);
    }
    if open.exclusive && state.maps.contains_key(&place) {
        return keeper.refuse(stream, libc::EEXIST);
    }
    let stored = state.maps.entry(place.clone()).or_insert_with(|| Stored {
        map: open.map.clone(),
        applied: 0,
        entries: BTreeMap::new(),
    });
    let created = keeper.create(stream, &stored.map, stored.applied, LIMIT);
    if matches!(&created, Err(error) if error.errno() == libc::ESTALE) {
        return keeper.refuse(stream, libc::ESTALE);
    }
    created?;
    let entries: Vec<_> = stored.entries.iter().map(entry).collect();
    keeper.restore(stream, &entries)?;
    let place = Some(place);
    let delivered = 0;
    state.streams.insert(stream, Stream { place, delivered });
    keeper.ready(stream)
}

fn entry<'a>((key, (version, value)): (&'a Vec<u8>, &'a Value)) -> Entry<'a> {
    Entry {
        key,
        value,
        version: *version,
        expires_ns: 0,
    }
}

fn answer_all(keeper: &Keeper, state: &mut State) -> Result<()> {
    let plan = state.plan;
    for (number, stream) in &state.streams {
        tolerate(match plan.error {
            Some(error) => keeper.fail(*number, error),
            None if plan.silent => Ok(()),
            None => keeper.acknowledge(*number, stream.delivered, LIMIT),
        })?;
    }
    if plan.silent {
        return Ok(());
    }
    for stream in std::mem::take(&mut state.unlinks) {
        tolerate(match plan.unlink_errno {
            Some(errno) => keeper.refuse_unlink(stream, errno),
            None => {
                let place = state.streams.remove(&stream).and_then(|it| it.place);
                place.and_then(|place| state.maps.remove(&place));
                keeper.unlinked(stream)
            }
        })?;
    }
    Ok(())
}

/// A stream may have ended.
fn tolerate(called: Result<(), CallError>) -> Result<()> {
    match called {
        Err(error) if error.errno() == libc::ENOENT => Ok(()),
        other => Ok(other?),
    }
}
