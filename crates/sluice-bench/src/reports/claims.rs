// SPDX-License-Identifier: MIT OR Apache-2.0
//! The claims of the reports, each with the verdict of this run.

use sluice_testkit::spread::Spread;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::{Measured, Rows, model};
use crate::harness::rows::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Confirmed,
    Refuted,
    /// The rounds of the two overlap.
    WithinSpread,
    NotMeasured,
}

impl Verdict {
    fn name(self) -> &'static str {
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
    Other(fn(&[Row]) -> (Verdict, String)),
}

struct Claim {
    report: &'static str,
    text: &'static str,
    test: Test,
}

use Measured as M;

const CLAIMS: [Claim; 18] = [
    Claim {
        report: "1",
        text: "a 1-byte round trip takes less than over the pipe (by 25 %)",
        test: Test::Below(M::RTT_1, "sluice-pipe", "pipe"),
    },
    Claim {
        report: "1",
        text: "messages of 1 KB, one after the other, go faster than over the pipe (by 28 %)",
        test: Test::Below(M::RTT_1K, "sluice-pipe", "pipe"),
    },
    Claim {
        report: "1",
        text: "shared memory is an order of magnitude faster at 1 byte",
        test: Test::Times(M::RTT_1, "shm-spin (spins)", "sluice-pipe", [5.0, 20.0]),
    },
    Claim {
        report: "1",
        text: "shared memory is an order of magnitude faster at 1 KB",
        test: Test::Times(M::RTT_1K, "shm-spin (spins)", "sluice-pipe", [5.0, 20.0]),
    },
    Claim {
        report: "1",
        text: "the standard deviation is comparable with the mean",
        test: Test::Other(deviation_is_like_the_mean),
    },
    Claim {
        report: "1",
        text: "the worst round trip is more than ten times the best",
        test: Test::Other(worst_is_ten_times_the_best),
    },
    Claim {
        report: "1",
        text: "at 1 byte the bottleneck is the system call, not memory",
        test: Test::Other(bytes_are_negligible),
    },
    Claim {
        report: "1",
        text: "MyIPC streams 1 KB slower than the pipe",
        test: Test::Below(M::STREAM_1K, "myipc", "pipe"),
    },
    Claim {
        report: "1",
        text: "a driver with one buffer for all gives bytes to the wrong group, one per cgroup does not",
        test: Test::Other(only_the_shared_one_misdelivers),
    },
    Claim {
        report: "1",
        text: "groups do not disturb each other: the rate beside 7 stalled pairs is that alone",
        test: Test::Other(stalled_pairs_cost_nothing),
    },
    Claim {
        report: "2",
        text: "MyIPC's round trip is slightly shorter than the pipe's",
        test: Test::Below(M::RTT_1_LONG, "myipc", "pipe"),
    },
    Claim {
        report: "2",
        text: "MyIPC's round trip is close to that of shared memory with semaphores",
        test: Test::Close(M::RTT_1_LONG, "myipc", "shm-sem", 1.25),
    },
    Claim {
        report: "2",
        text: "shared memory with semaphores has the shortest round trip",
        test: Test::Other(semaphores_are_first),
    },
    Claim {
        report: "2",
        text: "at 64 bytes the pipe streams faster than shared memory with semaphores",
        test: Test::Above(M::STREAM_64, "pipe", "shm-sem"),
    },
    Claim {
        report: "2",
        text: "at 256 bytes shared memory has overtaken the pipe (1.17 times)",
        test: Test::Above(M::STREAM_256, "shm-sem", "pipe"),
    },
    Claim {
        report: "2",
        text: "at 1024 bytes shared memory streams substantially faster (1.11 times)",
        test: Test::Above(M::STREAM_1K, "shm-sem", "pipe"),
    },
    Claim {
        report: "2",
        text: "at 1 KB the per-cgroup driver stays below shared memory",
        test: Test::Below(M::STREAM_1K, "sluice-pipe", "shm-sem"),
    },
    Claim {
        report: "2",
        text: "of 64 MB in 512-byte chunks MyIPC has the lowest rate, the pipe the highest",
        test: Test::Other(bulk_order),
    },
];

pub fn text(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        ("report", Align::Left),
        ("claim", Align::Left),
        ("verdict", Align::Left),
        ("result here", Align::Left),
    ]);
    for claim in &CLAIMS {
        let (verdict, reason) = evaluate(&claim.test, rows);
        table.row([
            claim.report.into(),
            claim.text.into(),
            verdict.name().into(),
            reason,
        ]);
    }
    format!("Claims of the reports\n\n{table}")
}

