// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a new map.

use clap::Args;
use sluice::map::Options;
use sluice_abi::map::{CELL_MAX, CELL_MIN};

use crate::args::{self, With as _};

#[derive(Args)]
pub struct MappedArgs {
    /// Give a new map a table for N entries, which programs map to read it without a system call
    ///
    /// A table has 1.6 to 3.2 cells for each entry, which count for the limits of channels in addition to the capacity. Entries beyond it are
    /// read by calls.
    #[arg(long, value_name = "N", conflicts_with = "durable", value_parser = args::number(1u64..))]
    mapped: Option<u64>,

    /// Bytes of a cell of the table, up to {MAP_CELL_MAX} [default: {MAP_CELL}]
    ///
    /// Rounded up to a power of two. A cell has 32 bytes of its own, the key and the value. Longer entries are read by calls.
    #[arg(long, value_name = "BYTES", requires = "mapped", value_parser = args::number(CELL_MIN..=CELL_MAX))]
    cell: Option<u32>,
}

impl MappedArgs {
    pub fn apply(&self, map: Options) -> Options {
        map.with(self.mapped, Options::mapped)
            .with(self.cell, Options::cell)
    }
}
