// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of report 4, a proposal of channels for io_uring: its figures, those of this run, and their ratios. The
//! figures of the report are those of its author's machine, with 32 processors; it does not say whether its receivers
//! slept. Costs here are the processor time of the sender.

use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::criteria::{self, Criterion, Limit, of_medians};
use crate::harness::rounds::ReceiverState;
use crate::harness::rows::Row;

pub const SUITE: &str = "fanout";

/// Whose processor time is measured, where it is not the time of the whole exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Sender,
    /// One that reads a word of each cache line of the message.
    Receiver,
}

/// The conditions of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    pub receivers: usize,
    pub size: usize,
    pub state: ReceiverState,
    pub cost: Cost,
}

impl Conditions {
    const fn new(state: ReceiverState, receivers: usize, size: usize) -> Self {
        Self {
            receivers,
            size,
            state,
            cost: Cost::Sender,
        }
    }

    const fn receiving(size: usize) -> Self {
        Self {
            cost: Cost::Receiver,
            ..Self::new(ReceiverState::Busy, 1, size)
        }
    }

    pub fn title(self) -> String {
        let receivers = match self.receivers {
            1 => "1 receiver".into(),
            many => format!("{many} receivers"),
        };
        let what = match (self.state, self.cost) {
            (ReceiverState::Streaming, _) => "streaming".into(),
            (state, Cost::Sender) => format!("{}, cost of sending", state.name()),
            (state, Cost::Receiver) => format!("{}, cost of receiving", state.name()),
        };
        format!("{receivers} {} {what}", units::size(self.size))
    }
}

const SIZES: [usize; 6] = [64, 256, 1024, 4096, 16384, 32768];
const RECEIVERS: [usize; 5] = [1, 2, 4, 8, 16];

/// The columns of the report, and the mechanisms here that correspond to them.
const COLUMNS: [(&str, &str); 4] = [
    ("pipe", "pipe"),
    ("unix sock", "unix-stream"),
    ("shm+eventfd", "eventfd-shm"),
    ("io_uring", "sluice-bus"),
];
/// The first table of the report: point to point, ns per message.
const POINT_TO_POINT: [[f64; 4]; 6] = [
    [212.0, 436.0, 222.0, 632.0],
    [240.0, 845.0, 216.0, 597.0],
    [424.0, 613.0, 550.0, 640.0],
    [673.0, 1_326.0, 350.0, 848.0],
    [1_982.0, 1_477.0, 2_169.0, 1_893.0],
    [4_777.0, 3_667.0, 2_443.0, 3_185.0],
];
/// The second one: broadcast to 16 receivers, ns per message of the sender.
const BROADCAST: [[f64; 4]; 6] = [
    [28_550.0, 32_504.0, 5_970.0, 5_674.0],
    [27_588.0, 34_777.0, 5_429.0, 6_600.0],
    [28_072.0, 34_845.0, 6_542.0, 6_095.0],
    [37_277.0, 46_154.0, 11_520.0, 6_367.0],
    [57_998.0, 58_348.0, 34_969.0, 7_592.0],
    [89_404.0, 83_496.0, 93_082.0, 8_202.0],
];
/// The third one: 64 bytes to 1 and to 16 receivers.
const SCALING: [(&str, &str, [f64; 2]); 5] = [
    ("pipe", "pipe", [212.0, 28_550.0]),
    ("unix sock", "unix-stream", [436.0, 32_504.0]),
    ("shm+eventfd", "eventfd-shm", [222.0, 5_970.0]),
    ("io_uring bcast", "sluice-bus", [651.0, 5_674.0]),
    ("io_uring mcast", "sluice-bus-multicast", [569.0, 1_406.0]),
];
/// The fourth one: multicast to 1, 2, 4, 8 and 16 receivers.
const MULTICAST: [(usize, [f64; 5]); 3] = [
    (64, [569.0, 557.0, 726.0, 916.0, 1_406.0]),
    (4096, [825.0, 763.0, 829.0, 1_395.0, 1_630.0]),
    (32768, [3_067.0, 3_107.0, 3_218.0, 3_576.0, 4_415.0]),
];

/// The rows of this suite with results.
struct Rows<'a>(Vec<&'a Row>);

