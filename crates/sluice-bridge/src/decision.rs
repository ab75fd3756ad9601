// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which side of an entry has to follow the other one.

use crate::map_rule::Direction;

/// What both sides had when they were last the same: the version in the map and the revision in the bucket. Version 0: no entry, and the
/// revision is that of the deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    pub version: u64,
    pub revision: u64,
}

/// What a side has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// 0: no entry.
    pub version: u64,
    pub revision: u64,
    /// Whether the revision is that of a value.
    pub is_in_bucket: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Nothing,
    /// The bucket has to become what the map is.
    Out,
    /// The map has to become what the bucket is.
    In,
}

/// Also returns whether both sides were changed: it is the rule for conflicts that decides.
pub fn decide(direction: Direction, pair: Option<Pair>, sides: Sides) -> (Action, bool) {
    let pair = pair.unwrap_or_default();
    let is_in_map = sides.version != 0;
    let map_changed = sides.version != pair.version;
    let bucket_changed =
        (sides.is_in_bucket || pair.version != 0) && sides.revision != pair.revision;
    match (direction, map_changed, bucket_changed) {
        (_, false, false) => (Action::Nothing, false),
        _ if !is_in_map && !sides.is_in_bucket => (Action::Nothing, false),
        (Direction::Out, ..) | (Direction::Both, true, false) => (Action::Out, false),
        (Direction::In, ..) | (Direction::Both, false, true) => (Action::In, false),
        // An entry that one side has deleted and the other one has set stays; of two values the bucket's is the one that others have.
        (Direction::Both, true, true) if sides.is_in_bucket => (Action::In, true),
        (Direction::Both, true, true) => (Action::Out, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: Option<Pair> = Some(Pair {
        version: 3,
        revision: 7,
    });

    fn both(pair: Option<Pair>, version: u64, revision: u64, is_in_bucket: bool) -> (Action, bool) {
        let sides = Sides {
            version,
            revision,
            is_in_bucket,
        };
        decide(Direction::Both, pair, sides)
    }

    #[test]
    fn the_side_that_has_changed_is_followed() {
        assert_eq!(both(PAIR, 3, 7, true), (Action::Nothing, false));
        assert_eq!(both(PAIR, 4, 7, true), (Action::Out, false));
        assert_eq!(both(PAIR, 0, 7, true), (Action::Out, false));
        assert_eq!(both(PAIR, 3, 8, true), (Action::In, false));
        assert_eq!(both(PAIR, 3, 8, false), (Action::In, false));
        // The bucket does not even know that it was deleted.
        assert_eq!(both(PAIR, 3, 0, false), (Action::In, false));
        assert_eq!(both(None, 4, 0, false), (Action::Out, false));
        assert_eq!(both(None, 0, 8, true), (Action::In, false));
        assert_eq!(both(None, 0, 8, false), (Action::Nothing, false));
    }

    #[test]
    fn a_conflict_has_a_rule() {
        assert_eq!(both(PAIR, 4, 8, true), (Action::In, true));
        assert_eq!(both(None, 4, 8, true), (Action::In, true));
        assert_eq!(both(PAIR, 4, 8, false), (Action::Out, true));
        assert_eq!(both(PAIR, 0, 8, true), (Action::In, true));
        assert_eq!(both(PAIR, 0, 8, false), (Action::Nothing, false));
    }

    #[test]
    fn an_old_deletion_is_no_change() {
        let deleted = Some(Pair {
            version: 0,
            revision: 7,
        });
        assert_eq!(both(deleted, 0, 7, false), (Action::Nothing, false));
        assert_eq!(both(deleted, 4, 9, false), (Action::Out, false));
        assert_eq!(both(None, 4, 9, false), (Action::Out, false));
        assert_eq!(both(deleted, 0, 9, true), (Action::In, false));
    }

    #[test]
    fn one_writer_is_always_right() {
        for (version, revision, is_in_bucket) in [
            (4, 7, true),
            (3, 8, true),
            (4, 8, true),
            (0, 8, true),
            (4, 8, false),
        ] {
            let sides = Sides {
                version,
                revision,
                is_in_bucket,
            };
            assert_eq!(decide(Direction::Out, PAIR, sides), (Action::Out, false));
            assert_eq!(decide(Direction::In, PAIR, sides), (Action::In, false));
        }
    }
}
