// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as a single HTML page without network access, other files, or required scripts. The Rust code makes its data
//! from the rows; page.html is its layout. The plots are SVG without a library, so that style sheets apply to every line:
//! colours follow light and dark mode, text keeps its size on a narrow screen, and the table next to a plot is its legend.

mod figure;
mod groups;
mod lines;
mod page;
mod scale;
mod style;
mod takeaways;
mod titles;
mod view;

use std::path::Path;

use anyhow::Result;

use crate::harness::file;
use crate::harness::rows::Results;

pub use page::{page, picture};

pub fn write(results: &Results, path: &Path) -> Result<()> {
    file::write(path, &page(results), "report", "--html")
}

/// Whether there is something to draw.
pub fn write_picture(results: &Results, path: &Path) -> Result<bool> {
    let picture = picture(results);
    picture.map_or(Ok(false), |picture| {
        file::write(path, &picture, "plot", "--svg").map(|()| true)
    })
}
