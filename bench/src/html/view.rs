// SPDX-License-Identifier: MIT OR Apache-2.0
//! A row, with what the templates show of it beside its fields.

use serde::Serialize;

use super::style::{Style, Styles};
use crate::harness::rows::Row;

#[derive(Serialize)]
pub struct View<'a> {
    #[serde(flatten)]
    pub row: &'a Row,
    pub number: usize,
    pub style: Style,
    rounds: usize,
    less_is_better: bool,
    median_text: Option<String>,
    range_text: Option<String>,
    /// The comparison with the reference: its class, and its name.
    change: Option<[&'static str; 2]>,
    few_common_rounds: Option<usize>,
    /// The noisy rounds of the row, or else of its reference, and all.
    noisy: Option<[usize; 2]>,
}

impl<'a> View<'a> {
    pub fn of(number: usize, rows: &'a [Row], styles: &Styles) -> Self {
        let row = &rows[number];
        let noisy = |row: &Row| Some([row.noisy_rounds?, row.rounds()]);
        Self {
            row,
            number,
            style: styles.get(row),
            rounds: row.rounds(),
            less_is_better: row.less_is_better(),
            median_text: row.median_text(),
            range_text: row.range_text(),
            change: row.change().map(|one| [one.name(), row.change_name(one)]),
            few_common_rounds: row.few_common_rounds(),
            noisy: noisy(row).or_else(|| noisy(row.reference(rows)?)),
        }
    }

    /// The class of its marks.
    pub fn mark(&self) -> &'static str {
        match self.row.is_noisy() {
            true => "mark noisy",
            false => "mark",
        }
    }
}
