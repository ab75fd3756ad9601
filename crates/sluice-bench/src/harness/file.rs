// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that the user asked for by an option.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Makes the folder, too. `what` is written, because of `option`.
pub fn write(path: &Path, text: &str, what: &str, option: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    fs::write(path, text).with_context(|| {
        format!(
            "cannot write the {what} to {}; give another place with {option}",
            path.display()
        )
    })
}
