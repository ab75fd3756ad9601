// SPDX-License-Identifier: MIT OR Apache-2.0
//! What writers do: each change is a function of a seed, the writer and its index, so that a check computes what it compares with.

use fastrand::Rng;

/// The changes of all writers. Each has keys of its own, and makes its changes one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    pub seed: u64,
    pub writers: u32,
    /// Of each writer.
    pub keys: u32,
    /// The longest value, in bytes.
    pub longest: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Set(Vec<u8>),
    Delete,
}

#[derive(Clone, Debug)]
pub struct Operation {
    pub key: Vec<u8>,
    pub change: Change,
}

/// An operation by its place in the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub writer: u32,
    pub index: u64,
}

impl Workload {
    pub fn operation(&self, id: Id) -> Operation {
        let mut random = self.random(id);
        let key = format!("writer-{}/key-{}", id.writer, random.u32(..self.keys));
        let change = if random.u32(..100) < 15 {
            Change::Delete
        } else {
            Change::Set(self.value(id, &mut random))
        };
        Operation {
            key: key.into(),
            change,
        }
    }

    fn random(&self, id: Id) -> Rng {
        let place = (u64::from(id.writer) << 48) ^ id.index;
        Rng::with_seed(self.seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Most values are short; some need overflow pages, few many of them. Each begins with its place, for whoever looks at a store.
    fn value(&self, id: Id, random: &mut Rng) -> Vec<u8> {
        let longest = match random.u32(..100) {
            0..85 => 300,
            85..97 => 16 << 10,
            _ => 200 << 10,
        };
        let length = random.u32(..longest.min(self.longest));
        let mut value = format!("writer {} change {} ", id.writer, id.index).into_bytes();
        value.extend((0..length).map(|_| random.u8(..)));
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORKLOAD: Workload = Workload {
        seed: 1,
        writers: 2,
        keys: 3,
        longest: 1 << 20,
    };

    #[test]
    fn an_operation_is_always_the_same() {
        let id = Id {
            writer: 1,
            index: 77,
        };
        let (first, second) = (WORKLOAD.operation(id), WORKLOAD.operation(id));
        assert_eq!((first.key, first.change), (second.key, second.change));
    }

    #[test]
    fn there_are_deletions_and_values_of_all_lengths() {
        let changes = (0..1000).map(|index| WORKLOAD.operation(Id { writer: 0, index }).change);
        let lengths: Vec<Option<usize>> = changes
            .map(|change| match change {
                Change::Set(value) => Some(value.len()),
                Change::Delete => None,
            })
            .collect();
        assert!(lengths.iter().any(Option::is_none));
        assert!(lengths.iter().flatten().any(|length| *length < 300));
        assert!(lengths.iter().flatten().any(|length| *length > 100_000));
    }

    #[test]
    fn each_writer_has_its_own_keys() {
        for index in 0..100 {
            let keys = [0, 1].map(|writer| WORKLOAD.operation(Id { writer, index }).key);
            assert!(keys[0].starts_with(b"writer-0/") && keys[1].starts_with(b"writer-1/"));
        }
    }
}
