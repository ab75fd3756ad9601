// SPDX-License-Identifier: MIT OR Apache-2.0
//! The style of a mechanism: colour, dashes and mark, so that mechanisms differ without colour, too. It is the same in every
//! plot.

use serde::Serialize;

use super::groups::distinct;
use crate::harness::rows::Row;

const COLOURS: usize = 6;
const DASHES: usize = 3;
const MARKS: [&str; 7] = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "m-3.5 -3.5h7v7h-7z",
    "m0 -4.5l4.5 8h-9z",
    "m0 -5l5 5l-5 5l-5 -5z",
    "m0 4.5l4.5 -8h-9z",
    "m-1.5 -4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
    "m-4.5 -1.5l1.5 -3h6l1.5 3l-4.5 6z",
];

/// In the order of drawing: the most important lines are above the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Other,
    /// The reference of the ratios.
    Reference,
    Sluice,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Style {
    pub role: Role,
    /// For the style sheet.
    classes: String,
    /// The outline of the mark.
    mark: &'static str,
}

impl Style {
    pub fn new(role: Role, number: usize) -> Self {
        let (colour, dash) = match role {
            Role::Other => (format!("c{}", number % COLOURS), number / COLOURS),
            Role::Reference => ("reference".into(), number),
            Role::Sluice => ("sluice".into(), number),
        };
        Self {
            role,
            classes: format!("{colour} d{}", dash % DASHES),
            mark: MARKS[(number % COLOURS + number / COLOURS) % MARKS.len()],
        }
    }
}

/// The styles of all mechanisms.
pub struct Styles<'a>(Vec<(&'a str, Style)>);

impl<'a> Styles<'a> {
    pub fn of(rows: &'a [Row]) -> Self {
        let compared = rows
            .iter()
            .filter_map(|row| Some((row, row.reference(rows)?)));
        let other = compared.filter(|(row, to)| row.mechanism != to.mechanism);
        let references = distinct(other.map(|(_, to)| name(to)));
        let mut styles: Vec<(&str, Style)> = Vec::new();
        for row in rows {
            let name = name(row);
            if styles.iter().any(|(known, _)| *known == name) {
                continue;
            }
            let role = match row.is_sluice() {
                true => Role::Sluice,
                false if references.contains(&name) => Role::Reference,
                false => Role::Other,
            };
            let alike = styles.iter().filter(|(_, style)| style.role == role);
            styles.push((name, Style::new(role, alike.count())));
        }
        Self(styles)
    }

    pub fn get(&self, row: &Row) -> Style {
        let found = self.0.iter().find(|(known, _)| *known == name(row));
        found.map_or_else(|| Style::new(Role::Other, 0), |(_, style)| style.clone())
    }
}

/// Otherwise the label only names conditions, such as "4 pairs".
pub fn is_named(row: &Row) -> bool {
    row.label.starts_with(&row.mechanism)
}

fn name(row: &Row) -> &str {
    if is_named(row) {
        &row.label
    } else {
        &row.mechanism
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::rounds::Metric;
    use crate::harness::rounds::tests::outcome;
    use crate::harness::rows::rows;

    #[test]
    fn forty_mechanisms_have_distinct_styles() {
        let styles = (0..40).map(|number| Style::new(Role::Other, number));
        assert_eq!(distinct(styles).len(), 40);
    }

    #[test]
    fn a_mechanism_has_its_role_and_keeps_its_style_under_another_label() {
        let mut rows = rows(&outcome(Metric::Latency, &[2.0], &[1.0]));
        let pairs = Row {
            label: "4 pairs".into(),
            ..rows[1].clone()
        };
        rows.push(pairs);
        let styles = Styles::of(&rows);
        let roles: Vec<Role> = rows.iter().map(|row| styles.get(row).role).collect();
        let expected = [Role::Reference, Role::Sluice, Role::Other, Role::Sluice];
        assert_eq!(roles, expected);
        assert_eq!(styles.get(&rows[1]), styles.get(&rows[3]));
    }
}
