// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of what is shown: grouped by a property, or the best first.

use crate::harness::rows::Row;

/// In the order of their first occurrence.
pub fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut known = Vec::new();
    for value in values {
        if !known.contains(&value) {
            known.push(value);
        }
    }
    known
}

/// The items with each value of a property, in the order of the first ones.
pub fn groups<T: Copy, K: PartialEq>(items: &[T], property: impl Fn(T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for &item in items {
        let value = property(item);
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, group)) => group.push(item),
            None => groups.push((value, vec![item])),
        }
    }
    groups
}

/// Sorts by the value of a row of each item.
pub fn sort_best_first<'a, T>(items: &mut [T], row: impl Fn(&T) -> Option<&'a Row>) {
    let key = |item: &T| match row(item) {
        Some(row) if row.less_is_better() => row.median().unwrap_or(0.0),
        row => -row.and_then(Row::median).unwrap_or(0.0),
    };
    items.sort_by(|one, other| key(one).total_cmp(&key(other)));
}
