// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output of the commands that print a result, and messages in standard error.

use std::io::{self, IsTerminal as _, Write as _};

use anyhow::{Context, Error, Result};
use serde::Serialize;

use crate::stream;

pub const UNWRITTEN: &str = "cannot write to standard output; check where it is redirected to";

/// Standard output was closed by its reader, as in `sluice ls | head -n 1`.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("standard output is closed")
    }
}

impl std::error::Error for Closed {}

pub fn is_closed(error: &Error) -> bool {
    error.is::<Closed>()
}

pub fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Prints a line to standard error, without bytes that could control a terminal, such as those in a path. If that fails, nobody can be
/// told.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{}", shown(line.as_bytes()));
}

/// As it is if it is printable, also with backslashes, and escaped otherwise.
pub fn shown(bytes: &[u8]) -> String {
    let escaped = sluice::escape(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) if escaped == text.replace('\\', r"\\") => text.to_owned(),
        _ => escaped,
    }
}

/// Prints a JSON object to standard error, because the data is in standard output.
pub fn print_summary(summary: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(summary);
    let text = text.context("cannot encode the summary as JSON")?;
    let _ = writeln!(io::stderr(), "{text}");
    Ok(())
}

pub fn print_bytes(bytes: &[u8]) -> Result<()> {
    stream::require_open(&io::stdout(), "output")?;
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::new(Closed)),
        other => other.context(UNWRITTEN),
    }
}

/// With a newline on a terminal: otherwise the prompt of a shell would follow the value.
pub fn print_value(value: &[u8]) -> Result<()> {
    print_bytes(value)?;
    match io::stdout().is_terminal() && !value.ends_with(b"\n") {
        true => print("\n"),
        false => Ok(()),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("cannot encode the result as JSON")?;
    print(&(text + "\n"))
}