impl Rows<'_> {
    fn find(&self, conditions: Conditions, mechanism: &str) -> Option<&Row> {
        let title = conditions.title();
        let mut rows = self.0.iter();
        rows.find(|row| row.title == title && row.mechanism == mechanism)
            .copied()
    }

    /// Processor time of a message, in nanoseconds.
    fn cost(&self, conditions: Conditions, mechanism: &str) -> Option<f64> {
        self.find(conditions, mechanism)?.median
    }

    /// Elapsed time of a message of a stream, in nanoseconds.
    fn time(&self, receivers: usize, size: usize, mechanism: &str) -> Option<f64> {
        let conditions = Conditions::new(ReceiverState::Streaming, receivers, size);
        let rate = self.find(conditions, mechanism)?.msgs_per_s?;
        Some(1e9 / rate)
    }
}

/// None if the suite was not measured.
pub fn text(rows: &[Row]) -> Option<String> {
    let rows = Rows(super::measured_rows(SUITE, rows)?);
    Some(format!(
        "Report 4, table 1: point to point, ns per message; here the elapsed time of a stream\n\n{}\n\
         Report 4, table 2: broadcast to 16 receivers, ns per message of the sender; here its processor time, with busy\n\
         receivers / with sleeping receivers\n\n{}\n\
         Report 4, table 3: 1 and 16 receivers, 64 B; here with busy receivers\n\n{}\n\
         Report 4, table 4: multicast, ns per message of the sender; here with busy receivers\n\n{}\n\
         Criteria\n\n{}",
        point_to_point(&rows),
        broadcast(&rows),
        scaling(&rows),
        multicast(&rows),
        criteria::table(
            "ratio of medians",
            "between the extreme rounds",
            list(&rows)
        ),
    ))
}

fn ns(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |ns| format!("{ns:.0}"))
}

fn times(of: Option<f64>, to: Option<f64>) -> String {
    let ratio = of.zip(to).map(|(of, to)| units::ratio(of / to));
    ratio.unwrap_or_else(|| "–".into())
}

/// A table with a row for each size: the figures of the report and of this run, and pipe relative to the last column.
fn by_size(
    figures: &[[f64; 4]; 6],
    cell: impl Fn(usize, &str) -> String,
    here: impl Fn(usize, &str) -> Option<f64>,
) -> Table {
    let mut heads = vec!["size".to_string()];
    for (reported, mechanism) in COLUMNS {
        heads.extend([
            format!("{reported}, reported"),
            format!("{mechanism}, here"),
        ]);
    }
    heads.extend(["pipe ÷ io_uring, reported", "pipe ÷ bus, here"].map(String::from));
    let columns: Vec<_> = heads
        .iter()
        .map(|head| (head.as_str(), Align::Right))
        .collect();
    let mut table = Table::new(&columns);
    for (size, reported) in SIZES.into_iter().zip(figures) {
        let mut cells = vec![units::size(size)];
        for ((_, mechanism), figure) in COLUMNS.into_iter().zip(reported) {
            cells.extend([format!("{figure:.0}"), cell(size, mechanism)]);
        }
        cells.push(units::ratio(reported[0] / reported[3]));
        cells.push(times(here(size, "pipe"), here(size, "sluice-bus")));
        table.row(cells);
    }
    table
}

fn point_to_point(rows: &Rows) -> Table {
    let here = |size, mechanism: &str| {
        // The report measures unicast.
        let mechanism = match mechanism {
            "sluice-bus" => "sluice-bus-unicast",
            other => other,
        };
        rows.time(1, size, mechanism)
    };
    by_size(
        &POINT_TO_POINT,
        |size, mechanism| ns(here(size, mechanism)),
        here,
    )
}

fn broadcast(rows: &Rows) -> Table {
    let here =
        |state, size, mechanism: &str| rows.cost(Conditions::new(state, 16, size), mechanism);
    let cell = |size, mechanism: &str| {
        let [busy, asleep] = [ReceiverState::Busy, ReceiverState::Asleep]
            .map(|state| ns(here(state, size, mechanism)));
        format!("{busy} / {asleep}")
    };
    by_size(&BROADCAST, cell, |size, mechanism| {
        here(ReceiverState::Busy, size, mechanism)
    })
}

