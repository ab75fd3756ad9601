// SPDX-License-Identifier: MIT OR Apache-2.0
//! A module whose counters begin near 2^32 or near their end (kernel/start.h). The tests count from 0, and see its numbers less those
//! at which they begin.

use std::sync::OnceLock;

/// The number of the first message of a bus, of the first packet of a feed, and before the first change of a map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct First {
    message: u64,
    packet: u64,
    change: u64,
}

/// As kernel/start.h has it.
fn first_of(near: &str) -> Option<First> {
    let (wraps, endless) = match near {
        "" => return Some(First::default()),
        "32" => (1 << 32, 1 << 32),
        "64" => (0_u64, (1 << 63) - (1 << 40)),
        _ => return None,
    };
    Some(First {
        message: endless - 100,
        packet: wraps.wrapping_sub(100),
        change: endless - 300,
    })
}

fn first() -> First {
    static FIRST: OnceLock<First> = OnceLock::new();
    *FIRST.get_or_init(|| {
        let near = std::env::var("SLUICE_TEST_NEAR").unwrap_or_default();
        first_of(&near).expect("SLUICE_TEST_NEAR is 32, 64 or not set")
    })
}

pub fn message(sequence: u64) -> u64 {
    sequence.wrapping_sub(first().message)
}

/// The reverse of message().
pub fn message_in_module(sequence: u64) -> u64 {
    sequence.wrapping_add(first().message)
}

pub fn packet(sequence: u64) -> u64 {
    sequence.wrapping_sub(first().packet)
}

/// The number of a change or a version; 0 is none.
pub fn change(number: u64) -> u64 {
    match number {
        0 => 0,
        number => number.wrapping_sub(first().change),
    }
}

/// The reverse of change(): of a version; 0 is none.
pub fn version_in_module(version: u64) -> u64 {
    match version {
        0 => 0,
        version => change_in_module(version),
    }
}

/// The reverse of change(): after which a watch begins; all ones are the last change.
pub fn change_in_module(number: u64) -> u64 {
    match number {
        u64::MAX => number,
        number => number.wrapping_add(first().change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_where_the_module_begins() {
        let near = first_of("32").expect("known");
        assert_eq!(near.message, (1 << 32) - 100);
        let near = first_of("64").expect("known");
        assert_eq!(near.packet, u64::MAX - 99);
        assert_eq!(first_of(""), Some(First::default()));
        assert_eq!(first_of("16"), None);
    }
}
