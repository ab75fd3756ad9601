// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers of a durable map, and the history of what they were answered.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use nix::errno::Errno;

use crate::history::{Outcome, Record, Recorder};
use crate::mark::Marker;
use crate::stand_in::{StandIn, Synchronous};
use crate::workload::{Id, Workload};

/// After a refused change.
const PAUSE: Duration = Duration::from_millis(20);

/// Changes a durable map by several threads, and records the answer to each change
#[derive(Args)]
pub struct Write {
    /// The name of the map
    #[arg(long, value_name = "NAME")]
    map: String,

    /// Where to record the answers: outside of the disk under test. An existing history is continued
    #[arg(long, value_name = "FILE")]
    history: PathBuf,

    /// Of the changes
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Threads
    #[arg(long, value_name = "NUMBER", default_value_t = 4)]
    writers: u32,

    /// Keys of each writer
    #[arg(long, value_name = "NUMBER", default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,

    /// The longest value, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 200 << 10, value_parser = clap::value_parser!(u32).range(1..))]
    longest: u32,

    /// End after so long; default: 10 seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,

    /// The device-mapper device with the target log-writes, in which to mark what is acknowledged
    #[arg(long, value_name = "DEVICE")]
    mark: Option<String>,

    /// Acknowledgements per mark
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    mark_every: u32,

    /// Write a store of the same tables in this directory instead, to try the tests
    #[arg(long, value_name = "DIRECTORY")]
    stand_in: Option<PathBuf>,

    /// What the stand-in waits for
    #[arg(long, value_enum, default_value = "full")]
    stand_in_synchronous: Synchronous,
}

/// The number of answers of each kind.
type Counts = BTreeMap<String, u64>;

impl Write {
    pub fn run(&self) -> Result<()> {
        let (recorder, next) = Recorder::open(&self.history, self.workload())?;
        let directory = self
            .stand_in
            .as_ref()
            .context("only a stand-in is supported")?;
        let map = StandIn::open(directory, &self.map, self.stand_in_synchronous)?;
        let marker = Marker::new(self.mark.as_deref(), self.mark_every)?;
        let counts = Mutex::new(Counts::new());
        thread::scope(|scope| {
            let writers: Vec<_> = next
                .into_iter()
                .map(|(writer, index)| {
                    let (recorder, marker, counts, map) =
                        (&recorder, &marker, &counts, map.clone());
                    let id = Id { writer, index };
                    scope.spawn(move || self.write(id, &map, recorder, marker, counts))
                })
                .collect();
            for writer in writers {
                writer
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        recorder.end()?;
        self.report(&counts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn workload(&self) -> Workload {
        let Write {
            seed,
            writers,
            keys,
            longest,
            ..
        } = *self;
        Workload {
            seed,
            writers,
            keys,
            longest,
        }
    }

    fn write(
        &self,
        mut id: Id,
        map: &StandIn,
        recorder: &Recorder,
        marker: &Marker,
        counts: &Mutex<Counts>,
    ) -> Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let workload = self.workload();
        while Instant::now() < end {
            let outcome = map.apply(&workload.operation(id))?;
            recorder.record(Record { id, outcome })?;
            match outcome {
                Outcome::Stored(number) => marker.note(number, number)?,
                Outcome::Made(number) => marker.note(0, number)?,
                Outcome::Refused(Errno::ENOENT) | Outcome::Unknown => {}
                Outcome::Refused(_) => thread::sleep(PAUSE),
            }
            let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
            *counts.entry(kind(outcome)).or_default() += 1;
            id.index += 1;
        }
        Ok(())
    }

    fn report(&self, counts: &Counts) -> Result<()> {
        let words: Vec<String> = counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        println!("changes: {}", words.join(", "));
        ensure!(counts.contains_key("stored"), "no change was acknowledged");
        Ok(())
    }
}

fn kind(outcome: Outcome) -> String {
    match outcome {
        Outcome::Stored(_) => "stored".into(),
        Outcome::Made(_) => "made".into(),
        Outcome::Unknown => "unknown".into(),
        Outcome::Refused(error) => format!("refused ({error:?})"),
    }
}
