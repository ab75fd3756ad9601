// SPDX-License-Identifier: MIT OR Apache-2.0
//! Replays a log of writes: makes the disk of each state, recovers it, and compares its store with the history.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use fastrand::Rng;

use crate::Verdict;
use crate::churn;
use crate::disk::Disk;
use crate::history::History;
use crate::log::Log;
use crate::mark::Marks;
use crate::model::Model;
use crate::recovery::Method;
use crate::scratch::Scratch;
use crate::states::{self, Place, State};
use crate::store::{self, Contents, Store};

/// At most so many failed states are described.
const DESCRIBED: usize = 10;

/// Replays a log of dm-log-writes, and checks the store in each state in which a power cut may have left the disk
#[derive(Args)]
pub struct Replay {
    /// The disk before the first write of the log
    #[arg(long, value_name = "FILE")]
    base: PathBuf,

    /// What dm-log-writes has logged
    #[arg(long, value_name = "FILE")]
    log: PathBuf,

    /// The name of a map, and what `write` has recorded of it; may be repeated
    #[arg(long = "map", value_name = "NAME=HISTORY", required = true, value_parser = parse_map)]
    maps: Vec<(String, PathBuf)>,

    /// The name of a map that `churn` has created and removed; may be repeated
    #[arg(long = "churned", value_name = "NAME")]
    churned: Vec<String>,

    /// The directory of the store, in the root of the disk's file system
    #[arg(long, value_name = "NAME", default_value = "store")]
    store: String,

    /// How the file system is recovered
    #[arg(long, value_enum, default_value = "e2fsck")]
    recover: Method,

    /// About so long; as many states as fit are chosen at random. Default: all states
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u32>,

    /// Fewer states are a failure
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    at_least: usize,

    /// Of the random numbers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Only this state, as a failure names it
    #[arg(long, value_name = "PLACE")]
    only: Option<Place>,

    /// Keep the disk of the first state that fails
    #[arg(long, value_name = "FILE")]
    keep: Option<PathBuf>,
}

/// A map, and what is known of it.
struct Map {
    name: String,
    /// None: it is created and removed.
    model: Option<Model>,
    marks: Marks,
}

impl Map {
    fn new(name: &str, model: Option<Model>, log: &Log) -> Map {
        Map {
            name: name.into(),
            model,
            marks: Marks::new(log, name),
        }
    }

    /// What is wrong with it in a store.
    fn check(&self, contents: Option<&Contents>, horizon: usize) -> Vec<String> {
        let mark = self.marks.last(horizon);
        let faults = match &self.model {
            Some(model) => model.check(contents, mark),
            None => churn::check(contents, mark),
        };
        let name = |fault| format!("{}: {fault}", self.name);
        faults.into_iter().map(name).collect()
    }
}

/// A state, as a file.
struct Job {
    place: Place,
    horizon: usize,
    image: PathBuf,
}

/// What was found in the states so far.
#[derive(Default)]
struct Findings {
    after_flush: AtomicUsize,
    subsets: AtomicUsize,
    failures: Mutex<Vec<(Place, Vec<String>)>>,
}

impl Replay {
    pub fn run(&self) -> Result<Verdict> {
        let log = Log::open(&self.log)?;
        let maps = self.maps(&log)?;
        let disk = Disk::read(&self.base)?;
        let total = states::count(&log);
        let entries = log.entries.len();
        println!(
            "{total} states of the log, which has {entries} entries; seed {}",
            self.seed
        );
        let findings = Findings::default();
        let scratch = Scratch::new("replay")?;
        self.visit(&log, disk, total, &maps, scratch.path(), &findings)?;
        self.report(total, findings)
    }

    fn maps(&self, log: &Log) -> Result<Vec<Map>> {
        let mut maps = Vec::new();
        for (name, history) in &self.maps {
            let model = Model::new(&History::read(history)?)?;
            maps.push(Map::new(name, Some(model), log));
        }
        maps.extend(self.churned.iter().map(|name| Map::new(name, None, log)));
        Ok(maps)
    }

