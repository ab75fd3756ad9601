// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine with a kernel and a store that are told when to fail.

mod attach;
mod clock;
mod commits;
mod failures;
mod fake_kernel;
mod opens;
mod orphans;
mod random;
mod restarts;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use sluice::Scope;
use sluiced_protocol::{MapName, MapState, MapStatus, Request, Response, Selection};

use self::fake_kernel::{FakeKernel, Opened};
use super::{Engine, Now, OrphanLimits, Wake};
use crate::cgroup::{CgroupError, Cgroups};
use crate::store::{
    MapId, PageLimit, Store, StoreError, StoredClock, StoredEntry, StoredMap, UsageChanges, Write,
};
use crate::store_memory::MemoryStore;

/// A store that a test can look at, and that outlives the engine.
#[derive(Clone, Default)]
pub struct SharedStore(pub Rc<RefCell<MemoryStore>>);

impl Store for SharedStore {
    fn maps(&mut self) -> Result<Vec<StoredMap>, StoreError> {
        self.0.borrow_mut().maps()
    }

    fn page(
        &mut self,
        map: MapId,
        after: Option<&[u8]>,
        limit: PageLimit,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        self.0.borrow_mut().page(map, after, limit)
    }

    fn clock(&mut self) -> Result<Option<StoredClock>, StoreError> {
        self.0.borrow_mut().clock()
    }

    fn removed(&mut self) -> Result<Option<MapId>, StoreError> {
        self.0.borrow_mut().removed()
    }

    fn commit(&mut self, writes: &[Write<'_>]) -> Result<UsageChanges, StoreError> {
        self.0.borrow_mut().commit(writes)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.0.borrow_mut().reopen()
    }

    fn last_id(&mut self) -> Result<i64, StoreError> {
        self.0.borrow_mut().last_id()
    }
}

/// All cgroups exist but these.
#[derive(Clone, Default)]
struct FakeCgroups(Rc<RefCell<BTreeSet<Vec<u8>>>>, Rc<Cell<Option<u32>>>);

impl FakeCgroups {
    /// So many are opened, then no more; none: all.
    fn set_files(&self, files: Option<u32>) {
        self.1.set(files);
    }
}

impl Cgroups for FakeCgroups {
    fn scope(&self, path: &[u8]) -> Result<Scope, CgroupError> {
        match self.1.get() {
            Some(0) => return Err(CgroupError::NoResources("too many open files".to_owned())),
            files => self.1.set(files.map(|files| files - 1)),
        }
        match self.0.borrow().contains(path) {
            true => Err(CgroupError::Gone),
            false => Ok(Scope::root()),
        }
    }
}

/// A daemon with its surroundings.
struct World {
    engine: Engine<FakeKernel, SharedStore, FakeCgroups>,
    kernel: FakeKernel,
    store: SharedStore,
    gone: FakeCgroups,
    limits: OrphanLimits,
    boot: u32,
    now: Now,
    last_job: u64,
    responses: Vec<(u64, Response)>,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl World {
    fn new() -> Self {
        Self::with_limits(OrphanLimits {
            count: 1024,
            bytes: 1 << 30,
            age: 30 * DAY,
        })
    }

    fn with_limits(limits: OrphanLimits) -> Self {
        let store = SharedStore::default();
        let kernel = FakeKernel::new(store.clone());
        let now = Now {
            monotonic: Duration::from_secs(100),
            boottime: Duration::from_secs(100),
            realtime: Duration::from_secs(1_700_000_000),
            synchronised: true,
        };
        let gone = FakeCgroups::default();
        let engine = engine(&kernel, &store, &gone, limits, 0, now);
        Self {
            engine,
            kernel,
            store,
            gone,
            limits,
            boot: 0,
            now,
            last_job: 0,
            responses: Vec::new(),
        }
    }

    /// Turns as long as there is something to do at this time.
    fn run(&mut self) {
        for _ in 0..10_000 {
            self.turn();
            match self.engine.wake() {
                Wake::At(time) if time > self.now.monotonic && self.kernel.is_read() => return,
                _ => {}
            }
        }
        panic!("the engine does not come to rest");
    }

    fn turn(&mut self) {
        self.engine.turn(self.now).unwrap();
        self.responses.extend(self.engine.take_responses());
    }

    fn pass(&mut self, time: Duration) {
        self.advance(time);
        self.run();
    }

    fn advance(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.boottime += time;
        self.now.realtime += time;
    }

    /// A crash of the daemon, and a new one.
    fn restart(&mut self) {
        self.kernel.restart();
        self.store.reopen().unwrap();
        self.engine = engine(
            &self.kernel,
            &self.store,
            &self.gone,
            self.limits,
            self.boot,
            self.now,
        );
    }

    /// The kernel has forgotten everything, too.
    fn reboot(&mut self) {
        self.kernel = FakeKernel::new(self.store.clone());
        self.boot += 1;
        self.now.boottime = Duration::from_secs(10);
        self.restart();
    }

    /// Opens a map of user 1000 and expects success.
    fn open(&mut self, path: &str, name: &str) -> u64 {
        let stream = self.kernel.open(path, name, 1000);
        self.run();
        assert_eq!(self.kernel.opened(stream), Opened::Ready);
        stream
    }

    fn remove_cgroup(&mut self, path: &str) {
        self.gone.0.borrow_mut().insert(path.into());
        self.kernel.remove_cgroup(path);
        self.run();
    }

    fn stored(&self) -> Vec<StoredMap> {
        self.store.0.borrow_mut().maps().unwrap()
    }

    fn request(&mut self, request: Request) -> Response {
        self.last_job += 1;
        self.engine.request(self.last_job, request);
        for _ in 0..1000 {
            self.turn();
            if let Some((id, response)) = self.responses.pop() {
                assert_eq!(id, self.last_job);
                return response;
            }
            self.now.monotonic += Duration::from_millis(10);
        }
        panic!("no response");
    }

    /// The error of a request about one map.
    fn outcome(&mut self, request: Request) -> Option<String> {
        match self.request(request) {
            Response::Done(outcomes) => {
                let [outcome] = outcomes.as_slice() else {
                    panic!("{outcomes:?}");
                };
                outcome.error.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    fn status(&mut self) -> Vec<MapStatus> {
        match self.request(Request::Status) {
            Response::Status(status) => status.maps,
            other => panic!("{other:?}"),
        }
    }

    fn states(&mut self) -> Vec<MapState> {
        self.status().iter().map(|map| map.state).collect()
    }

    fn value(&self, map: i64, key: &str) -> Option<String> {
        let value = fake_kernel::stored_value(&self.store, MapId(map), key);
        value.map(|bytes| String::from_utf8(bytes).unwrap())
    }
}

fn engine(
    kernel: &FakeKernel,
    store: &SharedStore,
    gone: &FakeCgroups,
    limits: OrphanLimits,
    boot: u32,
    now: Now,
) -> Engine<FakeKernel, SharedStore, FakeCgroups> {
    let boot = boot.to_string();
    Engine::new(
        kernel.clone(),
        store.clone(),
        gone.clone(),
        limits,
        boot,
        now,
    )
    .unwrap()
}

fn one(path: &str, name: &str) -> Selection {
    Selection::Map(map_name(path, name))
}

fn map_name(path: &str, name: &str) -> MapName {
    MapName {
        path: path.into(),
        name: name.into(),
    }
}
