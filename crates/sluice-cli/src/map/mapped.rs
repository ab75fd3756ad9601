// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a new map.

use clap::Args;
use sluice::map::Options;
use sluice_abi::map::{CELL_MAX, CELL_MIN};

use crate::args::{self, With as _};

#[derive(Args)]
pub struct MappedArgs {
    /// Give a new map a table of N entries that programs read without a system call
    ///
    /// The table is allocated at once: 1.6 to 3.2 cells per entry, at least a page; 32M for 100000 entries of 128 bytes. It counts for the limits
    /// of channels in addition to the capacity, and does not raise it. Entries that have no cell are read by system calls. If the map exists
    /// without a table, the command fails. A durable map has its table again when it is restored.
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    mapped: Option<u64>,

    /// Size of a cell of the table in bytes, 64 to {MAP_CELL_MAX} [default: {MAP_CELL}]
    ///
    /// Rounded up to a power of two. A cell holds 32 bytes of overhead, the key and the value. Longer entries are read by system calls.
    #[arg(long, value_name = "BYTES", requires = "mapped", value_parser = args::number(CELL_MIN..=CELL_MAX))]
    cell: Option<u32>,
}

impl MappedArgs {
    pub fn apply(&self, map: Options) -> Options {
        map.with(self.mapped, Options::mapped)
            .with(self.cell, Options::cell)
    }
}
