// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path or a name: text in JSON; an array of numbers if it is not UTF-8.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub Vec<u8>);

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

/// Printable UTF-8 as it is; the bytes of anything else escaped, because they could control a terminal.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.contains(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(&self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Numbers(Vec<u8>),
        }
        Ok(Self(match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into_bytes(),
            Form::Numbers(bytes) => bytes,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_same_after_json() {
        for (bytes, json) in [
            (&b"/a b"[..], r#""/a b""#),
            ("grüße".as_bytes(), r#""grüße""#),
            (b"a\xff", "[97,255]"),
        ] {
            let bytes = Bytes::from(bytes);
            assert_eq!(serde_json::to_string(&bytes).unwrap(), json);
            assert_eq!(serde_json::from_str::<Bytes>(json).unwrap(), bytes);
        }
    }

    #[test]
    fn only_printable_text_is_shown_unescaped() {
        assert_eq!(Bytes::from("grüße").to_string(), "grüße");
        assert_eq!(Bytes::from("\x1b[2J").to_string(), r"\x1b[2J");
    }
}
