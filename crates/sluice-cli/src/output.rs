// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the commands print: tables for people, JSON for programs.

use std::io::{self, Write as _};

use anyhow::{Context, Error, Result};
use serde::Serialize;
use sluice::{ChannelInfo, Kind};

/// Standard output has nobody behind it any more, as after `sluice ls | head -n 1`.
#[derive(Debug)]
struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("whoever read the output has left")
    }
}

impl std::error::Error for Closed {}

pub fn is_closed(error: &Error) -> bool {
    error.is::<Closed>()
}

pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Error::new(Closed)),
        other => other.context("cannot print to standard output; look at where it is directed to"),
    }
}

pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).context("turning the answer into JSON")?;
    print(&(text + "\n"))
}

/// A channel in JSON. Its fields are described in sluice(1).
#[derive(Serialize)]
pub struct Described {
    kind: String,
    name: String,
    mode: String,
    uid: u32,
    gid: u32,
    readers: u32,
    writers: u32,
    bytes: u64,
    capacity: u64,
    persistent: bool,
}

impl From<&ChannelInfo> for Described {
    fn from(info: &ChannelInfo) -> Self {
        Self {
            kind: kind(info.kind),
            name: info.name.to_string(),
            mode: format!("{:04o}", info.mode),
            uid: info.uid,
            gid: info.gid,
            readers: info.readers,
            writers: info.writers,
            bytes: info.bytes,
            capacity: info.capacity,
            persistent: info.persistent,
        }
    }
}

fn kind(kind: Kind) -> String {
    match kind {
        Kind::Pipe => "pipe".to_owned(),
        Kind::Other(number) => format!("kind {number}"),
        _ => "unknown".to_owned(),
    }
}

const HEADINGS: [&str; COLUMNS] = [
    "KIND", "MODE", "UID", "GID", "READERS", "WRITERS", "BYTES", "CAPACITY", "KEPT", "NAME",
];
const COLUMNS: usize = 10;

fn row(channel: &Described) -> [String; COLUMNS] {
    let kept = if channel.persistent { "yes" } else { "no" };
    [
        channel.kind.clone(),
        channel.mode.clone(),
        channel.uid.to_string(),
        channel.gid.to_string(),
        channel.readers.to_string(),
        channel.writers.to_string(),
        channel.bytes.to_string(),
        channel.capacity.to_string(),
        kept.to_owned(),
        channel.name.clone(),
    ]
}

/// Columns as wide as they have to be; the last, the name, ends the line.
pub fn table(channels: &[Described]) -> String {
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(channels.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..COLUMNS - 1).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text += &format!("{cell:width$}  ");
        }
        text += &row[COLUMNS - 1];
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let channel = Described {
            kind: "pipe".to_owned(),
            name: "frames".to_owned(),
            mode: "0600".to_owned(),
            uid: 100_000,
            gid: 5,
            readers: 0,
            writers: 1,
            bytes: 17,
            capacity: 65536,
            persistent: true,
        };
        let expected = "\
KIND  MODE  UID     GID  READERS  WRITERS  BYTES  CAPACITY  KEPT  NAME
pipe  0600  100000  5    0        1        17     65536     yes   frames
";
        assert_eq!(table(&[channel]), expected);
    }
}