    fn visit(
        &self,
        log: &Log,
        disk: Disk,
        total: usize,
        maps: &[Map],
        scratch: &Path,
        findings: &Findings,
    ) -> Result<()> {
        let workers = thread::available_parallelism().map_or(1, |count| count.get());
        let (sender, receiver) = sync_channel(workers);
        let receiver = Mutex::new(receiver);
        let mut choice = Choice::new(self, total);
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers)
                .map(|number| {
                    let (receiver, scratch) = (&receiver, scratch.join(format!("worker-{number}")));
                    scope.spawn(move || self.work(receiver, &scratch, maps, findings))
                })
                .collect();
            let select = |place| choice.select(place);
            let visited = states::visit(log, disk, self.seed, select, |state| {
                send(state, scratch, &sender)
            });
            drop(sender);
            for worker in workers {
                worker
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            }
            visited
        })
    }

    fn work(
        &self,
        jobs: &Mutex<Receiver<Job>>,
        scratch: &Path,
        maps: &[Map],
        findings: &Findings,
    ) -> Result<()> {
        let next = || {
            jobs.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .recv()
                .ok()
        };
        while let Some(job) = next() {
            std::fs::create_dir(scratch).context("cannot create a directory for a state")?;
            let faults = self.check(&job, scratch, maps);
            if !faults.is_empty() && findings.fail(job.place, faults) {
                self.keep(&job.image)?;
            }
            findings.count(job.place);
            std::fs::remove_file(&job.image).context("cannot remove the disk of a state")?;
            std::fs::remove_dir_all(scratch).context("cannot remove the files of a state")?;
        }
        Ok(())
    }

    fn check(&self, job: &Job, scratch: &Path, maps: &[Map]) -> Vec<String> {
        let check = || {
            let recovered = self.recover.recover(&job.image, &self.store, scratch)?;
            let mut faults = Vec::new();
            let store = Store::open(recovered.store())?;
            for map in maps {
                let contents = store::map(store.as_ref(), &map.name)?;
                faults.extend(map.check(contents.as_ref(), job.horizon));
            }
            Ok::<_, anyhow::Error>(faults)
        };
        check().unwrap_or_else(|error| vec![format!("{error:#}")])
    }

    fn keep(&self, image: &Path) -> Result<()> {
        if let Some(kept) = &self.keep {
            // What the recovery has changed is there, too.
            std::fs::copy(image, kept)
                .with_context(|| format!("cannot write {}", kept.display()))?;
        }
        Ok(())
    }

    fn report(&self, total: usize, findings: Findings) -> Result<Verdict> {
        let failures = findings
            .failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        for (place, faults) in failures.iter().take(DESCRIBED) {
            println!("FAILED: state {place}: {}", faults[0]);
            for fault in &faults[1..faults.len().min(DESCRIBED)] {
                println!("    {fault}");
            }
        }
        let (durable, subsets) = (
            findings.after_flush.into_inner(),
            findings.subsets.into_inner(),
        );
        let count = durable + subsets;
        println!(
            "{count} of {total} states replayed: {durable} after a flush, {subsets} with some writes of the cache; {} failed",
            failures.len()
        );
        if !failures.is_empty() {
            return Ok(Verdict::Wrong);
        }
        let needed = self.at_least;
        ensure!(
            count >= needed,
            "only {count} states were replayed, and {needed} are required"
        );
        Ok(Verdict::Right)
    }
}

fn parse_map(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, history)) => Ok((name.into(), history.into())),
        None => Err("give the name of a map, '=' and the file of its history".into()),
    }
}

fn send(state: State, scratch: &Path, sender: &SyncSender<Job>) -> Result<()> {
    let image = scratch.join(format!("state-{}", state.place));
    state.disk.save(&image, &state.writes)?;
    let job = Job {
        place: state.place,
        horizon: state.horizon,
        image,
    };
    // It fails only if all workers have ended, and they return why.
    let _ = sender.send(job);
    Ok(())
}

impl Findings {
    fn count(&self, place: Place) {
        let counter = if place.subset.is_some() {
            &self.subsets
        } else {
            &self.after_flush
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it is the first one.
    fn fail(&self, place: Place, faults: Vec<String>) -> bool {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.push((place, faults));
        failures.len() == 1
    }
}

/// Chooses states so that they fill the time, and are distributed evenly over the log.
struct Choice {
    only: Option<Place>,
    budget: Option<Duration>,
    begin: Instant,
    random: Rng,
    left: usize,
    chosen: u32,
}

/// Of a state, until it is measured.
const EXPECTED: Duration = Duration::from_millis(20);

impl Choice {
    fn new(replay: &Replay, total: usize) -> Choice {
        Choice {
            only: replay.only,
            budget: replay
                .seconds
                .map(|seconds| Duration::from_secs(seconds.into())),
            begin: Instant::now(),
            random: Rng::with_seed(replay.seed),
            left: total,
            chosen: 0,
        }
    }

    fn select(&mut self, place: Place) -> bool {
        if self.only.is_some() {
            return self.only == Some(place);
        }
        let Some(budget) = self.budget else {
            return true;
        };
        let spent = self.begin.elapsed();
        let each = if self.chosen < 10 {
            EXPECTED
        } else {
            spent / self.chosen
        };
        let fitting = budget.saturating_sub(spent).as_secs_f64() / each.as_secs_f64();
        let select = self.random.f64() < fitting / self.left as f64;
        self.left = self.left.saturating_sub(1);
        self.chosen += u32::from(select);
        select
    }
}
