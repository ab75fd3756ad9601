// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a text table.

use sluice_testkit::host::Host;
use sluice_testkit::table::{Align, Table};
use sluice_testkit::units;

use super::rounds::{Metric, Outcome, Series};
use super::rows::{
    context_switches_per_message, cpu_per_message, imbalance, misdelivered, per_second, samples,
};
use super::samples::summarize;

/// The whole table, followed by the skipped mechanisms.
pub fn text(host: &Host, outcomes: &[Outcome]) -> String {
    let mut table = Table::new(&[
        ("conditions", Align::Left),
        ("mechanism", Align::Left),
        ("median", Align::Right),
        ("its rounds", Align::Right),
        ("p90", Align::Right),
        ("p99 or messages", Align::Right),
        ("CPU/message", Align::Right),
        ("ratio", Align::Right),
        ("its rounds", Align::Right),
        ("remarks", Align::Left),
    ]);
    for outcome in outcomes {
        for (index, series) in outcome.series.iter().enumerate() {
            let title = if index == 0 {
                format!("{} {}", outcome.suite, outcome.title)
            } else {
                String::new()
            };
            table.row(line(outcome, series, title));
        }
    }
    format!(
        "{}{}\n\n{table}{}",
        host.line(),
        wakeup_line(host),
        skipped_lines(outcomes)
    )
}

fn wakeup_line(host: &Host) -> String {
    host.waking_ns.map_or_else(String::new, |cost| {
        format!(
            "\nwake-up of a process that sleeps on another processor, p50: {}",
            units::nanoseconds(cost as f64)
        )
    })
}

fn line(outcome: &Outcome, series: &Series, title: String) -> [String; 10] {
    let spread = series.spread();
    let ratio = outcome
        .reference_of(series)
        .and_then(|reference| series.ratio_to(reference));
    let [p90, detail] = detail(outcome, series);
    let (median, rounds) = match outcome.metric {
        Metric::Latency => (
            units::nanoseconds(spread.median),
            units::nanosecond_range(spread.min, spread.max),
        ),
        Metric::Rate => (
            units::bytes_per_second(spread.median),
            units::rate_range(spread.min, spread.max),
        ),
    };
    [
        title,
        series.subject.label.clone(),
        median,
        rounds,
        p90,
        detail,
        cpu_per_message(series)
            .map(units::nanoseconds)
            .unwrap_or_default(),
        ratio
            .map(|ratio| format!("{:.2}", ratio.median))
            .unwrap_or_default(),
        ratio
            .map(|ratio| units::ratio_range(ratio.min, ratio.max))
            .unwrap_or_default(),
        remark(outcome, series),
    ]
}

/// High percentiles of a latency, or the message rate of a stream.
fn detail(outcome: &Outcome, series: &Series) -> [String; 2] {
    match outcome.metric {
        Metric::Rate => {
            let messages = per_second(series, |one| one.messages).map(units::per_second);
            [String::new(), messages.unwrap_or_default()]
        }
        Metric::Latency => summarize(samples(series)).map_or_else(Default::default, |summary| {
            [summary.p90, summary.p99].map(|value| units::nanoseconds(value as f64))
        }),
    }
}

/// Comparison with the reference, misdelivered bytes, and the cost and balance of several writers.
fn remark(outcome: &Outcome, series: &Series) -> String {
    let misdelivered =
        misdelivered(series).map(|share| format!("{} misdelivered", units::share(share)));
    let switches = context_switches_per_message(series)
        .map(|switches| format!("{} context switches/message", units::figures(switches)));
    let imbalance =
        imbalance(series).map(|times| format!("busiest writer {} ×", units::figures(times)));
    let parts = [verdict(outcome, series), misdelivered, switches, imbalance];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Faster or slower only if the rounds of the two do not overlap.
fn verdict(outcome: &Outcome, series: &Series) -> Option<String> {
    let reference = outcome.reference_of(series)?;
    series.ratio_to(reference)?;
    let (ours, theirs) = (series.spread(), reference.spread());
    let smaller = ours.median < theirs.median;
    let verdict = if ours.overlaps(&theirs) {
        "within spread"
    } else if smaller == (outcome.metric == Metric::Latency) {
        "faster"
    } else {
        "slower"
    };
    let label = if series.waits_like(reference) {
        ""
    } else {
        ", spin against sleep"
    };
    let noisy = if series.noisy_rounds() + reference.noisy_rounds() > 0 {
        ", noisy"
    } else {
        ""
    };
    Some(format!("{verdict}{label}{noisy}"))
}

/// One line for each reason, with the number of cases.
fn skipped_lines(outcomes: &[Outcome]) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for skip in outcomes.iter().flat_map(|outcome| &outcome.skipped) {
        let status = if skip.failed { "FAILED" } else { "skipped" };
        let text = format!("{status}: {}: {}", skip.label, skip.reason);
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, times)) => *times += 1,
            None => reasons.push((text, 1)),
        }
    }
    reasons
        .iter()
        .map(|(text, times)| format!("{text} ({times} ×)\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::tests::{outcome, series};
    use crate::mechanisms::Waiting;

    #[test]
    fn faster_and_slower_require_disjoint_rounds() {
        let judged = |metric, theirs: &[f64], ours: &[f64]| {
            let outcome = outcome(metric, theirs, ours);
            verdict(&outcome, &outcome.series[1]).unwrap()
        };
        assert_eq!(
            judged(Metric::Latency, &[10.0, 12.0], &[5.0, 9.0]),
            "faster"
        );
        assert_eq!(judged(Metric::Rate, &[10.0, 12.0], &[5.0, 9.0]), "slower");
        assert_eq!(
            judged(Metric::Rate, &[10.0, 12.0], &[11.0, 20.0]),
            "within spread"
        );
    }

    #[test]
    fn a_ratio_of_spinning_to_sleeping_is_labelled() {
        let mut outcome = outcome(Metric::Latency, &[10.0], &[5.0]);
        outcome.series[1] = series("sluice-pipe", Waiting::Spin, &[5.0]);
        assert_eq!(
            verdict(&outcome, &outcome.series[1]).unwrap(),
            "faster, spin against sleep"
        );
    }

    #[test]
    fn misdelivery_is_reported_even_if_it_is_zero() {
        let mut outcome = outcome(Metric::Rate, &[4.0], &[1.0]);
        for (series, misdelivered) in outcome.series.iter_mut().zip([3, 0]) {
            series.rounds[0].measurement.misdelivered = Some(misdelivered);
        }
        let remark = |index: usize| remark(&outcome, &outcome.series[index]);
        assert_eq!(remark(0), "75.0 % misdelivered");
        assert_eq!(remark(1), "slower, 0 % misdelivered");
    }

    #[test]
    fn a_reason_is_listed_once() {
        let outcomes = [0, 1].map(|_| outcome(Metric::Rate, &[1.0], &[1.0]));
        assert_eq!(
            skipped_lines(&outcomes),
            "skipped: cacheline: spins (2 ×)\n"
        );
    }

    #[test]
    fn noisy_and_failed_are_labelled() {
        let mut outcome = outcome(Metric::Rate, &[1.0], &[3.0]);
        outcome.series[1].rounds[0].noisy = true;
        assert_eq!(
            verdict(&outcome, &outcome.series[1]).unwrap(),
            "faster, noisy"
        );
        outcome.skipped[0].failed = true;
        assert_eq!(
            skipped_lines(&[outcome]),
            "FAILED: cacheline: spins (1 ×)\n"
        );
    }
}
