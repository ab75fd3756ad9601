// SPDX-License-Identifier: MIT OR Apache-2.0
//! A store that does not work: changes are refused, and those that were read are kept. The store is opened anew, everything that is
//! not acknowledged is applied again, and only a commit of that ends the failure.

use std::collections::BTreeSet;
use std::time::Duration;

use nix::errno::Errno;

use super::Engine;
use super::stream::Phase;
use super::tasks::Task;
use crate::cgroup::Cgroups;
use crate::kernel::Kernel;
use crate::log;
use crate::store::{Store, StoreError};

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);
/// A store that fails again in this time has not recovered.
const CALM: Duration = Duration::from_secs(60);

pub struct Failure {
    error: StoreError,
    /// Whether the store is open again.
    reopened: bool,
    delay: Duration,
    retry_at: Duration,
}

/// The end of the last failure.
#[derive(Clone, Copy)]
pub struct Recovered {
    at: Duration,
    delay: Duration,
}

impl Failure {
    pub fn errno(&self) -> Errno {
        self.error.errno()
    }

    pub fn retry_at(&self) -> Duration {
        self.retry_at
    }

    pub fn text(&self) -> &str {
        &self.error.text
    }
}

impl<K: Kernel, S: Store, C: Cgroups> Engine<K, S, C> {
    pub(super) fn commit_failed(&mut self, error: &StoreError) {
        self.set_failure(error);
        self.clock.set_unstored();
        let reopened = self.reload();
        let tasks = std::mem::take(&mut self.tasks);
        self.tasks_failed(tasks, error, reopened);
    }

    /// After a failure, before the next commit.
    pub(super) fn reopen(&mut self) -> bool {
        match &self.failure {
            Some(failure) if !failure.reopened => self.reload(),
            _ => true,
        }
    }

    /// Opens the store anew, and learns what it has.
    fn reload(&mut self) -> bool {
        let opened = self.store.reopen();
        let read = opened.and_then(|()| Ok((self.store.maps()?, self.store.last_id()?)));
        match read {
            Ok((maps, last_id)) => {
                self.catalogue.reload(maps);
                self.last_id = self.last_id.max(last_id);
            }
            Err(error) => {
                self.set_failure(&error);
                return false;
            }
        }
        for task in &self.tasks {
            self.catalogue.set_busy(task.map(), true);
        }
        self.find_losses();
        if let Some(failure) = &mut self.failure {
            failure.reopened = true;
        }
        true
    }

    /// Nothing that was acknowledged may be missing, except what is being unlinked.
    fn find_losses(&mut self) {
        let unlinked = self.tasks.iter().filter_map(|task| match task {
            Task::Unlink { stream, .. } => Some(*stream),
            _ => None,
        });
        let unlinked: BTreeSet<u64> = unlinked.collect();
        for (id, stream) in &mut self.streams {
            let Some(map) = stream.map.filter(|_| !unlinked.contains(id)) else {
                continue;
            };
            let entry = self.catalogue.get(map);
            let applied = entry.map_or(0, |entry| entry.map.applied);
            if (entry.is_none() || applied < stream.acknowledged) && !stream.is_lost() {
                let text = "its changes cannot be stored: the store has lost some; export it, remove it, and import it into a new \
                            one (sluice-map(1))"
                    .to_owned();
                log::line(format_args!("{}: {text}", stream.name));
                stream.phase = Phase::Lost(text);
                stream.pending.clear();
                stream.due = None;
                self.dirty.remove(id);
            }
        }
    }

    fn set_failure(&mut self, error: &StoreError) {
        let failing = self.failure.as_ref().map(|failure| failure.delay);
        let recovered = self
            .recovered
            .filter(|recovered| self.now.monotonic < recovered.at + CALM);
        let last = failing.or(recovered.map(|recovered| recovered.delay));
        let delay = last.map_or(FIRST_DELAY, |delay| (delay * 2).min(LONGEST_DELAY));
        let is_known = self.failure.as_ref().map(Failure::text) == Some(error.text.as_str());
        if !is_known {
            log::line(format_args!(
                "{error}; until then changes of durable maps are refused"
            ));
        }
        self.failure = Some(Failure {
            error: error.clone(),
            reopened: false,
            delay,
            retry_at: self.now.monotonic + delay,
        });
        self.tell_all();
    }

    /// The store has committed everything that was read.
    pub(super) fn recovered(&mut self) {
        let Some(failure) = self.failure.take() else {
            return;
        };
        self.recovered = Some(Recovered {
            at: self.now.monotonic,
            delay: failure.delay,
        });
        log::line(format_args!(
            "the store works again; everything that was not stored is stored now"
        ));
        for stream in self.streams.values_mut().filter(|stream| !stream.is_lost()) {
            stream.error = None;
        }
        self.attach_at = Some(self.now.monotonic);
    }

    fn tell_all(&mut self) {
        let streams: Vec<u64> = self.streams.keys().copied().collect();
        for stream in streams {
            self.tell_failure(stream);
        }
    }

    /// The kernel has to refuse changes of this stream, too.
    pub(super) fn tell_failure(&mut self, id: u64) {
        let errno = self.failure.as_ref().map(Failure::errno);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.phase != Phase::Live || errno.is_none() || stream.error == errno {
            return;
        }
        self.set_stream_error(id, errno);
    }

    pub(super) fn set_stream_error(&mut self, id: u64, errno: Option<Errno>) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.error = errno;
            let result = self.kernel.acknowledge(id, 0, 0, errno);
            self.expect("reporting the state of the store", id, result);
        }
    }
}
