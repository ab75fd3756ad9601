// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fmt;

use sluice_abi::{NAME_SIZE, padded};

use crate::error::{Error, Result};
use crate::escape::escape;

/// The name of a channel: 1 to 63 bytes, usually text.
///
/// `Display` writes what could control a terminal, and a backslash, as [`escape`] does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    // Zero-padded: the kernel compares all NAME_SIZE bytes.
    padded: [u8; NAME_SIZE],
}

impl Name {
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self> {
        let bytes = name.as_ref();
        if let Some(reason) = invalid_reason(bytes) {
            return Err(Error::InvalidName {
                name: escape(bytes),
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

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

fn invalid_reason(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [] => Some("empty"),
        b"." | b".." => Some("reserved"),
        _ if bytes.len() >= NAME_SIZE => Some("too long"),
        _ if bytes.contains(&b'/') => Some("contains '/'"),
        _ if bytes.contains(&0) => Some("contains NUL"),
        _ => None,
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&escape(self.as_bytes()))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", escape(self.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_the_kernel_rejects_are_invalid() {
        let long = "x".repeat(64);
        for bad in ["", ".", "..", "a/b", "a\0", long.as_str()] {
            let hint = Name::new(bad).unwrap_err().hint();
            assert!(hint.contains("1 to 63 bytes"), "{bad:?}: {hint}");
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
    fn only_printable_text_is_shown_unescaped() {
        assert_eq!(Name::new("grüße").unwrap().to_string(), "grüße");
        assert_eq!(Name::new(b"\x1b[2J").unwrap().to_string(), r"\x1b[2J");
        assert_eq!(Name::new(b"\xff").unwrap().to_string(), r"\xff");
        assert_eq!(Name::new(r"\xff").unwrap().to_string(), r"\\xff");
    }
}
