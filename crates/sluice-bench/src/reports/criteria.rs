// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ratios that a run is expected to reach, and whether it does.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

/// A ratio of two rows, which must not be smaller, or not be larger.
pub struct Criterion {
    pub text: String,
    pub of: Option<Spread>,
    pub to: Option<Spread>,
    pub limit: Limit,
}

#[derive(Clone, Copy)]
pub enum Limit {
    AtLeast(f64),
    AtMost(f64),
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
            Self::NotAbove => "≤ 1 or a tie".into(),
            Self::None => String::new(),
        }
    }

    /// `least`: of the extreme rounds.
    fn verdict(self, ratio: f64, least: f64) -> &'static str {
        let met = match self {
            Self::AtLeast(limit) => ratio >= limit,
            Self::AtMost(limit) => ratio <= limit,
            Self::NotAbove if ratio > 1.0 && least <= 1.0 => return "a tie",
            Self::NotAbove => ratio <= 1.0,
            Self::None => return "",
        };
        if met { "met" } else { "not met" }
    }
}

pub fn table(criteria: Vec<Criterion>) -> Table {
    let mut table = Table::new(&[
        ("ratio of medians", Align::Left),
        ("required", Align::Right),
        ("here", Align::Right),
        ("between the extreme rounds", Align::Right),
        ("", Align::Left),
    ]);
    for one in criteria {
        let [ratio, range, verdict] = match one.of.zip(one.to) {
            None => ["–".into(), String::new(), "not measured".into()],
            Some((of, to)) => {
                let ratio = of.median / to.median;
                let range = units::ratio_range(of.min / to.max, of.max / to.min);
                [
                    units::figures(ratio),
                    range,
                    one.limit.verdict(ratio, of.min / to.max).into(),
                ]
            }
        };
        table.row([one.text, one.limit.text(), ratio, range, verdict]);
    }
    table
}
