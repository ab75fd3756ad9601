// SPDX-License-Identifier: MIT OR Apache-2.0
//! Defaults and limits in help texts, which the manual has, too: `{NAME}` stands for a constant of the module or of the library, so that no
//! text repeats its value.

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, Command};
use sluice::DEFAULT_PERMISSIONS;
use sluice::bus::Mode;
use sluice::ring::SocketOptions;
use sluice_abi::{PIPE_DEFAULT_PAGES, bus, feed, map, ring};

/// The page size of most systems.
const PAGE: u64 = 4096;

fn values() -> [(&'static str, String); 20] {
    [
        ("PERMISSIONS", format!("{:o}", DEFAULT_PERMISSIONS)),
        (
            "PIPE_CAPACITY",
            format!(
                "{PIPE_DEFAULT_PAGES} pages, usually {}",
                size(PIPE_DEFAULT_PAGES * PAGE)
            ),
        ),
        ("RING_CAPACITY", size(ring::DEFAULT_CAPACITY)),
        ("RING_CAPACITY_MAX", size(ring::CAPACITY_MAX)),
        (
            "SPIN",
            format!("{}us", SocketOptions::DEFAULT_SPIN_LIMIT.as_micros()),
        ),
        ("BUS_MODE", Mode::default().to_string()),
        ("BUS_CAPACITY", size(bus::DEFAULT_CAPACITY)),
        ("BUS_CAPACITY_MAX", size(bus::CAPACITY_MAX)),
        ("BUS_MESSAGE_MAX", size(bus::MESSAGE_MAX)),
        ("MAP_CAPACITY", size(map::DEFAULT_CAPACITY)),
        ("MAP_CAPACITY_MAX", size(map::CAPACITY_MAX)),
        ("MAP_EVENTS", map::DEFAULT_EVENTS.to_string()),
        ("MAP_EVENTS_MAX", map::EVENTS_MAX.to_string()),
        ("MAP_CELL", map::DEFAULT_CELL.to_string()),
        ("MAP_CELL_MAX", map::CELL_MAX.to_string()),
        ("KEY_MAX", map::KEY_MAX.to_string()),
        ("VALUE_MAX", size(map::VALUE_MAX as u64)),
        ("INTERVAL", time(map::DEFAULT_INTERVAL_MS)),
        ("DEADLINE", time(map::DEFAULT_DEADLINE_MS)),
        ("PACKET_MAX", feed::PACKET_MAX.to_string()),
    ]
}

/// Inserts the values into the help texts of all arguments of this command and of its subcommands.
pub fn insert(command: Command) -> Command {
    command.mut_args(insert_into).mut_subcommands(insert)
}

fn insert_into(argument: Arg) -> Arg {
    let help = argument.get_help().map(fill);
    let long_help = argument.get_long_help().map(fill);
    argument
        .help(Resettable::from(help))
        .long_help(Resettable::from(long_help))
}

fn fill(text: &StyledStr) -> StyledStr {
    let text = text.to_string();
    if !text.contains('{') {
        return text.into();
    }
    let filled = values().iter().fold(text, |text, (name, value)| {
        text.replace(&format!("{{{name}}}"), value)
    });
    filled.into()
}

/// In the largest unit of 1024 of which it is a multiple.
fn size(bytes: u64) -> String {
    let exponent = bytes.trailing_zeros() / 10;
    match exponent {
        0 => bytes.to_string(),
        1 => format!("{}K", bytes >> 10),
        2 => format!("{}M", bytes >> 20),
        _ => format!("{}G", bytes >> 30),
    }
}

fn time(milliseconds: u32) -> String {
    match milliseconds % 1000 {
        0 => format!("{}s", milliseconds / 1000),
        _ => format!("{milliseconds}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_inserted() {
        let text = fill(&"up to {RING_CAPACITY_MAX} [default: {RING_CAPACITY}]".into());
        assert_eq!(text.to_string(), "up to 256M [default: 4M]");
        for (bytes, text) in [
            (4096, "4K"),
            (3 << 19, "1536K"),
            (1000, "1000"),
            (64 << 30, "64G"),
        ] {
            assert_eq!(size(bytes), text);
        }
        assert_eq!((time(30_000), time(1_500)), ("30s".into(), "1500ms".into()));
    }

    #[test]
    fn every_name_has_a_value() {
        fn check(command: &Command) {
            for argument in command.get_arguments() {
                let texts = [argument.get_help(), argument.get_long_help()];
                for text in texts.into_iter().flatten().map(ToString::to_string) {
                    assert!(!text.contains(['{', '}']), "{text}");
                }
            }
            command.get_subcommands().for_each(check);
        }
        check(&crate::command());
    }
}
