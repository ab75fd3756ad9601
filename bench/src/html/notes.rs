// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes about a row.

use serde::Serialize;
use sluice_testkit::units;

use crate::harness::rows::Row;
use crate::harness::samples::Change;

/// A short note, with an explanation that is shown on demand.
#[derive(Serialize)]
pub struct Badge {
    class: &'static str,
    pub text: String,
    explanation: String,
}

impl Badge {
    fn new(class: &'static str, text: impl Into<String>, explanation: impl Into<String>) -> Self {
        Self {
            class,
            text: text.into(),
            explanation: explanation.into(),
        }
    }
}

pub fn noisy(row: &Row) -> Option<Badge> {
    let noisy = row.noisy_rounds?;
    let text = format!("noisy {noisy}/{}", row.rounds.unwrap_or(noisy));
    let explanation = "rounds during which the distance of the processors kept changing";
    Some(Badge::new("noisy", text, explanation))
}

/// All notes.
pub fn notes(row: &Row, rows: &[Row]) -> Vec<Badge> {
    let ratio = row.ratio.as_ref();
    let to = ratio.map_or("", |ratio| &ratio.to);
    let change = row.change().map(|one| change(row, one, to));
    let across = ratio.filter(|ratio| ratio.across_waiting).map(|_| {
        let explanation = "one of the two uses processor time while it waits";
        Badge::new("across", "spin vs sleep", explanation)
    });
    let noisy = noisy(row).or_else(|| noisy(row.reference(rows)?));
    let others = [
        other_class(row, rows),
        few_common_rounds(row),
        single_round(row),
        misdelivered(row),
        imbalance(row),
        lost(row),
        noisy,
    ];
    [change, across]
        .into_iter()
        .chain(others)
        .flatten()
        .collect()
}

pub fn single_round(row: &Row) -> Option<Badge> {
    let explanation = "one round has no spread, so the comparison is weak";
    (row.rounds == Some(1)).then(|| Badge::new("across", "1 round", explanation))
}

fn few_common_rounds(row: &Row) -> Option<Badge> {
    let common = row.few_common_rounds()?;
    let explanation =
        "the processors were at the same distance for both in too few rounds: not compared";
    let text = units::counted(common, "common round");
    Some(Badge::new("across", text, explanation))
}

/// The comparison with the reference.
pub fn change(row: &Row, change: Change, to: &str) -> Badge {
    match change {
        Change::Tie => {
            let explanation = format!("not in all rounds better than {to}, nor in all worse");
            Badge::new("tie", "tie", explanation)
        }
        _ => {
            let explanation = format!("relative to {to}");
            Badge::new(change.name(), row.change_name(change), explanation)
        }
    }
}

/// Shown for mechanisms that can misdeliver, even at 0 %.
fn misdelivered(row: &Row) -> Option<Badge> {
    let share = row.misdelivered?;
    let class = if share > 0.0 { "slower" } else { "faster" };
    let text = format!("{} misdelivered", units::share(share));
    let explanation = "share of the received bytes that another pair sent";
    Some(Badge::new(class, text, explanation))
}

/// Shown in red if one writer sends more than twice as much as another.
fn imbalance(row: &Row) -> Option<Badge> {
    const FAIR: f64 = 2.0;
    let times = row.imbalance?;
    let class = if times > FAIR { "slower" } else { "faster" };
    let text = format!("busiest writer {} ×", units::figures(times));
    let explanation = "messages of the busiest writer for each message of the least busy";
    Some(Badge::new(class, text, explanation))
}

fn lost(row: &Row) -> Option<Badge> {
    let packets = row.lost.filter(|&packets| packets > 0)?;
    let explanation = "packets that the consumer never received, in all rounds";
    Some(Badge::new("slower", format!("{packets} lost"), explanation))
}

/// Shown for a series without a round of the class of the others.
pub fn other_class(row: &Row, rows: &[Row]) -> Option<Badge> {
    row.other_class?;
    let alike = |other: &&Row| (&other.suite, &other.title) == (&row.suite, &row.title);
    let is_winner = |other: &&Row| other.other_class.is_none();
    let mut others = rows.iter().filter(alike).filter(is_winner);
    let (class, others) = (
        row.probe_class?,
        others.find_map(|other| other.probe_class)?,
    );
    let text = format!("{}, others {}", class.name(), others.name());
    let explanation = "no round at the distance of the processors of the others: not comparable";
    Some(Badge::new("across", text, explanation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::class::Class;
    use crate::harness::rows::Ratio;

    fn row(misdelivered: Option<f64>) -> Row {
        let row = serde_json::json!({
            "suite": "isolation", "mechanism": "myipc", "label": "myipc", "title": "two pairs", "waiting": "sleep",
            "misdelivered": misdelivered,
        });
        serde_json::from_value(row).expect("a row")
    }

    #[test]
    fn misdelivery_is_noted_even_if_it_is_zero() {
        let texts = |share| -> Vec<String> {
            let notes = notes(&row(share), &[]).into_iter();
            notes.map(|badge| badge.text).collect()
        };
        assert_eq!(texts(Some(0.877)), ["87.7 % misdelivered"]);
        assert_eq!(texts(Some(0.0)), ["0 % misdelivered"]);
        assert!(texts(None).is_empty());
    }

    #[test]
    fn a_series_of_another_class_is_marked() {
        let row = |label: &str, class| Row {
            label: label.into(),
            probe_class: Some(class),
            other_class: (class == Class::Remote).then_some(true),
            ..row(None)
        };
        let rows = [
            row("one", Class::SharedCache),
            row("other", Class::SharedCache),
            row("alone", Class::Remote),
        ];
        let texts = rows.each_ref().map(|row| {
            let notes = notes(row, &rows).into_iter();
            notes.map(|badge| badge.text).collect::<Vec<_>>()
        });
        assert_eq!(texts, [vec![], vec![], vec!["far, others near"]]);
    }

    #[test]
    fn a_difference_within_the_spread_is_a_tie() {
        let measured = |label: &str, median: f64| Row {
            label: label.into(),
            unit: Some("ns".into()),
            rounds: Some(if median < 5.0 { 1 } else { 3 }),
            median: Some(median),
            spread: Some([median - 2.0, median + 2.0]),
            ..row(None)
        };
        let judged = |median| {
            let ratio = Ratio {
                to: "pipe".into(),
                across_waiting: false,
                median: median / 10.0,
                min: median / 10.0 - 0.2,
                max: median / 10.0 + 0.2,
                common_rounds: None,
            };
            let ours = Row {
                ratio: Some(ratio),
                ..measured("ours", median)
            };
            let notes = notes(&ours, &[measured("pipe", 10.0), ours.clone()]);
            notes
                .into_iter()
                .map(|badge| badge.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(judged(9.0), ["tie"]);
        assert_eq!(judged(5.0), ["faster"]);
        assert_eq!(judged(4.0), ["faster", "1 round"]);
    }
}
