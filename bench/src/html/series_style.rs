// SPDX-License-Identifier: MIT OR Apache-2.0
//! The style of a series: colour, dashes and marker, so that series differ without colour, too. A mechanism has the
//! same style in every plot.

use serde::Serialize;

use super::drawing::Path;
use crate::harness::rows::{Results, Row};
use crate::harness::waiting::Waiting;

const COLOURS: usize = 6;
const DASHES: usize = 3;
const MARKERS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SeriesRole {
    Sluice,
    /// The reference of the ratios.
    Reference,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesStyle {
    pub role: SeriesRole,
    number: usize,
}

impl SeriesStyle {
    /// The style of another mechanism, by number.
    pub fn numbered(number: usize) -> Self {
        Self {
            role: SeriesRole::Other,
            number,
        }
    }

    /// The classes for the style sheet.
    pub fn classes(self) -> String {
        let dash = match self.role {
            SeriesRole::Other => self.number / COLOURS % DASHES,
            _ => self.number % DASHES,
        };
        let colour = match self.role {
            SeriesRole::Sluice => "sluice".to_string(),
            SeriesRole::Reference => "reference".to_string(),
            SeriesRole::Other => format!("c{}", self.number % COLOURS),
        };
        format!("{colour} d{dash}")
    }

    /// The marker at this position.
    pub fn marker(self, x: f64, y: f64, noisy: bool) -> Path {
        const OUTLINES: [&str; MARKERS] = [
            "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
            "m-3.5 -3.5h7v7h-7z",
            "m0 -4.5l4.5 8h-9z",
            "m0 -5l5 5l-5 5l-5 -5z",
            "m0 4.5l4.5 -8h-9z",
            "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
            "m-4.5 -1.5l1.5 -3h6l1.5 3l-4.5 6z",
        ];
        let outline = OUTLINES[(self.number % COLOURS + self.number / COLOURS) % MARKERS];
        Path {
            class: if noisy { "mark noisy" } else { "mark" },
            d: format!("M{x:.1} {y:.1}{outline}"),
        }
    }

    /// A sample of the line, for the table, which is the legend.
    pub fn sample(self) -> LineSample {
        LineSample {
            classes: self.classes(),
            mark: self.marker(18.0, 7.0, false),
        }
    }
}

#[derive(Serialize)]
pub struct LineSample {
    classes: String,
    mark: Path,
}

/// The styles of all mechanisms.
#[derive(Default)]
pub struct SeriesStyles {
    names: Vec<(String, SeriesStyle)>,
}

impl SeriesStyles {
    pub fn of(results: &Results) -> Self {
        let mut styles = Self { names: Vec::new() };
        let rows = &results.rows;
        let references: Vec<String> = rows
            .iter()
            .filter(|row| is_reference(row, rows))
            .map(name)
            .collect();
        for row in rows {
            let name = name(row);
            let role = match row.is_sluice() {
                true => SeriesRole::Sluice,
                false if references.contains(&name) => SeriesRole::Reference,
                false => SeriesRole::Other,
            };
            styles.add(name, role);
        }
        styles
    }

    fn add(&mut self, name: String, role: SeriesRole) {
        if self.names.iter().any(|(known, _)| *known == name) {
            return;
        }
        let alike = |(_, style): &&(String, SeriesStyle)| style.role == role;
        let number = self.names.iter().filter(alike).count();
        self.names.push((name, SeriesStyle { role, number }));
    }

    pub fn get(&self, row: &Row) -> SeriesStyle {
        let name = name(row);
        let found = self.names.iter().find(|(known, _)| *known == name);
        found.map_or(SeriesStyle::numbered(0), |(_, style)| *style)
    }
}

/// A mechanism and its way of waiting.
pub fn name(row: &Row) -> String {
    match (
        row.neighbours.is_some() || row.operation.is_some(),
        row.waiting,
    ) {
        (false, _) => row.label.clone(),
        (true, Some(Waiting::Spin)) => format!("{} (spins)", row.mechanism),
        (true, _) => row.mechanism.clone(),
    }
}

/// Whether another mechanism is compared with this row.
fn is_reference(row: &Row, rows: &[Row]) -> bool {
    rows.iter().any(|other| {
        let to = other.ratio.as_ref().map(|ratio| &ratio.to);
        to == Some(&row.label)
            && (&other.suite, &other.title) == (&row.suite, &row.title)
            && other.mechanism != row.mechanism
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::harness::rounds::Neighbours;
    use crate::harness::rows::Ratio;
    use sluice_testkit::host::Host;

    #[test]
    fn forty_mechanisms_have_distinct_styles() {
        let style = |number: usize| {
            let style = SeriesStyle::numbered(number);
            (style.classes(), style.marker(0.0, 0.0, false).d)
        };
        for one in 0..40 {
            for other in 0..one {
                assert_ne!(style(one), style(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_mechanism_keeps_its_name_in_other_labels() {
        let row = |label: &str, mechanism: &str| Row {
            label: label.into(),
            mechanism: mechanism.into(),
            ..Row::default()
        };
        let beside = Row {
            neighbours: Some(Neighbours::NONE),
            ..row("alone", "fifo")
        };
        assert_eq!(name(&beside), "fifo");
        assert_eq!(name(&row("fifo (spins)", "fifo")), "fifo (spins)");
    }

    #[test]
    fn the_reference_is_the_mechanism_that_others_are_compared_with() {
        let row = |mechanism: &str, to: Option<&str>| Row {
            mechanism: mechanism.into(),
            label: mechanism.into(),
            ratio: to.map(|to| Ratio {
                to: to.into(),
                across_waiting: false,
                median: 1.0,
                min: 1.0,
                max: 1.0,
                common_rounds: None,
            }),
            ..Row::default()
        };
        let tachyon = Some("tachyon");
        let rows = vec![
            row("tachyon", None),
            row("sluice-ring", tachyon),
            row("pipe", tachyon),
        ];
        let host = Host::probe();
        let styles = SeriesStyles::of(&Results {
            host,
            clock_ns: 40,
            versions: BTreeMap::new(),
            rows: rows.clone(),
            date: String::new(),
        });
        let roles = rows.iter().map(|row| styles.get(row).role);
        assert_eq!(
            roles.collect::<Vec<_>>(),
            [SeriesRole::Reference, SeriesRole::Sluice, SeriesRole::Other]
        );
    }
}
