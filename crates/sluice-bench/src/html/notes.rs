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

/// All notes except the distance of the processors.
pub fn notes(row: &Row, rows: &[Row]) -> Vec<Badge> {
    let ratio = row.ratio.as_ref();
    let change = row.change(rows).map(|change| {
        let to = ratio.map_or("", |ratio| &ratio.to);
        let class = match change {
            Change::WithinSpread => "within",
            _ => change.name(),
        };
        Badge::new(class, row.change_name(change), format!("relative to {to}"))
    });
    let across = ratio.filter(|ratio| ratio.across_waiting).map(|_| {
        let explanation = "one of the two uses processor time while it waits";
        Badge::new("across", "spin vs sleep", explanation)
    });
    let others = [misdelivered(row), imbalance(row), lost(row), noisy(row)];
    [change, across]
        .into_iter()
        .chain(others)
        .flatten()
        .collect()
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

pub fn class(row: &Row) -> Option<Badge> {
    let class = row.probe_class?;
    Some(Badge::new(
        "class",
        class.name(),
        "distance of the two processors",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
