// SPDX-License-Identifier: MIT OR Apache-2.0
//! The states in which a power cut may leave a disk, by the log of what was written to it.
//!
//! After a flush or a write with FUA, at least everything before it is on the disk. Until the next flush completes, any of the writes
//! that it covers may be there, too, also parts of them, and in any order: a cache is written back as the disk likes. Each state has to
//! contain what was acknowledged by the last mark before the next entry that makes something durable.

use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use fastrand::Rng;

use crate::disk::{Disk, Write};
use crate::log::{Kind, Log};

/// How many states with random writes of the cache there are before each flush.
pub const SUBSETS: u32 = 3;

/// A state by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Everything before this entry is durable, and this entry, too, if there is no subset.
    pub entry: usize,
    /// The number of a random subset of the writes that were in the cache.
    pub subset: Option<u32>,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self.subset {
            None => write!(f, "{}", self.entry),
            Some(subset) => write!(f, "{}.{subset}", self.entry),
        }
    }
}

impl std::str::FromStr for Place {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Place, Self::Err> {
        let (entry, subset) = match text.split_once('.') {
            None => (text, None),
            Some((entry, subset)) => (entry, Some(subset.parse()?)),
        };
        Ok(Place {
            entry: entry.parse()?,
            subset,
        })
    }
}

/// What is to be done with a state.
pub struct State<'a> {
    pub place: Place,
    /// It has to contain what the marks before this entry acknowledge.
    pub horizon: usize,
    pub disk: &'a Disk,
    /// Those of the cache that are on the disk, too.
    pub writes: Vec<Write>,
}

/// The number of states of a log.
pub fn count(log: &Log) -> usize {
    let mut pending = false;
    let mut count = 0;
    for entry in &log.entries {
        match entry.kind {
            Kind::Write | Kind::Discard => pending = true,
            Kind::ForcedWrite => count += 1,
            Kind::Flush => {
                count += 1 + if pending { SUBSETS as usize } else { 0 };
                pending = false;
            }
            Kind::Mark(_) => {}
        }
    }
    count + if pending { SUBSETS as usize } else { 0 }
}

/// Calls `visit` with each state that `select` selects, in the order of the log.
pub fn visit(
    log: &Log,
    mut disk: Disk,
    seed: u64,
    mut select: impl FnMut(Place) -> bool,
    mut visit: impl FnMut(State) -> Result<()>,
) -> Result<()> {
    let horizons = horizons(log);
    let mut cache = Vec::new();
    for (index, entry) in log.entries.iter().enumerate() {
        let after = Place {
            entry: index,
            subset: None,
        };
        match entry.kind {
            Kind::Mark(_) => continue,
            Kind::Write | Kind::Discard => {
                cache.push(Write {
                    offset: entry.offset,
                    data: log.data(entry)?,
                });
                continue;
            }
            Kind::ForcedWrite => {
                disk.apply(&Write {
                    offset: entry.offset,
                    data: log.data(entry)?,
                })?;
            }
            Kind::Flush => {
                let horizon = horizons[index];
                visit_subsets(&disk, &cache, index, horizon, seed, &mut select, &mut visit)?;
                for write in cache.drain(..) {
                    disk.apply(&write)?;
                }
            }
        }
        if select(after) {
            let horizon = horizons[index + 1];
            visit(State {
                place: after,
                horizon,
                disk: &disk,
                writes: Vec::new(),
            })?;
        }
    }
    let end = log.entries.len();
    visit_subsets(
        &disk,
        &cache,
        end,
        horizons[end],
        seed,
        &mut select,
        &mut visit,
    )
}

