// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of the reports, each with the verdict of this run.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::{Measured, Rows, model};
use crate::harness::class::Class;
use crate::harness::rounds::{Activity, Neighbours};
use crate::harness::rows::Row;
use crate::harness::samples::Summary;

/// A verdict, and the figures of this run that it follows from.
type Finding = (Verdict, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Confirmed,
    Refuted,
    /// The rounds of the two overlap.
    WithinSpread,
    NotMeasured,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::Confirmed => "confirmed here",
            Self::Refuted => "refuted here",
            Self::WithinSpread => "open: within the spread",
            Self::NotMeasured => "not measured",
        }
    }

    fn of(holds: bool) -> Self {
        match holds {
            true => Self::Confirmed,
            false => Self::Refuted,
        }
    }
}

/// The test of a claim.
enum Test {
    /// The median of the first is smaller, which is better for latencies.
    Below(Measured, &'static str, &'static str),
    /// The median of the first is larger, which is better for rates.
    Above(Measured, &'static str, &'static str),
    /// The two are equal within this factor.
    Close(Measured, &'static str, &'static str, f64),
    /// The median of the first is smaller by a factor in this range.
    Times(Measured, &'static str, &'static str, [f64; 2]),
    Other(fn(&[Row]) -> Option<Finding>),
}

struct Claim {
    report: &'static str,
    text: &'static str,
    test: Test,
}

use Measured as M;

const fn claim(report: &'static str, text: &'static str, test: Test) -> Claim {
    Claim { report, text, test }
}

#[rustfmt::skip]
const CLAIMS: [Claim; 18] = [
    claim("1", "a 1-byte round trip takes less than over the pipe (by 25 %)",
        Test::Below(M::RTT_1, "sluice-pipe", "pipe")),
    claim("1", "messages of 1 KB, one after the other, go faster than over the pipe (by 28 %)",
        Test::Below(M::RTT_1K, "sluice-pipe", "pipe")),
    claim("1", "shared memory is an order of magnitude faster at 1 byte",
        Test::Times(M::RTT_1, "shm-spin (spins)", "sluice-pipe", [5.0, 20.0])),
    claim("1", "shared memory is an order of magnitude faster at 1 KB",
        Test::Times(M::RTT_1K, "shm-spin (spins)", "sluice-pipe", [5.0, 20.0])),
    claim("1", "the standard deviation is comparable with the mean",
        Test::Other(deviation_is_like_the_mean)),
    claim("1", "the worst round trip is more than ten times the best",
        Test::Other(worst_is_ten_times_the_best)),
    claim("1", "at 1 byte the bottleneck is the system call, not memory",
        Test::Other(bytes_are_negligible)),
    claim("1", "MyIPC streams 1 KB slower than the pipe",
        Test::Below(M::STREAM_1K, "myipc", "pipe")),
    claim("1", "a driver with one buffer for all gives bytes to the wrong group, one per cgroup does not",
        Test::Other(only_the_shared_one_misdelivers)),
    claim("1", "groups do not disturb each other: the rate beside 7 stalled pairs is that alone",
        Test::Other(stalled_pairs_cost_nothing)),
    claim("2", "MyIPC's round trip is slightly shorter than the pipe's",
        Test::Below(M::RTT_1_LONG, "myipc", "pipe")),
    claim("2", "MyIPC's round trip is close to that of shared memory with semaphores",
        Test::Close(M::RTT_1_LONG, "myipc", "shm-sem", 1.25)),
    claim("2", "shared memory with semaphores has the shortest round trip",
        Test::Other(semaphores_are_first)),
    claim("2", "at 64 bytes the pipe streams faster than shared memory with semaphores",
        Test::Above(M::STREAM_64, "pipe", "shm-sem")),
    claim("2", "at 256 bytes shared memory has overtaken the pipe (1.17 times)",
        Test::Above(M::STREAM_256, "shm-sem", "pipe")),
    claim("2", "at 1024 bytes shared memory streams substantially faster (1.11 times)",
        Test::Above(M::STREAM_1K, "shm-sem", "pipe")),
    claim("2", "at 1 KB the per-cgroup driver stays below shared memory",
        Test::Below(M::STREAM_1K, "sluice-pipe", "shm-sem")),
    claim("2", "of 64 MB in 512-byte chunks MyIPC has the lowest rate, the pipe the highest",
        Test::Other(bulk_order)),
];

pub fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("report", Align::Left),
        ("claim", Align::Left),
        ("verdict", Align::Left),
        ("result here", Align::Left),
    ]);
    for claim in &CLAIMS {
        let finding = evaluate(&claim.test, rows);
        let (verdict, reason) = finding.unwrap_or((Verdict::NotMeasured, String::new()));
        table.row([
            claim.report.into(),
            claim.text.into(),
            verdict.name().into(),
            reason,
        ]);
    }
    format!("Claims of the reports\n\n{table}")
}

