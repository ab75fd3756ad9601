// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writers of a durable map, and the history of what they were answered.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use nix::errno::Errno;

use crate::Verdict;
use crate::history::{Outcome, Record, Recorder};
use crate::mark::Marker;
use crate::target::DurableMap;
use crate::workload::{Id, Workload};

/// After a refused change.
const PAUSE: Duration = Duration::from_millis(20);

/// Changes per synchronization, if they do not wait.
const SYNC_EVERY: u64 = 50;

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
    #[arg(long, value_name = "NUMBER", default_value_t = 12)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,

    /// The longest value, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 200 << 10)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    longest: u32,

    /// End after so long
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    seconds: f64,

    /// End as soon as this file exists
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,

    /// Changes do not wait until they are stored, which is at most so much later; the writers synchronize now and then instead
    #[arg(long, value_name = "MILLISECONDS")]
    interval: Option<u64>,

    /// The limit of each wait for the store
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 30_000)]
    deadline: u64,

    /// Errors with which changes may be refused, separated by commas; at least one change has to be
    #[arg(long, value_name = "ERROR", value_delimiter = ',', value_parser = parse_errno)]
    refused: Vec<Errno>,

    /// Changes may be made without being acknowledged in time
    #[arg(long)]
    unacknowledged: bool,

    /// The device-mapper device with the target log-writes, in which to mark what is acknowledged
    #[arg(long, value_name = "DEVICE")]
    mark: Option<String>,

    /// Acknowledgements per mark
    #[arg(long, value_name = "NUMBER", default_value_t = 3)]
    mark_every: u32,
}

/// What all writers share.
struct Shared {
    map: DurableMap,
    recorder: Recorder,
    marker: Marker,
    counts: Mutex<Counts>,
}

impl Write {
    pub fn run(&self) -> Result<Verdict> {
        let interval = self.interval.map(Duration::from_millis);
        let deadline = Duration::from_millis(self.deadline);
        let map = DurableMap::open(&self.map, interval, deadline)?;
        let (recorder, next) = Recorder::open(&self.history, self.workload())?;
        let shared = Shared {
            map,
            recorder,
            marker: Marker::new(&self.map, self.mark.as_deref(), self.mark_every)?,
            counts: Mutex::default(),
        };
        thread::scope(|scope| {
            let shared = &shared;
            let begin = |(writer, index)| {
                let id = Id { writer, index };
                scope.spawn(move || self.write(id, shared))
            };
            let writers: Vec<_> = next.into_iter().map(begin).collect();
            for writer in writers {
                let ended = writer.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            Ok::<_, anyhow::Error>(())
        })?;
        shared.recorder.end()?;
        self.report(
            &shared
                .counts
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
        )
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

    fn write(&self, mut id: Id, shared: &Shared) -> Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(self.seconds);
        let workload = self.workload();
        while Instant::now() < end && !self.until.as_ref().is_some_and(|file| file.exists()) {
            let outcome = shared.map.apply(&workload.operation(id))?;
            shared.note(id, outcome)?;
            if self.interval.is_some() && id.index % SYNC_EVERY == 0 {
                if let Some(number) = shared.map.sync()? {
                    shared.note(id, Outcome::Synced(number))?;
                }
            }
            if matches!(outcome, Outcome::Refused(error) if error != Errno::ENOENT) {
                thread::sleep(PAUSE);
            }
            id.index += 1;
        }
        Ok(())
    }

    fn report(&self, counts: &Counts) -> Result<Verdict> {
        println!("changes: {counts}");
        ensure!(counts.stored + counts.made > 0, "no change was made");
        for error in counts.refused.keys().map(|error| Errno::from_raw(*error)) {
            ensure!(
                self.refused.contains(&error),
                "changes were refused: {error}"
            );
        }
        let expected = self.refused.is_empty() || !counts.refused.is_empty();
        ensure!(expected, "no change was refused");
        if counts.made > 0 && self.interval.is_none() && !self.unacknowledged {
            bail!("{} changes were not acknowledged in time", counts.made);
        }
        Ok(Verdict::Right)
    }
}

impl Shared {
    /// Records an answer, outside of the disk first.
    fn note(&self, id: Id, outcome: Outcome) -> Result<()> {
        self.recorder.record(Record { id, outcome })?;
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add(outcome);
        match outcome {
            Outcome::Stored(number) | Outcome::Synced(number) => self.marker.note(number, number),
            Outcome::Made(number) => self.marker.note(0, number),
            Outcome::Refused(_) | Outcome::Unknown => Ok(()),
        }
    }
}

/// The number of answers of each kind.
#[derive(Default)]
struct Counts {
    stored: u64,
    made: u64,
    /// Deletions of what was not there.
    absent: u64,
    synced: u64,
    /// By errno.
    refused: BTreeMap<i32, u64>,
}

impl Counts {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Stored(_) => self.stored += 1,
            Outcome::Made(_) => self.made += 1,
            Outcome::Synced(_) => self.synced += 1,
            Outcome::Refused(Errno::ENOENT) => self.absent += 1,
            Outcome::Refused(error) => *self.refused.entry(error as i32).or_default() += 1,
            Outcome::Unknown => {}
        }
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        let Counts {
            stored,
            made,
            absent,
            synced,
            ..
        } = self;
        write!(
            f,
            "{stored} stored, {made} made, {synced} synchronizations, "
        )?;
        write!(f, "{absent} deletions of nothing")?;
        for (error, count) in &self.refused {
            write!(f, ", {count} refused with {:?}", Errno::from_raw(*error))?;
        }
        Ok(())
    }
}

fn parse_errno(name: &str) -> Result<Errno, String> {
    match name {
        "EAGAIN" => Ok(Errno::EAGAIN),
        "EIO" => Ok(Errno::EIO),
        "ENOSPC" => Ok(Errno::ENOSPC),
        "EROFS" => Ok(Errno::EROFS),
        _ => Err("the errors are EAGAIN, EIO, ENOSPC and EROFS".into()),
    }
}
