// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the daemon: messages of the kernel become transactions of the store, and those become acknowledgements.
//!
//! The caller repeats `turn` whenever there may be something to do. A turn reads the messages that are there, commits what is due,
//! and continues restorations for a while; it waits for nothing but the store. What cannot be done yet stays in a list, which each
//! turn looks through:
//!
//! - a *task* (`tasks.rs`) changes the store and continues after the commit. A map has at most one; it is *busy* until then.
//! - an *open* waits until no older stream of its map is left, and the map is not busy.
//! - an *unlink* and a *detach* wait until the map is not busy.
//! - a *job* (`jobs.rs`) is a request of an administrator.
//!
//! After a commit that failed (`failure.rs`) all of this is refused, and changes are kept, until the store works again.

mod catalogue;
mod clock;
mod commit;
mod detach;
mod failure;
mod jobs;
mod lost;
mod messages;
mod opens;
mod orphans;
mod restore;
mod status;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use nix::errno::Errno;
use sluiced_protocol::Response;

use self::catalogue::Catalogue;
use self::clock::Clock;
use self::detach::Detach;
use self::failure::{Failure, Recovered};
use self::jobs::Job;
use self::orphans::Orphans;
use self::restore::Restorations;
use self::stream::Stream;
use self::tasks::Task;
use crate::cgroup::Cgroups;
use crate::kernel::{Kernel, Message, Open, Received};
use crate::log;
use crate::store::{MapId, PageLimit, Store, StoreError};

pub use self::jobs::JobId;
pub use self::orphans::OrphanLimits;

/// Numbers that are reserved at once. At most half of them are used between two commits.
const RESERVATION: u64 = 65_536;
/// Reads of the kernel's messages in a turn, each of up to some MiB.
const READS: usize = 8;
/// Reads after which the streams of an earlier daemon are known, even if changes come all the time: the kernel gives one message of
/// each stream in turn.
const FIRST_READS: usize = 1000;
/// Pages of restorations in a turn, after which messages are read.
const PAGES: usize = 4;
const PAGE: PageLimit = PageLimit {
    entries: 256,
    bytes: 1 << 20,
};
/// Entries of removed maps that are deleted in a turn.
const PURGED: usize = 256;
/// Bytes of an interval map that are not committed yet. The kernel admits four times as many.
const PENDING_MAX: usize = 1 << 20;
/// Expired entries that are not deleted yet.
const EXPIRED_MAX: usize = 4096;
/// Of those, while the clock is not settled. Further ones stay stored until the next restoration.
const EXPIRED_KEPT: usize = 65_536;

/// The time of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub monotonic: Duration,
    /// As the kernel counts times to live.
    pub boottime: Duration,
    /// The system clock, since 1970.
    pub realtime: Duration,
    /// Whether that is synchronised with others.
    pub synchronised: bool,
}

/// When the next turn is due, if no message comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    AtOnce,
    /// On the monotonic clock.
    At(Duration),
}

/// An entry that had expired when it would have been restored.
struct Expired {
    map: MapId,
    key: Vec<u8>,
    version: u64,
    expires_ns: u64,
}

