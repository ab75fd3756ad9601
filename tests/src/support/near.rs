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

/// The values of SLUICE_BUS_FIRST (kernel/bus.h), of the first sequence of a feed (kernel/feed.c), and of
/// SLUICE_MAP_BEFORE_FIRST (kernel/map.h).
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

pub fn message_from_zero(sequence: u64) -> u64 {
    sequence.wrapping_sub(first().message)
}

/// The reverse of message_from_zero().
pub fn message_in_module(sequence: u64) -> u64 {
    sequence.wrapping_add(first().message)
}

pub fn packet_from_zero(sequence: u64) -> u64 {
    sequence.wrapping_sub(first().packet)
}

/// The number of a change or a version; 0 is none.
pub fn change_from_zero(number: u64) -> u64 {
    match number {
        0 => 0,
        number => number.wrapping_sub(first().change),
    }
}

/// The reverse of change_from_zero(): of a version; 0 is none.
pub fn version_in_module(version: u64) -> u64 {
    match version {
        0 => 0,
        version => change_in_module(version),
    }
}

/// The reverse of change_from_zero(): after which a watch begins; all ones are the last change.
pub fn change_in_module(number: u64) -> u64 {
    match number {
        u64::MAX => number,
        number => number.wrapping_add(first().change),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many steps before its end the counter of this line begins.
    fn steps(source: &str, counter: &str) -> u64 {
        let line = source.lines().find(|line| line.contains(counter));
        let (_, steps) = line
            .and_then(|line| line.rsplit_once('('))
            .expect("the line has a macro of start.h");
        let steps = steps.trim_end_matches([')', ';']);
        steps.parse().expect("the steps are a number")
    }

    #[test]
    fn numbers_begin_where_the_module_begins() {
        let message = include_str!("../../../kernel/bus.h");
        let message = steps(message, "#define SLUICE_BUS_FIRST SLUICE_START_ENDLESS(");
        let packet = include_str!("../../../kernel/feed.c");
        let packet = steps(packet, "feed->sequence = SLUICE_START(");
        let change = include_str!("../../../kernel/map.h");
        let change = steps(
            change,
            "#define SLUICE_MAP_BEFORE_FIRST SLUICE_START_ENDLESS(",
        );
        let from = |wraps: u64, endless: u64| First {
            message: endless - message,
            packet: wraps.wrapping_sub(packet),
            change: endless - change,
        };
        let word = 1 << 32;
        assert_eq!(first_of("32"), Some(from(word, word)));
        assert_eq!(first_of("64"), Some(from(0, (1 << 63) - (1 << 40))));
        assert_eq!(first_of(""), Some(First::default()));
        assert_eq!(first_of("16"), None);
    }
}
