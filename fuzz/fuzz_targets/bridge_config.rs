// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arbitrary text as the configuration of a bridge: it is valid, or the error is one line that names the file.
#![no_main]

use sluice_bridge::config::Config;

libfuzzer_sys::fuzz_target!(|text: &str| {
    match Config::parse("file", text) {
        Ok(config) => assert!(!config.id().is_empty(), "a bridge without an id"),
        Err(error) => {
            let error = error.to_string();
            assert!(error.starts_with("file:"), "{error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
});
