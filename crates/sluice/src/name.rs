// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use sluice_abi::{NAME_SIZE, padded};

use crate::error::{Error, Result};

/// A channel's name: 1 to 63 bytes, usually text.
///
/// Shown, it is the text, or with escapes for what a terminal should not be sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    // Zeros up to the end, as the kernel wants it.
    padded: [u8; NAME_SIZE],
}

impl Name {
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = name.as_ref();
        if let Some(reason) = fault(bytes) {
            return Err(Error::InvalidName {
                name: printable(bytes),
                reason,
            });
        }
        Ok(Self {
            padded: padded(bytes),
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        let end = self.padded.iter().position(|byte| *byte == 0);
        &self.padded[..end.unwrap_or(NAME_SIZE)]
    }

    pub(crate) fn from_padded(padded: [u8; NAME_SIZE]) -> Self {
        Self { padded }
    }
}

fn fault(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("it is empty"),
        b"." | b".." => Some("it has a meaning of its own"),
        _ if bytes.len() >= NAME_SIZE => Some("it is too long"),
        _ if bytes.contains(&b'/') => Some("it has a '/' in it"),
        _ if bytes.contains(&0) => Some("it has a NUL in it"),
        _ => None,
    }
}

fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&printable(self.as_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", printable(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_refuses_is_no_name() {
        let long = "x".repeat(64);
        for bad in ["", ".", "..", "a/b", "a\0", long.as_str()] {
            let error = Name::new(bad).unwrap_err().to_string();
            assert!(error.contains("1 to 63 bytes"), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_name_keeps_its_bytes() {
        let longest = "x".repeat(63);
        for good in ["a", "...", "grüße", longest.as_str()] {
            assert_eq!(Name::new(good).unwrap().as_bytes(), good.as_bytes());
        }
    }

    #[test]
    fn text_is_shown_as_it_is_and_the_rest_escaped() {
        assert_eq!(Name::new("grüße").unwrap().to_string(), "grüße");
        assert_eq!(Name::new(b"\x1b[2J").unwrap().to_string(), r"\x1b[2J");
        assert_eq!(Name::new(b"\xff").unwrap().to_string(), r"\xff");
    }
}
