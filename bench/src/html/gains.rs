// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sluice relative to its rivals: under a few conditions of each suite, which a reader should take away, and under all. The choice
//! depends on the conditions only, not on the results.

use sluice_testkit::units;

use super::groups;
use super::plot::{Axis, Interval, Plot};
use crate::harness::pinning::Placement;
use crate::harness::rows::Row;
use crate::suites;

/// It does not wait for the disk, as the reference of its suite does: a ratio of the two shows no advantage.
const WITHOUT_RIVAL: &str = "sluice-durable-interval";
const SHORT: usize = 64;
/// Percent of the saturation. Beyond it, a ratio grows with the time of the run.
const HALF: f64 = 50.0;

#[derive(Clone, Copy)]
pub struct Gain<'a> {
    number: usize,
    row: &'a Row,
    rival: &'a Row,
    /// How many times it is better, and the range.
    median: f64,
    range: [f64; 2],
}

pub fn gains(rows: &[Row]) -> Vec<Gain<'_>> {
    let gains = rows.iter().enumerate().filter_map(|(number, row)| {
        let rival = row.reference(rows)?;
        let (median, range) = row.times_better()?;
        let is_of_rivals = row.is_sluice() && !rival.is_sluice() && row.mechanism != WITHOUT_RIVAL;
        is_of_rivals.then_some(Gain {
            number,
            row,
            rival,
            median,
            range,
        })
    });
    gains.collect()
}

/// The first mechanism under each of the chosen conditions. None without one.
pub fn takeaways(all: &[Gain]) -> Option<Plot> {
    let kinds = groups(all.iter().copied(), |Gain { row, .. }| {
        let axes = ["operation", "receiver_state", "batch"].map(|axis| row.axes.get(axis));
        (&row.suite, row.unit, axes)
    });
    let chosen: Vec<Gain> = kinds.iter().flat_map(|(_, all)| of_kind(all)).collect();
    let has_one_rival = only_rival(&chosen).is_some();
    let name = |Gain { row, rival, .. }: &Gain| match has_one_rival {
        true => format!("{}: {}", conditions(row), row.label),
        // There is no room for the placement.
        false => format!("{}: {} vs {}", operation(row), row.label, rival.mechanism),
    };
    plot("What to take away", &chosen, name, name)
}

pub fn summary(all: &[Gain]) -> Option<Plot> {
    let rival = only_rival(all).unwrap_or("the reference");
    let heading = format!("Sluice relative to {rival}");
    let label = |one: &Gain| one.row.label.clone();
    plot(&heading, all, label, |one| conditions(one.row))
}

/// Short messages and the last conditions, or half load, on two processors if possible. Of each the first variant that waits alike.
fn of_kind<'a>(all: &[Gain<'a>]) -> Vec<Gain<'a>> {
    let is_on_two = |one: &&Gain| one.row.placement == Some(Placement::TwoCpus);
    let is_replaced = |one: &&Gain| {
        let mut others = all.iter().filter(is_on_two);
        !is_on_two(one) && others.any(|other| bare_title(other.row) == bare_title(one.row))
    };
    let kept: Vec<&Gain> = all.iter().filter(|one| !is_replaced(one)).collect();
    let is_short = |one: &&&Gain| one.row.size == Some(SHORT);
    let is_half = |one: &&&Gain| one.row.axes.get("load_percent") == Some(&HALF.into());
    let [short, half] = [kept.iter().find(is_short), kept.iter().find(is_half)];
    let ends = [half.or(short).or(kept.first()), half.or(kept.last())];
    let titles = groups(ends.into_iter().flatten(), |one| &one.row.title).into_iter();
    let chosen = titles.filter_map(|(title, _)| {
        let is_alike = |row: &Row| row.title == *title && row.change().is_some();
        let alike = || kept.iter().filter(|one| is_alike(one.row));
        let is_fair = |one: &&&Gain| one.row.waiting == one.rival.waiting;
        let first = alike().next()?;
        let mut variants = alike().filter(|one| one.row.mechanism == first.row.mechanism);
        Some(**variants.find(is_fair).unwrap_or(first))
    });
    chosen.collect()
}

fn conditions(row: &Row) -> String {
    let place = match row.placement {
        _ if bare_title(row) == row.title => "",
        Some(Placement::SameCpu) => ", one processor",
        Some(Placement::TwoCpus) => ", two processors",
        None => "",
    };
    operation(row) + place
}

fn operation(row: &Row) -> String {
    let title = bare_title(row);
    match suites::by_name(&row.suite).map_or("", |suite| suite.operation) {
        "" => title.into(),
        operation => format!("{operation} {title}"),
    }
}

fn bare_title(row: &Row) -> &str {
    let placement = row.placement.map(|placement| placement.name());
    let bare = placement.and_then(|placement| row.title.strip_suffix(placement));
    bare.map_or(row.title.as_str(), str::trim_end)
}

fn only_rival<'a>(all: &[Gain<'a>]) -> Option<&'a str> {
    match groups(all, |one| one.rival.mechanism.as_str())[..] {
        [(rival, _)] => Some(rival),
        _ => None,
    }
}

fn plot(
    heading: &str,
    all: &[Gain],
    name: impl Fn(&Gain) -> String,
    group: impl Fn(&Gain) -> String,
) -> Option<Plot> {
    let intervals = all.iter().map(|one| Interval {
        name: name(one),
        group: group(one),
        row: one.number,
        median: one.median,
        range: one.range,
    });
    let intervals: Vec<Interval> = intervals.collect();
    let rival = only_rival(all).unwrap_or("the reference");
    let label = format!("times better than {rival}");
    let axis = Axis::of_ratios(all.iter().flat_map(|one| one.range))?;
    (!all.is_empty()).then(|| Plot::new(heading, &label, axis, units::figures_short, intervals))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::turns::tests::rows_of;
    use crate::harness::waiting::Waiting;

    #[test]
    fn size_placement_and_waiting_decide_the_choice() {
        let of_size = |size: usize, placement: Placement| {
            let mut rows = rows_of(Metric::Latency, &[100.0], &[50.0]);
            let spinning = Row {
                label: "sluice-pipe (spins)".into(),
                waiting: Some(Waiting::Spin),
                ..rows[1].clone()
            };
            rows.insert(1, spinning);
            for row in &mut rows {
                row.title = format!("{size} B {}", placement.name());
                (row.size, row.placement) = (Some(size), Some(placement));
            }
            rows
        };
        let mut rows = of_size(64, Placement::SameCpu);
        let on_two = [8, 64, 1000, 4000].map(|size| of_size(size, Placement::TwoCpus));
        rows.extend(on_two.into_iter().flatten());
        let chosen = of_kind(&gains(&rows)).into_iter();
        let chosen = chosen.map(|one| format!("{}: {}", conditions(one.row), one.row.label));
        let expected =
            [64, 4000].map(|size| format!("Round trip of {size} B, two processors: sluice-pipe"));
        assert!(chosen.eq(expected));
    }
}
