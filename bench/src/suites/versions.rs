// SPDX-License-Identifier: MIT OR Apache-2.0
//! The versions of what is compared.

use std::collections::BTreeMap;

use super::fanout::dbus;
use super::map::redis;
use crate::harness::rows::Row;
use crate::mechanisms::zeromq;

/// What this program is built from.
const LOCK_FILE: &str = include_str!("../../Cargo.lock");

/// A program or library of others.
struct Other {
    name: &'static str,
    /// How the names of its mechanisms begin.
    prefix: &'static str,
    version: fn() -> Option<String>,
}

#[rustfmt::skip]
const OTHERS: [Other; 7] = [
    Other { name: "Aeron (rusteron-media-driver)", prefix: "aeron", version: || locked("rusteron-media-driver") },
    Other { name: "D-Bus", prefix: "dbus-daemon", version: dbus::version },
    Other { name: "iceoryx2", prefix: "iceoryx2", version: || locked("iceoryx2") },
    Other { name: "Redis", prefix: "redis", version: redis::version },
    Other { name: "SQLite", prefix: "sqlite", version: || Some(rusqlite::version().to_owned()) },
    Other { name: "Tachyon", prefix: "tachyon", version: || locked("tachyon-ipc") },
    Other { name: "ZeroMQ", prefix: "zeromq", version: zeromq::version },
];

/// Of this program, and of the others of which these rows have a result.
pub fn versions(rows: &[Row]) -> BTreeMap<String, String> {
    let own = ("Sluice".into(), env!("CARGO_PKG_VERSION").into());
    let is_measured = |other: &&Other| {
        let mut measured = rows.iter().filter(|row| row.median.is_some());
        measured.any(|row| row.mechanism.starts_with(other.prefix))
    };
    let others = OTHERS.iter().filter(is_measured);
    let others = others.filter_map(|other| Some((other.name.into(), (other.version)()?)));
    others.chain([own]).collect()
}

/// The version of a crate.
fn locked(name: &str) -> Option<String> {
    let begin = format!("name = \"{name}\"\nversion = \"");
    let (_, rest) = LOCK_FILE.split_once(&begin)?;
    let (version, _) = rest.split_once('"')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mechanism: &str, median: Option<f64>) -> Row {
        Row {
            mechanism: mechanism.into(),
            median,
            ..Row::default()
        }
    }

    #[test]
    fn crates_have_the_version_of_the_lock_file() {
        for name in ["iceoryx2", "tachyon-ipc", "rusteron-media-driver"] {
            let version = locked(name).expect(name);
            assert!(version.starts_with(|first: char| first.is_ascii_digit()));
            assert!(!version.contains('\n'), "{version}");
        }
        assert_eq!(locked("no such crate"), None);
    }

    #[test]
    fn only_what_has_a_result_is_listed() {
        let rows = [
            row("sqlite", Some(1.0)),
            row("tachyon", None),
            row("pipe", Some(1.0)),
        ];
        let versions = versions(&rows);
        let names: Vec<&str> = versions.keys().map(String::as_str).collect();
        assert_eq!(names, ["SQLite", "Sluice"]);
    }

    #[test]
    fn what_is_installed_tells_its_version() {
        let is_version = |text: String| text.split('.').all(|part| part.parse::<u32>().is_ok());
        for version in [zeromq::version, dbus::version, redis::version] {
            assert!(version().is_none_or(is_version));
        }
    }
}
