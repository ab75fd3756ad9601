// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pairs of all entries of a rule. Those of a rule with both directions are also in a map of the module that belongs to the bridge and
//! outlives it, so that the next process knows what has been changed since, and deleted.

use std::collections::HashMap;
use std::mem;

use anyhow::{Context as _, Result};
use sluice::Map;
use sluice::map::KEY_MAX;

use crate::decision::Pair;

const PAIR: usize = 16;
/// The key under which the map of the bridge stores the identity of the bucket. No pair has it, because it is too long for a bucket.
const BUCKET: [u8; KEY_MAX] = [0; KEY_MAX];

#[derive(Default)]
pub struct Pairs {
    pairs: HashMap<Vec<u8>, Known>,
    kept: Option<Map>,
    /// A random number of the map that these pairs are of.
    incarnation: u64,
    /// The identity of the bucket that these pairs belong to. None: there are no pairs.
    bucket: Option<u64>,
    /// The number of the comparison.
    comparison: u64,
}

#[derive(Clone, Copy)]
struct Known {
    pair: Pair,
    /// The comparison in which the pair was made; 0: in the last process.
    comparison: u64,
}

impl Pairs {
    #[cfg(test)]
    pub fn new(incarnation: u64) -> Self {
        Self {
            incarnation,
            ..Self::default()
        }
    }

    /// Reads the pairs from the map `kept`, in which later changes are stored.
    pub fn restore(kept: Map, incarnation: u64) -> Result<Self> {
        let (mut pairs, mut bucket) = (HashMap::new(), None);
        for entry in kept.entries() {
            let (key, entry) = entry?;
            let pair = decode(&entry.value).context("it is of another version")?;
            if key == BUCKET {
                bucket = Some(pair.revision);
                continue;
            }
            let comparison = 0;
            pairs.insert(key, Known { pair, comparison });
        }
        Ok(Self {
            pairs,
            kept: Some(kept),
            incarnation,
            bucket,
            comparison: 0,
        })
    }

    /// Begins a comparison with this bucket. Pairs of another bucket, also of one with the same name, are dropped.
    pub fn begin(&mut self, bucket: u64) -> Result<()> {
        self.comparison += 1;
        if self.bucket == Some(bucket) {
            return Ok(());
        }
        // First, so that an error does not leave pairs of the other bucket here.
        let old = mem::take(&mut self.pairs);
        self.bucket = Some(bucket);
        if let Some(kept) = &self.kept {
            for key in old.keys() {
                kept.delete(key)?;
            }
            let revision = bucket;
            let version = 0;
            kept.set(BUCKET, encode(Pair { version, revision }))?;
        }
        Ok(())
    }

    pub fn get(&self, key: &[u8]) -> Option<Pair> {
        self.pairs.get(key).map(|known| known.pair)
    }

    /// Whether this revision of the bucket was read before the pair was made. In an earlier comparison the bucket may have had other
    /// numbers: a server that crashes can lose changes.
    pub fn is_newer(&self, key: &[u8], revision: u64) -> bool {
        let known = self.pairs.get(key);
        known.is_some_and(|known| {
            known.comparison == self.comparison && known.pair.revision > revision
        })
    }

    /// Fails if the pair is not in the map of the bridge.
    pub fn set(&mut self, key: &[u8], pair: Pair) -> Result<()> {
        let comparison = self.comparison;
        self.pairs.insert(key.to_vec(), Known { pair, comparison });
        if let Some(kept) = &self.kept {
            kept.set(key, encode(pair))?;
        }
        Ok(())
    }

    pub fn remove(&mut self, key: &[u8]) -> Result<()> {
        if let (Some(_), Some(kept)) = (self.pairs.remove(key), &self.kept) {
            kept.delete(key)?;
        }
        Ok(())
    }

    pub fn keys(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.pairs.keys()
    }

    /// The mark of a change that is put into the bucket: it names these pairs and the version of the entry.
    pub fn origin(&self, version: u64) -> String {
        format!("{:016x}-{version}", self.incarnation)
    }

    /// The version of the entry with which this bridge has marked a change in the bucket.
    pub fn own_version(&self, origin: &str) -> Option<u64> {
        let (incarnation, version) = origin.split_once('-')?;
        let is_own = u64::from_str_radix(incarnation, 16) == Ok(self.incarnation);
        version.parse().ok().filter(|_| is_own)
    }
}

fn encode(pair: Pair) -> [u8; PAIR] {
    let mut bytes = [0; PAIR];
    bytes[..8].copy_from_slice(&pair.version.to_le_bytes());
    bytes[8..].copy_from_slice(&pair.revision.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Pair> {
    let bytes: &[u8; PAIR] = bytes.try_into().ok()?;
    let (version, revision) = bytes.split_first_chunk()?;
    Some(Pair {
        version: u64::from_le_bytes(*version),
        revision: u64::from_le_bytes(revision.try_into().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_stored_in_16_bytes() {
        let pair = Pair {
            version: 3,
            revision: 1 << 40,
        };
        assert_eq!(decode(&encode(pair)), Some(pair));
        assert_eq!(decode(b"short"), None);
    }

    #[test]
    fn only_own_marks_are_recognised() {
        let pairs = Pairs::new(17);
        assert_eq!(pairs.own_version(&pairs.origin(7)), Some(7));
        for origin in [
            "",
            "7",
            "zz-7",
            "0-x",
            &format!("{:x}-7", !pairs.incarnation),
        ] {
            assert_eq!(pairs.own_version(origin), None, "{origin}");
        }
    }
}
