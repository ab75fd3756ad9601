// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a row as text, and its comparison with the reference.

use sluice_testkit::spread::Spread;
use sluice_testkit::units;

use super::rows::{OPERATIONS, Row};
use super::samples::Change;

/// A median in this unit.
pub fn figure(unit: &str, value: f64) -> String {
    match unit {
        "ns" => units::nanoseconds(value),
        OPERATIONS => units::per_second(value),
        _ => units::bytes_per_second(value),
    }
}

/// The smallest and the largest round.
pub fn range(unit: &str, [min, max]: [f64; 2]) -> String {
    match unit {
        "ns" => units::nanosecond_range(min, max),
        OPERATIONS => units::per_second_range(min, max),
        _ => units::rate_range(min, max),
    }
}

impl Row {
    fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or_default()
    }

    pub fn less_is_better(&self) -> bool {
        self.unit() == "ns"
    }

    pub fn is_noisy(&self) -> bool {
        self.noisy_rounds.is_some()
    }

    pub fn spread_of_rounds(&self) -> Option<Spread> {
        let ([min, max], median) = (self.spread?, self.median?);
        Some(Spread { median, min, max })
    }

    pub fn median_text(&self) -> Option<String> {
        self.median.map(|median| figure(self.unit(), median))
    }

    pub fn range_text(&self) -> Option<String> {
        self.spread.map(|spread| range(self.unit(), spread))
    }

    /// The ratio, and its rounds.
    pub fn ratio_texts(&self) -> Option<[String; 2]> {
        let ratio = self.ratio.as_ref()?;
        let median = format!("{:.2}", ratio.median);
        Some([median, units::ratio_range(ratio.min, ratio.max)])
    }

    /// The row that the ratio refers to.
    pub fn reference<'a>(&self, rows: &'a [Self]) -> Option<&'a Self> {
        let to = &self.ratio.as_ref()?.to;
        let wanted = (&self.suite, &self.title, to);
        rows.iter()
            .find(|row| (&row.suite, &row.title, &row.label) == wanted)
    }

    /// The comparison with the reference.
    pub fn change(&self, rows: &[Self]) -> Option<Change> {
        let reference = self.reference(rows)?.spread_of_rounds()?;
        let ours = self.spread_of_rounds()?;
        Some(Change::between(&reference, &ours, self.less_is_better()))
    }
}
