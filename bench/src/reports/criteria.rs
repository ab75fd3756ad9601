// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ratios that a run is expected to reach, and whether it does.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

/// A ratio of two rows, which must not be smaller, or not be larger.
pub struct Criterion {
    pub text: String,
    /// None if it was not measured.
    pub ratio: Option<Spread>,
    pub limit: Limit,
}

/// The ratio of the medians, with the largest range that rounds of both can have.
pub fn of_medians(of: Option<Spread>, to: Option<Spread>) -> Option<Spread> {
    let (of, to) = (of?, to?);
    Some(Spread {
        median: of.median / to.median,
        min: of.min / to.max,
        max: of.max / to.min,
    })
}

#[derive(Clone, Copy)]
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
    /// At least 1, or 1 is between the extreme rounds.
    NotBelow,
    /// At most 1, or 1 is between the extreme rounds.
    NotAbove,
    /// Reported without a limit.
    None,
}

impl Limit {
    fn text(self) -> String {
        match self {
            Self::AtLeast(limit) => format!("≥ {limit}"),
            Self::AtMost(limit) => format!("≤ {limit}"),
            Self::NotBelow => "≥ 1 or a tie".into(),
            Self::NotAbove => "≤ 1 or a tie".into(),
            Self::None => String::new(),
        }
    }

    fn verdict(self, ratio: Spread) -> &'static str {
        let median = ratio.median;
        let met = match self {
            Self::AtLeast(limit) => median >= limit,
            Self::AtMost(limit) => median <= limit,
            // As in the tables: a verdict holds in all rounds.
            Self::NotBelow | Self::NotAbove if ratio.min <= 1.0 && ratio.max >= 1.0 => {
                return "a tie";
            }
            Self::NotBelow => median > 1.0,
            Self::NotAbove => median < 1.0,
            Self::None => return "",
        };
        if met { "met" } else { "not met" }
    }
}

/// `ratio` and `range` say what is in these columns.
pub fn table(ratio: &str, range: &str, criteria: Vec<Criterion>) -> Table {
    let mut table = Table::new(&[
        (ratio, Align::Left),
        ("required", Align::Right),
        ("here", Align::Right),
        (range, Align::Right),
        ("", Align::Left),
    ]);
    for one in criteria {
        let [ratio, range, verdict] = match one.ratio {
            None => ["–".into(), String::new(), "not measured".into()],
            // Three figures, because two could hide on which side of the limit they are.
            Some(ratio) => [
                units::figures(ratio.median),
                units::figures_range(ratio.min, ratio.max),
                one.limit.verdict(ratio).into(),
            ],
        };
        table.row([one.text, one.limit.text(), ratio, range, verdict]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_between_the_extreme_rounds_is_a_tie() {
        let verdict =
            |limit: Limit, [min, median, max]: [f64; 3]| limit.verdict(Spread { median, min, max });
        assert_eq!(verdict(Limit::NotBelow, [0.8, 0.9, 1.1]), "a tie");
        assert_eq!(verdict(Limit::NotBelow, [0.8, 0.9, 0.95]), "not met");
        assert_eq!(verdict(Limit::NotBelow, [0.8, 1.1, 1.2]), "a tie");
        assert_eq!(verdict(Limit::NotBelow, [1.05, 1.1, 1.2]), "met");
        assert_eq!(verdict(Limit::NotAbove, [0.8, 1.1, 1.2]), "a tie");
        assert_eq!(verdict(Limit::NotAbove, [1.05, 1.1, 1.2]), "not met");
        assert_eq!(verdict(Limit::NotAbove, [0.8, 0.9, 1.2]), "a tie");
        assert_eq!(verdict(Limit::NotAbove, [0.8, 0.9, 0.95]), "met");
    }

    #[test]
    fn the_range_of_medians_is_that_of_all_pairs_of_rounds() {
        let spread = |min, median, max| Some(Spread { median, min, max });
        let ratio = of_medians(spread(4.0, 6.0, 8.0), spread(1.0, 2.0, 4.0));
        assert_eq!(ratio, spread(1.0, 3.0, 8.0));
        assert_eq!(of_medians(None, spread(1.0, 2.0, 4.0)), None);
    }
}
