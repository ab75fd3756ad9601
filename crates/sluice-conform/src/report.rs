// SPDX-License-Identifier: MIT OR Apache-2.0
//! All behaviours of all pairs of peers, and what differs.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sluice::{Channel, Kind};

use crate::process::{Process, UNSUPPORTED};
use crate::script::{Behaviour, Carrier, Peer, Side, Step, Variables, behaviours, durable};
use crate::store::Store;

/// What to run.
pub struct Run<'a> {
    /// Beside the library.
    pub peers: &'a [String],
    pub carrier: Carrier,
    /// The daemon of durable maps.
    pub store: Option<&'a Path>,
    /// Each first program only with the next one that has the commands.
    pub quick: bool,
    /// Parts of the names of behaviours; none: all.
    pub only: &'a [String],
    /// How long a result may take.
    pub limit: Duration,
}

enum Outcome {
    Passed,
    /// A peer does not know a command.
    Skipped,
    Failed(String),
}

/// The programs of a behaviour.
#[derive(Clone, Copy)]
struct Programs<'a> {
    first: &'a str,
    second: &'a str,
    own: &'a str,
}

impl<'a> Programs<'a> {
    fn of(self, side: Side) -> &'a str {
        match side.peer {
            Peer::First => self.first,
            Peer::Second => self.second,
            Peer::Bad | Peer::Store => self.own,
        }
    }
}

/// Where the sockets are, a directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Result<Self> {
        let directory = env::temp_dir().join(format!("sluice-conform-{}", process::id()));
        fs::create_dir_all(&directory).context("no directory for sockets")?;
        Ok(Self(directory))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The processes of a behaviour, each from the first step of its side on.
struct Processes<'a> {
    programs: Programs<'a>,
    limit: Duration,
    all: Vec<(Side, Process)>,
}

impl Processes<'_> {
    fn of(&mut self, side: Side) -> Result<&mut Process> {
        let found = self.all.iter().position(|(other, _)| *other == side);
        let place = match found {
            Some(place) => place,
            None => {
                let process = Process::start(self.programs.of(side), self.limit)?;
                self.all.push((side, process));
                self.all.len() - 1
            }
        };
        Ok(&mut self.all[place].1)
    }
}

/// The endpoints that a program does not support, as the program and its side: to start it again would only take time.
type Unsupported = BTreeSet<(String, String)>;

pub fn run(run: &Run<'_>) -> Result<ExitCode> {
    let own = env::current_exe().context("the path of this program is unknown")?;
    let own = format!("{} peer", own.display());
    let all: Vec<&str> = [own.as_str()]
        .into_iter()
        .chain(run.peers.iter().map(String::as_str))
        .collect();
    let mut behaviours = behaviours(run.carrier)?;
    let directory = Directory::new()?;
    let store = run.store.map(|program| Store::new(program, &directory.0));
    if store.is_some() {
        behaviours.extend(durable()?);
    }
    let mut report = Report {
        store,
        directory,
        limit: run.limit,
        unsupported: Unsupported::new(),
        passed: 0,
        failed: 0,
        skipped: 0,
    };
    for behaviour in behaviours {
        let is_named = |text: &String| behaviour.name.contains(text);
        if !run.only.is_empty() && !run.only.iter().any(is_named) {
            continue;
        }
        for pairs in pairs(&behaviour, &all) {
            let mut was_skipped = pairs
                .into_iter()
                .map(|programs| report.add(&behaviour, programs));
            if run.quick {
                was_skipped.find(|skipped| !skipped);
            } else {
                was_skipped.for_each(drop);
            }
        }
    }
    let Report {
        passed,
        failed,
        skipped,
        ..
    } = report;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// For each first program each second one, if the behaviour has both, beginning with the one after the first.
fn pairs<'a>(behaviour: &Behaviour, all: &[&'a str]) -> Vec<Vec<Programs<'a>>> {
    let own = all[0];
    let of = |peer| match behaviour.has(peer) {
        true => all,
        false => &all[..1],
    };
    let seconds = of(Peer::Second);
    let of_first = |(place, &first): (usize, &&'a str)| {
        let rotated = seconds.iter().cycle().skip(place + 1);
        let pair = |&second: &&'a str| Programs { first, second, own };
        rotated.take(seconds.len()).map(pair).collect()
    };
    of(Peer::First).iter().enumerate().map(of_first).collect()
}