fn scaling(rows: &Rows) -> Table {
    let mut table = Table::new(&[
        ("mechanism", Align::Left),
        ("1, reported", Align::Right),
        ("16, reported", Align::Right),
        ("ratio, reported", Align::Right),
        ("1, here", Align::Right),
        ("16, here", Align::Right),
        ("ratio, here", Align::Right),
    ]);
    for (name, mechanism, [one, many]) in SCALING {
        let here = [1, 16].map(|receivers| {
            rows.cost(
                Conditions::new(ReceiverState::Busy, receivers, 64),
                mechanism,
            )
        });
        table.row([
            format!("{name}: {mechanism}"),
            format!("{one:.0}"),
            format!("{many:.0}"),
            units::ratio(many / one),
            ns(here[0]),
            ns(here[1]),
            times(here[1], here[0]),
        ]);
    }
    table
}

fn multicast(rows: &Rows) -> Table {
    let heads = RECEIVERS.map(|receivers| format!("{receivers}: reported, here"));
    let mut columns = vec![("size", Align::Right)];
    columns.extend(heads.iter().map(|head| (head.as_str(), Align::Right)));
    columns.push(("16 ÷ 1: reported, here", Align::Right));
    let mut table = Table::new(&columns);
    for (size, reported) in MULTICAST {
        let here = RECEIVERS.map(|receivers| {
            let conditions = Conditions::new(ReceiverState::Busy, receivers, size);
            rows.cost(conditions, "sluice-bus-multicast")
        });
        let pairs = reported.iter().zip(here);
        let cells = pairs.map(|(reported, here)| format!("{reported:.0}, {}", ns(here)));
        let ratio = format!(
            "{}, {}",
            units::ratio(reported[4] / reported[0]),
            times(here[4], here[0])
        );
        table.row([units::size(size)].into_iter().chain(cells).chain([ratio]));
    }
    table
}

const BUS: &str = "sluice-bus";

