// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of report 5, a store of keys and values in the kernel behind netlink: its figures, those of this run, and
//! their ratios. The report does not describe its machine, and its unit cannot be right.

use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::criteria::{self, Criterion, Limit};
use crate::harness::rows::Row;

pub const SUITE: &str = "map";

/// Keys of a batch.
pub const BATCH: usize = 64;
pub const PROCESSES: [usize; 6] = [1, 2, 4, 6, 8, 10];
/// Operations of each process in the report.
pub const REPORTED_COUNT: f64 = 100_000.0;

/// What several processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Get,
    Set,
    /// One after the other, of different keys.
    GetAndSet,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::Get, Self::Set, Self::GetAndSet];

    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "gets",
            Self::Set => "sets",
            Self::GetAndSet => "gets and sets",
        }
    }

    /// The report writes values to files, the stores that are compared with each other do not.
    fn text(self) -> &'static str {
        match self {
            Self::Get => "gets",
            Self::Set => "volatile sets",
            Self::GetAndSet => "gets and volatile sets",
        }
    }

    /// The gets and sets that one is.
    fn calls(self) -> f64 {
        match self {
            Self::Get | Self::Set => 1.0,
            Self::GetAndSet => 2.0,
        }
    }

    /// As the report calls it, and the milliseconds of the report by the number of processes.
    pub fn reported(self) -> (&'static str, [f64; 6]) {
        match self {
            Self::Get => ("read", [0.926, 0.897, 0.928, 1.316, 1.861, 2.363]),
            Self::Set => ("write", [3.082, 4.223, 8.076, 12.371, 16.568, 20.563]),
            Self::GetAndSet => ("read/write", [4.049, 5.596, 9.618, 15.067, 20.408, 25.690]),
        }
    }

    /// The mechanisms whose times are compared with those of the report. Its gets do not use files.
    fn compared(self) -> &'static [&'static str] {
        match self {
            Self::Get => &[STORE, BY_FD, BY_NETLINK],
            Self::Set | Self::GetAndSet => &[STORE_WITH_FILES, STORE, BY_FD, BY_NETLINK],
        }
    }
}

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measured {
    /// The rate of an operation by several processes on two processors.
    Rate {
        operation: Operation,
        processes: usize,
    },
    /// Processor time of a get, while a process on another processor sets values, or does what does not concern the store: on
    /// many machines, and in an emulator, a busy processor slows another one down.
    ReaderCost { beside_writer: bool },
    /// Elapsed time of a get by one process.
    Get,
    /// Elapsed time of a get, of several that are one call where there is such a call.
    Batch,
    /// Elapsed time of a key in a list of all keys and values.
    Dump,
}

impl Measured {
    pub fn title(self) -> String {
        match self {
            Self::Rate {
                operation,
                processes: 1,
            } => format!("{} by 1 process", operation.name()),
            Self::Rate {
                operation,
                processes,
            } => format!("{} by {processes} processes", operation.name()),
            Self::ReaderCost {
                beside_writer: false,
            } => "processor time of a get, beside other work".into(),
            Self::ReaderCost {
                beside_writer: true,
            } => "processor time of a get, beside a writer".into(),
            Self::Get => "a get".into(),
            Self::Batch => format!("one of {BATCH} gets"),
            Self::Dump => "a key of a dump".into(),
        }
    }
}

const STORE: &str = "shared-map";
const STORE_WITH_FILES: &str = "shared-map-files";
const STORE_WITH_RWSEM: &str = "shared-map-rwsem";
const BY_FD: &str = "sluice-map-fd";
const BY_NETLINK: &str = "sluice-map-netlink";
const BPF: &str = "bpf-map";
const REDIS: &str = "redis";

/// The rows of this suite with results.
struct Rows<'a>(Vec<&'a Row>);

