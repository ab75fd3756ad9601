// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows grouped by a property.

use crate::harness::rows::Row;

/// Distinct values in the order of their first occurrence.
pub fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// The rows with each value of a property, in the order of the first ones.
pub fn groups<'a, T: PartialEq>(
    rows: &[&'a Row],
    property: impl Fn(&'a Row) -> T,
) -> Vec<(T, Vec<&'a Row>)> {
    let mut groups: Vec<(T, Vec<&Row>)> = Vec::new();
    for &row in rows {
        let value = property(row);
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, group)) => group.push(row),
            None => groups.push((value, vec![row])),
        }
    }
    groups
}

/// The rows with a result.
pub fn measured<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let rows = rows.iter().copied();
    rows.filter(|row| row.median.is_some()).collect()
}