/// All criteria. Costs are those of the sender with busy receivers unless the text says otherwise.
fn list(rows: &Rows) -> Vec<Criterion> {
    let spread = |conditions, mechanism: &str| {
        rows.find(conditions, mechanism)
            .and_then(Row::spread_of_rounds)
    };
    let busy = |receivers, size| Conditions::new(ReceiverState::Busy, receivers, size);
    let streaming = |receivers, size| Conditions::new(ReceiverState::Streaming, receivers, size);
    let within_rounds = |conditions, of: &str, to: &str| {
        let (of, to) = (rows.find(conditions, of), rows.find(conditions, to));
        of.zip(to).and_then(|(of, to)| of.ratio_within_rounds(to))
    };
    let between = |conditions: Conditions, of: &str, to: &str, limit| Criterion {
        text: format!("{of} ÷ {to}, {}", conditions.title()),
        ratio: within_rounds(conditions, of, to),
        limit,
    };
    // The rate of the second divided by that of the first is the time of the first divided by that of the second.
    let in_time = |conditions: Conditions, of: &str, to: &str, limit| Criterion {
        text: format!("time of {of} ÷ {to}, {}", conditions.title()),
        ratio: within_rounds(conditions, to, of),
        limit,
    };
    // Different numbers of receivers are not measured in the same rounds.
    let growth = |mechanism: &str, size, limit| Criterion {
        text: format!("{mechanism}, 16 receivers ÷ 1, {}", units::size(size)),
        ratio: of_medians(
            spread(busy(16, size), mechanism),
            spread(busy(1, size), mechanism),
        ),
        limit,
    };
    let mut list = vec![
        between(busy(16, 32768), "pipe", BUS, Limit::AtLeast(8.0)),
        between(busy(16, 64), "pipe", BUS, Limit::AtLeast(6.0)),
    ];
    for size in [64, 256, 1024, 4096] {
        for rival in ["eventfd-shm", "eventfd-shm-shared"] {
            list.push(between(busy(16, size), rival, BUS, Limit::AtLeast(1.2)));
        }
    }
    list.push(between(
        busy(16, 32768),
        "eventfd-shm",
        BUS,
        Limit::AtLeast(8.0),
    ));
    list.push(between(
        busy(16, 32768),
        "eventfd-shm-shared",
        BUS,
        Limit::None,
    ));
    list.push(between(busy(16, 32768), "pipe-tee", BUS, Limit::None));
    list.push(growth(BUS, 64, Limit::AtMost(1.5)));
    for size in [64, 4096, 32768] {
        list.push(growth("sluice-bus-multicast", size, Limit::AtMost(1.5)));
    }
    for mechanism in ["sluice-bus-unicast", BUS] {
        list.push(in_time(
            streaming(1, 64),
            mechanism,
            "pipe",
            Limit::NotAbove,
        ));
    }
    for mechanism in ["sluice-bus-unicast", BUS] {
        list.push(in_time(
            streaming(1, 32768),
            "pipe",
            mechanism,
            Limit::AtLeast(1.5),
        ));
    }
    list.push(between(
        streaming(16, 32768),
        BUS,
        "pipe",
        Limit::AtLeast(1.3),
    ));
    let receiving = Conditions::receiving(32768);
    list.push(between(
        receiving,
        "sluice-bus-map",
        BUS,
        Limit::AtMost(0.6),
    ));
    for size in [64, 32768] {
        list.push(between(
            busy(16, size),
            "sluice-bus-uring",
            BUS,
            Limit::None,
        ));
        list.push(between(
            Conditions::receiving(size),
            "sluice-bus-uring",
            BUS,
            Limit::None,
        ));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(conditions: Conditions, mechanism: &str, median: f64) -> Row {
        Row {
            suite: SUITE.into(),
            mechanism: mechanism.into(),
            label: mechanism.into(),
            title: conditions.title(),
            median: Some(median),
            spread: Some([median / 2.0, median * 2.0]),
            values: Some(
                [1.0, 0.5, 2.0]
                    .map(|factor| factor * median)
                    .into_iter()
                    .enumerate()
                    .collect(),
            ),
            msgs_per_s: Some(median / conditions.size as f64),
            ..Row::default()
        }
    }

    fn line<'a>(text: &'a str, parts: [&str; 2]) -> &'a str {
        let has = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().find(has).unwrap()
    }

    #[test]
    fn figures_stand_beside_those_of_the_report() {
        let busy = Conditions::new(ReceiverState::Busy, 16, 64);
        let rows = [row(busy, "pipe", 5000.0), row(busy, "sluice-bus", 500.0)];
        let text = text(&rows).unwrap();
        let figures = line(&text, ["28550", "5000 / –"]);
        assert!(
            figures.contains(" 5.0 ") && figures.trim_end().ends_with(" 10"),
            "{figures}"
        );
        let criterion = line(&text, ["pipe ÷ sluice-bus, 16 receivers 64 B", "≥ 6"]);
        assert!(
            criterion.contains("met") && criterion.contains("10.0 … 10.0"),
            "{criterion}"
        );
    }

    #[test]
    fn growth_is_a_ratio_of_medians() {
        let busy = |receivers| Conditions::new(ReceiverState::Busy, receivers, 64);
        let rows = [row(busy(16), BUS, 400.0), row(busy(1), BUS, 200.0)];
        let text = text(&rows).unwrap();
        let criterion = line(&text, ["sluice-bus, 16 receivers ÷ 1, 64 B", "≤ 1.5"]);
        assert!(
            criterion.contains("not met") && criterion.contains("0.50 … 8.00"),
            "{criterion}"
        );
    }

    #[test]
    fn a_ratio_of_times_is_that_of_rates_turned_round() {
        let streaming = Conditions::new(ReceiverState::Streaming, 1, 64);
        let rows = [
            row(streaming, "pipe", 1e9),
            row(streaming, "sluice-bus", 5e8),
            row(streaming, "sluice-bus-unicast", 1e8),
        ];
        let text = text(&rows).unwrap();
        for (mechanism, ratio, verdict) in [
            ("sluice-bus", "2.00", "not met"),
            ("sluice-bus-unicast", "10.0", "not met"),
        ] {
            let criterion = line(&text, [&format!("time of {mechanism} ÷ pipe"), "≤ 1"]);
            assert!(
                criterion.contains(ratio) && criterion.contains(verdict),
                "{criterion}"
            );
        }
        assert!(line(&text, ["436", "632"]).contains(" 64 "), "{text}");
    }
}
