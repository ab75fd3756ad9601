// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of five reports, compared with this run. Report 1 describes a pipe per cgroup, `/dev/hello`, the
//! predecessor of Sluice's pipe; report 2 compares a naive driver, MyIPC, with shared memory and three semaphores; report
//! 3 measures packets from the kernel to a process ([`feed`]), report 4 messages to several receivers ([`fanout`]), report
//! 5 values under keys ([`map`], and with files [`durable`]).
//! No report has [`instructions`], the table of a suite, and [`rings`], the criteria of rings.
//! `docs/reports.md` lists their claims and how each is tested.

mod claims;
mod criteria;
pub mod durable;
pub mod fanout;
pub mod feed;
mod figures;
pub mod instructions;
pub mod load;
pub mod map;
mod model;
pub mod rings;

use crate::harness::rows::Row;

/// The mechanisms of reports 1 and 2: the standard pipe, "our driver" or "the opponent's", MyIPC, shared memory with
/// semaphores, and the shared memory of ipc-bench, whose two sides spin.
pub const MECHANISMS: [&str; 5] = ["pipe", "sluice-pipe", "myipc", "shm-sem", "shm-spin"];
/// The suite of reports 1 and 2 in the rows.
pub const SUITE: &str = "reports";

/// One measurement of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    RoundTrips { size: usize, count: usize },
    Stream { size: usize, count: usize },
}

impl Measured {
    const RTT_1: Self = Self::RoundTrips {
        size: 1,
        count: 1000,
    };
    const RTT_1_LONG: Self = Self::RoundTrips {
        size: 1,
        count: 10_000,
    };
    /// The "message rate" of ipc-bench: sequential messages, each with a reply.
    const RTT_1K: Self = Self::RoundTrips {
        size: 1024,
        count: 1000,
    };
    const STREAM_64: Self = Self::stream(64);
    const STREAM_256: Self = Self::stream(256);
    const STREAM_1K: Self = Self::stream(1024);
    /// 64 MB in chunks of 512 bytes.
    const BULK: Self = Self::Stream {
        size: 512,
        count: 125_000,
    };

    pub const ALL: [Self; 7] = [
        Self::RTT_1,
        Self::RTT_1_LONG,
        Self::RTT_1K,
        Self::STREAM_64,
        Self::STREAM_256,
        Self::STREAM_1K,
        Self::BULK,
    ];

    const fn stream(size: usize) -> Self {
        Self::Stream {
            size,
            count: 100_000,
        }
    }

    pub fn size(self) -> usize {
        match self {
            Self::RoundTrips { size, .. } | Self::Stream { size, .. } => size,
        }
    }

    pub fn title(self) -> String {
        match self {
            Self::RoundTrips { size, count } => format!("{count} round trips of {size} B"),
            Self::Stream { size, count } => format!("{count} messages of {size} B"),
        }
    }
}

/// The rows of this suite with results.
pub struct Rows<'a>(Vec<&'a Row>);

impl<'a> Rows<'a> {
    fn of(rows: &'a [Row]) -> Self {
        Self(measured_rows(SUITE, rows).unwrap_or_default())
    }

    /// `label` is the label of the row: the name of the mechanism, or the name with " (spins)".
    fn find(&self, measured: Measured, label: &str) -> Option<&'a Row> {
        let title = measured.title();
        self.0
            .iter()
            .find(|row| row.title == title && row.label == label)
            .copied()
    }
}

/// The rows of a suite that have a result. None: there are none.
fn measured_rows<'a>(suite: &str, rows: &'a [Row]) -> Option<Vec<&'a Row>> {
    let has_result = |row: &&Row| row.suite == suite && row.median.is_some();
    let rows: Vec<_> = rows.iter().filter(has_result).collect();
    (!rows.is_empty()).then_some(rows)
}

/// The tables of a suite; None if it was not measured, or has none.
pub fn text(suite: &str, rows: &[Row]) -> Option<String> {
    match suite {
        SUITE => first_two(rows),
        fanout::SUITE => fanout::text(rows),
        map::SUITE => map::text(rows),
        durable::SUITE => durable::text(rows),
        load::SUITE => load::text(rows),
        rings::ROUND_TRIPS | rings::STREAMS => rings::text(suite, rows),
        feed::SUITE => feed::text(rows),
        instructions::SUITE => instructions::text(rows),
        _ => None,
    }
}

fn first_two(rows: &[Row]) -> Option<String> {
    let rows_of_suite = Rows(measured_rows(SUITE, rows)?);
    Some(format!(
        "{}\n{}\n{}",
        figures::text(&rows_of_suite),
        model::text(&rows_of_suite),
        claims::text(rows)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::samples::tests::summary;

    /// A row of this suite with one value in nanoseconds or bytes per second.
    pub fn row(measured: Measured, label: &str, median: f64, spread: [f64; 2]) -> Row {
        let rate = match measured {
            Measured::RoundTrips { .. } => 2e9 / median,
            Measured::Stream { size, .. } => median / size as f64,
        };
        Row {
            suite: SUITE.into(),
            mechanism: label.split(' ').next().unwrap_or_default().into(),
            label: label.into(),
            title: measured.title(),
            size: Some(measured.size()),
            median: Some(median),
            spread: Some(spread),
            msgs_per_s: Some(rate),
            ..Row::default()
        }
    }

    #[test]
    fn without_the_suite_there_is_no_text() {
        for suite in [
            SUITE,
            fanout::SUITE,
            map::SUITE,
            durable::SUITE,
            feed::SUITE,
            instructions::SUITE,
            "rtt",
        ] {
            assert_eq!(text(suite, &[]), None);
        }
    }

    #[test]
    fn one_row_is_enough_for_tables() {
        let mut row = row(Measured::RTT_1, "pipe", 50_000.0, [40_000.0, 60_000.0]);
        row.distribution = summary([40_000, 60_000]);
        let text = text(SUITE, &[row]).unwrap();
        assert!(text.contains("50.0 µs"), "{text}");
    }
}
