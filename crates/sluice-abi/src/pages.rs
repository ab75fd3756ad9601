// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares docs/abi/ with the header: the values of commands, the layouts of structures, and the tables of limits.

use std::fs;
use std::path::Path;

use super::header::{Fact, facts, number};
use crate::{PIPE_DEFAULT_PAGES, bus, map, ring};

fn source(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path);
    fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn page(name: &str) -> String {
    source(&format!("docs/abi/{name}.md"))
}

const PAGES: [&str; 12] = [
    "common",
    "pipe",
    "ring",
    "ring-memfd",
    "ring-device",
    "feed",
    "bus",
    "map",
    "map-durable",
    "map-keeper",
    "map-mapped",
    "map-netlink",
];

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim_start_matches('|').trim_end_matches('|');
    row.split('|').map(str::trim).collect()
}

/// The rows of a table, without its head.
fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().skip(2).map(cells)
}

/// A row of the table of commands, for one command.
pub(super) struct Command {
    pub name: String,
    pub value: u64,
    /// The name of its structure, if it has one.
    pub argument: Option<String>,
}

pub(super) fn commands() -> Vec<Command> {
    let page = page("common");
    let (_, table) = page.split_once("## Commands\n").unwrap();
    let (table, _) = table.split_once("\n\n").unwrap();
    let mut commands = Vec::new();
    for row in rows(table) {
        let argument = row[2]
            .strip_prefix('[')
            .and_then(|link| link.split_once(']'));
        for (name, value) in row[0].split(", ").zip(row[1].split(", ")) {
            let hex = value.strip_prefix("0x").unwrap();
            commands.push(Command {
                name: name.to_owned(),
                value: u64::from_str_radix(hex, 16).unwrap(),
                argument: argument.map(|(name, _)| name.to_owned()),
            });
        }
    }
    commands
}

/// The digits at the beginning of a text, and the rest.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Of a text such as "struct sluice_keep, 8 bytes, first size 8:" the name, and the facts of both sizes.
fn introduction(text: &str) -> Option<(String, Vec<Fact>)> {
    let (name, rest) = text.split_once(|c: char| c != '_' && !c.is_ascii_alphabetic())?;
    let rest = rest.trim_start_matches("*, ").trim_start();
    let (size, rest) = leading_number(rest)?;
    let rest = rest.strip_prefix(" bytes")?;
    let mut facts = vec![(format!("sizeof(struct {name})"), size)];
    if let Some((first, _)) = rest.strip_prefix(", first size ").and_then(leading_number) {
        let constant = format!("{}_SIZE_VER0", name.to_uppercase());
        facts.push((number(&constant), first));
    }
    Some((name.to_owned(), facts))
}

/// The sizes and offsets of the structures of a page. The text before a table of fields introduces its structure.
fn layouts(page: &str) -> Vec<Fact> {
    let (mut facts, mut structure) = (Vec::new(), None);
    for block in page.split("\n\n") {
        let (text, table) = block.split_at(block.find("| offset |").unwrap_or(block.len()));
        let text = text.replace('\n', " ");
        for (at, _) in text.match_indices("struct sluice_") {
            if let Some((name, sizes)) = introduction(&text[at + "struct ".len()..]) {
                facts.extend(sizes);
                structure = Some(name);
            }
        }
        let (false, Some(name)) = (table.is_empty(), &structure) else {
            continue;
        };
        for row in rows(table) {
            for (offset, field) in row[0].split(", ").zip(row[1].split(", ")) {
                let field = field.trim_matches('`');
                if let (Ok(offset), false) = (offset.parse(), field.is_empty()) {
                    facts.push((format!("offsetof(struct {name}, {field})"), offset));
                }
            }
        }
        structure = None;
    }
    facts
}

#[test]
fn the_pages_have_the_commands_and_structures_of_the_header() {
    let facts = facts();
    let mut described: Vec<Fact> = commands()
        .iter()
        .map(|command| (number(&command.name), command.value))
        .collect();
    for name in PAGES {
        described.extend(layouts(&page(name)));
    }
    for fact in &described {
        assert!(facts.contains(fact), "docs/abi/ has {fact:x?}");
    }
    let is_command = |fact: &Fact| fact.1 >> 8 & 0xFF == 0xC7;
    let is_layout = |fact: &Fact| fact.0.contains("of(struct ") && !fact.0.contains(", reserved");
    let is_first_size = |fact: &Fact| fact.0.contains("_SIZE_VER0");
    for fact in &facts {
        if is_command(fact) || is_layout(fact) || is_first_size(fact) {
            assert!(described.contains(fact), "docs/abi/ lacks {fact:x?}");
        }
    }
}

/// A cell of a table of limits, and the constant that it names.
struct Limit(
    /// The page.
    &'static str,
    /// The beginning of the row.
    &'static str,
    /// The column.
    usize,
    /// The source file of the constant.
    &'static str,
    /// Its name.
    &'static str,
);

