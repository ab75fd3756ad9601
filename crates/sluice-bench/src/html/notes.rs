// SPDX-License-Identifier: MIT OR Apache-2.0
//! Notes about a row.

use sluice_testkit::spread::Spread;
use sluice_testkit::units;

use super::text::escape;
use crate::harness::rows::Row;

pub fn spread(row: &Row) -> Option<Spread> {
    let ([min, max], median) = (row.spread?, row.median?);
    Some(Spread { median, min, max })
}

pub fn less_is_better(row: &Row) -> bool {
    row.unit.as_deref() == Some("ns")
}

/// Faster or slower than the reference, if the rounds of the two do not overlap.
pub fn verdict(row: &Row, rows: &[Row]) -> Option<&'static str> {
    let ratio = row.ratio.as_ref()?;
    let alike = |other: &&Row| {
        (&other.suite, &other.title, &other.label) == (&row.suite, &row.title, &ratio.to)
    };
    let reference = spread(rows.iter().find(alike)?)?;
    let ours = spread(row)?;
    Some(match ours.overlaps(&reference) {
        true => "within spread",
        false if (ours.median < reference.median) == less_is_better(row) => "faster",
        false => "slower",
    })
}

pub fn is_noisy(row: &Row) -> bool {
    row.noisy_rounds.is_some()
}

/// A short badge.
pub fn noisy(row: &Row) -> Option<String> {
    let noisy = row.noisy_rounds?;
    Some(badge(
        "noisy",
        &format!("noisy {noisy}/{}", row.rounds.unwrap_or(noisy)),
        "rounds during which the distance of the processors kept changing",
    ))
}

/// All notes except the distance of the processors.
pub fn notes(row: &Row, rows: &[Row]) -> String {
    let verdict = verdict(row, rows).map(|verdict| {
        let class = verdict.split(' ').next().unwrap_or_default();
        let explanation = format!(
            "relative to {}",
            row.ratio.as_ref().map_or("", |ratio| &ratio.to)
        );
        badge(class, verdict, &explanation)
    });
    let across = row.ratio.as_ref().filter(|ratio| ratio.across_waiting);
    let across = across.map(|_| {
        badge(
            "across",
            "spin vs sleep",
            "one of the two uses processor time while it waits",
        )
    });
    [
        verdict,
        across,
        misdelivered(row),
        imbalance(row),
        noisy(row),
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(" ")
}

/// Shown for mechanisms that can misdeliver, even at 0 %.
fn misdelivered(row: &Row) -> Option<String> {
    let share = row.misdelivered?;
    let class = if share > 0.0 { "slower" } else { "faster" };
    let text = format!("{} misdelivered", units::share(share));
    let explanation = "share of the received bytes that another pair sent";
    Some(badge(class, &text, explanation))
}

/// Shown in red if one writer sends more than twice as much as another.
fn imbalance(row: &Row) -> Option<String> {
    const FAIR: f64 = 2.0;
    let times = row.imbalance?;
    let class = if times > FAIR { "slower" } else { "faster" };
    let text = format!("busiest writer {} ×", units::figures(times));
    let explanation = "messages of the busiest writer for each message of the least busy";
    Some(badge(class, &text, explanation))
}

pub fn class(row: &Row) -> Option<String> {
    let class = row.probe_class?;
    let explanation = "distance of the two processors";
    Some(badge("class", class.name(), explanation))
}

fn badge(class: &str, text: &str, explanation: &str) -> String {
    format!(
        r#"<span class="badge {class}" title="{}">{}</span>"#,
        escape(explanation),
        escape(text)
    )
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
        assert!(notes(&row(Some(0.877)), &[]).contains("87.7 % misdelivered"));
        assert!(notes(&row(Some(0.0)), &[]).contains("0 % misdelivered"));
        assert!(!notes(&row(None), &[]).contains("misdelivered"));
    }
}