fn evaluate(test: &Test, rows: &[Row]) -> (Verdict, String) {
    let of_suite = Rows::of(rows);
    let pair = |measured, ours, theirs| {
        Some((
            Figure::of(&of_suite, measured, ours)?,
            Figure::of(&of_suite, measured, theirs)?,
        ))
    };
    let missing = (Verdict::NotMeasured, String::new());
    match *test {
        Test::Below(measured, ours, theirs) => pair(measured, ours, theirs)
            .map_or(missing, |(ours, theirs)| {
                (ours.is_below(&theirs), ours.against(&theirs))
            }),
        Test::Above(measured, ours, theirs) => pair(measured, ours, theirs)
            .map_or(missing, |(ours, theirs)| {
                (theirs.is_below(&ours), ours.against(&theirs))
            }),
        Test::Close(measured, ours, theirs, factor) => {
            pair(measured, ours, theirs).map_or(missing, |(ours, theirs)| {
                let ratio = ours.spread.median / theirs.spread.median;
                (
                    Verdict::of((1.0 / factor..=factor).contains(&ratio)),
                    ours.against(&theirs),
                )
            })
        }
        Test::Times(measured, ours, theirs, [least, most]) => {
            pair(measured, ours, theirs).map_or(missing, |(ours, theirs)| {
                let times = theirs.spread.median / ours.spread.median;
                (
                    Verdict::of((least..=most).contains(&times)),
                    format!("{times:.1} times"),
                )
            })
        }
        Test::Other(test) => test(rows),
    }
}

/// A median with its rounds.
struct Figure<'a> {
    label: &'a str,
    spread: Spread,
}

impl<'a> Figure<'a> {
    fn of(rows: &Rows<'a>, measured: Measured, label: &str) -> Option<Self> {
        let row = rows.find(measured, label)?;
        let [min, max] = row.spread?;
        Some(Self {
            label: &row.label,
            spread: Spread {
                median: row.median?,
                min,
                max,
            },
        })
    }

    fn is_below(&self, other: &Self) -> Verdict {
        match self.spread.overlaps(&other.spread) {
            true => Verdict::WithinSpread,
            false => Verdict::of(self.spread.median < other.spread.median),
        }
    }

    fn against(&self, other: &Self) -> String {
        format!(
            "{} ÷ {} is {:.2}",
            self.label,
            other.label,
            self.spread.median / other.spread.median
        )
    }
}

fn not_measured() -> (Verdict, String) {
    (Verdict::NotMeasured, String::new())
}

fn deviation_is_like_the_mean(rows: &[Row]) -> (Verdict, String) {
    let rows = Rows::of(rows);
    let row = rows.find(M::RTT_1, "sluice-pipe");
    let Some(all) = row.and_then(|row| row.distribution.as_ref()) else {
        return not_measured();
    };
    let ratio = all.sd / all.mean;
    (
        Verdict::of((0.5..=2.0).contains(&ratio)),
        format!("{ratio:.2} times the mean"),
    )
}

fn worst_is_ten_times_the_best(rows: &[Row]) -> (Verdict, String) {
    let rows = Rows::of(rows);
    let row = rows.find(M::RTT_1, "sluice-pipe");
    let Some(all) = row.and_then(|row| row.distribution.as_ref()) else {
        return not_measured();
    };
    let ratio = all.max as f64 / all.min.max(1) as f64;
    (Verdict::of(ratio > 10.0), format!("{ratio:.0} times"))
}

/// By the model that is fitted to the streams: the share of one byte in the time of a message.
fn bytes_are_negligible(rows: &[Row]) -> (Verdict, String) {
    let points = model::points(&Rows::of(rows), "sluice-pipe");
    let Some(line) = model::Line::through(&points) else {
        return not_measured();
    };
    let share = line.share_of_bytes(1.0);
    (
        Verdict::of(share < 0.05),
        format!(
            "a byte takes {:.1} % of the time of its message",
            100.0 * share
        ),
    )
}