pub struct Engine<K, S, C> {
    kernel: K,
    store: S,
    cgroups: C,
    now: Now,
    clock: Clock,
    inbox: Vec<Message>,
    /// Whether all messages were read once: until then an open may overtake an older stream of its map.
    drained: bool,
    reads: usize,
    catalogue: Catalogue,
    last_id: i64,
    streams: HashMap<u64, Stream>,
    /// Streams with changes to commit or to acknowledge.
    dirty: BTreeSet<u64>,
    opens: VecDeque<Open>,
    unlinking: BTreeSet<u64>,
    detaching: BTreeMap<u64, Detach>,
    restorations: Restorations,
    tasks: Vec<Task>,
    expired: Vec<Expired>,
    /// Whether something happened in this turn that others may wait for.
    progressed: bool,
    /// Whether changes were acknowledged in this turn whose processes wait for it.
    has_ended_waits: bool,
    /// When stored maps are to be attached.
    attach_at: Option<Duration>,
    /// When lost streams may have ended.
    end_lost_at: Duration,
    /// Whether entries of removed maps may be left.
    purge: bool,
    orphans: Orphans,
    failure: Option<Failure>,
    recovered: Option<Recovered>,
    jobs: Vec<Job>,
    responses: Vec<(JobId, Response)>,
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    /// `boot`: the identity of the boot.
    pub fn new(
        kernel: K,
        mut store: S,
        cgroups: C,
        limits: OrphanLimits,
        boot: String,
        now: Now,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            clock: Clock::new(store.clock()?, boot, now),
            catalogue: Catalogue::new(store.maps()?),
            last_id: store.last_id()?,
            kernel,
            store,
            cgroups,
            now,
            inbox: Vec::new(),
            drained: false,
            reads: 0,
            streams: HashMap::new(),
            dirty: BTreeSet::new(),
            opens: VecDeque::new(),
            unlinking: BTreeSet::new(),
            detaching: BTreeMap::new(),
            restorations: Restorations::default(),
            tasks: Vec::new(),
            expired: Vec::new(),
            progressed: false,
            has_ended_waits: false,
            attach_at: Some(now.monotonic),
            end_lost_at: now.monotonic,
            purge: true,
            orphans: Orphans::new(limits, now),
            failure: None,
            recovered: None,
            jobs: Vec::new(),
            responses: Vec::new(),
        })
    }

    pub fn kernel(&self) -> &K {
        &self.kernel
    }

    pub fn maps(&self) -> usize {
        self.catalogue.len()
    }

    /// An error is one of the module's descriptor, without which there is nothing to do.
    pub fn turn(&mut self, now: Now) -> Result<(), String> {
        self.now = now;
        self.progressed = false;
        self.has_ended_waits = false;
        self.receive()?;
        self.settle_clock();
        if self.drained {
            self.end_lost();
            self.attach_stored();
            self.advance_jobs();
            self.answer_opens();
            self.advance_unlinks();
            self.check_orphans();
        }
        if self.is_commit_due() {
            self.commit();
        }
        self.advance_detaches();
        self.restore_some();
        self.purge_some();
        Ok(())
    }

    /// Commits everything that was read, also what is not due, and the time.
    pub fn finish(&mut self, now: Now) {
        self.now = now;
        self.commit();
    }

    /// Whether everything that was read is stored.
    pub fn is_stored(&self) -> bool {
        self.streams
            .values()
            .all(|stream| stream.pending.is_empty())
    }

    /// Whether the last turn has ended waits of processes, which may make their next changes at once.
    pub fn has_ended_waits(&self) -> bool {
        self.has_ended_waits
    }

    pub fn wake(&self) -> Wake {
        if !self.drained || !self.responses.is_empty() {
            return Wake::AtOnce;
        }
        if let Some(failure) = &self.failure {
            return Wake::At(failure.retry_at());
        }
        if self.has_more_to_do() {
            return Wake::AtOnce;
        }
        let streams = self.dirty.iter().filter_map(|id| self.streams.get(id));
        let times = [
            streams.filter_map(|stream| stream.due).min(),
            self.detach_retry(),
            Some(self.orphans.next_check()),
            self.clock.next_check(self.now),
            self.attach_at,
            self.next_end_lost(),
        ];
        let first = times.into_iter().flatten().min();
        Wake::At(first.unwrap_or_default())
    }

    fn has_more_to_do(&self) -> bool {
        let slow = !self.restorations.is_empty()
            || self.has_expired()
            || self.purge
            || self.is_attach_due();
        let waiting = !self.opens.is_empty()
            || !self.unlinking.is_empty()
            || !self.detaching.is_empty()
            || !self.jobs.is_empty();
        let tasks = !self.tasks.is_empty() || self.orphans.is_check_due(self.now);
        slow || tasks || self.progressed && waiting
    }

    /// Whether there are entries to delete.
    fn has_expired(&self) -> bool {
        self.clock.is_settled() && !self.expired.is_empty()
    }

    /// From then on what has expired by the clock is deleted.
    fn settle_clock(&mut self) {
        if !self.clock.settle(self.now) || self.expired.is_empty() {
            return;
        }
        let (time, found) = (self.clock.time(self.now), self.expired.len());
        self.expired.retain(|entry| entry.expires_ns <= time);
        let (deleted, cause) = (self.expired.len(), self.now.synchronised);
        let cause = match cause {
            true => "the system clock is synchronised",
            false => "the system clock was not synchronised for an hour",
        };
        log::line(format_args!(
            "{cause}: {deleted} entries that have expired are deleted"
        ));
        if found > deleted {
            log::line(format_args!(
                "{} entries that were not restored have not expired; to restore them, run 'sluice store detach' and 'sluice store attach'",
                found - deleted
            ));
        }
    }

    fn receive(&mut self) -> Result<(), String> {
        let mut inbox = std::mem::take(&mut self.inbox);
        for _ in 0..READS {
            let received = self.kernel.receive(&mut inbox)?;
            for message in inbox.drain(..) {
                self.handle(message);
            }
            self.reads += 1;
            self.drained |= received == Received::All || self.reads == FIRST_READS;
            if received == Received::All {
                break;
            }
        }
        self.inbox = inbox;
        Ok(())
    }

    /// The stream has ended; what is stored of its map stays.
    fn close_stream(&mut self, id: u64) {
        self.progressed = true;
        self.opens.retain(|open| open.stream != id);
        self.dirty.remove(&id);
        self.unlinking.remove(&id);
        self.detaching.remove(&id);
        self.restorations.remove(id);
        let Some(map) = self.streams.remove(&id).and_then(|stream| stream.map) else {
            return;
        };
        if let Some(entry) = self.catalogue.get_mut(map) {
            entry.stream = None;
        }
        self.orphans.check_map(map);
    }

    /// The result of a call about a stream: if it has ended, it is forgotten. Returns another error.
    fn called(&mut self, stream: u64, result: Result<(), Errno>) -> Option<Errno> {
        match result {
            Ok(()) => None,
            Err(Errno::ENOENT) => {
                self.close_stream(stream);
                None
            }
            Err(errno) => Some(errno),
        }
    }

    /// As above, of a call that fails only by a fault of the daemon or of the module.
    fn expect(&mut self, what: &str, stream: u64, result: Result<(), Errno>) {
        if let Some(errno) = self.called(stream, result) {
            log::line(format_args!(
                "{what} of stream {stream} failed: {errno}; please report this with the version of the module"
            ));
        }
    }

    fn is_live(&self, map: MapId) -> bool {
        self.catalogue
            .get(map)
            .is_some_and(|entry| entry.stream.is_some())
    }
}
