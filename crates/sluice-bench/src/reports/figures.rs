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

/// One figure of a report.
struct Figure {
    report: &'static str,
    measured: Measured,
    quantity: Quantity,
    label: &'static str,
    /// In nanoseconds, or per second.
    reported: f64,
}

const fn figure(
    report: &'static str,
    measured: Measured,
    quantity: Quantity,
    label: &'static str,
    reported: f64,
) -> Figure {
    Figure {
        report,
        measured,
        quantity,
        label,
        reported,
    }
}

use Quantity::{
    Deviation, LargestRoundTrip, MeanRoundTrip, MessagesPerSecond, RoundTripsPerSecond,
    SmallestRoundTrip,
};

/// The unit "ms" in table 9 of report 1 contradicts its message rates: 2209 sequential messages per second are 453 µs
/// each.
const FOOTNOTE: &str = "¹ in ms in the table; in µs in the text and by the rate of 2209 sequential messages per second";

const FIGURES: [Figure; 14] = [
    figure(
        "1, table 9 ¹",
        Measured::RTT_1,
        MeanRoundTrip,
        "pipe",
        577_768.0,
    ),
    figure(
        "1, table 9 ¹",
        Measured::RTT_1,
        MeanRoundTrip,
        "sluice-pipe",
        431_897.0,
    ),
    figure(
        "1, table 9 ¹",
        Measured::RTT_1,
        MeanRoundTrip,
        "shm-spin (spins)",
        30_266.0,
    ),
    figure(
        "1, table 8",
        Measured::RTT_1,
        SmallestRoundTrip,
        "sluice-pipe",
        153_600.0,
    ),
    figure(
        "1, table 8",
        Measured::RTT_1,
        LargestRoundTrip,
        "sluice-pipe",
        4_847_104.0,
    ),
    figure(
        "1, table 8",
        Measured::RTT_1,
        Deviation,
        "sluice-pipe",
        418_900.0,
    ),
    figure(
        "1, table 9",
        Measured::RTT_1K,
        RoundTripsPerSecond,
        "pipe",
        1730.0,
    ),
    figure(
        "1, table 9",
        Measured::RTT_1K,
        RoundTripsPerSecond,
        "sluice-pipe",
        2209.0,
    ),
    figure(
        "1, table 9",
        Measured::RTT_1K,
        RoundTripsPerSecond,
        "shm-spin (spins)",
        33_039.0,
    ),
    figure(
        "2, table 1",
        Measured::RTT_1,
        MeanRoundTrip,
        "sluice-pipe",
        431_900.0,
    ),
    figure(
        "2, table 2",
        Measured::STREAM_256,
        MessagesPerSecond,
        "pipe",
        695_989.0,
    ),
    figure(
        "2, table 2",
        Measured::STREAM_256,
        MessagesPerSecond,
        "shm-sem",
        817_482.0,
    ),
    figure(
        "2, table 3",
        Measured::STREAM_1K,
        MessagesPerSecond,
        "pipe",
        239_216.0,
    ),
    figure(
        "2, table 3",
        Measured::STREAM_1K,
        MessagesPerSecond,
        "shm-sem",
        266_417.0,
    ),
];

impl Figure {
    fn here(&self, rows: &Rows) -> Option<f64> {
        self.quantity.of(rows.find(self.measured, self.label)?)
    }

    /// The figure of pipe(2) in the same table of the same report.
    fn of_pipe(&self) -> Option<&'static Figure> {
        FIGURES.iter().find(|other| {
            other.label == "pipe"
                && self.label != "pipe"
                && (other.report, other.measured, other.quantity)
                    == (self.report, self.measured, self.quantity)
        })
    }
}

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
    for figure in &FIGURES {
        table.row(line(figure, rows));
    }
    format!("Figures of the reports, compared with this run\n\n{table}{FOOTNOTE}\n")
}

fn line(figure: &Figure, rows: &Rows) -> [String; 8] {
    let pipe = figure.of_pipe();
    let here = figure.here(rows);
    let pipe_here = pipe.and_then(|pipe| pipe.here(rows));
    [
        figure.report.into(),
        figure.measured.title(),
        figure.quantity.name().into(),
        figure.label.into(),
        figure.quantity.text(figure.reported),
        here.map_or_else(|| "–".into(), |here| figure.quantity.text(here)),
        pipe.map(|pipe| ratio(figure.reported, pipe.reported))
            .unwrap_or_default(),
        here.zip(pipe_here)
            .map(|(ours, theirs)| ratio(ours, theirs))
            .unwrap_or_default(),
    ]
}

fn ratio(ours: f64, theirs: f64) -> String {
    format!("{:.2}", ours / theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::summarize;
    use crate::reports::tests::row;

    #[test]
    fn report_and_run_are_in_one_line() {
        let mut rows = [
            row(Measured::RTT_1, "pipe", 50e3, [40e3, 60e3]),
            row(Measured::RTT_1, "sluice-pipe", 25e3, [20e3, 30e3]),
        ];
        rows[0].distribution = summarize(vec![40_000, 60_000]);
        rows[1].distribution = summarize(vec![20_000, 30_000]);
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
        assert_eq!(text.matches('–').count(), FIGURES.len());
    }
}
