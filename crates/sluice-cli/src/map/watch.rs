// SPDX-License-Identifier: MIT OR Apache-2.0
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use serde::Serialize;
use sluice::escape;
use sluice::map::{Event, WatchError, WatchFrom, Watcher};

use super::args::{OpenMapArgs, PrefixArgs};
use crate::args;
use crate::output;
use crate::signals::FinalReport;
use crate::stream;
use crate::text::encode;

/// The number of bytes after which a write starts.
const CHUNK: usize = 128 << 10;

/// The number of changes after which a write starts, also if most are of other keys.
const EVENTS: usize = 1024;

#[derive(Args)]
pub struct Arguments {
    #[command(flatten)]
    pub(super) map: OpenMapArgs,

    #[command(flatten)]
    keys: PrefixArgs,

    /// Begin after this sequence; 0: with the oldest change that is kept [default: with the next change]
    ///
    /// Fails if there is no such change yet.
    #[arg(long, value_name = "SEQUENCE", value_parser = args::number(0u64..))]
    after: Option<u64>,

    /// Exit after this number of changes [default: never]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// Fail if there is no change for this time
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = args::time)]
    timeout: Option<Duration>,

    /// Print each change as a JSON object in a line
    #[arg(long)]
    json: bool,
}

/// The JSON object that sluice-map(1) describes.
#[derive(Serialize)]
struct EventObject {
    sequence: u64,
    change: String,
    missed: u64,
    version: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
}

/// What was received and not written yet, and the counts of all.
struct Received {
    json: bool,
    keys: PrefixArgs,
    buffer: Vec<u8>,
    changes: Arc<AtomicU64>,
    /// Missed since the last printed change.
    unreported: u64,
    missed: Arc<AtomicU64>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let output = stream::output()?;
    let map = arguments.map.open_reader()?;
    let mut watcher = map.watch(arguments.after.map_or(WatchFrom::Now, WatchFrom::After))?;
    let (missed, changes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (reported, printed) = (Arc::clone(&missed), Arc::clone(&changes));
    let report = FinalReport::new(move || report(&reported))?;
    stream::end_with_reader(&output, Arc::clone(&report), move |error| {
        stream::explain_output(printed.load(Ordering::Relaxed), "changes", error)
    })?;
    let mut received = Received {
        json: arguments.json,
        keys: arguments.keys.clone(),
        buffer: Vec::new(),
        changes,
        unreported: 0,
        missed,
    };
    let outcome = received.receive_all(&mut watcher, arguments, &output);
    report.print()?;
    outcome
}

fn report(missed: &AtomicU64) -> Result<()> {
    let missed = missed.load(Ordering::Relaxed);
    if missed > 0 {
        output::note(&format!(
            "sluice: {missed} changes were missed, because the map does not keep them"
        ));
    }
    Ok(())
}

impl Received {
    fn receive_all(
        &mut self,
        watcher: &mut Watcher,
        arguments: &Arguments,
        mut output: &File,
    ) -> Result<()> {
        let limit = arguments.count.unwrap_or(u64::MAX);
        let mut printed = Instant::now();
        while self.changes() < limit {
            let first = match arguments.timeout {
                Some(time) => watcher
                    .recv_timeout(time.saturating_sub(printed.elapsed()))
                    .map_err(|error| match error {
                        WatchError::TimedOut(_) => WatchError::TimedOut(time),
                        other => other,
                    }),
                None => watcher.recv(),
            };
            let collected = first
                .map_err(Error::new)
                .and_then(|event| self.collect(event, watcher, limit));
            let written = output.write_all(&self.buffer);
            written.map_err(|error| stream::explain_output(self.changes(), "changes", error))?;
            if !self.buffer.is_empty() {
                self.buffer.clear();
                printed = Instant::now();
            }
            collected.map_err(|error| self.explain(error))?;
            if let Some(time) = arguments.timeout.filter(|time| printed.elapsed() >= *time) {
                return Err(self.explain(WatchError::TimedOut(time).into()));
            }
        }
        Ok(())
    }

    /// The first change, and some of those that are available now.
    fn collect(&mut self, first: Event, watcher: &mut Watcher, limit: u64) -> Result<()> {
        self.push(&first)?;
        for _ in 0..EVENTS {
            if self.changes() == limit || self.buffer.len() >= CHUNK {
                break;
            }
            match watcher.try_recv() {
                Err(WatchError::Empty) => break,
                other => self.push(&other?)?,
            }
        }
        Ok(())
    }

    fn push(&mut self, event: &Event) -> Result<()> {
        self.missed.fetch_add(event.missed, Ordering::Relaxed);
        self.unreported += event.missed;
        if !self.keys.matches(&event.key) {
            return Ok(());
        }
        let missed = std::mem::take(&mut self.unreported);
        self.buffer
            .extend(line(event, missed, self.json)?.as_bytes());
        self.buffer.push(b'\n');
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn explain(&self, error: Error) -> Error {
        let changes = self.changes();
        match error.downcast_ref() {
            Some(WatchError::Destroyed) => anyhow!("the map was destroyed after {changes} changes"),
            _ => error.context(format!("watching ended after {changes} changes")),
        }
    }
}

/// sluice-map(1) describes both forms.
fn line(event: &Event, missed: u64, json: bool) -> Result<String> {
    let Event {
        sequence,
        change,
        version,
        ..
    } = *event;
    if !json {
        let key = escape(&event.key);
        return Ok(format!("{sequence} {change} {missed} {key}"));
    }
    let (key, key_base64) = encode(&event.key);
    let object = EventObject {
        sequence,
        change: change.to_string(),
        missed,
        version,
        key,
        key_base64,
    };
    serde_json::to_string(&object).context("cannot encode a change as JSON")
}
