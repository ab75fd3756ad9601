// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on standard error, which the journal stores: one line each, which says what to do.

use std::fmt::Arguments;
use std::io::Write as _;

pub fn line(message: Arguments<'_>) {
    // Servers and services choose some of the texts.
    let text = message.to_string().replace(char::is_control, " ");
    // Nothing can be done without standard error.
    let _ = std::io::stderr().write_all(format!("sluice-bridge: {text}\n").as_bytes());
}
