// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use sluice::map::{Entry, Map};

use super::args::open_reader;
use super::object::EntryObject;
use crate::args::ChannelArgs;
use crate::progress::Progress;
use crate::stream;

/// The number of bytes after which a write starts.
const CHUNK: usize = 128 << 10;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) channel: ChannelArgs,

    /// The file to write, which is replaced if it exists [default: '-', standard output]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    stream::require_output(&arguments.file)?;
    // Open the map first, so that an error does not truncate the file.
    let map = open_reader(&arguments.channel)?;
    let output = stream::create(&arguments.file)?;
    let progress = match output.is_terminal() {
        true => Progress::hidden(),
        false => Progress::of_entries(map.info()?.entries),
    };
    let mut output = BufWriter::with_capacity(CHUNK, output);
    write_all(&map, &mut output, &progress)
}

fn write_all(map: &Map, output: &mut impl Write, progress: &Progress) -> Result<()> {
    let mut entries = 0;
    for entry in map.entries() {
        let (key, entry) = entry.with_context(|| format!("failed after {entries} entries"))?;
        write_entry(output, &key, &entry).map_err(|error| explain(entries, error))?;
        progress.advance(1);
        entries += 1;
    }
    output.flush().map_err(|error| explain(entries, error))
}

/// An entry is a JSON object in a line.
fn write_entry(output: &mut impl Write, key: &[u8], entry: &Entry) -> io::Result<()> {
    serde_json::to_writer(&mut *output, &EntryObject::new(key, entry))?;
    output.write_all(b"\n")
}

fn explain(entries: u64, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::BrokenPipe => anyhow!(
            "the reader of the output closed it after up to {entries} entries; export again"
        ),
        _ => Error::new(error).context(format!(
            "cannot write after up to {entries} entries; check the free space, and export again"
        )),
    }
}
