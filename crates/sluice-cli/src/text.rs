// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes in JSON: as text if they are UTF-8, otherwise in base64, in a member of its own.

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The members with text and with base64, of which one is none.
pub fn encode(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(bytes))),
    }
}

pub fn decode(member: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(text)) => STANDARD
            .decode(text)
            .with_context(|| format!("invalid {member}_base64")),
        _ => bail!("neither or both of the members {member} and {member}_base64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_exported_and_imported() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], &all[..128], "grüße\n".as_bytes(), b""] {
            let (text, base64) = encode(bytes);
            assert_eq!(text.is_some(), std::str::from_utf8(bytes).is_ok());
            assert_eq!(decode("key", text, base64).unwrap(), bytes);
        }
    }
}
