// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results as one page for people that needs nothing but itself: no network, no other file, no script to be complete.
//! The plots are SVG of our own making, so that style sheets reach every line of them: colours follow light and dark mode,
//! text keeps its size on a narrow screen, and the legend is the table beside the plot.

mod facts;
mod highlights;
mod intervals;
mod lines;
mod looks;
mod notes;
mod page;
mod scale;
mod suites;
mod tables;
mod text;

use std::path::Path;

use anyhow::Result;

use crate::harness::file;
use crate::harness::rows::Results;

pub use page::page;

pub fn write(results: &Results, path: &Path) -> Result<()> {
    file::write(path, &page(results), "report", "--html")
}
