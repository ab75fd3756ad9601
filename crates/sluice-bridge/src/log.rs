// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages on standard error, which the journal stores: one line each, which says what to do.

use std::fmt::Arguments;
use std::io::Write as _;

pub fn line(message: Arguments<'_>) {
    // Nothing can be done without standard error.
    let _ = std::io::stderr().write_all(format!("sluice-bridge: {message}\n").as_bytes());
}
