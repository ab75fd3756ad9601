// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of the reports, compared with this run.

use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::{Measured, Rows};
use crate::harness::rows::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    MeanRoundTrip,
    SmallestRoundTrip,
    LargestRoundTrip,
    Deviation,
    RoundTripsPerSecond,
    MessagesPerSecond,
}

impl Quantity {
    fn name(self) -> &'static str {
        match self {
            Self::MeanRoundTrip => "mean",
            Self::SmallestRoundTrip => "smallest",
            Self::LargestRoundTrip => "largest",
            Self::Deviation => "standard deviation",
            Self::RoundTripsPerSecond => "round trips/s",
            Self::MessagesPerSecond => "messages/s",
        }
    }

    /// In nanoseconds, or per second.
    fn of(self, row: &Row) -> Option<f64> {
        let distribution = row.distribution.as_ref();
        match self {
            Self::MeanRoundTrip => distribution.map(|one| one.mean),
            Self::SmallestRoundTrip => distribution.map(|one| one.min as f64),
            Self::LargestRoundTrip => distribution.map(|one| one.max as f64),
            Self::Deviation => distribution.map(|one| one.sd),
            Self::RoundTripsPerSecond => distribution.map(|one| 1e9 / one.mean),
            Self::MessagesPerSecond => row.msgs_per_s,
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::RoundTripsPerSecond | Self::MessagesPerSecond => units::per_second(value),
            _ => units::nanoseconds(value),
        }
    }
}

/// The figures of one quantity in one table of a report.
struct Reported {
    table: &'static str,
    measured: Measured,
    quantity: Quantity,
    /// Labels, and values in nanoseconds or per second. pipe(2) comes first if the table has it.
    values: &'static [(&'static str, f64)],
}

const fn reported(
    table: &'static str,
    measured: Measured,
    quantity: Quantity,
    values: &'static [(&'static str, f64)],
) -> Reported {
    Reported {
        table,
        measured,
        quantity,
        values,
    }
}

use Quantity::{
    Deviation, LargestRoundTrip, MeanRoundTrip, MessagesPerSecond, RoundTripsPerSecond,
    SmallestRoundTrip,
};

/// The unit "ms" in table 9 of report 1 contradicts its message rates: 2209 sequential messages per second are 453 µs
/// each.
const FOOTNOTE: &str = "¹ in ms in the table; in µs in the text and by the rate of 2209 sequential messages per second";

use Measured as M;

#[rustfmt::skip]
const REPORTED: [Reported; 8] = [
    reported("1, table 9 ¹", M::RTT_1, MeanRoundTrip,
        &[("pipe", 577_768.0), ("sluice-pipe", 431_897.0), ("shm-spin (spins)", 30_266.0)]),
    reported("1, table 8", M::RTT_1, SmallestRoundTrip, &[("sluice-pipe", 153_600.0)]),
    reported("1, table 8", M::RTT_1, LargestRoundTrip, &[("sluice-pipe", 4_847_104.0)]),
    reported("1, table 8", M::RTT_1, Deviation, &[("sluice-pipe", 418_900.0)]),
    reported("1, table 9", M::RTT_1K, RoundTripsPerSecond,
        &[("pipe", 1730.0), ("sluice-pipe", 2209.0), ("shm-spin (spins)", 33_039.0)]),
    reported("2, table 1", M::RTT_1, MeanRoundTrip, &[("sluice-pipe", 431_900.0)]),
    reported("2, table 2", M::STREAM_256, MessagesPerSecond,
        &[("pipe", 695_989.0), ("shm-sem", 817_482.0)]),
    reported("2, table 3", M::STREAM_1K, MessagesPerSecond,
        &[("pipe", 239_216.0), ("shm-sem", 266_417.0)]),
];

pub fn text(rows: &Rows) -> String {
    let mut table = Table::new(&[
        ("report", Align::Left),
        ("measurement", Align::Left),
        ("figure", Align::Left),
        ("mechanism", Align::Left),
        ("reported", Align::Right),
        ("here", Align::Right),
        ("÷ pipe, reported", Align::Right),
        ("here", Align::Right),
    ]);
    for reported in &REPORTED {
        for &(label, value) in reported.values {
            table.row(line(reported, label, value, rows));
        }
    }
    format!("Figures of the reports, compared with this run\n\n{table}{FOOTNOTE}\n")
}

fn line(reported: &Reported, label: &str, value: f64, rows: &Rows) -> [String; 8] {
    let here = |label| reported.quantity.of(rows.find(reported.measured, label)?);
    let (reference, pipe) = reported.values[0];
    let against_pipe = label != "pipe" && reference == "pipe";
    let [reported_ratio, ratio_here] = match against_pipe {
        true => [Some((value, pipe)), here(label).zip(here("pipe"))],
        false => [None; 2],
    };
    [
        reported.table.into(),
        reported.measured.title(),
        reported.quantity.name().into(),
        label.into(),
        reported.quantity.text(value),
        here(label).map_or_else(|| "–".into(), |here| reported.quantity.text(here)),
        ratio(reported_ratio),
        ratio(ratio_here),
    ]
}

fn ratio(values: Option<(f64, f64)>) -> String {
    values.map_or_else(String::new, |(ours, theirs)| units::ratio(ours / theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::tests::summary;
    use crate::reports::tests::row;

    #[test]
    fn report_and_run_are_in_one_line() {
        let mut rows = [
            row(Measured::RTT_1, "pipe", 50e3, [40e3, 60e3]),
            row(Measured::RTT_1, "sluice-pipe", 25e3, [20e3, 30e3]),
        ];
        rows[0].distribution = summary([40_000, 60_000]);
        rows[1].distribution = summary([20_000, 30_000]);
        let text = text(&Rows::of(&rows));
        let line = text
            .lines()
            .find(|line| line.contains("mean") && line.contains("sluice-pipe"))
            .unwrap();
        for part in ["432 µs", "25.0 µs", "0.75", "0.50"] {
            assert!(line.contains(part), "{part} in {line}");
        }
    }

    #[test]
    fn a_missing_result_is_a_dash() {
        let text = text(&Rows::of(&[]));
        let figures = REPORTED.iter().map(|one| one.values.len());
        assert_eq!(text.matches('–').count(), figures.sum::<usize>());
    }
}
