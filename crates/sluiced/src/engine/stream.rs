// SPDX-License-Identifier: MIT OR Apache-2.0
//! A stream of changes: the kernel's copy of a map.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::errno::Errno;
use sluice_abi::map::INTERVAL;
use sluiced_protocol::MapName;

use crate::kernel::{Change, Value};
use crate::store::{MapId, Params, Write};

pub struct Stream {
    /// None: there is none in the store.
    pub map: Option<MapId>,
    pub name: MapName,
    pub params: Params,
    pub phase: Phase,
    pub pending: Pending,
    /// The last change that was read.
    pub delivered: u64,
    /// The last one that was acknowledged.
    pub acknowledged: u64,
    /// The greatest number that the kernel may use.
    pub limit: u64,
    /// When the pending changes are to be committed.
    pub due: Option<Duration>,
    /// Why the kernel refuses changes.
    pub error: Option<Errno>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Restoring,
    Live,
    /// The store has less than was acknowledged; its changes are refused, and not stored.
    Lost(String),
}

impl Stream {
    pub fn new(map: Option<MapId>, name: MapName, params: &Params, phase: Phase) -> Self {
        Self {
            map,
            name,
            params: params.clone(),
            phase,
            pending: Pending::default(),
            delivered: 0,
            acknowledged: 0,
            limit: 0,
            due: None,
            error: None,
        }
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.phase, Phase::Lost(_))
    }

    /// The changes must be committed at this time, or before.
    pub fn make_due(&mut self, time: Duration) {
        self.due = Some(self.due.map_or(time, |due| due.min(time)));
    }
}

/// The time between commits of a map; none: each change is committed at once.
pub fn interval(params: &Params) -> Option<Duration> {
    match (params.flags & INTERVAL, params.interval_ms) {
        (0, _) => None,
        (_, 0) => Some(Duration::from_secs(1)),
        (_, milliseconds) => Some(Duration::from_millis(milliseconds.into())),
    }
}

/// Bytes of a change in the kernel beside its key and value.
const OVERHEAD: usize = 64;

/// Changes that are not stored. Of several changes of a key only the last one is stored, which nobody can tell from all of them,
/// because one transaction would contain them.
#[derive(Default)]
pub struct Pending {
    /// By key, in the order of the store.
    changes: BTreeMap<Vec<u8>, (u64, Option<Value>)>,
    /// All that were read, because the kernel counts all.
    pub bytes: usize,
}

impl Pending {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub fn add(&mut self, change: Change) {
        let value = change.value.as_ref().map_or(0, |value| value.bytes.len());
        self.bytes += OVERHEAD + change.key.len() + value;
        self.changes
            .insert(change.key, (change.number, change.value));
    }

    pub fn clear(&mut self) {
        *self = Self::default();
    }

    pub fn writes(&self, map: MapId) -> impl Iterator<Item = Write<'_>> {
        self.changes
            .iter()
            .map(move |(key, (version, value))| match value {
                Some(value) => Write::Set {
                    map,
                    key,
                    value: &value.bytes,
                    version: *version,
                    expires_ns: value.expires_ns,
                },
                None => Write::Delete { map, key },
            })
    }
}
