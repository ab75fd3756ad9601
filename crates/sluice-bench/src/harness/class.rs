// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far apart two processors are, now. On a virtual machine they can be two threads of one core at one moment and on two
//! sockets a second later, and what spins follows that three- to fourfold. So the distance is probed before and after every
//! turn, and only turns of one class are compared.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::interrupt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    OneCore,
    Near,
    Far,
}

impl Class {
    /// Threads of one core answer within tens of nanoseconds, cores under one cache within some hundred, the rest later.
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

pub trait Probe {
    /// None where there is no distance: with one processor.
    fn class(&self) -> Result<Option<Class>>;
}

/// Those who measure on one processor.
pub struct NoProbe;

impl Probe for NoProbe {
    fn class(&self) -> Result<Option<Class>> {
        Ok(None)
    }
}

/// What was measured between two looks at the distance.
#[derive(Clone, Debug)]
pub struct Bracketed<T> {
    pub value: T,
    pub class: Option<Class>,
    /// The distance changed each time.
    pub noisy: bool,
}

/// How often a turn is repeated whose class changed under it.
const REPEATS: usize = 5;

/// Measures until the distance is the same before and after. `now` is what it was when it was last looked at.
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

/// The class that most of these have, the nearer one of two.
pub fn most_common(classes: impl Iterator<Item = Class> + Clone) -> Option<Class> {
    let count = |class: Class| classes.clone().filter(|&other| other == class).count();
    [Class::OneCore, Class::Near, Class::Far]
        .into_iter()
        .rev()
        .max_by_key(|&class| count(class))
        .filter(|&class| count(class) > 0)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use Class::{Far, Near, OneCore};

    use super::*;

    /// Says what was recorded, look by look.
    struct Recorded(RefCell<Vec<Class>>);

    impl Recorded {
        fn new(looks: &[Class]) -> Self {
            Self(RefCell::new(looks.iter().rev().copied().collect()))
        }
    }

    impl Probe for Recorded {
        fn class(&self) -> Result<Option<Class>> {
            let class = self.0.borrow_mut().pop();
            Ok(Some(class.expect("no more looks than were recorded")))
        }
    }

    /// The number of the measurement that was kept, its class, and whether it is noisy.
    fn kept(first: Class, looks: &[Class]) -> (usize, Option<Class>, bool) {
        let mut number = 0;
        let bracketed = bracket(&Recorded::new(looks), &mut Some(first), || {
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
    fn a_turn_between_two_equal_looks_is_kept() {
        assert_eq!(kept(Near, &[Near]), (1, Some(Near), false));
    }

    #[test]
    fn a_turn_under_which_the_class_changed_is_measured_again() {
        assert_eq!(kept(Near, &[Far, Far]), (2, Some(Far), false));
        assert_eq!(
            kept(Near, &[Far, OneCore, Near, Near]),
            (4, Some(Near), false)
        );
    }

    #[test]
    fn after_five_repeats_it_is_noisy() {
        let flipping = [Far, Near, Far, Near, Far, Near];
        assert_eq!(kept(Near, &flipping), (6, Some(Far), true));
    }

    #[test]
    fn the_last_look_is_the_next_ones_first() {
        let probe = Recorded::new(&[Far, Far, Far]);
        let mut now = Some(Near);
        let first = bracket(&probe, &mut now, || Ok(())).unwrap();
        let second = bracket(&probe, &mut now, || Ok(())).unwrap();
        assert_eq!((first.class, second.class), (Some(Far), Some(Far)));
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
        assert_eq!(most_common([Far, Near, Far].into_iter()), Some(Far));
        assert_eq!(most_common([Far, Near].into_iter()), Some(Near));
        assert_eq!(most_common([].into_iter()), None);
    }

    #[test]
    fn classes_follow_the_distance() {
        assert_eq!(
            [20, 140, 600].map(Class::of_round_trip),
            [OneCore, Near, Far]
        );
    }
}