const HEADER: &str = "include/uapi/linux/sluice.h";
/// Columns of the tables of limits, and of module parameters.
const MINIMUM: usize = 1;
const DEFAULT: usize = 2;
const MAXIMUM: usize = 3;
const PARAMETER: usize = 1;

#[rustfmt::skip]
const LIMITS: &[Limit] = &[
    Limit("common", "`scope_max_channels`", PARAMETER, "kernel/quota.c", "scope_max_channels"),
    Limit("common", "`user_max_channels`", PARAMETER, "kernel/quota.c", "user_max_channels"),
    Limit("common", "`pipe_max_size`", PARAMETER, "kernel/pipe.c", "pipe_max_size"),
    Limit("common", "`spin_limit_us`", PARAMETER, "kernel/wait.c", "spin_limit_us"),
    Limit("common", "`feed_max_bytes`", PARAMETER, "kernel/feed.c", "feed_max_bytes"),
    Limit("common", "`bus_max_subscribers`", PARAMETER, "kernel/bus.c", "bus_max_subscribers"),
    Limit("pipe", "`capacity`", DEFAULT, "kernel/pipe.c", "DEFAULT_SLOTS"),
    Limit("pipe", "`capacity`", MAXIMUM, "kernel/pipe.c", "CAPACITY_MAX"),
    Limit("ring", "`capacity`", MINIMUM, HEADER, "SLUICE_RING_CAPACITY_MIN"),
    Limit("ring", "`capacity`", DEFAULT, "kernel/ring.c", "DEFAULT_CAPACITY"),
    Limit("ring", "`capacity`", MAXIMUM, HEADER, "SLUICE_RING_CAPACITY_MAX"),
    Limit("feed", "`capacity`", MINIMUM, "kernel/feed.c", "CAPACITY_MIN"),
    Limit("feed", "`capacity`", DEFAULT, "kernel/feed.c", "DEFAULT_CAPACITY"),
    Limit("feed", "`capacity`", MAXIMUM, HEADER, "SLUICE_RING_CAPACITY_MAX"),
    Limit("feed", "bytes of a packet", MAXIMUM, HEADER, "SLUICE_FEED_PACKET_MAX"),
    Limit("feed", "`interval_ns`", MINIMUM, "kernel/feed_simulator.c", "INTERVAL_MIN_NS"),
    Limit("feed", "`interval_ns`", MAXIMUM, "kernel/feed_simulator.c", "INTERVAL_MAX_NS"),
    Limit("bus", "`capacity`", MINIMUM, HEADER, "SLUICE_BUS_CAPACITY_MIN"),
    Limit("bus", "`capacity`", DEFAULT, "kernel/bus.c", "DEFAULT_CAPACITY"),
    Limit("bus", "`capacity`", MAXIMUM, HEADER, "SLUICE_BUS_CAPACITY_MAX"),
    Limit("bus", "length of a message", MAXIMUM, HEADER, "SLUICE_BUS_MESSAGE_MAX"),
    Limit("bus", "subscribers", MAXIMUM, "kernel/bus.c", "SUBSCRIBERS_LIMIT"),
    Limit("bus", "monitors", MAXIMUM, "kernel/bus.h", "SLUICE_BUS_MONITORS_MAX"),
    Limit("map", "`capacity`", DEFAULT, "kernel/map_create.c", "DEFAULT_CAPACITY"),
    Limit("map", "`capacity`", MAXIMUM, HEADER, "SLUICE_MAP_CAPACITY_MAX"),
    Limit("map", "length of a key", MAXIMUM, HEADER, "SLUICE_MAP_KEY_MAX"),
    Limit("map", "length of a value", MAXIMUM, HEADER, "SLUICE_MAP_VALUE_MAX"),
    Limit("map", "entries", MAXIMUM, "kernel/map.h", "SLUICE_MAP_ENTRIES_MAX"),
    Limit("map", "changes in the log", DEFAULT, "kernel/map_create.c", "DEFAULT_EVENTS"),
    Limit("map", "changes in the log", MAXIMUM, HEADER, "SLUICE_MAP_EVENTS_MAX"),
    Limit("map", "steps of a batch", MAXIMUM, HEADER, "SLUICE_MAP_BATCH_MAX"),
    Limit("map-durable", "`deadline_ms`", DEFAULT, "kernel/stream.c", "DEFAULT_DEADLINE_MS"),
    Limit("map-durable", "`deadline_ms`", MAXIMUM, "kernel/map_create.c", "TIME_MAX_MS"),
    Limit("map-durable", "`interval_ms`", DEFAULT, "kernel/stream.c", "DEFAULT_INTERVAL_MS"),
    Limit("map-durable", "`interval_ms`", MAXIMUM, "kernel/map_create.c", "TIME_MAX_MS"),
    Limit("map-durable", "changes that are not stored", MAXIMUM, "kernel/stream.h", "SLUICE_STREAM_BYTES"),
    Limit("map-mapped", "`table`", MAXIMUM, HEADER, "SLUICE_MAP_TABLE_MAX"),
    Limit("map-mapped", "`cell`", MINIMUM, HEADER, "SLUICE_MAP_CELL_MIN"),
    Limit("map-mapped", "`cell`", DEFAULT, "kernel/map_mapped.c", "DEFAULT_CELL"),
    Limit("map-mapped", "`cell`", MAXIMUM, HEADER, "SLUICE_MAP_CELL_MAX"),
    Limit("map-netlink", "length of a value", MAXIMUM, HEADER, "SLUICE_NL_VALUE_MAX"),
    Limit("map-netlink", "steps of a batch", MAXIMUM, HEADER, "SLUICE_NL_STEPS_MAX"),
    Limit("map-netlink", "reply of a batch", MAXIMUM, "kernel/map_netlink_batch.c", "REPLY_MAX"),
    Limit("map-netlink", "handles of a socket", MAXIMUM, HEADER, "SLUICE_NL_HANDLES_MAX"),
];

