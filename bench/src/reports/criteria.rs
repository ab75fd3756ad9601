// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ratios that a run is expected to reach, and whether it does; and verdicts about claims.

use minijinja::value::Serde;
use sluice_testkit::units;

use crate::harness::figures::Values;
use crate::harness::rows::Row;
use crate::harness::samples::Change;

/// A row of a table: the text, the limit, the ratio and its range, and the verdict. The limit is "≥ 8" or "≤ 8"; with " or a tie" it is
/// neither met nor missed if it is between the extreme rounds; without a limit the ratio is only reported.
pub fn criterion(text: &str, ratio: Option<Serde<Values>>, limit: &str) -> String {
    let Some(Serde(ratio)) = ratio else {
        return format!("| {text} | {limit} | – | | not measured |");
    };
    // Three figures, because two could hide on which side of the limit they are.
    let median = units::figures(ratio.median);
    let range = units::figures_range(ratio.spread[0], ratio.spread[1]);
    format!(
        "| {text} | {limit} | {median} | {range} | {} |",
        verdict(&ratio, limit)
    )
}

fn verdict(ratio: &Values, limit: &str) -> &'static str {
    let mut words = limit.split_whitespace();
    let (Some(sign), Some(bound)) = (words.next(), words.next()) else {
        return "";
    };
    let bound: f64 = bound.parse().expect("a limit is a number");
    let can_tie = words.next().is_some();
    let [min, max] = ratio.spread;
    match sign {
        _ if can_tie && min <= bound && max >= bound => "a tie",
        "≥" if ratio.median >= bound => "met",
        "≤" if ratio.median <= bound => "met",
        _ => "not met",
    }
}

/// Whether the median of the first is smaller, which all rounds must agree on. Different classes are not comparable.
pub fn below(ours: Serde<Row>, theirs: Serde<Row>) -> &'static str {
    let values = ours.value.as_ref().zip(theirs.value.as_ref());
    let change = values.map(|(ours, theirs)| {
        let ratio = ours.ratio_of_medians(theirs);
        Change::of_ratios(ratio.spread, true)
    });
    match change {
        _ if ours.probe_class != theirs.probe_class => "not measured",
        Some(Change::Tie) => "open: within the spread",
        Some(Change::Faster) => "confirmed here",
        Some(Change::Slower) | None => "refuted here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_between_the_extreme_rounds_can_be_a_tie() {
        for (rounds, limit, expected) in [
            ([0.8, 0.9, 1.1], "≥ 1 or a tie", "a tie"),
            ([0.8, 0.9, 0.95], "≥ 1 or a tie", "not met"),
            ([0.8, 1.1, 1.2], "≥ 1 or a tie", "a tie"),
            ([1.05, 1.1, 1.2], "≥ 1 or a tie", "met"),
            ([1.05, 1.1, 1.2], "≤ 1 or a tie", "not met"),
            ([0.8, 0.9, 1.2], "≤ 1 or a tie", "a tie"),
            ([0.8, 0.9, 0.95], "≤ 1 or a tie", "met"),
            ([0.8, 0.9, 1.2], "≥ 1", "not met"),
            ([0.8, 0.9, 1.2], "≤ 0.9", "met"),
            ([0.8, 0.9, 1.2], "", ""),
        ] {
            let ratio = Values::of(rounds.into_iter().enumerate()).unwrap();
            assert_eq!(verdict(&ratio, limit), expected, "{rounds:?} {limit}");
        }
    }
}