impl Rows<'_> {
    fn find(&self, measured: Measured, mechanism: &str) -> Option<&Row> {
        let title = measured.title();
        let mut rows = self.0.iter();
        rows.find(|row| row.title == title && row.mechanism == mechanism)
            .copied()
    }

    fn rate(&self, operation: Operation, processes: usize, mechanism: &str) -> Option<f64> {
        let measured = Measured::Rate {
            operation,
            processes,
        };
        self.find(measured, mechanism)?.median
    }

    /// Milliseconds for as many operations of each process as in the report.
    fn time(&self, operation: Operation, processes: usize, mechanism: &str) -> Option<f64> {
        let calls = processes as f64 * REPORTED_COUNT * operation.calls();
        Some(1e3 * calls / self.rate(operation, processes, mechanism)?)
    }
}

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let rows = Rows(super::measured_rows(SUITE, rows)?);
    let tables = Operation::ALL.map(|operation| {
        format!(
            "Report 5, tables 1 and 2, {}: ms for 100,000 operations of each process, and percent of the line above\n\n{}",
            operation.reported().0,
            times(operation, &rows)
        )
    });
    Some(format!(
        "{}{FOOTNOTE}\n\
         Report 5, plots: operations per second of 10 processes ÷ those of 2\n\n{}{CONTROL}\n\
         Criteria: ratios within rounds of one probe class\n\n{}",
        tables.join("\n"),
        growth(&rows),
        criteria::table("median of ratios", "its rounds", list(&rows)),
    ))
}

const FOOTNOTE: &str = "\
The milliseconds of the report are implausible: 0.926 ms for 100,000 reads are 9 ns for a message over netlink and its\n\
answer, 3.082 ms for 100,000 writes are 31 ns for a file, and a system call alone takes longer. Seconds would be 9 µs and\n\
31 µs. Ratios of its figures do not depend on the unit.\n\
Times here follow from the rate of all processes in a round; in the report each performs its 100,000, until the last one is\n\
done. Read/write: as many reads and as many writes.\n\
The report writes each value to a file, as shared-map-files does, here in the directory for temporary files. All other\n\
stores are volatile: their values are lost with the module.\n";

const CONTROL: &str = "\
bpf-map shows what more processes cost by themselves: it has no lock that all of them need, either.\n";

pub fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), units::figures)
}

fn quotient(of: Option<f64>, to: Option<f64>) -> String {
    let ratio = of.zip(to).map(|(of, to)| units::ratio(of / to));
    ratio.unwrap_or_else(|| "–".into())
}

/// Empty in the first line.
pub fn percent(times: [Option<f64>; 6], line: usize) -> String {
    let before = line.checked_sub(1).and_then(|before| times[before]);
    match before.zip(times[line]) {
        Some((before, time)) => format!("{:.0} %", 100.0 * time / before),
        None => String::new(),
    }
}

fn times(operation: Operation, rows: &Rows) -> Table {
    let (_, reported) = operation.reported();
    let mechanisms = operation.compared();
    let mut heads = vec!["processes".to_string(), "reported".into(), String::new()];
    for mechanism in mechanisms {
        heads.extend([mechanism.to_string(), String::new()]);
    }
    heads.extend([BY_FD, BY_NETLINK].map(|ours| format!("{STORE} ÷ {ours}")));
    let columns: Vec<_> = heads
        .iter()
        .map(|head| (head.as_str(), Align::Right))
        .collect();
    let mut table = Table::new(&columns);
    let here = |mechanism: &str| PROCESSES.map(|count| rows.time(operation, count, mechanism));
    for (line, processes) in PROCESSES.into_iter().enumerate() {
        let mut cells = vec![
            processes.to_string(),
            format!("{:.3}", reported[line]),
            percent(reported.map(Some), line),
        ];
        for mechanism in mechanisms {
            let times = here(mechanism);
            cells.extend([ms(times[line]), percent(times, line)]);
        }
        let [store, by_fd, by_netlink] =
            [STORE, BY_FD, BY_NETLINK].map(|mechanism| here(mechanism)[line]);
        cells.extend([by_fd, by_netlink].map(|ours| quotient(store, ours)));
        table.row(cells);
    }
    table
}