/// None without the results that the claim is about.
fn evaluate(test: &Test, rows: &[Row]) -> Option<Finding> {
    let of_suite = Rows::of(rows);
    let (measured, ours, theirs) = match *test {
        Test::Below(measured, ours, theirs)
        | Test::Above(measured, ours, theirs)
        | Test::Close(measured, ours, theirs, _)
        | Test::Times(measured, ours, theirs, _) => (measured, ours, theirs),
        Test::Other(test) => return test(rows),
    };
    let ours = Figure::of(&of_suite, measured, ours)?;
    let theirs = Figure::of(&of_suite, measured, theirs)?;
    if ours.class != theirs.class {
        return Some((
            Verdict::NotMeasured,
            "not at the same distance of the processors".into(),
        ));
    }
    let times = theirs.spread.median / ours.spread.median;
    let against = ours.against(&theirs);
    Some(match *test {
        Test::Above(..) => (theirs.is_below(&ours), against),
        Test::Close(.., factor) => {
            let is_close = (1.0 / factor..=factor).contains(&times);
            (Verdict::of(is_close), against)
        }
        Test::Times(.., [least, most]) => {
            let holds = (least..=most).contains(&times);
            (Verdict::of(holds), format!("{times:.1} times"))
        }
        Test::Below(..) | Test::Other(_) => (ours.is_below(&theirs), against),
    })
}

/// A median with its rounds.
struct Figure<'a> {
    label: &'a str,
    class: Option<Class>,
    spread: Spread,
}

impl<'a> Figure<'a> {
    fn of(rows: &Rows<'a>, measured: Measured, label: &str) -> Option<Self> {
        let row = rows.find(measured, label)?;
        Some(Self {
            label: &row.label,
            class: row.probe_class,
            spread: row.spread_of_rounds()?,
        })
    }

    fn is_below(&self, other: &Self) -> Verdict {
        match self.spread.overlaps(&other.spread) {
            // Not comparable.
            _ if self.class != other.class => Verdict::NotMeasured,
            true => Verdict::WithinSpread,
            false => Verdict::of(self.spread.median < other.spread.median),
        }
    }

    fn against(&self, other: &Self) -> String {
        format!(
            "{} ÷ {} is {}",
            self.label,
            other.label,
            units::ratio(self.spread.median / other.spread.median)
        )
    }
}

/// The latencies of the pipe per cgroup.
fn latencies(rows: &[Row]) -> Option<Summary> {
    Rows::of(rows).find(M::RTT_1, "sluice-pipe")?.distribution
}

fn deviation_is_like_the_mean(rows: &[Row]) -> Option<Finding> {
    let all = latencies(rows)?;
    let ratio = all.sd / all.mean;
    let verdict = Verdict::of((0.5..=2.0).contains(&ratio));
    Some((verdict, format!("{} times the mean", units::ratio(ratio))))
}

fn worst_is_ten_times_the_best(rows: &[Row]) -> Option<Finding> {
    let all = latencies(rows)?;
    let ratio = all.max as f64 / all.min.max(1) as f64;
    Some((Verdict::of(ratio > 10.0), format!("{ratio:.0} times")))
}

/// By the model that is fitted to the streams: the share of one byte in the time of a message.
fn bytes_are_negligible(rows: &[Row]) -> Option<Finding> {
    let points = model::points(&Rows::of(rows), "sluice-pipe");
    let share = model::Line::through(&points)?.share_of_bytes(1.0);
    let percent = 100.0 * share;
    let text = format!("a byte takes {percent:.1} % of the time of its message");
    Some((Verdict::of(share < 0.05), text))
}

fn semaphores_are_first(rows: &[Row]) -> Option<Finding> {
    let rows = Rows::of(rows);
    let figure = |label| Figure::of(&rows, M::RTT_1_LONG, label);
    let ours = figure("shm-sem")?;
    // None of them may be missing.
    let others = ["pipe", "myipc", "sluice-pipe"].map(figure);
    let others: Option<Vec<Figure>> = others.into_iter().collect();
    let best = others?
        .into_iter()
        .min_by(|a, b| a.spread.median.total_cmp(&b.spread.median))?;
    Some((ours.is_below(&best), ours.against(&best)))
}

fn bulk_order(rows: &[Row]) -> Option<Finding> {
    let rows = Rows::of(rows);
    let rate = |label| Some((label, rows.find(M::BULK, label)?.bytes_per_s?));
    let mut order = [rate("myipc")?, rate("shm-sem")?, rate("pipe")?];
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let verdict = Verdict::of(order[0].0 == "myipc" && order[2].0 == "pipe");
    let text = order.map(|(label, rate)| format!("{label} {}", units::bytes_per_second(rate)));
    Some((verdict, text.join(", ")))
}

fn only_the_shared_one_misdelivers(rows: &[Row]) -> Option<Finding> {
    let share = |mechanism: &str| {
        let of_mechanism = rows.iter().filter(|row| row.mechanism == mechanism);
        of_mechanism
            .filter_map(|row| row.misdelivered)
            .max_by(f64::total_cmp)
    };
    let (shared, ours) = (share("myipc")?, share("sluice-pipe")?);
    let verdict = Verdict::of(shared > 0.0 && ours == 0.0);
    let [shared, ours] = [shared, ours].map(|share| 100.0 * share);
    let text = format!("misdelivered: {shared:.0} % with MyIPC, {ours:.0} % with sluice-pipe");
    Some((verdict, text))
}

