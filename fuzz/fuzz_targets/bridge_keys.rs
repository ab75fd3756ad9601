// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary keys of a map and of a bucket: each key of a map is the key of a bucket that stands for it alone.
#![no_main]

use sluice_bridge::key::{decode, encode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let (false, Some(encoded)) = (bytes.is_empty(), encode(bytes)) {
        assert_eq!(decode(&encoded).as_deref(), Some(bytes), "{encoded}");
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Some(key) = decode(text) {
        assert_eq!(encode(&key).as_deref(), Some(text), "{key:?}");
    }
});
