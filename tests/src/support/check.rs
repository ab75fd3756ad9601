// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assertions that report the expected and the seen value, notes, and skipping.

use std::fmt::{self, Debug, Display};
use std::io::Write as _;

use anyhow::{Error, Result, bail};

/// Fails unless `seen` equals `expected`.
pub fn expect<T: PartialEq + Debug>(what: &str, seen: T, expected: T) -> Result<()> {
    if seen != expected {
        bail!("{what}: expected {expected:?}, saw {seen:?}");
    }
    Ok(())
}

/// As `expect`, for bytes: reports the first difference only.
pub fn expect_bytes(what: &str, seen: &[u8], expected: &[u8]) -> Result<()> {
    // Comparing slices is fast also where it is not optimized.
    if seen == expected {
        return Ok(());
    }
    let same = seen
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    if same < seen.len().min(expected.len()) {
        bail!(
            "{what}: byte {same} of {} is {:#04x}, expected {:#04x}",
            seen.len(),
            seen[same],
            expected[same]
        );
    }
    expect(
        &format!("{what}: number of bytes"),
        seen.len(),
        expected.len(),
    )
}

/// The reason why a test cannot run here.
#[derive(Debug)]
pub struct Skip(pub String);

impl Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

pub fn skip(reason: impl Into<String>) -> Error {
    Error::new(Skip(reason.into()))
}

/// The prefix of output lines that are shown even if the test passes.
pub const NOTE: &str = "sluice-note: ";

/// Shows a result in addition to the verdict.
pub fn note(text: impl Display) {
    // Not println!, which unit tests capture. A write error has no reader to report it to.
    let _ = writeln!(std::io::stdout(), "{NOTE}{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_pass() {
        expect("answer", 42, 42).expect("equal");
        expect_bytes("bytes", b"abc", b"abc").expect("equal");
    }

    #[test]
    fn a_difference_names_both_sides() {
        let message = expect("answer", 41, 42).expect_err("differs").to_string();
        assert_eq!(message, "answer: expected 42, saw 41");
    }

    #[test]
    fn bytes_name_the_first_difference() {
        let message = expect_bytes("data", b"abX", b"abc")
            .expect_err("differs")
            .to_string();
        assert_eq!(message, "data: byte 2 of 3 is 0x58, expected 0x63");
    }

    #[test]
    fn bytes_of_different_length_differ() {
        let message = expect_bytes("data", b"ab", b"abc")
            .expect_err("differs")
            .to_string();
        assert_eq!(message, "data: number of bytes: expected 3, saw 2");
    }
}
