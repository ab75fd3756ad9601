// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is wrong with a configuration: the file, the line, and what to write instead.

use std::fmt;
use std::ops::Range;

/// A mistake at a place of the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Bytes of the text. None: of the text as a whole.
    place: Option<Range<usize>>,
    message: String,
}

impl Mistake {
    pub fn at(place: Range<usize>, message: impl Into<String>) -> Self {
        Self {
            place: Some(place),
            message: message.into(),
        }
    }

    pub fn in_file(self, file: &str, text: &str) -> ConfigError {
        let before = self
            .place
            .map(|place| text.get(..place.start).unwrap_or(text));
        ConfigError {
            file: file.to_owned(),
            line: before.map(|before| before.matches('\n').count() + 1),
            message: self.message,
        }
    }
}

/// The parser names what it expects, on several lines.
impl From<toml::de::Error> for Mistake {
    fn from(error: toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', ", ");
        Self {
            place: error.span(),
            message: without_value(&message).unwrap_or(message),
        }
    }
}

/// Without the value of a wrong type, which may be a secret.
fn without_value(message: &str) -> Option<String> {
    let (kind, _) = message.split_once(": ")?;
    let (_, expected) = message.rsplit_once(", expected ")?;
    let names_value = matches!(kind, "invalid type" | "invalid value" | "invalid length");
    names_value.then(|| format!("{kind}; write {expected}"))
}

#[derive(Debug, PartialEq, Eq)]
pub struct ConfigError {
    file: String,
    line: Option<usize>,
    message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.file, self.message),
            None => write!(f, "{}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ConfigError {}
