// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aligned columns for a terminal.

use std::fmt;

#[derive(Clone, Copy)]
pub enum Align {
    Left,
    Right,
}

pub struct Table {
    aligns: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            aligns: columns.iter().map(|(_, align)| *align).collect(),
            rows: vec![columns.iter().map(|(title, _)| title.to_string()).collect()],
        }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(
            cells.len(),
            self.aligns.len(),
            "a row has a cell for each column"
        );
        self.rows.push(cells);
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
        };
        (0..self.aligns.len())
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let padded = cells.iter().zip(&self.aligns).zip(widths);
        let padded: Vec<String> = padded
            .map(|((cell, align), &width)| match align {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_string()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths = self.widths();
        for (index, row) in self.rows.iter().enumerate() {
            writeln!(f, "{}", self.line(row, &widths))?;
            if index == 0 {
                let rule = widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1);
                writeln!(f, "{}", "─".repeat(rule))?;
            }
        }
        Ok(())
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
