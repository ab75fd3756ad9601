// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of two processors, measured now. A virtual machine may run its processors on two threads of one core at
//! one moment and on two sockets a second later, which changes the latency of spinning mechanisms three- to fourfold.
//! The distance is probed before and after every round, and only rounds of one class are compared.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sluice_testkit::interrupt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Class {
    #[serde(rename = "one-core")]
    SameCore,
    #[serde(rename = "near")]
    SharedCache,
    #[serde(rename = "far")]
    Remote,
}

impl Class {
    /// The round trip takes tens of nanoseconds within a core, some hundred under a shared cache, and more elsewhere.
    pub fn of_round_trip(nanoseconds: u64) -> Self {
        match nanoseconds {
            0..75 => Self::SameCore,
            75..300 => Self::SharedCache,
            _ => Self::Remote,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::SameCore => "one-core",
            Self::SharedCache => "near",
            Self::Remote => "far",
        }
    }
}

pub trait Probe {
    /// None with a single processor.
    fn class(&self) -> Result<Option<Class>>;
}

/// For measurements on a single processor.
pub struct NoProbe;

impl Probe for NoProbe {
    fn class(&self) -> Result<Option<Class>> {
        Ok(None)
    }
}

/// A measurement between two probes.
#[derive(Clone, Debug)]
pub struct Bracketed<T> {
    pub value: T,
    pub class: Option<Class>,
    /// The distance changed in every repetition.
    pub noisy: bool,
}

/// The number of repetitions after a change of the class during a round.
const REPEATS: usize = 5;

/// Measures until the distance is the same before and after. `now` is the class of the last probe.
pub fn bracket<T>(
    probe: &dyn Probe,
    now: &mut Option<Class>,
    mut measure: impl FnMut() -> Result<T>,
) -> Result<Bracketed<T>> {
    let mut repeats = 0;
    loop {
        interrupt::check()?;
        let before = *now;
        let value = measure()?;
        *now = probe.class()?;
        let noisy = before != *now;
        if !noisy || repeats == REPEATS {
            return Ok(Bracketed {
                value,
                class: before,
                noisy,
            });
        }
        repeats += 1;
    }
}

/// The most common class; of two equally common ones the nearer.
pub fn most_common(classes: impl Iterator<Item = Class> + Clone) -> Option<Class> {
    let count = |class: Class| classes.clone().filter(|&other| other == class).count();
    [Class::SameCore, Class::SharedCache, Class::Remote]
        .into_iter()
        .rev()
        .max_by_key(|&class| count(class))
        .filter(|&class| count(class) > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use Class::{Remote, SameCore, SharedCache};

    use super::*;

    /// Returns recorded classes.
    struct Recorded(RefCell<Vec<Class>>);

    impl Recorded {
        fn new(probes: &[Class]) -> Self {
            Self(RefCell::new(probes.iter().rev().copied().collect()))
        }
    }

    impl Probe for Recorded {
        fn class(&self) -> Result<Option<Class>> {
            let class = self.0.borrow_mut().pop();
            Ok(Some(class.expect("as many probes as were recorded")))
        }
    }

    /// The number of the accepted measurement, its class, and whether it is noisy.
    fn kept(first: Class, probes: &[Class]) -> (usize, Option<Class>, bool) {
        let mut number = 0;
        let bracketed = bracket(&Recorded::new(probes), &mut Some(first), || {
            number += 1;
            Ok(number)
        });
        let Bracketed {
            value,
            class,
            noisy,
        } = bracketed.unwrap();
        (value, class, noisy)
    }

    #[test]
    fn a_round_between_two_equal_probes_is_kept() {
        assert_eq!(
            kept(SharedCache, &[SharedCache]),
            (1, Some(SharedCache), false)
        );
    }

    #[test]
    fn a_round_is_repeated_after_a_change_of_the_class() {
        assert_eq!(
            kept(SharedCache, &[Remote, Remote]),
            (2, Some(Remote), false)
        );
        assert_eq!(
            kept(SharedCache, &[Remote, SameCore, SharedCache, SharedCache]),
            (4, Some(SharedCache), false)
        );
    }

    #[test]
    fn after_five_repeats_it_is_noisy() {
        let flipping = [
            Remote,
            SharedCache,
            Remote,
            SharedCache,
            Remote,
            SharedCache,
        ];
        assert_eq!(kept(SharedCache, &flipping), (6, Some(Remote), true));
    }

    #[test]
    fn the_last_probe_is_the_first_of_the_next_round() {
        let probe = Recorded::new(&[Remote, Remote, Remote]);
        let mut now = Some(SharedCache);
        let first = bracket(&probe, &mut now, || Ok(())).unwrap();
        let second = bracket(&probe, &mut now, || Ok(())).unwrap();
        assert_eq!((first.class, second.class), (Some(Remote), Some(Remote)));
    }

    #[test]
    fn without_a_distance_nothing_is_noisy() {
        let bracketed = bracket(&NoProbe, &mut None, || Ok(7)).unwrap();
        assert_eq!(
            (bracketed.value, bracketed.class, bracketed.noisy),
            (7, None, false)
        );
    }

    #[test]
    fn the_most_common_class_is_found_and_the_nearer_of_two() {
        assert_eq!(
            most_common([Remote, SharedCache, Remote].into_iter()),
            Some(Remote)
        );
        assert_eq!(
            most_common([Remote, SharedCache].into_iter()),
            Some(SharedCache)
        );
        assert_eq!(most_common([].into_iter()), None);
    }

    #[test]
    fn classes_follow_the_distance() {
        assert_eq!(
            [20, 140, 600].map(Class::of_round_trip),
            [SameCore, SharedCache, Remote]
        );
    }
}