/// The number of a token of an expression; 1 for a word without one, such as u64 or PAGE_SIZE.
fn factor(token: &str) -> u64 {
    if let Some(hex) = token.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).unwrap();
    }
    match token.strip_prefix("SZ_") {
        Some(size) => {
            let (number, unit) = leading_number(size).unwrap();
            number << (10 * (1 + "KMG".find(unit).unwrap()))
        }
        None => match token {
            "NSEC_PER_USEC" => 1_000,
            "NSEC_PER_SEC" => 1_000_000_000,
            _ => token.parse().unwrap_or(1),
        },
    }
}

/// The value of a constant: of `BIT(n)` and `a << n` as in C, otherwise the product of the numbers in its expression.
fn constant(file: &str, name: &str) -> u64 {
    let text = source(file);
    let is_definition = |line: &&str| {
        let rest = line.split_once(name).map(|(_, rest)| rest);
        let words = ["#define ", "static ", "const "];
        rest.is_some_and(|rest| rest.starts_with([' ', '\t']))
            && words.iter().any(|word| line.starts_with(word))
    };
    let line = text.lines().find(is_definition);
    let line = line.unwrap_or_else(|| panic!("{file} does not define {name}"));
    let (_, expression) = line.split_once(name).unwrap();
    let (expression, _) = expression.split_once("/*").unwrap_or((expression, ""));
    let product = |text: &str| -> u64 {
        let tokens = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        tokens.map(factor).product()
    };
    if let Some((number, shift)) = expression.split_once("<<") {
        return product(number) << product(shift);
    }
    match expression.split_once("BIT(") {
        Some((_, bit)) => 1 << product(bit),
        None => product(expression),
    }
}

/// The first number of a cell, such as "4 KiB, and a page" or "65,536".
fn number_in(cell: &str) -> Option<u64> {
    let text = &cell[cell.find(|c: char| c.is_ascii_digit())?..];
    let digits = text.replace(',', "") + " ";
    let (number, rest) = leading_number(&digits)?;
    let unit = rest.trim_start().split(' ').next()?;
    let unit = unit.trim_end_matches(|c: char| !c.is_ascii_alphabetic());
    let shift = ["KiB", "MiB", "GiB"].iter().position(|name| *name == unit);
    Some(number << shift.map_or(0, |n| 10 * (n + 1)))
}

#[test]
fn the_limits_in_the_pages_are_those_of_the_sources() {
    for Limit(name, label, column, file, name_of_constant) in LIMITS {
        let page = page(name);
        let start = format!("| {label}");
        let row = page.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("docs/abi/{name}.md has no row '{label}'"));
        let cell = cells(row)[*column];
        assert_eq!(
            number_in(cell),
            Some(constant(file, name_of_constant)),
            "docs/abi/{name}.md has '{cell}' for '{label}'; {file} defines {name_of_constant}"
        );
    }
}

/// They are not in the header, because a program passes 0 for them.
#[test]
fn the_defaults_are_those_of_the_module() {
    for (file, name, ours) in [
        ("kernel/pipe.c", "DEFAULT_SLOTS", PIPE_DEFAULT_PAGES),
        ("kernel/ring.c", "DEFAULT_CAPACITY", ring::DEFAULT_CAPACITY),
        ("kernel/bus.c", "DEFAULT_CAPACITY", bus::DEFAULT_CAPACITY),
        (
            "kernel/map_create.c",
            "DEFAULT_CAPACITY",
            map::DEFAULT_CAPACITY,
        ),
        (
            "kernel/map_create.c",
            "DEFAULT_EVENTS",
            map::DEFAULT_EVENTS.into(),
        ),
        (
            "kernel/stream.c",
            "DEFAULT_DEADLINE_MS",
            map::DEFAULT_DEADLINE_MS.into(),
        ),
        (
            "kernel/stream.c",
            "DEFAULT_INTERVAL_MS",
            map::DEFAULT_INTERVAL_MS.into(),
        ),
    ] {
        assert_eq!(constant(file, name), ours, "{name} of {file}");
    }
}
