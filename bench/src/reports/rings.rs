// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice's ring with its defaults, compared with the lower bound and the best third-party library of each condition.

use super::criteria::{self, Criterion, Limit};
use crate::harness::rows::Row;
use crate::harness::waiting::Waiting;
use crate::mechanisms::cacheline_pingpong::READ_ONLY;
use crate::mechanisms::sluice_ring_memfd;

pub const ROUND_TRIPS: &str = "rtt";
pub const STREAMS: &str = "throughput";
/// Those that are calibrated against their own programs.
const LIBRARIES: [&str; 3] = ["tachyon", "aeron", "iceoryx2"];
/// What the ring may add to a bare transfer.
const OVER_BOUND: f64 = 1.2;

/// None if no library was measured in this suite.
pub fn text(suite: &str, rows: &[Row]) -> Option<String> {
    let rows = super::measured_rows(suite, rows)?;
    let has_library = rows.iter().any(|row| is_library(row));
    has_library.then(|| {
        format!(
            "Criteria of rings\n\n{}",
            criteria::table(
                "default ÷ other, within rounds",
                "its rounds",
                list(suite, &rows)
            )
        )
    })
}

fn is_library(row: &Row) -> bool {
    LIBRARIES.contains(&row.mechanism.as_str()) && row.waiting == Some(Waiting::Spin)
}

fn list(suite: &str, rows: &[&Row]) -> Vec<Criterion> {
    let ours = rows
        .iter()
        .filter(|row| row.label == sluice_ring_memfd::NAME);
    ours.flat_map(|row| {
        let alike: Vec<&Row> = rows
            .iter()
            .copied()
            .filter(|one| one.title == row.title)
            .collect();
        let bound = alike.iter().find(|one| one.label == READ_ONLY);
        let over_bound = bound.map(|bound| criterion(row, bound, Limit::AtMost(OVER_BOUND)));
        let best = best_of(suite, &alike).map(|best| {
            let limit = match suite {
                ROUND_TRIPS => Limit::NotAbove,
                _ => Limit::NotBelow,
            };
            criterion(row, best, limit)
        });
        over_bound.into_iter().chain(best)
    })
    .collect()
}

fn criterion(row: &Row, to: &Row, limit: Limit) -> Criterion {
    Criterion {
        text: format!("{}: {} ÷ {}", row.title, row.label, to.label),
        ratio: row.ratio_within_rounds(to),
        limit,
    }
}

/// The library with the shortest round trip, or the highest rate.
fn best_of<'a>(suite: &str, alike: &[&'a Row]) -> Option<&'a Row> {
    let libraries = alike.iter().copied().filter(|row| is_library(row));
    let by_median = |one: &&Row, other: &&Row| {
        one.median
            .partial_cmp(&other.median)
            .unwrap_or(std::cmp::Ordering::Equal)
    };
    match suite {
        ROUND_TRIPS => libraries.min_by(by_median),
        _ => libraries.max_by(by_median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(suite: &str, mechanism: &str, label: &str, median: f64) -> Row {
        Row {
            suite: suite.into(),
            mechanism: mechanism.into(),
            label: label.into(),
            title: "64 B two-cpus".into(),
            waiting: Some(Waiting::Spin),
            median: Some(median),
            values: Some(vec![(0, 0.9 * median), (1, median), (2, 1.1 * median)]),
            ..Row::default()
        }
    }

    fn line_with<'a>(text: &'a str, part: &str) -> &'a str {
        let found = text.lines().find(|line| line.contains(part));
        found.unwrap_or_else(|| panic!("no {part} in\n{text}"))
    }

    #[test]
    fn round_trips_are_compared_with_the_bound_and_the_quickest_library() {
        let rows = [
            row(
                ROUND_TRIPS,
                "sluice-ring-memfd",
                sluice_ring_memfd::NAME,
                180.0,
            ),
            row(ROUND_TRIPS, "tachyon", "tachyon (spins)", 200.0),
            row(ROUND_TRIPS, "aeron", "aeron (spins)", 150.0),
            row(ROUND_TRIPS, "shm-spin", "shm-spin", 100.0),
            row(ROUND_TRIPS, "cacheline", READ_ONLY, 160.0),
        ];
        let text = text(ROUND_TRIPS, &rows).unwrap();
        let bound = line_with(&text, READ_ONLY);
        assert!(
            bound.contains("1.13") && !bound.contains("not met"),
            "{bound}"
        );
        let best = line_with(&text, "÷ aeron");
        assert!(best.contains("1.20") && best.contains("not met"), "{best}");
        assert!(
            !text.contains("tachyon") && !text.contains("shm-spin"),
            "{text}"
        );
    }

    #[test]
    fn streams_are_compared_with_the_library_of_the_highest_rate() {
        let rows = [
            row(STREAMS, "sluice-ring-memfd", sluice_ring_memfd::NAME, 3e9),
            row(STREAMS, "tachyon", "tachyon (spins)", 2e9),
            row(STREAMS, "aeron", "aeron (spins)", 1e9),
        ];
        let text = text(STREAMS, &rows).unwrap();
        let best = line_with(&text, "÷ tachyon");
        assert!(best.contains("1.50") && !best.contains("not met"), "{best}");
    }

    #[test]
    fn without_a_library_there_is_no_table() {
        let rows = [row(
            STREAMS,
            "sluice-ring-memfd",
            sluice_ring_memfd::NAME,
            3e9,
        )];
        assert_eq!(text(STREAMS, &rows), None);
    }
}
