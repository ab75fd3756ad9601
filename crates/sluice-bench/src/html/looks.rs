// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tells one line from another: colour, dashes and marker together, so that it does not take an eye for colours. Whoever
//! is one mechanism looks the same in every plot.

use super::text::escape;
use crate::harness::rows::{Results, Row};

const COLOURS: usize = 6;
const DASHES: usize = 3;
const MARKERS: usize = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    Ours,
    /// What the others are compared with.
    Reference,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub party: Party,
    number: usize,
}

impl Look {
    /// One of many that are neither ours nor the reference.
    pub fn numbered(number: usize) -> Self {
        Self {
            party: Party::Other,
            number,
        }
    }

    /// For the style sheet.
    pub fn classes(self) -> String {
        let dash = match self.party {
            Party::Other => self.number / COLOURS % DASHES,
            _ => self.number % DASHES,
        };
        let colour = match self.party {
            Party::Ours => "ours".to_string(),
            Party::Reference => "reference".to_string(),
            Party::Other => format!("c{}", self.number % COLOURS),
        };
        format!("{colour} d{dash}")
    }

    /// The shape of its marks, at this place.
    pub fn marker(self, x: f64, y: f64, noisy: bool) -> String {
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
        let class = if noisy { "mark noisy" } else { "mark" };
        format!(r#"<path class="{class}" d="M{x:.1} {y:.1}{outline}"/>"#)
    }

    /// A bit of the line with its mark, for a table that is the legend.
    pub fn sample(self) -> String {
        format!(
            r#"<svg class="sample {}" viewBox="0 0 36 14" aria-hidden="true"><path class="line" d="M1 7H35"/>{}</svg>"#,
            self.classes(),
            self.marker(18.0, 7.0, false)
        )
    }
}

/// Which look is whose.
pub struct Looks {
    names: Vec<(String, Look)>,
}

impl Looks {
    pub fn of(results: &Results) -> Self {
        let mut looks = Self { names: Vec::new() };
        for row in &results.rows {
            looks.add(name(row), party(row));
        }
        looks
    }

    fn add(&mut self, name: String, party: Party) {
        if self.names.iter().any(|(known, _)| *known == name) {
            return;
        }
        let alike = |(_, look): &&(String, Look)| look.party == party;
        let number = self.names.iter().filter(alike).count();
        self.names.push((name, Look { party, number }));
    }

    pub fn get(&self, row: &Row) -> Look {
        let name = name(row);
        let found = self.names.iter().find(|(known, _)| *known == name);
        found.map_or(Look::numbered(0), |(_, look)| *look)
    }
}

/// A mechanism and how it waits.
pub fn name(row: &Row) -> String {
    match row.label.contains(&row.mechanism) {
        true => row.label.clone(),
        false => match row.waiting {
            Some(crate::mechanisms::Waiting::Spin) => format!("{} (spins)", row.mechanism),
            _ => row.mechanism.clone(),
        },
    }
}

pub fn party(row: &Row) -> Party {
    match row.mechanism.as_str() {
        "pipe" => Party::Reference,
        mechanism if mechanism.starts_with("sluice") => Party::Ours,
        _ => Party::Other,
    }
}

/// A name behind a bit of its line.
pub fn entry(look: Look, name: &str) -> String {
    format!("{}{}", look.sample(), escape(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_mechanisms_look_differently() {
        let look = |number: usize| {
            let look = Look::numbered(number);
            (look.classes(), look.marker(0.0, 0.0, false))
        };
        for one in 0..40 {
            for other in 0..one {
                assert_ne!(look(one), look(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_mechanism_is_found_again_where_labels_say_something_else() {
        let row = |label: &str, mechanism: &str| Row {
            label: label.into(),
            mechanism: mechanism.into(),
            ..Row::default()
        };
        assert_eq!(name(&row("beside 7 stalled", "fifo")), "fifo");
        assert_eq!(name(&row("fifo (spins)", "fifo")), "fifo (spins)");
        assert_eq!(party(&row("", "sluice-pipe")), Party::Ours);
        assert_eq!(party(&row("", "pipe")), Party::Reference);
    }
}
