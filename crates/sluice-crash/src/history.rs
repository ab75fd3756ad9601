// SPDX-License-Identifier: MIT OR Apache-2.0
//! The history of a map: for each change, what its writer was answered. It is a file outside of the disk under test.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;

use crate::workload::{Id, Workload};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged, with its number.
    Stored(u64),
    /// Made, with its number. It is not known whether it was stored.
    Made(u64),
    /// Not a change: all changes up to this number were acknowledged then.
    Synced(u64),
    /// Nothing has changed.
    Refused(Errno),
    /// The writer died before it learned it.
    Unknown,
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Outcome::Stored(number) => write!(f, "stored {number}"),
            Outcome::Made(number) => write!(f, "made {number}"),
            Outcome::Synced(number) => write!(f, "synced {number}"),
            Outcome::Refused(error) => write!(f, "refused {}", *error as i32),
            Outcome::Unknown => write!(f, "unknown 0"),
        }
    }
}

/// One line of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: Id,
    pub outcome: Outcome,
}

impl FromStr for Record {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Record> {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[writer, index, outcome, number] = &fields[..] else {
            bail!("'{line}' has {} fields instead of 4", fields.len());
        };
        let id = Id {
            writer: writer.parse()?,
            index: index.parse()?,
        };
        let outcome = match outcome {
            "stored" => Outcome::Stored(number.parse()?),
            "made" => Outcome::Made(number.parse()?),
            "synced" => Outcome::Synced(number.parse()?),
            "refused" => Outcome::Refused(Errno::from_raw(number.parse()?)),
            "unknown" => Outcome::Unknown,
            _ => bail!("'{line}' has an unknown outcome"),
        };
        Ok(Record { id, outcome })
    }
}

#[derive(Debug)]
pub struct History {
    pub workload: Workload,
    pub records: Vec<Record>,
    /// Whether all writers have recorded what they did; otherwise each may have made one more change.
    pub complete: bool,
}

/// The line of a history that is complete, unless others follow it.
const END: &str = "end";

impl History {
    pub fn read(path: &Path) -> Result<History> {
        let read = || History::parse(&std::fs::read_to_string(path)?);
        read().with_context(|| format!("cannot read the history {}", path.display()))
    }

    /// A last line without an end was being written when the writer died.
    fn parse(text: &str) -> Result<History> {
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..end].lines();
        let workload = parse_workload(lines.next().context("it is empty")?)?;
        let (mut records, mut complete) = (Vec::new(), false);
        for line in lines {
            complete = line == END;
            if !complete {
                records.push(line.parse()?);
            }
        }
        Ok(History {
            workload,
            records,
            complete,
        })
    }

    /// The index after the last one of each writer.
    pub fn next(&self) -> BTreeMap<u32, u64> {
        let mut next: BTreeMap<u32, u64> = (0..self.workload.writers)
            .map(|writer| (writer, 0))
            .collect();
        for Record { id, .. } in &self.records {
            let entry = next.entry(id.writer).or_default();
            *entry = (*entry).max(id.index + 1);
        }
        next
    }
}

fn parse_workload(line: &str) -> Result<Workload> {
    let numbers: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .unwrap_or_default();
    let (&[seed, writers, keys, longest], true) = (&numbers[..], line.starts_with("workload "))
    else {
        bail!("its first line '{line}' describes no workload");
    };
    ensure!(
        keys > 0 && longest > 0,
        "its workload '{line}' has no keys or values"
    );
    Ok(Workload {
        seed,
        writers: writers.try_into()?,
        keys: keys.try_into()?,
        longest: longest.try_into()?,
    })
}

/// Appends to a history. Each line is written at once, so that it outlasts its writer.
pub struct Recorder(Mutex<File>);

impl Recorder {
    /// Begins a history, or continues one of the same workload, in which each writer may have made one change that it never recorded.
    /// Also returns the index that each writer begins with.
    pub fn open(path: &Path, workload: Workload) -> Result<(Recorder, BTreeMap<u32, u64>)> {
        let open = || {
            let exists = std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
            let file = OpenOptions::new().create(true).append(true).open(path)?;
            let recorder = Recorder(Mutex::new(file));
            let next = if exists {
                let history = History::read(path)?;
                ensure!(
                    history.workload == workload,
                    "it is that of another workload: {:?}",
                    history.workload
                );
                remove_partial_line(path)?;
                recorder.skip_unknown(&history)?
            } else {
                let Workload {
                    seed,
                    writers,
                    keys,
                    longest,
                } = workload;
                recorder.line(&format!("workload {seed} {writers} {keys} {longest}"))?;
                (0..writers).map(|writer| (writer, 0)).collect()
            };
            Ok::<_, anyhow::Error>((recorder, next))
        };
        open().with_context(|| format!("cannot write the history {}", path.display()))
    }

