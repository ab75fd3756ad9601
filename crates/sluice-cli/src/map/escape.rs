// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bytes of text with escapes, which sluice-map(1) describes.

use anyhow::{Result, anyhow};

/// The bytes that `escape` shows as this text. Bytes that need no escape stand for themselves.
pub fn unescape(text: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let (byte, after) = match first {
            b'\\' => escaped(after).ok_or_else(|| {
                let shown = &rest[..rest.len().min(4)];
                let shown = String::from_utf8_lossy(shown);
                anyhow!("invalid escape '{shown}'; use \\\\, \\n, \\r, \\t or \\xHH")
            })?,
            _ => (first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    Ok(bytes)
}

/// The byte of the escape after a backslash, and what follows.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (letter, rest) = text.split_first()?;
    match letter {
        b'\\' => Some((b'\\', rest)),
        b'n' => Some((b'\n', rest)),
        b'r' => Some((b'\r', rest)),
        b't' => Some((b'\t', rest)),
        b'x' => {
            let (digits, rest) = rest.split_first_chunk::<2>()?;
            Some((hex(digits[0])? << 4 | hex(digits[1])?, rest))
        }
        _ => None,
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice::escape;

    #[test]
    fn every_key_can_be_given_as_it_is_shown() {
        let all: Vec<u8> = (0..=255).chain((0..=255).rev()).collect();
        assert_eq!(unescape(escape(&all).as_bytes()).unwrap(), all);
        assert_eq!(unescape(r"\X00grüße".as_bytes()).ok(), None);
        assert_eq!(unescape("grüße".as_bytes()).unwrap(), "grüße".as_bytes());
        assert_eq!(unescape(br"\xFf\x0a").unwrap(), b"\xff\n");
    }

    #[test]
    fn an_unknown_escape_is_an_error() {
        for text in [r"a\", r"\q", r"\x", r"\x1", r"\xg0", r"\x+1", "\\x\u{e9}"] {
            let error = unescape(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(r"\xHH"), "{text}: {error}");
        }
    }
}
