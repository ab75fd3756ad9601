// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entries as JSON objects.

use std::time::Duration;

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use sluice::map::{Entry, EntryInfo};

use crate::text::{decode, encode};

/// The object that sluice-map(1) describes. Bytes that are not UTF-8 are in the member with `base64` in its name.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct EntryObject {
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
    /// Bytes of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<usize>,
    version: u64,
    ttl_ns: Option<u64>,
}

impl EntryObject {
    pub fn new(key: &[u8], entry: &Entry) -> Self {
        let (value, value_base64) = encode(&entry.value);
        Self {
            value,
            value_base64,
            ..Self::with_key(key, entry.version, entry.time_to_live)
        }
    }

    pub fn without_value(key: &[u8], info: &EntryInfo) -> Self {
        Self {
            length: Some(info.len),
            ..Self::with_key(key, info.version, info.time_to_live)
        }
    }

    fn with_key(key: &[u8], version: u64, time_to_live: Option<Duration>) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (key, key_base64) = encode(key);
        Self {
            key,
            key_base64,
            version,
            ttl_ns: time_to_live.map(nanoseconds),
            ..Self::default()
        }
    }

    /// The entry of a line.
    pub fn decode(line: &[u8]) -> Result<ImportedEntry> {
        let object: Self = serde_json::from_slice(line).map_err(|error| anyhow!("{error}"))?;
        Ok(ImportedEntry {
            key: decode("key", object.key, object.key_base64)?,
            value: decode("value", object.value, object.value_base64)?,
            time_to_live: object.ttl_ns.map(Duration::from_nanos),
        })
    }
}

/// What an import sets.
#[derive(Debug, PartialEq, Eq)]
pub struct ImportedEntry {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub time_to_live: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> Result<ImportedEntry> {
        EntryObject::decode(line.as_bytes())
    }

    #[test]
    fn members_are_text_or_base64() {
        let expected = ImportedEntry {
            key: b"key".to_vec(),
            value: b"\xff\0".to_vec(),
            time_to_live: None,
        };
        let line = r#"{"key":"key","value_base64":"/wA=","version":7,"ttl_ns":null}"#;
        assert_eq!(entry(line).unwrap(), expected);
        let other = r#"{"key_base64":"a2V5","value_base64":"/wA="}"#;
        assert_eq!(entry(other).unwrap(), expected);
        let with_time = r#"{"key":"\u0000","value":"","ttl_ns":1500}"#;
        let expected = ImportedEntry {
            key: vec![0],
            value: vec![],
            time_to_live: Some(Duration::from_nanos(1500)),
        };
        assert_eq!(entry(with_time).unwrap(), expected);
    }

    #[test]
    fn an_invalid_line_is_an_error() {
        for (line, word) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "neither or both of the members key"),
            (r#"{"value":"v"}"#, "key and key_base64"),
            (r#"{"key":"k"}"#, "value and value_base64"),
            (
                r#"{"key":"k","key_base64":"a2V5","value":"v"}"#,
                "key and key_base64",
            ),
            (r#"{"key_base64":"a2V","value":"v"}"#, "invalid key_base64"),
            (r#"{"key":"k","value":"v","typo":1}"#, "typo"),
            (r#"{"key":"k","value":7}"#, "invalid type"),
            (r#"{"key":"k","value":"v"} x"#, "trailing"),
        ] {
            let error = format!("{:#}", entry(line).unwrap_err());
            assert!(error.contains(word), "{line}: {error}");
        }
    }
}
