// SPDX-License-Identifier: MIT OR Apache-2.0
//! Matches the rows of two runs and compares them.

use serde::Serialize;
use serde_with::skip_serializing_none;
use sluice_testkit::host::Host;
use sluice_testkit::spread::Spread;

use crate::harness::pinning::Placement;
use crate::harness::rows::{Results, Row};
use crate::harness::samples::Change;
use crate::harness::waiting::Waiting;

/// The identity of a row.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Key {
    pub suite: String,
    pub title: String,
    pub mechanism: String,
    pub label: String,
    pub size: Option<usize>,
    pub placement: Option<Placement>,
    pub waiting: Option<Waiting>,
}

impl Key {
    fn of(row: &Row) -> Self {
        Self {
            suite: row.suite.clone(),
            title: row.title.clone(),
            mechanism: row.mechanism.clone(),
            label: row.label.clone(),
            size: row.size,
            placement: row.placement,
            waiting: row.waiting,
        }
    }

    /// The way of waiting of a skipped row is unknown.
    fn matches(&self, other: &Self) -> bool {
        let waits_alike =
            self.waiting == other.waiting || self.waiting.is_none() || other.waiting.is_none();
        let without = |key: &Self| Self {
            waiting: None,
            ..key.clone()
        };
        waits_alike && without(self) == without(other)
    }

    pub fn is_ours(&self) -> bool {
        self.mechanism.starts_with("sluice")
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    #[serde(flatten)]
    pub key: Key,
    pub unit: String,
    pub before: Spread,
    pub after: Spread,
    /// The change of the median in percent.
    pub percent: f64,
    pub change: Change,
    pub noisy: bool,
}

/// A row of both runs that cannot be compared.
#[derive(Clone, Debug, Serialize)]
pub struct NotCompared {
    #[serde(flatten)]
    pub key: Key,
    #[serde(rename = "why")]
    pub reason: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub compared: Vec<Compared>,
    #[serde(rename = "apart")]
    pub not_compared: Vec<NotCompared>,
    pub only_before: Vec<Key>,
    pub only_after: Vec<Key>,
}

impl Comparison {
    /// The results of Sluice that became slower, beyond the spread and by more than this percentage.
    pub fn ours_slower_by_more_than(&self, percent: f64) -> Vec<&Compared> {
        let beyond = |one: &&Compared| {
            one.key.is_ours() && one.change == Change::Slower && one.percent.abs() > percent
        };
        self.compared.iter().filter(beyond).collect()
    }

