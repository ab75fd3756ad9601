// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast adapters were here, beside the results that they were used for, and why they are slower than the libraries' own
//! programs.

use crate::harness::class::Class;
use crate::harness::figures::Unit;
use crate::harness::rows::{Calibration, Row};

pub const SUITE: &str = "calibration";
/// The end of the label of a library's own program.
pub const OWN: &str = ", own program";

/// An adapter that reaches less of the speed of its library's own program is explained.
const ENOUGH: f64 = 0.9;
/// The title of the rows of the suite for maps that measure what Redis is calibrated with.
const GETS_OF_MAPS: &str = "a get";

/// Why an adapter may be slower than the library's own program, in round trips and in streams.
#[rustfmt::skip]
const REASONS: [(&str, Unit, &str); 7] = [
    ("iceoryx2", Unit::Nanoseconds, "the library's benchmark neither writes nor reads the bytes of its messages; the adapter does both"),
    ("iceoryx2", Unit::BytesPerSecond, "the library's examples look at a message in place; the adapter copies it out, as for all mechanisms"),
    ("tachyon", Unit::Nanoseconds, "the library's benchmark copies a message once on each way; the adapter copies it out as well"),
    ("tachyon", Unit::BytesPerSecond, "the library's introduction does not look at the bytes of a message; the adapter copies them out, and its ring has 4 MiB instead of 16"),
    ("aeron", Unit::Nanoseconds, "the library's sample does not copy the reply; the adapter does"),
    ("aeron", Unit::BytesPerSecond, "the library's sample counts fragments without looking at them; the adapter copies each message out"),
    ("zeromq", Unit::Nanoseconds, "the adapter has one socket for each direction"),
];

/// Adds to the rows of the suites rtt and throughput, of gets from Redis, and of this suite, how fast their adapters were here.
pub fn annotate(rows: &mut [Row]) {
    let calibrated = rows
        .iter()
        .filter_map(|row| Some((row.clone(), calibration(row)?)));
    let calibrated: Vec<(Row, Calibration)> = calibrated.collect();
    let single = |row: &&mut Row| !row.axes.contains_key("batch");
    for row in rows.iter_mut().filter(single) {
        let conditions = |of: &Row| (of.label.clone(), of.placement, of.size);
        let is_of_row = |(other, _): &&(Row, Calibration)| {
            conditions(other) == conditions(row)
                && match row.suite.as_str() {
                    "rtt" | "throughput" => other.unit == row.unit,
                    "map" => row.title == GETS_OF_MAPS,
                    suite => suite == SUITE && other.title == row.title,
                }
        };
        let found = calibrated.iter().find(is_of_row);
        row.calibration = found.map(|(other, calibration)| beside(row, other, calibration));
    }
}

/// The calibration of one row, for another one: it says if it was measured at another distance.
fn beside(row: &Row, calibrated: &Row, calibration: &Calibration) -> Calibration {
    let is_other = |there: &Class| row.probe_class.is_some_and(|here| here != *there);
    let there = calibrated.probe_class.filter(is_other);
    let measured = there.map(|there| format!("measured at the distance {}", there.name()));
    let reasons = [measured, calibration.reason.clone()];
    let reasons: Vec<String> = reasons.into_iter().flatten().collect();
    Calibration {
        reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
        ..calibration.clone()
    }
}

/// The speed of an adapter divided by the speed of its library's own program, from a row of this suite.
fn calibration(row: &Row) -> Option<Calibration> {
    let ratio = row.ratio.as_ref().filter(|_| row.suite == SUITE)?;
    let (median, spread) = row.times_better()?;
    Some(Calibration {
        to: ratio.to.clone(),
        median,
        spread,
        reason: (median < ENOUGH).then(|| reason(row).into()),
    })
}

fn reason(row: &Row) -> &'static str {
    let mut reasons = REASONS.into_iter();
    let found = reasons.find(|(name, unit, _)| *name == row.mechanism && Some(*unit) == row.unit);
    found.map_or("not explained", |(_, _, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::figures::Values;
    use crate::harness::rows::Ratio;

    fn row(suite: &str, label: &str, unit: Unit, ratio: Option<f64>) -> Row {
        let rounds = |ratio| [0.8 * ratio, ratio, 1.25 * ratio].into_iter().enumerate();
        let ratio = ratio.map(|ratio| Ratio {
            to: "own".into(),
            across_waiting: false,
            values: Values::of(rounds(ratio)).unwrap(),
        });
        Row {
            suite: suite.into(),
            mechanism: "tachyon".into(),
            label: label.into(),
            unit: Some(unit),
            size: Some(64),
            ratio,
            ..Row::default()
        }
    }

    #[test]
    fn a_slower_adapter_has_less_than_one_and_a_reason() {
        for (unit, ratio, explanation) in [
            (Unit::Nanoseconds, 1.25, Some("copies a message once")),
            (Unit::BytesPerSecond, 0.8, Some("introduction")),
            (Unit::OperationsPerSecond, 0.8, Some("not explained")),
            (Unit::Nanoseconds, 1.0, None),
        ] {
            let found = calibration(&row(SUITE, "tachyon", unit, Some(ratio))).unwrap();
            assert!(found.spread[0] < found.median && found.median < found.spread[1]);
            assert_eq!(found.median < 0.9, explanation.is_some());
            let reason = found.reason.unwrap_or_default();
            assert!(reason.contains(explanation.unwrap_or_default()), "{reason}");
        }
    }

    #[test]
    fn rows_of_the_same_conditions_are_calibrated_and_say_that_the_distance_was_another() {
        let mut rows = [
            row("rtt", "tachyon (spins)", Unit::Nanoseconds, Some(0.1)),
            row("rtt", "tachyon (futex)", Unit::Nanoseconds, Some(0.1)),
            row("throughput", "tachyon (spins)", Unit::BytesPerSecond, None),
            row(SUITE, "tachyon, own program", Unit::Nanoseconds, None),
            row(SUITE, "tachyon (spins)", Unit::Nanoseconds, Some(2.0)),
        ];
        rows[0].probe_class = Some(Class::Near);
        rows[4].probe_class = Some(Class::Far);
        annotate(&mut rows);
        let reasons = rows.map(|row| row.calibration.map(|one| one.reason.unwrap()));
        let [Some(other), None, None, None, Some(alike)] = reasons else {
            panic!("other rows are calibrated: {reasons:?}");
        };
        assert_eq!(other, format!("measured at the distance far; {alike}"));
    }
}