/// What was checked so far.
struct Report {
    // Dropped before the directory, which has its files.
    store: Option<Store>,
    directory: Directory,
    limit: Duration,
    unsupported: Unsupported,
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    /// Checks a behaviour, and returns whether it was skipped.
    fn add(&mut self, behaviour: &Behaviour, programs: Programs<'_>) -> bool {
        let path = self.directory.0.join("socket");
        // Of a peer that was killed.
        let _ = fs::remove_file(&path);
        let number = self.passed + self.failed + self.skipped;
        let mut variables = Variables::default();
        variables.set("path", &path.display().to_string());
        let name = format!("conform-{}-{number}", process::id());
        variables.set("name", &name);
        let (store, unsupported) = (self.store.as_mut(), &mut self.unsupported);
        let outcome = check(
            behaviour,
            programs,
            self.limit,
            variables,
            store,
            unsupported,
        );
        if !matches!(outcome, Outcome::Passed) {
            unlink(&name);
        }
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped => {
                self.skipped += 1;
                return true;
            }
            Outcome::Failed(why) => {
                self.failed += 1;
                println!("FAILED: {}: {why}", behaviour.name);
                for side in sides(behaviour) {
                    println!("    {}: {}", side.name, programs.of(side));
                }
            }
        }
        false
    }
}

/// A behaviour that has not reached its end may have left a persistent channel.
fn unlink(name: &str) {
    for kind in [Kind::Pipe, Kind::Ring, Kind::Bus, Kind::Map] {
        let _ = Channel::new(kind, name).and_then(|channel| channel.unlink());
    }
}

fn sides(behaviour: &Behaviour) -> Vec<Side> {
    let mut sides = Vec::new();
    for step in &behaviour.steps {
        if !sides.contains(&step.side) {
            sides.push(step.side);
        }
    }
    sides
}

fn check(
    behaviour: &Behaviour,
    programs: Programs<'_>,
    limit: Duration,
    mut variables: Variables,
    mut store: Option<&mut Store>,
    unsupported: &mut Unsupported,
) -> Outcome {
    let opened = |step: &Step| {
        let side = opened_side(step.command.as_deref()?)?;
        Some((programs.of(step.side).to_owned(), side.to_owned()))
    };
    let mut opens = behaviour.steps.iter().filter_map(opened);
    if opens.any(|endpoint| unsupported.contains(&endpoint)) {
        return Outcome::Skipped;
    }
    if let Some(Err(error)) = store.as_mut().map(|store| store.start()) {
        return Outcome::Failed(format!("{error:#}"));
    }
    let mut processes = Processes {
        programs,
        limit,
        all: Vec::new(),
    };
    for step in &behaviour.steps {
        let done = match (&mut store, &step.command) {
            (Some(store), Some(command)) if step.side.peer == Peer::Store => {
                store.perform(command).map(|()| true)
            }
            _ => perform(step, &mut processes, &mut variables),
        };
        match done {
            Ok(true) => {}
            Ok(false) => {
                unsupported.extend(opened(step));
                return Outcome::Skipped;
            }
            Err(error) => return Outcome::Failed(format!("{error:#}")),
        }
    }
    Outcome::Passed
}

/// The side that a command opens.
fn opened_side(command: &str) -> Option<&str> {
    let mut words = command.split(' ');
    words.next().filter(|verb| *verb == "open")?;
    words.nth(1)
}

/// False: the peer does not know the command.
fn perform(step: &Step, processes: &mut Processes<'_>, variables: &mut Variables) -> Result<bool> {
    let process = processes.of(step.side)?;
    match step.command.as_deref() {
        Some("signal") => process.signal()?,
        Some("kill") => process.kill()?,
        Some(command) => process.command(&variables.replace_in(command))?,
        None => {}
    }
    let Some(expected) = &step.result else {
        return Ok(true);
    };
    let result = process.result()?;
    if result == UNSUPPORTED {
        return Ok(false);
    }
    if !variables.match_result(&result, expected) {
        let command = step.command.as_deref().unwrap_or("what was awaited");
        bail!(
            "{command} of the {}: '{result}' instead of '{expected}'",
            step.side.name
        );
    }
    Ok(true)
}
