// SPDX-License-Identifier: MIT OR Apache-2.0
//! A durable map that is created, filled and removed, again and again. A removal that was acknowledged lasts, too: no entry of a removed
//! map is in a later one of its name.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::Verdict;
use crate::history::Outcome;
use crate::mark::{Mark, Marker};
use crate::store::{Contents, Entry};
use crate::target::DurableMap;
use crate::workload::{Change, Operation};

/// Of each generation of the map.
const KEYS: u64 = 8;

/// Creates, fills and removes a durable map, again and again
#[derive(Args)]
pub struct Churn {
    /// The name of the map
    #[arg(long, value_name = "NAME")]
    map: String,

    /// End after so long
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,

    /// The device-mapper device with the target log-writes, in which to mark what is begun and what is done
    #[arg(long, value_name = "DEVICE")]
    mark: String,
}

impl Churn {
    pub fn run(&self) -> Result<Verdict> {
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let marker = Marker::new(&self.map, Some(&self.mark), 1)?;
        let mut generation = 0;
        while Instant::now() < end {
            generation += 1;
            self.create(generation)?;
            marker.note(filled(generation), filled(generation))?;
            marker.note(filled(generation), removed(generation))?;
            sluice::Map::named(&self.map)
                .unlink()
                .context("cannot remove the map")?;
            marker.note(removed(generation), removed(generation))?;
        }
        println!("{generation} times created and removed");
        Ok(Verdict::Right)
    }

    fn create(&self, generation: u64) -> Result<()> {
        let map = DurableMap::open(&self.map, None, Duration::from_secs(30))?;
        for key in 0..KEYS {
            let (key, value) = entry(generation, key);
            let change = Change::Set(value);
            let outcome = map.apply(&Operation { key, change })?;
            let is_stored = matches!(outcome, Outcome::Stored(_));
            ensure!(is_stored, "a set of the map {}: {outcome}", self.map);
        }
        Ok(())
    }
}

/// The steps that marks name: the last one that is done, and the last one that is begun.
fn filled(generation: u64) -> u64 {
    2 * generation - 1
}

fn removed(generation: u64) -> u64 {
    2 * generation
}

fn entry(generation: u64, key: u64) -> (Vec<u8>, Vec<u8>) {
    let mut value = format!("generation {generation} ").into_bytes();
    value.resize(
        value.len() + (generation.wrapping_mul(37).wrapping_add(key * 301) % 3000) as usize,
        b'x',
    );
    (format!("key-{key}").into_bytes(), value)
}

/// Everything that is wrong with the map in a store, of which the mark is the last one.
pub fn check(contents: Option<&Contents>, mark: Option<Mark>) -> Vec<String> {
    let mark = mark.unwrap_or_default();
    let generation = mark.stored.div_ceil(2);
    let is_filled = mark.stored == filled(generation.max(1));
    let Some(contents) = contents else {
        let lost = is_filled && mark.answered < removed(generation);
        return lost
            .then(|| format!("generation {generation} is missing"))
            .into_iter()
            .collect();
    };
    let found: Vec<Option<u64>> = contents.entries.iter().map(generation_of).collect();
    let mut faults = Vec::new();
    if found.iter().any(|one| one.is_none() || *one != found[0]) {
        faults.push(format!("the entries are of these generations: {found:?}"));
    }
    match found.first().copied().flatten() {
        Some(found) if found < generation || found == generation && !is_filled => {
            faults.push(format!("generation {found} was removed, and is there"));
        }
        Some(found) if found > generation => {}
        _ if is_filled
            && contents.entries.len() as u64 != KEYS
            && mark.answered < removed(generation) =>
        {
            faults.push(format!(
                "generation {generation} has {} entries",
                contents.entries.len()
            ));
        }
        _ => {}
    }
    faults
}

/// None if no generation has such an entry.
fn generation_of(found: &Entry) -> Option<u64> {
    let text = found.value.strip_prefix(b"generation ")?;
    let digits = text.split(|byte| *byte == b' ').next()?;
    let generation = std::str::from_utf8(digits).ok()?.parse().ok()?;
    let is_entry = |key| entry(generation, key) == (found.key.clone(), found.value.clone());
    (0..KEYS).any(is_entry).then_some(generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(entries: impl IntoIterator<Item = (u64, u64)>) -> Contents {
        let entries = entries.into_iter().map(|(generation, key)| {
            let (key, value) = entry(generation, key);
            Entry {
                key,
                value,
                version: 1,
            }
        });
        Contents {
            entries: entries.collect(),
            ..Contents::default()
        }
    }

    fn is_right(contents: Option<&Contents>, stored: u64, answered: u64) -> bool {
        check(contents, Some(Mark { stored, answered })).is_empty()
    }

    #[test]
    fn a_filled_map_is_there_until_it_is_removed() {
        let all = contents((0..KEYS).map(|key| (3, key)));
        let some = contents([(3, 0)]);
        assert!(is_right(Some(&all), filled(3), filled(3)));
        assert!(!is_right(Some(&some), filled(3), filled(3)));
        assert!(!is_right(None, filled(3), filled(3)));
        assert!(is_right(None, filled(3), removed(3)));
    }

    #[test]
    fn a_removed_map_does_not_come_back() {
        let all = contents((0..KEYS).map(|key| (3, key)));
        assert!(!is_right(Some(&all), removed(3), removed(3)));
        assert!(!is_right(Some(&all), filled(4), filled(4)));
        assert!(is_right(None, removed(3), removed(3)));
        // The next one is being filled.
        assert!(is_right(Some(&contents([])), removed(3), removed(3)));
        assert!(is_right(Some(&contents([(4, 0)])), removed(3), removed(3)));
        assert!(!is_right(
            Some(&contents([(4, 0), (3, 1)])),
            removed(3),
            removed(3)
        ));
    }

    #[test]
    fn before_the_first_mark_anything_of_the_first_generation_is_right() {
        for contents in [None, Some(contents([])), Some(contents([(1, 0)]))] {
            assert!(check(contents.as_ref(), None).is_empty());
        }
    }

    #[test]
    fn an_entry_of_no_generation_is_a_fault() {
        let mut other = contents([(4, 0)]);
        other.entries[0].value.push(0);
        assert!(!is_right(Some(&other), removed(3), removed(3)));
    }
}