    fn skip_unknown(&self, history: &History) -> Result<BTreeMap<u32, u64>> {
        let mut next = history.next();
        if !history.complete {
            for (writer, index) in &mut next {
                let id = Id {
                    writer: *writer,
                    index: *index,
                };
                self.record(Record {
                    id,
                    outcome: Outcome::Unknown,
                })?;
                *index += 1;
            }
        }
        Ok(next)
    }

    /// All writers have recorded what they did.
    pub fn end(&self) -> Result<()> {
        self.line(END)
    }

    pub fn record(&self, Record { id, outcome }: Record) -> Result<()> {
        self.line(&format!("{} {} {outcome}", id.writer, id.index))
    }

    fn line(&self, line: &str) -> Result<()> {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes())
            .context("cannot append to the history")
    }
}

/// What a reader leaves out.
fn remove_partial_line(path: &Path) -> Result<()> {
    let bytes = std::fs::read(path)?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |end| end + 1);
    let file = OpenOptions::new().write(true).open(path)?;
    Ok(file.set_len(end as u64)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const WORKLOAD: Workload = Workload {
        seed: 3,
        writers: 2,
        keys: 5,
        longest: 100,
    };

    fn record(writer: u32, index: u64, outcome: Outcome) -> Record {
        Record {
            id: Id { writer, index },
            outcome,
        }
    }

    #[test]
    fn a_history_is_read_as_it_was_written() -> Result<()> {
        let scratch = Scratch::new("history")?;
        let path = scratch.path().join("history");
        let records = [
            record(0, 0, Outcome::Stored(1)),
            record(1, 0, Outcome::Refused(Errno::ENOSPC)),
            record(0, 1, Outcome::Made(2)),
            record(0, 1, Outcome::Synced(2)),
        ];
        let (recorder, next) = Recorder::open(&path, WORKLOAD)?;
        assert_eq!(next, [(0, 0), (1, 0)].into());
        for record in records {
            recorder.record(record)?;
        }
        let history = History::read(&path)?;
        assert_eq!(history.workload, WORKLOAD);
        assert_eq!(history.records, records);
        Ok(())
    }

    #[test]
    fn a_continued_history_leaves_out_what_was_in_progress() -> Result<()> {
        let scratch = Scratch::new("history")?;
        let path = scratch.path().join("history");
        let (recorder, _) = Recorder::open(&path, WORKLOAD)?;
        recorder.record(record(0, 6, Outcome::Stored(9)))?;
        let (_, next) = Recorder::open(&path, WORKLOAD)?;
        assert_eq!(next, [(0, 8), (1, 1)].into());
        let unknown = [
            record(0, 7, Outcome::Unknown),
            record(1, 0, Outcome::Unknown),
        ];
        assert_eq!(History::read(&path)?.records[1..], unknown);
        assert!(
            Recorder::open(
                &path,
                Workload {
                    seed: 4,
                    ..WORKLOAD
                }
            )
            .is_err()
        );
        Ok(())
    }

    #[test]
    fn a_complete_history_has_nothing_in_progress() -> Result<()> {
        let scratch = Scratch::new("history")?;
        let path = scratch.path().join("history");
        let (recorder, _) = Recorder::open(&path, WORKLOAD)?;
        recorder.record(record(0, 6, Outcome::Stored(9)))?;
        recorder.end()?;
        assert!(History::read(&path)?.complete);
        let (recorder, next) = Recorder::open(&path, WORKLOAD)?;
        assert_eq!(next, [(0, 7), (1, 0)].into());
        recorder.record(record(1, 0, Outcome::Stored(10)))?;
        assert!(!History::read(&path)?.complete);
        Ok(())
    }

    #[test]
    fn an_incomplete_last_line_is_left_out() -> Result<()> {
        let history = History::parse("workload 3 2 5 100\n0 0 stored 1\n0 1 stor")?;
        assert_eq!(history.records, [record(0, 0, Outcome::Stored(1))]);
        assert!(History::parse("workload 3 2 5 100\n0 1 stor\n").is_err());
        assert!(History::parse("workload 3 2\n").is_err());
        Ok(())
    }
}
