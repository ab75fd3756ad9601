// SPDX-License-Identifier: MIT OR Apache-2.0
use std::io::{BufRead, BufReader, Read as _};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Error, Result, ensure};
use clap::Args;
use serde::Serialize;
use sluice::map::{Map, Outcome, SetOptions, WriteError};

use super::args::OpenMapArgs;
use super::object::{EntryObject, ImportedEntry};
use crate::output;
use crate::progress::Progress;
use crate::stream;

/// Each byte of the longest key and value as an escape of JSON, and the members.
const LINE_MAX: usize = 8 << 20;

/// The bytes of keys and values after which a batch is executed, also if it has fewer entries.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ENTRIES: usize = 256;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) map: OpenMapArgs,

    /// The file to read [default: '-', standard input]
    file: Option<PathBuf>,

    /// Print a JSON summary to standard error at the end
    #[arg(long)]
    summary: bool,
}

/// The JSON object that sluice-map(1) describes.
#[derive(Serialize)]
struct Summary {
    entries: u64,
    bytes: u64,
    seconds: f64,
}

/// An entry, and the number of its line.
struct Numbered {
    line: u64,
    entry: ImportedEntry,
}

/// The lines of the input.
struct Lines<R> {
    input: R,
    line: u64,
    buffer: Vec<u8>,
}

/// What was read and not set yet, and the counts of what was set.
struct Import<'a> {
    map: &'a Map,
    batch: Vec<Numbered>,
    batch_bytes: usize,
    entries: u64,
    bytes: u64,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let input = stream::open(&arguments.file, "import")?;
    let map = arguments.map.open_writer()?;
    let start = Instant::now();
    let progress = Progress::new(Progress::file_length(&input));
    let mut import = Import::new(&map);
    import
        .run(Lines::new(BufReader::new(input)), &progress)
        .map_err(|error| import.explain(error))?;
    drop(progress);
    match arguments.summary {
        true => import.print_summary(start),
        false => Ok(()),
    }
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            line: 0,
            buffer: Vec::new(),
        }
    }

    /// The next line that is not empty, and the bytes that were read for it; none at the end.
    fn next(&mut self) -> Result<Option<(Numbered, usize)>> {
        let mut read = 0;
        loop {
            self.buffer.clear();
            let mut limited = (&mut self.input).take(LINE_MAX as u64 + 1);
            let bytes = limited
                .read_until(b'\n', &mut self.buffer)
                .context("cannot read the input; fix it and import again")?;
            if bytes == 0 {
                return Ok(None);
            }
            self.line += 1;
            read += bytes;
            let line = self.line;
            ensure!(
                bytes <= LINE_MAX,
                "line {line} has more than {LINE_MAX} bytes, the limit; check the file"
            );
            let text = self.buffer.trim_ascii();
            if !text.is_empty() {
                let entry = EntryObject::decode(text)
                    .with_context(|| format!("line {line} is invalid; see sluice-map(1)"))?;
                return Ok(Some((Numbered { line, entry }, read)));
            }
        }
    }
}

impl<'a> Import<'a> {
    fn new(map: &'a Map) -> Self {
        Self {
            map,
            batch: Vec::new(),
            batch_bytes: 0,
            entries: 0,
            bytes: 0,
        }
    }

    fn run(&mut self, mut lines: Lines<impl BufRead>, progress: &Progress) -> Result<()> {
        loop {
            let next = lines.next();
            // The lines before an invalid one are imported.
            let Ok(Some((numbered, read))) = next else {
                self.set_all()?;
                return next.map(drop);
            };
            self.batch_bytes += numbered.entry.key.len() + numbered.entry.value.len();
            self.batch.push(numbered);
            progress.advance(read);
            if self.batch.len() == BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES {
                self.set_all()?;
            }
        }
    }

    /// Sets the entries of the batch. Fails with the first one that was not set.
    fn set_all(&mut self) -> Result<()> {
        let numbered = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let mut batch = self.map.batch();
        for Numbered { entry, .. } in &numbered {
            let options = match entry.time_to_live {
                Some(time) => SetOptions::new().time_to_live(time),
                None => SetOptions::new(),
            };
            batch = batch.set_with(&entry.key, &entry.value, options);
        }
        let mut failed = None;
        for (Numbered { line, entry }, outcome) in numbered.iter().zip(batch.run()) {
            match outcome {
                Outcome::Set(Err(error)) if failed.is_none() => failed = Some((*line, error)),
                Outcome::Set(Ok(_)) => self.count(entry),
                _ => {}
            }
        }
        match failed {
            Some((line, error)) => {
                let verb = match error {
                    WriteError::Unacknowledged { .. } => "set",
                    _ => "cannot set",
                };
                Err(Error::new(error).context(format!("{verb} the entry of line {line}")))
            }
            None => Ok(()),
        }
    }

    fn count(&mut self, entry: &ImportedEntry) {
        self.entries += 1;
        self.bytes += (entry.key.len() + entry.value.len()) as u64;
    }

    fn explain(&self, error: Error) -> Error {
        error.context(format!("import ended after {} entries", self.entries))
    }

    /// Prints to standard error, as the commands that read records do.
    fn print_summary(&self, start: Instant) -> Result<()> {
        let summary = Summary {
            entries: self.entries,
            bytes: self.bytes,
            seconds: start.elapsed().as_secs_f64(),
        };
        output::print_summary(&summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(input: &[u8]) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut lines = Lines::new(input);
        let mut parsed = Vec::new();
        while let Some((numbered, _)) = lines.next()? {
            parsed.push((numbered.line, numbered.entry.key));
        }
        Ok(parsed)
    }

    #[test]
    fn each_line_is_an_entry_and_empty_lines_are_skipped() {
        let input =
            b"{\"key\":\"a\",\"value\":\"\"}\n\n \t\r\n{\"key\":\"b\",\"value\":\"\"}\r\n\n";
        let expected = [(1, b"a".to_vec()), (4, b"b".to_vec())];
        assert_eq!(parse(input).unwrap(), expected);
        assert!(parse(b"").unwrap().is_empty());
        let without_newline = b"{\"key\":\"a\",\"value\":\"\"}";
        assert_eq!(parse(without_newline).unwrap(), [(1, b"a".to_vec())]);
    }

    #[test]
    fn all_bytes_of_the_input_are_counted() {
        let input = b"\n{\"key\":\"a\",\"value\":\"\"}\n";
        let mut lines = Lines::new(&input[..]);
        let (_, read) = lines.next().unwrap().unwrap();
        assert_eq!(read, input.len());
    }

    #[test]
    fn an_invalid_line_has_its_number() {
        let error = parse(b"{\"key\":\"a\",\"value\":\"\"}\nodd\n").unwrap_err();
        assert!(format!("{error:#}").starts_with("line 2 is invalid"));
        let long = [vec![b' '; LINE_MAX + 1], b"\n".to_vec()].concat();
        let error = parse(&long).unwrap_err().to_string();
        assert!(error.contains("line 1 has more than"), "{error}");
        let longest = [vec![b' '; LINE_MAX - 1], b"\n".to_vec()].concat();
        assert!(parse(&longest).unwrap().is_empty());
    }

    #[test]
    fn the_largest_entry_fits_into_a_line() {
        let key = vec![0; sluice::map::KEY_MAX];
        let value = vec![0; sluice::map::VALUE_MAX];
        let escaped = 6 * (key.len() + value.len());
        assert!(escaped + 1000 < LINE_MAX);
    }
}
