// SPDX-License-Identifier: MIT OR Apache-2.0
//! The versions of what is compared.

use std::collections::BTreeMap;

use super::fanout::dbus;
use super::map::redis;
use crate::harness::rows::Row;
use crate::mechanisms::zeromq;

const LOCK_FILE: &str = include_str!("../../Cargo.lock");

type Version = fn() -> Option<String>;

/// Programs and libraries of others: the name, how the names of its mechanisms begin, and the version.
#[rustfmt::skip]
const OTHERS: [(&str, &str, Version); 7] = [
    ("Aeron (rusteron-media-driver)", "aeron", || locked("rusteron-media-driver")),
    ("D-Bus", "dbus-daemon", dbus::version),
    ("iceoryx2", "iceoryx2", || locked("iceoryx2")),
    ("Redis", "redis", redis::version),
    ("SQLite", "sqlite", || Some(rusqlite::version().to_owned())),
    ("Tachyon", "tachyon", || locked("tachyon-ipc")),
    ("ZeroMQ", "zeromq", zeromq::version),
];

/// Of this program, and of the others of which these rows have a result.
pub fn versions(rows: &[Row]) -> BTreeMap<String, String> {
    let own = ("Sluice".into(), env!("CARGO_PKG_VERSION").into());
    let others = OTHERS.iter().filter_map(|(name, prefix, version)| {
        let mut measured = rows.iter().filter(|row| row.is_measured());
        let is_measured = measured.any(|row| row.mechanism.starts_with(prefix));
        Some((name.to_string(), is_measured.then(version)??))
    });
    others.chain([own]).collect()
}

fn locked(name: &str) -> Option<String> {
    let (_, rest) = LOCK_FILE.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    let (version, _) = rest.split_once('"')?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_three_numbers() {
        let crates = ["iceoryx2", "rusteron-media-driver", "tachyon-ipc"].map(locked);
        assert!(crates.iter().all(Option::is_some), "{crates:?}");
        let installed = [zeromq::version, dbus::version, redis::version].map(|version| version());
        for version in crates.into_iter().chain(installed).flatten() {
            let parts: Result<Vec<u32>, _> = version.split('.').map(str::parse).collect();
            assert_eq!(parts.unwrap().len(), 3, "{version}");
        }
    }
}
