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
        let mut measured = rows.iter().filter(|row| row.value.is_some());
        measured.any(|row| row.mechanism.starts_with(other.prefix))
    };
    let others = OTHERS.iter().filter(is_measured);
    let others = others.filter_map(|other| Some((other.name.into(), (other.version)()?)));
    others.chain([own]).collect()
}

/// The version of a crate.
fn locked(name: &str) -> Option<String> {
    let (_, rest) = LOCK_FILE.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    let (version, _) = rest.split_once('"')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::figures::Values;

    #[test]
    fn what_has_a_result_is_listed_with_the_version_of_the_lock_file() {
        let row = |mechanism: &str, value| Row {
            mechanism: mechanism.into(),
            value: Values::of([(0, value)].into_iter()),
            ..Row::default()
        };
        let rows = ["iceoryx2", "pipe", "tachyon"].map(|name| row(name, 1.0));
        let skipped = Row {
            value: None,
            ..row("sqlite", 1.0)
        };
        let versions = versions(&[rows.as_slice(), &[skipped]].concat());
        let names: Vec<&str> = versions.keys().map(String::as_str).collect();
        assert_eq!(names, ["Sluice", "Tachyon", "iceoryx2"]);
        for (name, version) in &versions {
            let parts = version.split('.').map(str::parse::<u32>);
            assert_eq!(parts.filter(Result::is_ok).count(), 3, "{name} {version}");
        }
    }

    #[test]
    fn what_is_installed_tells_its_version() {
        let is_version = |text: String| text.split('.').all(|part| part.parse::<u32>().is_ok());
        for version in [zeromq::version, dbus::version, redis::version] {
            assert!(version().is_none_or(is_version));
        }
    }
}
