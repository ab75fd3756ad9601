// SPDX-License-Identifier: MIT OR Apache-2.0
//! What has happened to the entries of a rule for a map.

use std::fmt;

use crate::counters::{Counter, Row, write_counts};

/// Since the start; [`MAP_COUNTERS`] describes them.
#[derive(Debug, Default)]
pub struct MapCounters {
    pub out: Counter,
    pub incoming: Counter,
    pub conflicts: Counter,
    pub too_long: Counter,
    pub unknown_keys: Counter,
    pub failed: Counter,
    pub compared: Counter,
}

#[rustfmt::skip]
pub const MAP_COUNTERS: [Row<MapCounters>; 7] = [
    ("map_changes_out", "out", "Changes that the bucket has", |all| &all.out),
    ("map_changes_in", "in", "Changes that the map has", |all| &all.incoming),
    ("map_conflicts", "conflicts", "Entries that both sides had changed", |all| &all.conflicts),
    ("map_changes_too_long", "too long", "Changes whose key or value the other side does not permit", |all| &all.too_long),
    ("map_unknown_keys", "with unknown keys", "Changes of keys of the bucket that no key of a map is encoded as", |all| &all.unknown_keys),
    ("map_failures", "failed", "Attempts to change or to watch one side that failed", |all| &all.failed),
    ("map_comparisons", "comparisons", "Comparisons of all entries of map and bucket", |all| &all.compared),
];

impl fmt::Display for MapCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_counts(f, self, &MAP_COUNTERS)
    }
}
