// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is checked beside the history, and what is told.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;

use crate::faults::{Counts, World};
use crate::history::{DAMAGES, History, Promise};
use crate::traffic::{Program, Receiver};
use crate::{DRAIN, PROGRAMS, arrive, seconds, wait};

/// What each program sends after the faults.
const QUIET: u64 = 20;

/// Without faults all messages arrive, in order, and the counters count each once.
pub fn be_quiet(world: &World<'_>, programs: &mut [Program]) -> Vec<String> {
    let settled = || {
        let mut counts = [0, 1].map(|bridge| world.counts(bridge));
        wait(world, DRAIN, "the counters do not change", || {
            sleep(Duration::from_secs(2));
            let last = counts.clone();
            counts = [0, 1].map(|bridge| world.counts(bridge));
            last == counts
        });
        counts
    };
    let before = settled();
    println!(
        "{:6.1} s: {QUIET} messages of each program without faults",
        seconds(world)
    );
    let received = world.receivers.each_ref().map(Receiver::count);
    for _ in 0..QUIET {
        for program in &mut *programs {
            let what = format!("the bus {} has room", program.sender.bus);
            wait(world, DRAIN, &what, || program.send(world.clock));
        }
        sleep(Duration::from_millis(100));
    }
    for (number, program) in programs.iter().enumerate() {
        let count = program.sender.sent.len() as u64;
        arrive(world, number, count - QUIET..count);
    }
    println!("{:6.1} s: they have arrived", seconds(world));
    let after = settled();
    let mut found = Vec::new();
    for (inbox, from) in received.into_iter().enumerate() {
        let messages = &world.receivers[inbox].received()[from..];
        for (number, _) in PROGRAMS.iter().enumerate() {
            let of_sender = messages.iter().filter_map(|(id, _)| *id);
            let of_sender = of_sender.filter(|id| id.sender == number);
            if !of_sender.map(|id| id.number).is_sorted() {
                found.push(format!(
                    "without faults, messages of sender {number} changed places"
                ));
            }
        }
    }
    for (bridge, bus, name, expected) in [
        (0, "orders", "out", 2 * QUIET),
        (0, "serial", "out", QUIET),
        (0, "samples", "out", QUIET),
        (0, "quotes", "out", 0),
        (1, "orders-in", "in", 4 * QUIET),
        (1, "quotes-in", "in", QUIET),
    ] {
        let key = counter(name, bus);
        let count = |counts: &[Counts; 2]| counts[bridge].get(&key).copied().unwrap_or(0);
        let counted = count(&after) - count(&before);
        // Without a stream nothing is acknowledged.
        if counted != expected && bus != "quotes" {
            found.push(format!(
                "without faults, {key} has grown by {counted}, not by {expected}"
            ));
        }
    }
    found
}

fn counter(name: &str, bus: &str) -> String {
    format!("sluice_bridge_messages_{name}_total{{bus=\"{bus}\",scope=\"\"}}")
}

/// A process that was killed may have counted more than it was last asked for.
pub fn check_counters(world: &mut World<'_>, history: &History) -> Vec<String> {
    let mut found = Vec::new();
    for bridge in [0, 1] {
        for (name, count) in world.counts(bridge) {
            *world.counted[bridge].entry(name).or_default() += count;
        }
    }
    let stored = |bus: &str| {
        let of_bus = history
            .stored
            .iter()
            .filter(|stored| stored.origin.bus == bus);
        of_bus.count() as u64
    };
    let sent = |bus: &str| -> u64 {
        let of_bus = history.senders.iter().filter(|sender| sender.bus == bus);
        of_bus.map(|sender| sender.sent.len() as u64).sum()
    };
    for (bridge, bus, name, max) in [
        (0, "orders", "out", stored("orders")),
        (0, "serial", "out", stored("serial")),
        (0, "samples", "out", stored("samples")),
        (
            0,
            "samples",
            "lost",
            sent("samples").saturating_sub(stored("samples")),
        ),
        (0, "orders", "lost", 0),
        (0, "orders", "too_long", 0),
        (0, "orders", "not_allowed", 0),
        (1, "orders-in", "in", history.received.len() as u64),
        (1, "orders-in", "looped", 0),
        (1, "quotes-in", "in", history.core.len() as u64),
    ] {
        let key = counter(name, bus);
        let count = world.counted[bridge].get(&key).copied().unwrap_or(0);
        if count > max {
            found.push(format!("{key} is {count}, where {max} messages are"));
        }
    }
    found
}

/// Whether the checker would have found what this history does not have.
pub fn unnoticed_damages(history: &History, rng: &mut Rng) -> Vec<String> {
    let mut found = Vec::new();
    for (name, damage) in DAMAGES {
        let mut damaged = history.clone();
        damage(&mut damaged, rng);
        match damaged.check().first() {
            Some(violation) => println!("checked: {name}: {violation}"),
            None => found.push(format!("the checker does not find that {name}")),
        }
    }
    found
}

pub fn summarize(history: &History, faults: usize, seconds: f64) {
    let sent = |promise| -> usize {
        let of_kind = history
            .senders
            .iter()
            .filter(|sender| sender.promise == promise);
        of_kind.map(|sender| sender.sent.len()).sum()
    };
    let (blocked, dropped, core) = (
        sent(Promise::StoredOnce),
        sent(Promise::StoredAtMostOnce),
        sent(Promise::Core),
    );
    let (stored, received) = (history.stored.len(), history.received.len());
    println!(
        "{faults} faults in {seconds:.0} s; sent: {blocked} with block, {dropped} with drop, {core} without a stream"
    );
    println!(
        "stored: {stored}, {} with drop lost, {} after later ones; came in: {received}, {} of them again; without a stream {}",
        (blocked + dropped).saturating_sub(stored),
        history.late().len(),
        received.saturating_sub(stored),
        history.core.len(),
    );
}

/// For a person who looks for the cause of a violation.
pub fn write_history(logs: &Path, history: &History) {
    let lines = |lines: Vec<String>| lines.join("\n") + "\n";
    let stored = history.stored.iter().map(|stored| format!("{stored:?}"));
    let received = history.received.iter().map(|id| format!("{id:?}"));
    let core = history.core.iter().map(|core| format!("{core:?}"));
    for (name, text) in [
        ("stored", lines(stored.collect())),
        ("received", lines(received.collect())),
        ("core", lines(core.collect())),
    ] {
        fs::write(logs.join(format!("{name}.txt")), text).unwrap();
    }
}
