// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a history of concurrent operations on one key could have happened one after the other, each at some moment
//! between its call and its return. The search is that of Wing and Gong, with the states that it has seen remembered.

use std::collections::HashSet;

/// What an operation did. A value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Saw this value, or no entry.
    Get(Option<u64>),
    Set(u64),
    /// Set a value because there was no entry, or found that there was one.
    Create(u64, bool),
    /// Replaced the first value by the second, or found another value or no entry.
    Replace(u64, u64, bool),
    /// Deleted an entry, or found none.
    Delete(bool),
}

impl Did {
    /// The value after it, if it is possible with this value before.
    fn after(self, before: Option<u64>) -> Option<Option<u64>> {
        match self {
            Did::Get(seen) => (seen == before).then_some(before),
            Did::Set(value) => Some(Some(value)),
            Did::Create(value, true) => before.is_none().then_some(Some(value)),
            Did::Create(_, false) => before.is_some().then_some(before),
            Did::Replace(from, to, true) => (before == Some(from)).then_some(Some(to)),
            Did::Replace(from, _, false) => (before != Some(from)).then_some(before),
            Did::Delete(true) => before.is_some().then_some(None),
            Did::Delete(false) => before.is_none().then_some(None),
        }
    }
}

/// An operation, with two moments of one clock.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub called: u64,
    pub returned: u64,
    pub did: Did,
}

/// A history of at most 64 operations, which begins without an entry.
pub fn is_linearizable(history: &[Operation]) -> bool {
    assert!(history.len() <= 64, "a history has at most 64 operations");
    let mut seen = HashSet::new();
    search(history, 0, None, &mut seen)
}

/// Whether the operations that are not in `done` can follow.
fn search(
    history: &[Operation],
    done: u64,
    value: Option<u64>,
    seen: &mut HashSet<(u64, Option<u64>)>,
) -> bool {
    let open = || (0..history.len()).filter(|at| done & 1 << at == 0);
    // The next one was called before any of the others had returned.
    let Some(first_return) = open().map(|at| history[at].returned).min() else {
        return true;
    };
    seen.insert((done, value))
        && open()
            .filter(|at| history[*at].called < first_return)
            .any(|at| match history[at].did.after(value) {
                Some(value) => search(history, done | 1 << at, value, seen),
                None => false,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(operations: &[(u64, u64, Did)]) -> Vec<Operation> {
        let operations = operations.iter();
        operations
            .map(|&(called, returned, did)| Operation {
                called,
                returned,
                did,
            })
            .collect()
    }

    #[test]
    fn operations_one_after_the_other_see_what_is_before() {
        let good = [
            (1, 2, Did::Get(None)),
            (3, 4, Did::Set(7)),
            (5, 6, Did::Create(8, false)),
            (7, 8, Did::Get(Some(7))),
            (9, 10, Did::Replace(7, 9, true)),
            (11, 12, Did::Delete(true)),
            (13, 14, Did::Delete(false)),
        ];
        assert!(is_linearizable(&history(&good)));
        for (at, did) in [
            (0, Did::Get(Some(7))),
            (3, Did::Get(None)),
            (2, Did::Create(8, true)),
            (4, Did::Replace(6, 9, true)),
            (5, Did::Delete(false)),
            (6, Did::Delete(true)),
        ] {
            let mut bad = good;
            bad[at].2 = did;
            assert!(!is_linearizable(&history(&bad)), "{did:?}");
        }
    }

    #[test]
    fn a_read_during_a_set_sees_either_value_but_not_the_old_one_after_the_new_one() {
        let set = [(1, 2, Did::Set(1)), (3, 10, Did::Set(2))];
        for (first, second, possible) in [
            (Some(1), Some(1), true),
            (Some(1), Some(2), true),
            (Some(2), Some(2), true),
            (Some(2), Some(1), false),
            (None, Some(2), false),
        ] {
            let reads = [(4, 5, Did::Get(first)), (6, 7, Did::Get(second))];
            let whole = history(&[&set[..], &reads[..]].concat());
            assert_eq!(is_linearizable(&whole), possible, "{first:?}, {second:?}");
        }
    }

    #[test]
    fn a_stale_read_after_a_set_has_returned_is_rejected() {
        let stale = [
            (1, 2, Did::Set(1)),
            (3, 4, Did::Set(2)),
            (5, 6, Did::Get(Some(1))),
        ];
        assert!(!is_linearizable(&history(&stale)));
    }
}
