// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distance of two processors, measured now. A virtual machine may run its processors on two threads of one core at
//! one moment and on two sockets a second later, which changes the latency of spinning mechanisms three- to fourfold.
//! The distance is probed before and after every round, and only rounds of one class are compared.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use sluice_testkit::interrupt;

/// On two threads of one core, under a shared cache, or farther apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    OneCore,
    Near,
    Far,
}

impl Class {
    /// The round trip takes tens of nanoseconds within a core, some hundred under a shared cache, and more elsewhere.
    pub fn of_round_trip(nanoseconds: u64) -> Self {
        match nanoseconds {
            0..75 => Self::OneCore,
            75..300 => Self::Near,
            _ => Self::Far,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::OneCore => "one-core",
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

/// Measures the distance now; None where it does not matter, as on a single processor.
pub type Probe<'a> = &'a dyn Fn() -> Result<Option<Class>>;

const REPEATS: usize = 5;

/// Measures until the distance is the same before and after. Returns whether it changed in every repetition, too. `now` is the last class.
pub fn bracket<T>(
    probe: Probe,
    now: &mut Option<Class>,
    mut measure: impl FnMut() -> Result<T>,
) -> Result<(T, Option<Class>, bool)> {
    let mut repeats = 0;
    loop {
        interrupt::check()?;
        let before = *now;
        let value = measure()?;
        *now = probe()?;
        let is_noisy = before != *now;
        if !is_noisy || repeats == REPEATS {
            return Ok((value, before, is_noisy));
        }
        repeats += 1;
    }
}

/// The most common class; of two equally common ones the nearer.
pub fn most_common(classes: impl Iterator<Item = Class> + Clone) -> Option<Class> {
    let count = |class: Class| classes.clone().filter(|&other| other == class).count();
    let all = [Class::Far, Class::Near, Class::OneCore].into_iter();
    let most = all.max_by_key(|&class| count(class));
    most.filter(|&class| count(class) > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::Class::{Far, Near, OneCore};
    use super::*;

    #[test]
    fn a_round_is_repeated_until_the_probes_beside_it_agree_or_it_is_noisy() {
        for (probes, expected) in [
            (&[Near][..], (1, Some(Near), false)),
            (&[Far, Far], (2, Some(Far), false)),
            (&[Far, Near].repeat(3), (6, Some(Far), true)),
        ] {
            let recorded = RefCell::new(probes.iter());
            let probe = || Ok(recorded.borrow_mut().next().copied());
            let (mut number, mut now) = (0, Some(Near));
            let bracketed = bracket(&probe, &mut now, || {
                number += 1;
                Ok(number)
            });
            assert_eq!(bracketed.unwrap(), expected);
            // The last probe is the first one of the next round.
            assert_eq!(now, probes.last().copied());
        }
    }

    #[test]
    fn the_most_common_class_is_found_and_the_nearer_of_two() {
        let of = |classes: &[Class]| most_common(classes.iter().copied());
        assert_eq!(of(&[Far, Near, Far]), Some(Far));
        assert_eq!(of(&[Far, Near]), Some(Near));
        assert_eq!(of(&[]), None);
        let classes = [20, 140, 600].map(Class::of_round_trip);
        assert_eq!(classes, [OneCore, Near, Far]);
    }
}
