// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task that waits for the changes of a map: `cargo run -p sluice --example map_tokio`.

use sluice::Map;
use sluice::map::{AsyncWatcher, WatchFrom};

pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Returns the value of a key once it is set.
async fn value(map: &Map, key: &[u8]) -> Result<Vec<u8>> {
    // Watched before the first get, so that no change is missed in between.
    let mut watcher = AsyncWatcher::new(map.watch(WatchFrom::Now)?)?;
    loop {
        if let Some(entry) = map.get(key)? {
            return Ok(entry.value);
        }
        watcher.recv().await?;
    }
}

#[tokio::main(flavor = "current_thread")]
pub async fn main() -> Result {
    let map = Map::named("example").create(true).open()?;
    let setting = tokio::spawn(async {
        let map = Map::named("example").open()?;
        map.set("other", "1")?;
        tokio::task::yield_now().await;
        map.set("address", "/run/example.sock")?;
        Result::Ok(())
    });
    let address = String::from_utf8(value(&map, b"address").await?)?;
    setting.await??;
    println!("the service listens at {address}");
    assert_eq!(address, "/run/example.sock");
    Ok(())
}