fn visit_subsets(
    disk: &Disk,
    cache: &[Write],
    entry: usize,
    horizon: usize,
    seed: u64,
    select: &mut impl FnMut(Place) -> bool,
    visit: &mut impl FnMut(State) -> Result<()>,
) -> Result<()> {
    let subsets = if cache.is_empty() { 0 } else { SUBSETS };
    for number in 0..subsets {
        let place = Place {
            entry,
            subset: Some(number),
        };
        if select(place) {
            let place_seed = (entry as u64) << 8 | u64::from(number);
            let mut random = Rng::with_seed(seed ^ place_seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            visit(State {
                place,
                horizon,
                disk,
                writes: subset(cache, &mut random),
            })?;
        }
    }
    Ok(())
}

/// For each entry, and for the end: the next entry from there on that makes something durable, or the end.
fn horizons(log: &Log) -> Vec<usize> {
    let mut horizon = log.entries.len();
    let mut horizons = vec![horizon; log.entries.len() + 1];
    for (index, entry) in log.entries.iter().enumerate().rev() {
        if matches!(entry.kind, Kind::Flush | Kind::ForcedWrite) {
            horizon = index;
        }
        horizons[index] = horizon;
    }
    horizons
}

/// Writes that reach the disk before a power cut: whole ones, or only some of their blocks or sectors.
fn subset(cache: &[Write], random: &mut Rng) -> Vec<Write> {
    let unit = random.choice([usize::MAX, 4096, 512]).unwrap_or(512);
    let percent = random.choice([10, 50, 90]).unwrap_or(50);
    let mut writes = Vec::new();
    for write in cache {
        for (index, part) in write.data.chunks(unit).enumerate() {
            if random.u32(..100) < percent {
                let offset = write.offset + (index.saturating_mul(unit)) as u64;
                writes.push(Write {
                    offset,
                    data: part.to_vec(),
                });
            }
        }
    }
    writes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::fixture::LogFixture;
    use crate::mark::Marks;
    use crate::scratch::Scratch;

    /// What was visited: place, number of the last mark, and the first byte of each of the sectors.
    type Seen = (Place, Option<u64>, Vec<u8>);

    fn visit_all(log: &Log, sectors: usize) -> Result<Vec<Seen>> {
        let scratch = Scratch::new("states")?;
        let base = scratch.path().join("base");
        std::fs::write(&base, vec![0; sectors * 512])?;
        let image = scratch.path().join("state");
        let mut seen = Vec::new();
        visit(
            log,
            Disk::read(&base)?,
            1,
            |_| true,
            |state| {
                state.disk.save(&image, &state.writes)?;
                let bytes = std::fs::read(&image)?;
                let first = bytes.chunks(512).map(|sector| sector[0]).collect();
                let mark = Marks::new(log, "map").last(state.horizon);
                seen.push((state.place, mark.map(|mark| mark.stored), first));
                Ok(())
            },
        )?;
        Ok(seen)
    }

    fn at(entry: usize) -> Place {
        Place {
            entry,
            subset: None,
        }
    }

    #[test]
    fn a_state_has_what_is_durable_and_requires_what_was_acknowledged() -> Result<()> {
        let log = LogFixture::new()
            .write(0, &[1]) // 0
            .flush() // 1
            .mark(5) // 2
            .forced_write(1, 2) // 3
            .mark(6) // 4
            .write(2, &[3]) // 5
            .flush() // 6
            .open()?;
        let seen = visit_all(&log, 3)?;
        assert_eq!(seen.len(), count(&log));
        let durable: Vec<&Seen> = seen.iter().filter(|seen| seen.0.subset.is_none()).collect();
        let expected = [
            (at(1), Some(5), vec![1, 0, 0]),
            (at(3), Some(6), vec![1, 2, 0]),
            (at(6), Some(6), vec![1, 2, 3]),
        ];
        assert!(durable.into_iter().eq(&expected));
        // Before the first flush nothing was acknowledged; before the second one change 6.
        for (place, mark, sectors) in seen.iter().filter(|seen| seen.0.subset.is_some()) {
            match place.entry {
                1 => assert!(mark.is_none() && sectors[1..] == [0, 0]),
                6 => assert!(*mark == Some(6) && sectors[..2] == [1, 2]),
                other => panic!("a subset at entry {other}"),
            }
        }
        Ok(())
    }

    #[test]
    fn writes_of_the_cache_are_there_in_all_combinations() -> Result<()> {
        let mut fixture = LogFixture::new();
        for _ in 0..40 {
            fixture = fixture
                .write(0, &[1, 2])
                .write(0, &[3])
                .flush()
                .write(0, &[0, 0])
                .flush();
        }
        let seen = visit_all(&fixture.open()?, 2)?;
        let has = |sectors: [u8; 2]| {
            seen.iter()
                .any(|seen| seen.0.subset.is_some() && seen.2 == sectors)
        };
        // Nothing, a later write without an earlier one, the reverse, and one of two sectors.
        assert!(has([0, 0]) && has([3, 0]) && has([1, 2]) && has([3, 2]) && has([0, 2]));
        assert!(!has([2, 2]));
        Ok(())
    }

    #[test]
    fn what_no_flush_follows_may_be_there() -> Result<()> {
        let log = LogFixture::new().mark(1).write(0, &[1]).open()?;
        let seen = visit_all(&log, 1)?;
        assert_eq!(seen.len(), SUBSETS as usize);
        assert!(
            seen.iter()
                .all(|seen| seen.0.entry == 2 && seen.1 == Some(1))
        );
        Ok(())
    }

    #[test]
    fn a_place_is_read_as_it_is_printed() -> Result<()> {
        for place in [
            at(7),
            Place {
                entry: 7,
                subset: Some(2),
            },
        ] {
            assert_eq!(place.to_string().parse::<Place>()?, place);
        }
        Ok(())
    }
}