const SEVEN_STALLED: Neighbours = Neighbours {
    pairs: 7,
    activity: Some(Activity::Stalled),
};

fn stalled_pairs_cost_nothing(rows: &[Row]) -> Option<Finding> {
    let beside = rows
        .iter()
        .find(|row| row.mechanism == "sluice-pipe" && row.neighbours == Some(SEVEN_STALLED));
    let ratio = beside?.ratio.as_ref()?;
    let verdict = match (ratio.median >= 0.95, ratio.max >= 0.95) {
        (true, _) => Verdict::Confirmed,
        (false, true) => Verdict::WithinSpread,
        (false, false) => Verdict::Refuted,
    };
    let share = units::ratio(ratio.median);
    Some((verdict, format!("{share} of the rate alone")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rows::Ratio;
    use crate::reports::tests::row;

    fn verdict(test: Test, rows: &[Row]) -> Verdict {
        evaluate(&test, rows).map_or(Verdict::NotMeasured, |(verdict, _)| verdict)
    }

    fn two(ours: [f64; 2], theirs: [f64; 2]) -> [Row; 2] {
        let middle = |range: [f64; 2]| (range[0] + range[1]) / 2.0;
        [
            row(M::RTT_1, "sluice-pipe", middle(ours), ours),
            row(M::RTT_1, "pipe", middle(theirs), theirs),
        ]
    }

    #[test]
    fn below_and_above_require_disjoint_rounds() {
        let below = || Test::Below(M::RTT_1, "sluice-pipe", "pipe");
        let above = || Test::Above(M::RTT_1, "sluice-pipe", "pipe");
        let rows = two([1.0, 2.0], [3.0, 4.0]);
        assert_eq!(verdict(below(), &rows), Verdict::Confirmed);
        assert_eq!(verdict(above(), &rows), Verdict::Refuted);
        let rows = two([1.0, 3.5], [3.0, 4.0]);
        assert_eq!(verdict(below(), &rows), Verdict::WithinSpread);
        assert_eq!(verdict(below(), &[]), Verdict::NotMeasured);
    }

    #[test]
    fn factors_are_compared_with_the_claim() {
        let rows = two([1.0, 1.0], [10.0, 10.0]);
        let times = |range| Test::Times(M::RTT_1, "sluice-pipe", "pipe", range);
        assert_eq!(verdict(times([5.0, 20.0]), &rows), Verdict::Confirmed);
        assert_eq!(verdict(times([11.0, 20.0]), &rows), Verdict::Refuted);
        let close = |factor| Test::Close(M::RTT_1, "sluice-pipe", "pipe", factor);
        assert_eq!(verdict(close(1.25), &rows), Verdict::Refuted);
        assert_eq!(verdict(close(11.0), &rows), Verdict::Confirmed);
    }

    #[test]
    fn the_order_of_bulk_rates_is_evaluated() {
        let rate = |label, rate| Row {
            bytes_per_s: Some(rate),
            ..row(M::BULK, label, rate, [rate, rate])
        };
        let rows = [rate("myipc", 1e6), rate("shm-sem", 2e6), rate("pipe", 3e6)];
        assert_eq!(bulk_order(&rows).unwrap().0, Verdict::Confirmed);
        let rows = [rate("myipc", 1e6), rate("shm-sem", 4e6), rate("pipe", 3e6)];
        assert_eq!(bulk_order(&rows).unwrap().0, Verdict::Refuted);
    }

    #[test]
    fn isolation_is_evaluated_by_its_suite() {
        let beside = |median, max| Row {
            mechanism: "sluice-pipe".into(),
            neighbours: Some(SEVEN_STALLED),
            ratio: Some(Ratio {
                to: "alone".into(),
                across_waiting: false,
                median,
                min: 0.5,
                max,
                common_rounds: None,
            }),
            ..Row::default()
        };
        let stalled = |median, max| {
            stalled_pairs_cost_nothing(&[beside(median, max)])
                .unwrap()
                .0
        };
        assert_eq!(stalled(0.97, 1.1), Verdict::Confirmed);
        assert_eq!(stalled(0.9, 1.1), Verdict::WithinSpread);
        assert_eq!(stalled(0.8, 0.9), Verdict::Refuted);
        let share = |mechanism: &str, share| Row {
            mechanism: mechanism.into(),
            misdelivered: Some(share),
            ..Row::default()
        };
        let rows = [share("myipc", 0.5), share("sluice-pipe", 0.0)];
        assert_eq!(
            only_the_shared_one_misdelivers(&rows).unwrap().0,
            Verdict::Confirmed
        );
        let rows = [share("myipc", 0.5), share("sluice-pipe", 0.1)];
        assert_eq!(
            only_the_shared_one_misdelivers(&rows).unwrap().0,
            Verdict::Refuted
        );
    }

    #[test]
    fn every_claim_gets_a_line_even_without_figures() {
        let text = text(&[]);
        assert_eq!(
            text.matches(Verdict::NotMeasured.name()).count(),
            CLAIMS.len()
        );
    }
}