/// How the rate of all processes changes from 2 to 10. That of the report follows from its times.
fn growth(rows: &Rows) -> Table {
    let mut columns = vec![("store", Align::Left), ("values are in", Align::Left)];
    columns.extend(Operation::ALL.map(|operation| (operation.name(), Align::Right)));
    let mut table = Table::new(&columns);
    let reported = Operation::ALL.map(|operation| {
        let (_, [_, two, .., ten]) = operation.reported();
        units::ratio(10.0 / ten / (2.0 / two))
    });
    let first = ["reported", "memory and files"].map(String::from);
    table.row(first.into_iter().chain(reported));
    for (mechanism, place) in [
        (STORE_WITH_FILES, "memory and files"),
        (STORE, "memory"),
        (STORE_WITH_RWSEM, "memory"),
        (BY_FD, "memory"),
        (BY_NETLINK, "memory"),
        (BPF, "memory"),
    ] {
        let here = Operation::ALL.map(|operation| {
            let [two, ten] = [2, 10].map(|count| rows.rate(operation, count, mechanism));
            quotient(ten, two)
        });
        let first = [format!("{mechanism}, here"), place.into()];
        table.row(first.into_iter().chain(here));
    }
    table
}

/// One measurement of one mechanism.
type Figure = (Measured, &'static str);

/// Of rates by several processes, and of times. Sets are those of volatile stores.
fn list(rows: &Rows) -> Vec<Criterion> {
    let ratio = |text, of: Figure, to: Figure, limit| Criterion {
        text,
        ratio: rows
            .find(of.0, of.1)
            .zip(rows.find(to.0, to.1))
            .and_then(|(of, to)| of.ratio_within_rounds(to)),
        limit,
    };
    let rate = |operation, processes| Measured::Rate {
        operation,
        processes,
    };
    let grows = |mechanism, operation: Operation, limit| {
        let text = format!(
            "{mechanism}, {}: rate of 10 processes ÷ 2",
            operation.text()
        );
        let [ten, two] = [10, 2].map(|processes| (rate(operation, processes), mechanism));
        ratio(text, ten, two, limit)
    };
    let rates = |of, to, operation: Operation, limit| {
        let text = format!("rate of {of} ÷ {to}, {} by 10 processes", operation.text());
        let ten = rate(operation, 10);
        ratio(text, (ten, of), (ten, to), limit)
    };
    let beside_writer = |mechanism, limit| {
        let text =
            format!("{mechanism}, processor time of a get, beside a writer ÷ beside other work");
        let cost = |beside_writer| (Measured::ReaderCost { beside_writer }, mechanism);
        ratio(text, cost(true), cost(false), limit)
    };
    let times = |what: &str, of: Figure, to: Figure, limit| {
        let text = format!("time of {} ÷ {}, {what}", of.1, to.1);
        ratio(text, of, to, limit)
    };
    let mut list = Vec::new();
    for ours in [BY_FD, BY_NETLINK] {
        list.extend([
            grows(ours, Operation::Get, Limit::AtLeast(0.9)),
            grows(ours, Operation::Set, Limit::AtLeast(0.85)),
            grows(ours, Operation::GetAndSet, Limit::AtLeast(0.85)),
        ]);
    }
    let limits = [(BY_NETLINK, Limit::NotBelow), (BY_FD, Limit::AtLeast(3.0))];
    for (ours, limit) in limits {
        list.extend(Operation::ALL.map(|operation| rates(ours, STORE, operation, limit)));
    }
    list.extend([
        beside_writer(BY_FD, Limit::AtMost(1.2)),
        times(
            "a get",
            (Measured::Get, BY_FD),
            (Measured::Get, BPF),
            Limit::AtMost(1.0),
        ),
        times(
            &format!("one of {BATCH} gets, in a batch ÷ one by one"),
            (Measured::Batch, BY_FD),
            (Measured::Batch, BPF),
            Limit::AtMost(0.3),
        ),
        times(
            "a key of a dump",
            (Measured::Dump, BY_FD),
            (Measured::Dump, BPF),
            Limit::AtMost(1.0),
        ),
        ratio(
            format!("{BY_NETLINK}, time of one of {BATCH} gets in a message ÷ a get"),
            (Measured::Batch, BY_NETLINK),
            (Measured::Get, BY_NETLINK),
            Limit::AtMost(0.15),
        ),
        times(
            "a get",
            (Measured::Get, REDIS),
            (Measured::Get, BY_FD),
            Limit::AtLeast(5.0),
        ),
    ]);
    list.extend(
        Operation::ALL.map(|operation| rates(STORE_WITH_RWSEM, STORE, operation, Limit::None)),
    );
    let separate = [Operation::Get, Operation::Set];
    list.extend(separate.map(|operation| grows(BPF, operation, Limit::None)));
    list.extend(separate.map(|operation| rates(BY_FD, BPF, operation, Limit::None)));
    list.extend(
        [BY_NETLINK, STORE, STORE_WITH_RWSEM].map(|store| beside_writer(store, Limit::None)),
    );
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(measured: Measured, mechanism: &str, median: f64) -> Row {
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            title: measured.title(),
            median: Some(median),
            values: Some(vec![(0, median), (1, median / 2.0), (2, median * 2.0)]),
            ..Row::default()
        }
    }

    fn line<'a>(text: &'a str, parts: &[&str]) -> &'a str {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().find(has).unwrap()
    }

    fn rates(operation: Operation, mechanism: &str, rates: [f64; 2]) -> [Row; 2] {
        let row = |processes, rate| {
            let measured = Measured::Rate {
                operation,
                processes,
            };
            row(measured, mechanism, rate)
        };
        [row(1, rates[0]), row(2, rates[1])]
    }

    #[test]
    fn rates_become_times_beside_those_of_the_report() {
        let rows = [
            rates(Operation::Get, "shared-map", [1e6, 1e6]),
            rates(Operation::Get, "sluice-map-fd", [4e6, 8e6]),
        ];
        let text = text(&rows.concat()).unwrap();
        let two = line(&text, &["0.897", "97 %"]);
        for part in ["200", "200 %", "25.0", "100 %", " 8.0 "] {
            assert!(two.contains(part), "{part} in {two}");
        }
        let ten = line(&text, &["2.363", "127 %"]);
        assert!(ten.contains('–'), "{ten}");
    }

    #[test]
    fn a_get_and_a_set_are_two_calls() {
        let rows = rates(Operation::GetAndSet, "sluice-map-fd", [4e6, 8e6]);
        let text = text(&rows).unwrap();
        assert!(line(&text, &["4.049"]).contains(" 50.0 "), "{text}");
    }

    #[test]
    fn the_growth_of_the_report_follows_from_its_times() {
        let text = text(&rates(Operation::Get, "shared-map", [1e6, 1e6])).unwrap();
        let reported = line(&text, &["reported", "1.9"]);
        assert!(
            reported.contains(" 1.0 ") && reported.contains(" 1.1"),
            "{reported}"
        );
    }

    #[test]
    fn a_criterion_is_met_or_not() {
        let rows = [
            row(Measured::Get, "sluice-map-fd", 100.0),
            row(Measured::Get, "bpf-map", 90.0),
            row(Measured::Get, "redis", 900.0),
            row(Measured::Get, "sluice-map-netlink", 1000.0),
            row(Measured::Batch, "sluice-map-netlink", 100.0),
        ];
        let text = text(&rows).unwrap();
        let bpf = line(&text, &["sluice-map-fd ÷ bpf-map, a get", "≤ 1"]);
        assert!(bpf.contains("1.11") && bpf.ends_with("not met"), "{bpf}");
        let redis = line(&text, &["redis ÷ sluice-map-fd", "≥ 5"]);
        assert!(redis.contains("9.00") && redis.ends_with(" met"), "{redis}");
        let batch = line(&text, &["one of 64 gets in a message", "≤ 0.15"]);
        assert!(batch.contains("0.10") && batch.ends_with(" met"), "{batch}");
    }

    #[test]
    fn ratios_are_those_within_rounds() {
        let beside = |beside_writer| Measured::ReaderCost { beside_writer };
        let mut rows = [
            row(beside(false), "sluice-map-fd", 100.0),
            row(beside(true), "sluice-map-fd", 100.0),
        ];
        rows[1].values = Some(vec![(0, 110.0), (1, 60.0), (2, 200.0)]);
        let text = text(&rows).unwrap();
        let cost = line(&text, &["sluice-map-fd, processor time", "≤ 1.2"]);
        for part in ["1.10", "1.00 … 1.20", " met"] {
            assert!(cost.contains(part), "{part} in {cost}");
        }
    }
}
