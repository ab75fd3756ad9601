// SPDX-License-Identifier: MIT OR Apache-2.0
//! The time of the store, in which the ends of times to live are stored. Within a boot it advances with CLOCK_BOOTTIME, as the kernel
//! counts them, so that setting the system clock changes none. From one boot to the next it advances by what the system
//! clock says, as far as that is plausible. Without a clock to rely on it stands still, because an entry that lives too long is better
//! than one that is lost.
//!
//! It may be ahead until it is *settled*, when the system clock is synchronised, or after an hour. Until then what has expired by
//! it stays stored.

use std::time::Duration;

use super::Now;
use crate::log;
use crate::store::StoredClock;

/// The longest time between two boots that is believed of a system clock that was not synchronised in both.
const PLAUSIBLE: i64 = 30 * 24 * 3600 * SECOND;
const GRACE: Duration = Duration::from_secs(3600);
/// How often it is asked whether the system clock is synchronised.
const CHECK: Duration = Duration::from_secs(10);
/// For how long a stored clock is not stored again.
const FRESH: Duration = Duration::from_secs(1);

const SECOND: i64 = 1_000_000_000;

pub struct Clock {
    state: StoredClock,
    settles_at: Duration,
    /// On the monotonic clock. None: it is not known to be stored.
    stored_at: Option<Duration>,
}

impl Clock {
    /// `last`: as of the last commit, perhaps of an earlier boot.
    pub fn new(last: Option<StoredClock>, boot: String, now: Now) -> Self {
        let state = match last {
            Some(last) if last.boot == boot => last,
            Some(last) => continued(&last, boot, now),
            None => StoredClock {
                offset: realtime_offset(now),
                offset_min: 0,
                ..unset(boot, now)
            },
        };
        Self {
            state,
            settles_at: now.monotonic + GRACE,
            stored_at: None,
        }
    }

    /// Nanoseconds; about those since 1970.
    pub fn time(&self, now: Now) -> u64 {
        let time = nanoseconds(now.boottime).saturating_add(self.state.offset);
        u64::try_from(time).unwrap_or(0)
    }

    /// From CLOCK_BOOTTIME, in nanoseconds; 0: never.
    pub fn stored_expiry(&self, expires_ns: u64) -> u64 {
        shifted(expires_ns, self.state.offset)
    }

    /// To CLOCK_BOOTTIME.
    pub fn kernel_expiry(&self, expires_ns: u64) -> u64 {
        shifted(expires_ns, self.state.offset.saturating_neg())
    }

    /// Whether what has expired by it may be deleted.
    pub fn is_settled(&self) -> bool {
        self.state.offset == self.state.offset_min
    }

    /// When `settle` may have an effect.
    pub fn next_check(&self, now: Now) -> Option<Duration> {
        (!self.is_settled()).then(|| self.settles_at.min(now.monotonic + CHECK))
    }

    /// Corrects it by what the system clock was set back since it was relied on. Returns whether it is settled only now.
    pub fn settle(&mut self, now: Now) -> bool {
        let may = now.synchronised || now.monotonic >= self.settles_at;
        if self.is_settled() || !may {
            return false;
        }
        let state = &mut self.state;
        let step = realtime_offset(now).saturating_sub(state.realtime_offset);
        let offset = state.offset.saturating_add(step.min(0));
        state.offset = offset.max(state.offset_min);
        state.offset_min = state.offset;
        self.stored_at = None;
        true
    }

    /// What the next commit stores; none: not yet.
    pub fn to_store(&self, now: Now) -> Option<StoredClock> {
        let is_fresh = self.stored_at.is_some_and(|at| now.monotonic < at + FRESH);
        (!is_fresh).then(|| StoredClock {
            boottime: nanoseconds(now.boottime),
            realtime: nanoseconds(now.realtime),
            synchronised: now.synchronised,
            ..self.state.clone()
        })
    }

    pub fn set_stored(&mut self, now: Now) {
        self.stored_at = Some(now.monotonic);
    }

    /// A commit has failed: the next one has something to write, which is different from what is stored.
    pub fn set_unstored(&mut self) {
        self.stored_at = None;
    }
}

/// In another boot.
fn continued(last: &StoredClock, boot: String, now: Now) -> StoredClock {
    let time = last.boottime.saturating_add(last.offset);
    let offset_min = time.saturating_sub(nanoseconds(now.boottime));
    let step = nanoseconds(now.realtime).saturating_sub(last.realtime);
    let is_synchronised = last.synchronised && now.synchronised;
    let is_plausible = step >= 0 && (is_synchronised || step <= PLAUSIBLE);
    let seconds = step / SECOND;
    match is_plausible {
        true => log::line(format_args!(
            "times to live go on after {seconds} s, by the system clock"
        )),
        false => log::line(format_args!(
            "the system clock has moved by {seconds} s since the last commit, which is not plausible: times to live go on as if no \
             time had passed; check the clock"
        )),
    }
    StoredClock {
        offset: offset_min.saturating_add(if is_plausible { step } else { 0 }),
        offset_min,
        ..unset(boot, now)
    }
}

fn unset(boot: String, now: Now) -> StoredClock {
    StoredClock {
        boot,
        boottime: 0,
        realtime: 0,
        synchronised: false,
        offset: 0,
        offset_min: 0,
        realtime_offset: realtime_offset(now),
    }
}

fn realtime_offset(now: Now) -> i64 {
    nanoseconds(now.realtime).saturating_sub(nanoseconds(now.boottime))
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// An expiry on another clock. One that has passed there is not 0.
fn shifted(expires_ns: u64, offset: i64) -> u64 {
    match i64::try_from(expires_ns) {
        Ok(0) => 0,
        Ok(time) => time.saturating_add(offset).max(1) as u64,
        Err(_) => i64::MAX as u64,
    }
}
