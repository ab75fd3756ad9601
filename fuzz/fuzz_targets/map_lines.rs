// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary lines of `sluice map import`, and keys with escapes: the entry of a line is the same after it was written as a line again.
#![no_main]

// The command is a program without a library.
#[allow(dead_code)]
#[path = "../../crates/sluice-cli/src/map/escape.rs"]
mod escape;
#[allow(dead_code)]
#[path = "../../crates/sluice-cli/src/map/object.rs"]
mod object;
#[path = "../../crates/sluice-cli/src/text.rs"]
mod text;

use object::EntryObject;
use serde_json::json;

fn write(entry: &object::ImportedEntry) -> String {
    let (key, key_base64) = text::encode(&entry.key);
    let (value, value_base64) = text::encode(&entry.value);
    let ttl_ns = entry.time_to_live.map(|time| time.as_nanos() as u64);
    let line = json!({
        "key": key,
        "key_base64": key_base64,
        "value": value,
        "value_base64": value_base64,
        "ttl_ns": ttl_ns,
    });
    line.to_string()
}

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    if let Ok(entry) = EntryObject::decode(line) {
        let again = EntryObject::decode(write(&entry).as_bytes()).expect("a line");
        assert_eq!(again, entry);
    }
    if let Ok(key) = escape::unescape(line) {
        assert!(key.len() <= line.len());
    }
});
