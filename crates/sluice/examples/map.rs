// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keys and values that processes of a cgroup set, get and watch: `cargo run -p sluice --example map`.

use std::thread;

use sluice::Map;
use sluice::map::{Change, SetOptions, WatchFrom};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Adds one to a counter that others change at the same time.
fn increment(map: &Map) -> Result {
    loop {
        let Some(entry) = map.get("visits")? else {
            // Fails if another thread has created the entry since.
            match map.set_with("visits", "1", SetOptions::new().if_version(0)) {
                Err(error) if error.is_conflict() => continue,
                other => return Ok(other.map(drop)?),
            }
        };
        let visits: u64 = std::str::from_utf8(&entry.value)?.parse()?;
        match map.compare_and_set("visits", entry.version, (visits + 1).to_string()) {
            Err(error) if error.is_conflict() => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

pub fn main() -> Result {
    let map = Map::named("example").create(true).open()?;
    let mut watcher = map.watch(WatchFrom::Now)?;
    thread::scope(|scope| {
        let counting = [(); 4].map(|()| scope.spawn(|| increment(&map)));
        counting
            .into_iter()
            .try_for_each(|one| one.join().expect("a thread panicked"))
    })?;
    let visits = map.get("visits")?.map(|entry| entry.value);
    assert_eq!(visits.as_deref(), Some(&b"4"[..]));
    let created = watcher.recv()?;
    assert_eq!(
        (created.change, &created.key[..]),
        (Change::Created, &b"visits"[..])
    );
    println!(
        "4 visits, of which the first was change {}",
        created.sequence
    );
    Ok(())
}
