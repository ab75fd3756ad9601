// SPDX-License-Identifier: MIT OR Apache-2.0
//! All behaviours of all pairs of peers, and what differs.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::process::{Process, UNSUPPORTED};
use crate::script::{Behaviour, RING, Side, Step, matches, parse};

enum Outcome {
    Passed,
    /// A peer does not know a command.
    Skipped,
    Failed(String),
}

/// Both peers of a ring.
struct Pair {
    producer: Process,
    consumer: Process,
}

impl Pair {
    fn peer(&mut self, sends: bool) -> &mut Process {
        match sends {
            true => &mut self.producer,
            false => &mut self.consumer,
        }
    }
}

/// Where the sockets of pairs are, a directory that is removed at the end, and how long a result may take.
struct Place {
    directory: PathBuf,
    limit: Duration,
}

impl Place {
    fn new(limit: Duration) -> Result<Self> {
        let directory = env::temp_dir().join(format!("sluice-conform-{}", process::id()));
        fs::create_dir_all(&directory).context("no directory for sockets")?;
        Ok(Self { directory, limit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
    }
}

pub fn run(peers: &[String], only: &str, limit: Duration) -> Result<ExitCode> {
    let own = env::current_exe().context("the path of this program is unknown")?;
    let own = format!("{} peer", own.display());
    let all: Vec<&str> = [own.as_str()]
        .into_iter()
        .chain(peers.iter().map(String::as_str))
        .collect();
    let behaviours = parse(RING)?;
    let place = Place::new(limit)?;
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for behaviour in behaviours
        .iter()
        .filter(|behaviour| behaviour.name.contains(only))
    {
        for (producer, consumer) in pairs(behaviour, &all) {
            match check(behaviour, producer, consumer, &place) {
                Outcome::Passed => passed += 1,
                Outcome::Skipped => skipped += 1,
                Outcome::Failed(why) => {
                    failed += 1;
                    println!("FAILED: {}: {why}", behaviour.name);
                    println!("    producer: {producer}\n    consumer: {consumer}");
                }
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Each producer with each consumer; a bad side is this program's.
fn pairs<'a>(behaviour: &Behaviour, all: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let own = &all[..1];
    let of = |sends| match behaviour.side(sends).is_bad() {
        true => own,
        false => all,
    };
    let (producers, consumers) = (of(true), of(false));
    let with = |producer: &&'a str| {
        consumers
            .iter()
            .map(|consumer| (*producer, *consumer))
            .collect::<Vec<_>>()
    };
    producers.iter().flat_map(with).collect()
}

fn check(behaviour: &Behaviour, producer: &str, consumer: &str, place: &Place) -> Outcome {
    let started = || -> Result<Pair> {
        let (producer, consumer) = (
            Process::start(producer, place.limit)?,
            Process::start(consumer, place.limit)?,
        );
        Ok(Pair { producer, consumer })
    };
    let checked = started().and_then(|mut pair| {
        connect(behaviour, &mut pair, &place.directory)?;
        for step in behaviour.after_set_up() {
            if !perform(step, &mut pair)? {
                return Ok(Outcome::Skipped);
            }
        }
        Ok(Outcome::Passed)
    });
    checked.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
}

/// Sets up the ring, which has 4096 bytes. Which side listens differs from one behaviour to the next.
fn connect(behaviour: &Behaviour, pair: &mut Pair, directory: &Path) -> Result<()> {
    let path = directory.join("socket");
    // Of a peer that was killed.
    let _ = fs::remove_file(&path);
    let path = path.display();
    let listener = behaviour.name.len() % 2 == 0;
    pair.peer(listener).command(&format!("listen {path}"))?;
    let listens = pair.peer(listener).result()?;
    expect("listen", behaviour.side(listener), &listens, "ok")?;
    for (verb, sends) in [
        ("accept".to_owned(), listener),
        (format!("connect {path}"), !listener),
    ] {
        let fields = behaviour.hello(sends).map_or("", |hello| hello.fields);
        let side = behaviour.side(sends).name();
        pair.peer(sends)
            .command(&format!("{verb} {side} 4096{fields}"))?;
    }
    for sends in [listener, !listener] {
        let expected = behaviour.hello(sends).map_or("ok", |hello| hello.result);
        let result = pair.peer(sends).result()?;
        expect("the set-up", behaviour.side(sends), &result, expected)?;
    }
    Ok(())
}

/// False: the peer does not know the command.
fn perform(step: &Step, pair: &mut Pair) -> Result<bool> {
    let peer = pair.peer(step.side.sends());
    match step.command.as_deref() {
        Some("signal") => peer.signal()?,
        Some(command) => peer.command(command)?,
        None => {}
    }
    let Some(expected) = &step.result else {
        return Ok(true);
    };
    let result = peer.result()?;
    if result == UNSUPPORTED {
        return Ok(false);
    }
    let command = step.command.as_deref().unwrap_or("what was awaited");
    expect(command, step.side, &result, expected)?;
    Ok(true)
}

fn expect(what: &str, side: Side, result: &str, expected: &str) -> Result<()> {
    if !matches(result, expected) {
        bail!(
            "{what} of the {}: '{result}' instead of '{expected}'",
            side.name()
        );
    }
    Ok(())
}
