// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a row as text, and its comparison with the reference.

use sluice_testkit::spread::Spread;
use sluice_testkit::units;

use super::rows::{BYTES, INSTRUCTIONS, OPERATIONS, Row};
use super::samples::Change;

/// A median in this unit.
pub fn figure(unit: &str, value: f64) -> String {
    match unit {
        "ns" => units::nanoseconds(value),
        OPERATIONS => units::per_second(value),
        INSTRUCTIONS => units::count(value),
        BYTES => memory(value),
        _ => units::bytes_per_second(value),
    }
}

/// The smallest and the largest round.
pub fn range(unit: &str, [min, max]: [f64; 2]) -> String {
    match unit {
        "ns" => units::nanosecond_range(min, max),
        OPERATIONS => units::per_second_range(min, max),
        INSTRUCTIONS => units::count_range(min, max),
        BYTES => format!("{} … {}", memory(min), memory(max)),
        _ => units::rate_range(min, max),
    }
}

/// In KiB, of which pages are made, or MiB.
pub fn memory(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        ..0.0 | 0.0..1000.0 => format!("{} B", units::figures(bytes)),
        ..1_024_000.0 => format!("{} KiB", units::figures(bytes / KIB)),
        _ => format!("{} MiB", units::figures(bytes / KIB / KIB)),
    }
}

impl Row {
    fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or_default()
    }

    pub fn less_is_better(&self) -> bool {
        ["ns", INSTRUCTIONS, BYTES].contains(&self.unit())
    }

    pub fn is_noisy(&self) -> bool {
        self.noisy_rounds.is_some()
    }

    pub fn spread_of_rounds(&self) -> Option<Spread> {
        let ([min, max], median) = (self.spread?, self.median?);
        Some(Spread { median, min, max })
    }

    /// The ratio within each round; None without a round of both, and for different classes.
    pub fn ratio_within_rounds(&self, to: &Self) -> Option<Spread> {
        if self.probe_class != to.probe_class {
            return None;
        }
        let others = to.values.as_deref()?;
        let ratio = |(round, value): &(usize, f64)| {
            let (_, other) = others.iter().find(|(other, _)| other == round)?;
            Some(value / other)
        };
        let values = self.values.as_deref()?.iter();
        Spread::of(&values.filter_map(ratio).collect::<Vec<_>>())
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
        let median = units::ratio(ratio.median);
        Some([median, units::ratio_range(ratio.min, ratio.max)])
    }

    /// The row that the ratio refers to.
    pub fn reference<'a>(&self, rows: &'a [Self]) -> Option<&'a Self> {
        let to = &self.ratio.as_ref()?.to;
        let wanted = (&self.suite, &self.title, to);
        rows.iter()
            .find(|row| (&row.suite, &row.title, &row.label) == wanted)
    }

    /// In a word: "faster", or "fewer" where instructions are compared.
    pub fn change_name(&self, change: Change) -> &'static str {
        match (self.unit(), change) {
            (INSTRUCTIONS, Change::Faster) => "fewer",
            (BYTES, Change::Faster) => "less",
            (INSTRUCTIONS | BYTES, Change::Slower) => "more",
            _ => change.name(),
        }
    }

    /// The number of rounds that the ratio is from, if that is too small for a verdict although more were measured.
    pub fn few_common_rounds(&self) -> Option<usize> {
        const LEAST: usize = 3;
        let measured = self.rounds? + self.dropped_rounds.unwrap_or(0);
        let common = self.ratio.as_ref()?.common_rounds?;
        (common < LEAST.min(measured)).then_some(common)
    }

    /// The comparison with the reference; None if there is none, or too few rounds of both.
    pub fn change(&self) -> Option<Change> {
        let ratio = self.ratio.as_ref()?;
        if self.few_common_rounds().is_some() {
            return None;
        }
        Some(Change::of_ratios(
            ratio.min,
            ratio.max,
            self.less_is_better(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::class::Class;

    #[test]
    fn instructions_are_compared_by_number() {
        let row = |unit: &str| Row {
            unit: Some(unit.into()),
            ..Row::default()
        };
        let instructions = row(INSTRUCTIONS);
        assert!(instructions.less_is_better());
        assert_eq!(instructions.change_name(Change::Faster), "fewer");
        assert_eq!(instructions.change_name(Change::Slower), "more");
        assert_eq!(instructions.change_name(Change::Tie), "tie");
        assert_eq!(row("ns").change_name(Change::Faster), "faster");
        assert_eq!(figure(INSTRUCTIONS, 12_345.6), "12.3 k");
        assert_eq!(figure(BYTES, 512.0), "512 B");
        assert_eq!(figure(BYTES, 8192.0), "8.00 KiB");
        assert_eq!(figure(BYTES, 2_097_152.0), "2.00 MiB");
        assert_eq!(range(BYTES, [512.0, 8192.0]), "512 B … 8.00 KiB");
        assert_eq!(range(INSTRUCTIONS, [9990.0, 12_345.6]), "9.99 … 12.3 k");
    }

    #[test]
    fn a_ratio_is_that_of_equal_rounds() {
        let row = |values: &[(usize, f64)]| Row {
            values: Some(values.to_vec()),
            ..Row::default()
        };
        let ours = row(&[(0, 2.0), (1, 30.0), (3, 8.0)]);
        let theirs = row(&[(1, 10.0), (2, 7.0), (3, 2.0)]);
        let ratio = ours.ratio_within_rounds(&theirs).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (3.0, 3.5, 4.0));
        assert_eq!(ours.ratio_within_rounds(&row(&[(2, 1.0)])), None);
        assert_eq!(ours.ratio_within_rounds(&Row::default()), None);
        let remote = Row {
            probe_class: Some(Class::Remote),
            ..theirs
        };
        assert_eq!(ours.ratio_within_rounds(&remote), None);
    }

    #[test]
    fn a_verdict_needs_three_common_rounds_if_they_were_measured() {
        let change = |common, rounds, dropped_rounds| {
            let ratio = crate::harness::rows::Ratio {
                to: "pipe".into(),
                across_waiting: false,
                median: 0.5,
                min: 0.5,
                max: 0.5,
                common_rounds: Some(common),
            };
            let row = Row {
                unit: Some("ns".into()),
                rounds: Some(rounds),
                dropped_rounds,
                ratio: Some(ratio),
                ..Row::default()
            };
            row.change()
        };
        assert_eq!(change(3, 5, None), Some(Change::Faster));
        assert_eq!(change(2, 5, None), None);
        assert_eq!(change(2, 2, Some(3)), None);
        assert_eq!(change(2, 2, None), Some(Change::Faster));
    }
}
