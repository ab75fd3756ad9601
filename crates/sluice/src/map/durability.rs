// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use sluice_abi::map;

/// The longest time that the module accepts.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);

/// How the changes of a durable map are stored: see [`Options::durable`](super::Options::durable).
///
/// ```
/// use std::time::Duration;
/// use sluice::map::Durability;
///
/// // Returns from a set once it is stored, or after 2 s.
/// let safe = Durability::always().deadline(Duration::from_secs(2));
/// // Does not wait. A crash of the host loses the changes of the last 200 ms.
/// let fast = Durability::interval(Duration::from_millis(200)).refuse(true);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Durability {
    interval: Option<Duration>,
    deadline: Option<Duration>,
    refuse: bool,
}

impl Durability {
    /// Each change waits until it is stored, unless it [does not wait](super::SetOptions::nowait).
    pub fn always() -> Self {
        Self {
            interval: None,
            deadline: None,
            refuse: false,
        }
    }

    /// Changes do not wait; those of this time are stored together. It is rounded up to milliseconds, from 1 ms up to an hour.
    /// [`Map::sync`](super::Map::sync) waits.
    pub fn interval(time: Duration) -> Self {
        Self {
            interval: Some(time),
            ..Self::always()
        }
    }

    /// The limit of each wait for the store, 30 s by default: of the open, of a change for room and for its storage, of a sync and of an
    /// unlink. It is rounded up to milliseconds, from 1 ms up to an hour. A wait that continues after a signal has the whole time again.
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline = Some(time);
        self
    }

    /// Changes that would wait for room, because too many are not stored yet, fail at once with
    /// [`WriteError::Refused`](super::WriteError::Refused). By default they wait up to the deadline.
    pub fn refuse(mut self, refuse: bool) -> Self {
        self.refuse = refuse;
        self
    }

    /// The parameters with this durability. None: a time is too long.
    pub(super) fn apply(self, params: map::Params) -> Option<map::Params> {
        let flag = |set, flag| if set { flag } else { 0 };
        Some(map::Params {
            flags: params.flags
                | map::DURABLE
                | flag(self.interval.is_some(), map::INTERVAL)
                | flag(self.refuse, map::REFUSE),
            deadline_ms: milliseconds(self.deadline)?,
            interval_ms: milliseconds(self.interval)?,
            ..params
        })
    }
}

/// 0 is the default.
fn milliseconds(time: Option<Duration>) -> Option<u32> {
    match time {
        Some(time) if time <= TIME_MAX => {
            let rounded_up = time.as_nanos().div_ceil(1_000_000);
            u32::try_from(rounded_up.max(1)).ok()
        }
        Some(_) => None,
        None => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(durability: Durability) -> Option<(u32, u32, u32)> {
        let params = durability.apply(map::Params::default())?;
        Some((params.flags, params.deadline_ms, params.interval_ms))
    }

    #[test]
    fn each_option_has_its_flag_and_field() {
        let second = Duration::from_secs(1);
        assert_eq!(fields(Durability::always()), Some((map::DURABLE, 0, 0)));
        assert_eq!(
            fields(Durability::interval(second).deadline(2 * second)),
            Some((map::DURABLE | map::INTERVAL, 2000, 1000))
        );
        assert_eq!(
            fields(Durability::always().refuse(true)),
            Some((map::DURABLE | map::REFUSE, 0, 0))
        );
    }

    #[test]
    fn a_time_is_never_the_default_and_never_cut_off() {
        let deadline = |time| fields(Durability::always().deadline(time)).map(|all| all.1);
        assert_eq!(deadline(Duration::ZERO), Some(1));
        assert_eq!(deadline(Duration::from_micros(1001)), Some(2));
        assert_eq!(deadline(TIME_MAX), Some(3_600_000));
        assert_eq!(deadline(TIME_MAX + Duration::from_nanos(1)), None);
        assert_eq!(fields(Durability::interval(Duration::MAX)), None);
    }
}
