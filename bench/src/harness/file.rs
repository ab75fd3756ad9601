// SPDX-License-Identifier: MIT OR Apache-2.0
//! Output files that an option names.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Creates the directory, too. `what` and `option` are for the error text.
pub fn write(path: &Path, text: &str, what: &str, option: &str) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)
            .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    }
    fs::write(path, text).with_context(|| {
        format!(
            "cannot write the {what} to {}; choose another path with {option}",
            path.display()
        )
    })
}
