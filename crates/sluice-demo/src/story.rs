// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the demo prints: the proof of each step, in a line or two, and with --long the details, which are always in its log.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use anyhow::{Context, Result};

static STORY: OnceLock<Story> = OnceLock::new();

struct Story {
    shows_details: bool,
    log: Option<File>,
}

/// Called once, before the first line.
pub fn begin(shows_details: bool, log: Option<&Path>) -> Result<()> {
    let create = |path: &Path| {
        File::create(path).with_context(|| format!("cannot create the log {}", path.display()))
    };
    let log = log.map(create).transpose()?;
    // A second call would change nothing.
    let _ = STORY.set(Story { shows_details, log });
    Ok(())
}

pub fn shows_details() -> bool {
    STORY.get().is_some_and(|story| story.shows_details)
}

/// Prints a line.
pub fn tell(line: &str) {
    println!("{line}");
    keep(line);
}

/// Prints a line with --long; always writes it to the log. `detail!` formats it.
pub fn tell_detail(line: &str) {
    if shows_details() {
        println!("{line}");
    }
    keep(line);
}

/// A full disk does not end the demo.
fn keep(line: &str) {
    if let Some(mut log) = STORY.get().and_then(|story| story.log.as_ref()) {
        let _ = writeln!(log, "{line}");
    }
}

macro_rules! detail {
    ($($argument:tt)*) => {
        $crate::story::tell_detail(&format!($($argument)*))
    };
}
pub(crate) use detail;