    pub fn compares_ours(&self) -> bool {
        self.compared.iter().any(|one| one.key.is_ours())
    }
}

pub fn compare(before: &Results, after: &Results) -> Comparison {
    let other_host = different_host(&before.host, &after.host);
    let mut comparison = Comparison {
        compared: Vec::new(),
        not_compared: Vec::new(),
        only_before: only_in(&before.rows, &after.rows),
        only_after: only_in(&after.rows, &before.rows),
    };
    for old in &before.rows {
        let key = Key::of(old);
        let Some(new) = after.rows.iter().find(|new| Key::of(new).matches(&key)) else {
            continue;
        };
        // Neither run has a result.
        if old.median.is_none() && new.median.is_none() {
            continue;
        }
        match other_host
            .clone()
            .map_or_else(|| compare_rows(&key, old, new), Err)
        {
            Ok(compared) => comparison.compared.push(compared),
            Err(reason) => comparison.not_compared.push(NotCompared { key, reason }),
        }
    }
    comparison
}

/// Rows with a result in one run that the other run does not have, not even as skipped.
fn only_in(rows: &[Row], others: &[Row]) -> Vec<Key> {
    let others: Vec<Key> = others.iter().map(Key::of).collect();
    let measured = rows.iter().filter(|row| row.median.is_some());
    let keys = measured.map(Key::of);
    keys.filter(|key| !others.iter().any(|other| other.matches(key)))
        .collect()
}

/// The kernel may differ: runs on different kernels are compared on purpose.
fn different_host(before: &Host, after: &Host) -> Option<String> {
    let properties = |host: &Host| {
        [
            ("name", host.name.clone()),
            ("processor", host.cpu.clone()),
            ("number of processors", host.cpus.to_string()),
            ("accelerator", host.accelerator.clone()),
            ("clock", host.clocksource.clone()),
        ]
    };
    let differing = properties(before)
        .into_iter()
        .zip(properties(after))
        .filter(|(old, new)| old != new);
    let differences: Vec<String> = differing
        .map(|((what, old), (_, new))| format!("{what} {old} before, {new} after"))
        .collect();
    (!differences.is_empty()).then(|| format!("different host: {}", differences.join("; ")))
}

/// Compares two rows, or returns the reason why they are not comparable.
fn compare_rows(key: &Key, old: &Row, new: &Row) -> Result<Compared, String> {
    let before = range(old).map_err(|reason| format!("before: {reason}"))?;
    let after = range(new).map_err(|reason| format!("after: {reason}"))?;
    if old.probe_class != new.probe_class {
        let name = |row: &Row| row.probe_class.map_or("unknown", |class| class.name());
        return Err(format!(
            "different distance of the processors: {} before, {} after",
            name(old),
            name(new)
        ));
    }
    if old.unit != new.unit {
        let unit = |row: &Row| row.unit.clone().unwrap_or_else(|| "unknown".into());
        return Err(format!(
            "different unit: {} before, {} after",
            unit(old),
            unit(new)
        ));
    }
    let unit = old.unit.clone().unwrap_or_default();
    Ok(Compared {
        key: Key {
            waiting: old.waiting.or(new.waiting),
            ..key.clone()
        },
        before,
        after,
        percent: (after.median / before.median - 1.0) * 100.0,
        change: Change::between(&before, &after, old.less_is_better()),
        unit,
        noisy: old.noisy_rounds.is_some() || new.noisy_rounds.is_some(),
    })
}

fn range(row: &Row) -> Result<Spread, String> {
    if let Some(spread) = row.spread_of_rounds() {
        return match spread.median > 0.0 {
            true => Ok(spread),
            false => Err(format!("its median is {}", spread.median)),
        };
    }
    let status = match row.failed {
        Some(true) => "failed",
        _ => "skipped",
    };
    Err(format!(
        "{status}: {}",
        row.skipped.as_deref().unwrap_or("unknown reason")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::text::tests::{results, row};
    use crate::harness::class::Class;

    fn only(comparison: &Comparison) -> &Compared {
        let [compared] = &comparison.compared[..] else {
            panic!("one row is compared: {comparison:?}");
        };
        compared
    }

    fn one(before: Row, after: Row) -> Comparison {
        compare(&results(vec![before]), &results(vec![after]))
    }

    fn latency(median: f64, spread: [f64; 2]) -> Row {
        row("sluice-pipe", "ns", median, spread)
    }

    fn rate(median: f64, spread: [f64; 2]) -> Row {
        row("sluice-pipe", "bytes/s", median, spread)
    }

    #[test]
    fn equal_runs_have_no_differences() {
        let same = latency(10.0, [9.0, 11.0]);
        let comparison = one(same.clone(), same);
        let compared = only(&comparison);
        assert_eq!((compared.change, compared.percent), (Change::Tie, 0.0));
        assert!(comparison.ours_slower_by_more_than(0.0).is_empty());
        assert!(
            comparison.not_compared.is_empty()
                && comparison.only_before.is_empty()
                && comparison.only_after.is_empty()
        );
    }

    #[test]
    fn faster_and_slower_follow_the_unit() {
        let change = |before, after| only(&one(before, after)).change;
        let (low, high) = ([9.0, 11.0], [19.0, 21.0]);
        assert_eq!(
            change(latency(20.0, high), latency(10.0, low)),
            Change::Faster
        );
        assert_eq!(
            change(latency(10.0, low), latency(20.0, high)),
            Change::Slower
        );
        assert_eq!(change(rate(20.0, high), rate(10.0, low)), Change::Slower);
        assert_eq!(change(rate(10.0, low), rate(20.0, high)), Change::Faster);
    }

    #[test]
    fn overlapping_rounds_are_within_spread_whatever_the_medians() {
        let comparison = one(latency(10.0, [9.0, 30.0]), latency(29.0, [12.0, 31.0]));
        assert_eq!(only(&comparison).change, Change::Tie);
        assert!(comparison.ours_slower_by_more_than(0.0).is_empty());
    }

    #[test]
    fn only_results_of_sluice_beyond_the_threshold_count() {
        let slower = one(latency(10.0, [9.0, 11.0]), latency(12.0, [11.5, 13.0]));
        assert_eq!(slower.ours_slower_by_more_than(19.9).len(), 1);
        assert!(slower.ours_slower_by_more_than(20.1).is_empty());
        let fallen = one(rate(10.0, [9.0, 11.0]), rate(8.0, [7.0, 8.5]));
        assert_eq!(fallen.ours_slower_by_more_than(19.9).len(), 1);
        assert!(fallen.ours_slower_by_more_than(20.1).is_empty());
        let pipe = |median, spread| row("pipe", "ns", median, spread);
        let theirs = one(pipe(10.0, [9.0, 11.0]), pipe(20.0, [19.0, 21.0]));
        assert!(theirs.ours_slower_by_more_than(0.0).is_empty() && !theirs.compares_ours());
    }

    #[test]
    fn rows_of_one_run_only_are_named() {
        let pipe = row("pipe", "ns", 1.0, [1.0, 1.0]);
        let ours = latency(1.0, [1.0, 1.0]);
        let comparison = compare(
            &results(vec![pipe.clone(), ours.clone()]),
            &results(vec![pipe.clone()]),
        );
        assert_eq!(comparison.only_before, [Key::of(&ours)]);
        let comparison = compare(
            &results(vec![pipe.clone()]),
            &results(vec![pipe, ours.clone()]),
        );
        assert_eq!(comparison.only_after, [Key::of(&ours)]);
        assert_eq!(comparison.compared.len(), 1);
    }

    #[test]
    fn sizes_and_ways_of_waiting_distinguish_rows() {
        let sleeps = Row {
            waiting: Some(Waiting::Sleep),
            ..latency(1.0, [1.0, 1.0])
        };
        let larger = Row {
            size: Some(64),
            ..sleeps.clone()
        };
        let spins = Row {
            waiting: Some(Waiting::Spin),
            ..sleeps.clone()
        };
        for other in [larger, spins] {
            let comparison = one(sleeps.clone(), other);
            assert!(comparison.compared.is_empty());
            assert_eq!(
                (comparison.only_before.len(), comparison.only_after.len()),
                (1, 1)
            );
        }
    }

    #[test]
    fn different_classes_and_hosts_are_listed_and_not_compared() {
        let near = Row {
            probe_class: Some(Class::SharedCache),
            ..latency(10.0, [10.0, 10.0])
        };
        let far = Row {
            probe_class: Some(Class::Remote),
            ..latency(90.0, [90.0, 90.0])
        };
        let comparison = one(near.clone(), far);
        assert!(comparison.compared.is_empty() && !comparison.compares_ours());
        assert_eq!(
            comparison.not_compared[0].reason,
            "different distance of the processors: near before, far after"
        );

        let mut elsewhere = results(vec![near.clone()]);
        elsewhere.host.accelerator = "tcg".into();
        let comparison = compare(&results(vec![near]), &elsewhere);
        assert!(comparison.compared.is_empty());
        assert_eq!(
            comparison.not_compared[0].reason,
            "different host: accelerator kvm before, tcg after"
        );
    }

    #[test]
    fn a_row_that_is_now_skipped_is_listed_with_its_reason() {
        let before = Row {
            waiting: Some(Waiting::Sleep),
            ..latency(1.0, [1.0, 1.0])
        };
        let after = Row {
            waiting: None,
            median: None,
            spread: None,
            skipped: Some("it broke".into()),
            failed: Some(true),
            ..before.clone()
        };
        let comparison = one(before, after.clone());
        assert_eq!(comparison.not_compared[0].reason, "after: failed: it broke");
        let comparison = one(after.clone(), after);
        assert!(comparison.not_compared.is_empty() && comparison.only_before.is_empty());
    }
}