fn semaphores_are_first(rows: &[Row]) -> (Verdict, String) {
    let rows = Rows::of(rows);
    let figure = |label| Figure::of(&rows, M::RTT_1_LONG, label);
    let Some(ours) = figure("shm-sem") else {
        return not_measured();
    };
    let others: Vec<_> = ["pipe", "myipc", "sluice-pipe"]
        .into_iter()
        .filter_map(figure)
        .collect();
    let best = others
        .iter()
        .min_by(|a, b| a.spread.median.total_cmp(&b.spread.median));
    best.map_or_else(not_measured, |best| {
        (ours.is_below(best), ours.against(best))
    })
}

fn bulk_order(rows: &[Row]) -> (Verdict, String) {
    let rows = Rows::of(rows);
    let rate = |label| Some((label, rows.find(M::BULK, label)?.bytes_per_s?));
    let (Some(myipc), Some(memory), Some(pipe)) = (rate("myipc"), rate("shm-sem"), rate("pipe"))
    else {
        return not_measured();
    };
    let mut order = [myipc, memory, pipe];
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let text = order.map(|(label, rate)| format!("{label} {}", units::bytes_per_second(rate)));
    (
        Verdict::of(order[0].0 == "myipc" && order[2].0 == "pipe"),
        text.join(", "),
    )
}

fn only_the_shared_one_misdelivers(rows: &[Row]) -> (Verdict, String) {
    let share = |mechanism: &str| {
        let of_mechanism = rows.iter().filter(|row| row.mechanism == mechanism);
        of_mechanism
            .filter_map(|row| row.misdelivered)
            .max_by(f64::total_cmp)
    };
    let (Some(shared), Some(ours)) = (share("myipc"), share("sluice-pipe")) else {
        return not_measured();
    };
    (
        Verdict::of(shared > 0.0 && ours == 0.0),
        format!(
            "misdelivered: {:.0} % with MyIPC, {:.0} % with sluice-pipe",
            100.0 * shared,
            100.0 * ours
        ),
    )
}

fn stalled_pairs_cost_nothing(rows: &[Row]) -> (Verdict, String) {
    let beside = rows.iter().find(|row| {
        row.suite == "isolation"
            && row.mechanism == "sluice-pipe"
            && row.label.contains("beside 7 stalled")
    });
    let Some(ratio) = beside.and_then(|row| row.ratio.as_ref()) else {
        return not_measured();
    };
    let verdict = match (ratio.median >= 0.95, ratio.max >= 0.95) {
        (true, _) => Verdict::Confirmed,
        (false, true) => Verdict::WithinSpread,
        (false, false) => Verdict::Refuted,
    };
    (verdict, format!("{:.2} of the rate alone", ratio.median))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rows::Ratio;
    use crate::reports::tests::row;

    fn verdict(test: Test, rows: &[Row]) -> Verdict {
        evaluate(&test, rows).0
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
        assert_eq!(bulk_order(&rows).0, Verdict::Confirmed);
        let rows = [rate("myipc", 1e6), rate("shm-sem", 4e6), rate("pipe", 3e6)];
        assert_eq!(bulk_order(&rows).0, Verdict::Refuted);
    }

    #[test]
    fn isolation_is_evaluated_by_its_suite() {
        let beside = |median, max| Row {
            suite: "isolation".into(),
            mechanism: "sluice-pipe".into(),
            label: "beside 7 stalled".into(),
            ratio: Some(Ratio {
                to: "alone".into(),
                across_waiting: false,
                median,
                min: 0.5,
                max,
            }),
            ..Row::default()
        };
        assert_eq!(
            stalled_pairs_cost_nothing(&[beside(0.97, 1.1)]).0,
            Verdict::Confirmed
        );
        assert_eq!(
            stalled_pairs_cost_nothing(&[beside(0.9, 1.1)]).0,
            Verdict::WithinSpread
        );
        assert_eq!(
            stalled_pairs_cost_nothing(&[beside(0.8, 0.9)]).0,
            Verdict::Refuted
        );
        let share = |mechanism: &str, share| Row {
            mechanism: mechanism.into(),
            misdelivered: Some(share),
            ..Row::default()
        };
        let rows = [share("myipc", 0.5), share("sluice-pipe", 0.0)];
        assert_eq!(only_the_shared_one_misdelivers(&rows).0, Verdict::Confirmed);
        let rows = [share("myipc", 0.5), share("sluice-pipe", 0.1)];
        assert_eq!(only_the_shared_one_misdelivers(&rows).0, Verdict::Refuted);
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
