// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aligned columns for a terminal.

use std::fmt;

pub use comfy_table::CellAlignment as Align;
use comfy_table::TableComponent::{HeaderLines, MiddleHeaderIntersections};
use comfy_table::presets::NOTHING;

/// Two spaces between the columns, and a line below their titles.
pub struct Table(comfy_table::Table);

impl Table {
    pub fn new(columns: &[(&str, Align)]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_preset(NOTHING);
        for component in [HeaderLines, MiddleHeaderIntersections] {
            table.set_style(component, '─');
        }
        table.set_header(columns.iter().map(|(title, _)| *title));
        for (number, (_, align)) in columns.iter().enumerate() {
            // The junction of two columns is the second space.
            let space = if number + 1 < columns.len() { 1 } else { 0 };
            let column = table.column_mut(number).expect("each column has a title");
            column.set_padding((0, space)).set_cell_alignment(*align);
        }
        Self(table)
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .lines()
            .try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters_and_not_by_bytes() {
        let mut table = Table::new(&[("name", Align::Left), ("time", Align::Right)]);
        table.row(["pipe".into(), "70 µs".into()]);
        table.row(["sluice-pipe".into(), "100 ns".into()]);
        let expected =
            "name           time\n───────────────────\npipe          70 µs\nsluice-pipe  100 ns\n";
        assert_eq!(table.to_string(), expected);
    }
}
