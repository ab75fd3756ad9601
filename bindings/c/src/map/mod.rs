// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps: keys and values, which processes set, get and watch.

mod batch;
mod endpoint;
mod entries;
mod entry;
mod options;
mod watcher;
