// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operations on entries take and return.

use std::time::Duration;

use sluice_abi::map;

/// A value of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<V = Vec<u8>> {
    pub value: V,
    /// The sequence of the last change of the entry.
    pub version: u64,
    /// What was left of its time to live when it was read. None: it never expires.
    #[doc(alias = "ttl")]
    pub time_to_live: Option<Duration>,
}

/// What is known of an entry without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryInfo {
    /// Bytes of the value.
    pub len: usize,
    /// The sequence of the last change of the entry.
    pub version: u64,
    /// What was left of its time to live when it was read. None: it never expires.
    #[doc(alias = "ttl")]
    pub time_to_live: Option<Duration>,
}

/// The result of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Set {
    /// Whether there was no entry of this key before.
    pub created: bool,
    /// The version of the entry from then on.
    pub version: u64,
}

/// What the options of a set and those of a delete have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeOptions {
    version: Option<u64>,
    nowait: bool,
}

impl ChangeOptions {
    /// The version that the entry must have, or 0.
    pub(super) fn required(self) -> u64 {
        self.version.unwrap_or_default()
    }

    pub(super) fn waits(self) -> bool {
        !self.nowait
    }

    fn apply(self, op: map::Op) -> map::Op {
        let op = op.require(self.version);
        let nowait = if self.nowait { map::NOWAIT } else { 0 };
        map::Op {
            flags: op.flags | nowait,
            ..op
        }
    }
}

/// The options of a set. By default it has no condition, and the entry no time to live.
///
/// ```no_run
/// use std::time::Duration;
/// use sluice::map::SetOptions;
///
/// # let map: sluice::map::Map = unimplemented!();
/// let lease = SetOptions::new().if_version(0).time_to_live(Duration::from_secs(30));
/// map.set_with("leader", "host-1", lease)?; // fails if there is one
/// # Ok::<(), sluice::map::WriteError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct SetOptions {
    pub(super) change: ChangeOptions,
    time_to_live: Option<Duration>,
}

impl SetOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the entry has this version. 0: only if there is no entry.
    pub fn if_version(mut self, version: u64) -> Self {
        self.change.version = Some(version);
        self
    }

    /// Removes the entry after this time, in which the system may be suspended. The next set replaces the time, too.
    #[doc(alias = "ttl")]
    pub fn time_to_live(mut self, time: Duration) -> Self {
        self.time_to_live = Some(time);
        self
    }

    /// Of a durable map: the set does not wait until the change is stored, nor for room; it then fails with
    /// [`WriteError::Refused`](super::WriteError::Refused). [`Map::sync_to`](super::Map::sync_to) the returned version waits. No effect on
    /// a volatile map.
    pub fn nowait(mut self, nowait: bool) -> Self {
        self.change.nowait = nowait;
        self
    }

    pub(crate) fn apply(self, op: map::Op) -> map::Op {
        map::Op {
            ttl_ns: self.time_to_live.map_or(0, nanoseconds),
            ..self.change.apply(op)
        }
    }
}

/// The options of a delete. By default it has no condition.
///
/// ```no_run
/// use sluice::map::DeleteOptions;
///
/// # let map: sluice::map::Map = unimplemented!();
/// if let Some(number) = map.delete_with("4711", DeleteOptions::new().nowait(true))? {
///     map.sync_to(number)?; // stored
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct DeleteOptions {
    pub(super) change: ChangeOptions,
}

impl DeleteOptions {
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if the entry has this version.
    pub fn if_version(mut self, version: u64) -> Self {
        self.change.version = Some(version);
        self
    }

    /// As [`SetOptions::nowait`].
    pub fn nowait(mut self, nowait: bool) -> Self {
        self.change.nowait = nowait;
        self
    }

    pub(crate) fn apply(self, op: map::Op) -> map::Op {
        self.change.apply(op)
    }
}

/// 0 would be no limit. Beyond the maximum, 292 years, there is none.
fn nanoseconds(time: Duration) -> u64 {
    const MAX: u64 = i64::MAX as u64;
    u64::try_from(time.as_nanos()).map_or(MAX, |time| time.clamp(1, MAX))
}

/// The time in a field `ttl_ns`.
pub(super) fn time_to_live(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_never_no_limit() {
        let field = |time| {
            let options = SetOptions::new().time_to_live(time);
            options.apply(map::Op::set(b"key", b"")).ttl_ns
        };
        assert_eq!(field(Duration::ZERO), 1);
        assert_eq!(field(Duration::from_nanos(1500)), 1500);
        assert_eq!(field(Duration::MAX), i64::MAX as u64);
        let without = SetOptions::new().apply(map::Op::set(b"key", b""));
        assert_eq!(time_to_live(without.ttl_ns), None);
        assert_eq!(time_to_live(7), Some(Duration::from_nanos(7)));
    }

    #[test]
    fn only_a_condition_has_a_version() {
        let op = |options: SetOptions| options.apply(map::Op::set(b"key", b""));
        let plain = op(SetOptions::new());
        assert_eq!((plain.flags, plain.version), (0, 0));
        let created = op(SetOptions::new().if_version(0));
        assert_eq!((created.flags, created.version), (map::IF_VERSION, 0));
        let changed = op(SetOptions::new().if_version(7));
        assert_eq!((changed.flags, changed.version), (map::IF_VERSION, 7));
    }

    #[test]
    fn only_a_change_without_a_wait_has_the_flag_of_one() {
        let set = |options: SetOptions| options.apply(map::Op::set(b"key", b"")).flags;
        assert_eq!(set(SetOptions::new().nowait(true)), map::NOWAIT);
        assert_eq!(set(SetOptions::new().nowait(false)), 0);
        let both = map::IF_VERSION | map::NOWAIT;
        assert_eq!(set(SetOptions::new().if_version(7).nowait(true)), both);
        let delete = |options: DeleteOptions| options.apply(map::Op::delete(b"key"));
        assert_eq!(delete(DeleteOptions::new()).flags, 0);
        let op = delete(DeleteOptions::new().if_version(7).nowait(true));
        assert_eq!((op.flags, op.version), (both, 7));
    }
}
