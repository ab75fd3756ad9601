// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: keys and values in the module, which processes set, get and watch.
//!
//! ```no_run
//! let map = sluice::Map::named("sessions").create(true).open()?;
//! map.set("4711", b"alice")?;
//! if let Some(entry) = map.get("4711")? {
//!     println!("{:?}, version {}", entry.value, entry.version);
//! }
//! for entry in map.entries() {
//!     let (key, entry) = entry?;
//!     println!("{key:?}: {} bytes", entry.value.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Keys have 1 to 4096 bytes, values up to 1 MiB, any bytes.
//!
//! # Versions
//!
//! Each change has a number of the map's sequence, from 1 on. That of its last change is the version of an entry, so that a process can
//! change what it has seen, and nothing else ([`Map::compare_and_set`]):
//!
//! ```no_run
//! use sluice::map::{Map, WriteError};
//!
//! fn increment(map: &Map, key: &str) -> Result<u64, Box<dyn std::error::Error>> {
//!     loop {
//!         let entry = map.get(key)?;
//!         let (number, version) = match &entry {
//!             Some(entry) => (std::str::from_utf8(&entry.value)?.parse()?, entry.version),
//!             None => (0_u64, 0), // version 0: creates the entry
//!         };
//!         match map.compare_and_set(key, version, (number + 1).to_string()) {
//!             Ok(_) => return Ok(number + 1),
//!             Err(error) if error.is_conflict() => {} // changed since
//!             Err(error) => return Err(error.into()),
//!         }
//!     }
//! }
//! ```
//!
//! # Time to live
//!
//! An entry that was [set](Map::set_with) with a [`SetOptions::time_to_live`] expires after that time, which includes the time in which the
//! system is suspended: from then on no call returns it. The module removes it by a timer soon afterwards, without an access, and watchers
//! receive [`Change::Expired`] then.
//!
//! ```no_run
//! # use sluice::Map;
//! use std::time::Duration;
//! use sluice::map::SetOptions;
//!
//! let sessions = Map::named("sessions").create(true).open()?;
//! sessions.set_with("alice", "logged in", SetOptions::new().time_to_live(Duration::from_secs(600)))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Mapped maps
//!
//! A map that is created with [`Options::mapped`] has a table of its entries in memory that readers map. [`Map::mapped`] returns a
//! [`MappedMap`], whose lookups make no system call if the table has the entry.
//!
//! # Watching
//!
//! A [`Watcher`] receives the changes of a map, without values, and learns how many it has missed:
//!
//! ```no_run
//! use sluice::Map;
//! use sluice::map::WatchFrom;
//!
//! let mut watcher = Map::named("sessions").open_reader()?.watch(WatchFrom::Now)?;
//! loop {
//!     let event = watcher.recv()?;
//!     println!("{} {:?}, {} missed before it", event.change, event.key, event.missed);
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Durable maps
//!
//! A map that is opened with [`Options::durable`] survives a restart of the host: the daemon sluiced stores its changes, and restores
//! it. By default a change returns when it is stored. With [`Durability::interval`], or by [`SetOptions::nowait`], it returns at once, and
//! [`Map::sync`] waits for it:
//!
//! ```no_run
//! use sluice::Map;
//! use sluice::map::{Durability, SetOptions, WriteError};
//!
//! let map = Map::named("jobs").create(true).durable(Durability::always()).open()?;
//! match map.set("4711", b"queued") {
//!     Ok(set) => println!("change {} is stored", set.version),
//!     Err(WriteError::Unacknowledged { number }) => println!("change {number} may be stored"),
//!     Err(error) => return Err(error.into()), // nothing has changed
//! }
//! map.set_with("4712", b"queued", SetOptions::new().nowait(true))?;
//! map.set_with("4713", b"queued", SetOptions::new().nowait(true))?;
//! map.sync()?; // both are stored
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Errors come before a change is made, except for [`WriteError::Unacknowledged`]. A change is visible to other processes before it is
//! stored.
//!
//! # Types
//!
//! With the feature `serde`, `TypedMap` has keys and values of types that implement the traits of serde.

mod batch;
mod calls;
mod dump;
mod durability;
mod endpoint;
mod entry;
mod error;
mod event;
mod info;
mod mapped;
mod options;
#[cfg(feature = "tokio")]
mod tokio;
#[cfg(feature = "serde")]
mod typed;
mod watcher;

#[cfg(feature = "tokio")]
pub use self::tokio::AsyncWatcher;
pub use batch::{Batch, Outcome};
pub use dump::{Entries, Keys};
pub use durability::Durability;
pub use endpoint::Map;
pub use entry::{DeleteOptions, Entry, EntryInfo, Set, SetOptions};
pub use error::{OpenError, ReadError, SyncError, WatchError, WriteError};
pub use event::{Change, Event};
pub use info::{DurableInfo, MapInfo, TableInfo};
pub use mapped::{Cached, MappedEntries, MappedMap};
pub use options::Options;
#[cfg(feature = "serde")]
pub use typed::TypedMap;
pub use watcher::{WatchFrom, Watcher};

/// The longest key, in bytes.
pub const KEY_MAX: usize = sluice_abi::map::KEY_MAX;

/// The longest value, in bytes.
pub const VALUE_MAX: usize = sluice_abi::map::VALUE_MAX;
