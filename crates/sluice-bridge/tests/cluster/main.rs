// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cluster of three servers between two bridges, with faults at random moments: tests/bridge-cluster runs this in the VM, which describes
//! the options. A seed determines which faults happen, for how long, and what is sent, but not the interleaving.

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod faults;
mod history;
mod maps;
mod proxy;
mod servers;
mod traffic;
mod verdict;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use fastrand::Rng;

use admin::Admin;
use faults::{BRIDGE_FAULTS, Counts, SERVER_FAULTS, World};
use history::{History, Id, Promise, Sender};
use maps::{Keeper, MapHistory, Writer};
use servers::{RECOVERY, Servers};
use support::Directory;
use support::daemon::Bridge;
use traffic::{Clock, Program, Receiver};
use verdict::{be_quiet, check_counters, summarize, unnoticed_damages, write_history};

/// For all messages to arrive after the last fault.
const DRAIN: Duration = Duration::from_secs(180);
/// How long a fault lasts, in milliseconds.
const LASTS: Range<u64> = 500..9000;

const OUT: &str = r#"
[[bus]]
name = "orders"
direction = "out"
subject = "orders.block"
stream = "ORDERS"
in_flight = 64
create = { capacity = 65536, permissions = "666" }
[[bus]]
name = "serial"
direction = "out"
subject = "orders.serial"
stream = "ORDERS"
in_flight = 1
create = { capacity = 8192, permissions = "666" }
[[bus]]
name = "samples"
direction = "out"
subject = "orders.drop"
stream = "ORDERS"
full = "drop"
in_flight = 16
in_flight_bytes = 65536
create = { capacity = 16384, permissions = "666" }
[[bus]]
name = "quotes"
direction = "out"
subject = "quotes.new"
create = { capacity = 65536, permissions = "666" }
"#;

const IN: &str = r#"
[[bus]]
name = "orders-in"
direction = "in"
subject = "orders.>"
stream = "ORDERS"
in_flight = 64
[[bus]]
name = "quotes-in"
direction = "in"
subject = "quotes.>"
"#;

/// The programs: bus, promise, messages in flight, and milliseconds between messages.
const PROGRAMS: [(&str, Promise, u64, u64); 5] = [
    ("orders", Promise::StoredOnce, 64, 80),
    ("orders", Promise::StoredOnce, 64, 120),
    ("serial", Promise::StoredOnce, 1, 400),
    ("samples", Promise::StoredAtMostOnce, 16, 40),
    ("quotes", Promise::Core, 256, 100),
];

struct Options {
    minutes: f64,
    seed: u64,
    logs: PathBuf,
}

impl Options {
    fn parse() -> Self {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let [minutes, seed, logs] = &arguments[..] else {
            panic!("usage: cluster MINUTES SEED FOLDER; tests/bridge-cluster gives them");
        };
        Self {
            minutes: minutes.parse().expect("MINUTES is a number"),
            seed: seed.parse().expect("SEED is a number"),
            logs: logs.into(),
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let seed = options.seed;
    println!("seed {seed}, logs in {}", options.logs.display());
    let limit = Duration::from_secs_f64(60.0 * options.minutes) + RECOVERY + DRAIN;
    watch(limit);
    // What fails before the end panics.
    let found = std::panic::catch_unwind(|| run(&options))
        .unwrap_or_else(|_| vec!["the test has ended early".to_owned()]);
    for violation in &found {
        println!("FAILED: {violation}");
    }
    let count = found.len().min(1);
    if count > 0 {
        println!(
            "seed {seed}; repeat it with --seed {seed}. The logs are in {}",
            options.logs.display()
        );
    }
    println!("{} passed, {count} failed", 1 - count);
    u8::from(count > 0).into()
}

/// Ends the test, and with it the VM, if it takes longer. What waits has a limit of its own.
fn watch(limit: Duration) {
    thread::spawn(move || {
        sleep(limit);
        println!("FAILED: the test hangs after {limit:?}");
        std::process::exit(1);
    });
}

/// Returns what is wrong.
fn run(options: &Options) -> Vec<String> {
    let directory = Directory::new("cluster");
    let mut rng = Rng::with_seed(options.seed);
    let mut world = start(directory.path(), &options.logs);
    let programs = open_programs();
    let is_ended = Arc::new(AtomicBool::new(false));
    let begun = programs.into_iter().zip(PROGRAMS);
    let running: Vec<JoinHandle<Program>> = begun
        .map(|(program, (_, _, _, pace))| {
            let pace = Duration::from_millis(pace);
            program.run(world.clock, pace, rng.u64(..), Arc::clone(&is_ended))
        })
        .collect();
    let writers = Writer::all().into_iter();
    let writing: Vec<JoinHandle<Writer>> = writers
        .map(|writer| writer.run(rng.u64(..), Arc::clone(&is_ended)))
        .collect();
    let count = fail_for(&mut world, &mut rng, options.minutes);
    println!("{:6.1} s: no more faults", seconds(&world));
    is_ended.store(true, Ordering::SeqCst);
    let ended = running.into_iter().map(|program| program.join().unwrap());
    let mut programs: Vec<Program> = ended.collect();
    let drained = drain(&world, &programs);
    println!(
        "{:6.1} s: all has arrived, {:.1} s after the last send",
        seconds(&world),
        drained.as_secs_f64()
    );
    let writers = writing.into_iter().map(|writer| writer.join().unwrap());
    let (maps, mut found) = settle_maps(&world, MapHistory::new(writers.collect()));
    found.extend(be_quiet(&world, &mut programs));
    // A message that comes twice comes now.
    sleep(Duration::from_secs(3));
    let history = history(&world, programs);
    write_history(&options.logs, &history);
    found.extend(history.check());
    found.extend(check_counters(&mut world, &history));
    summarize(&history, count, seconds(&world));
    maps.summarize(&options.logs);
    if found.is_empty() {
        found.extend(unnoticed_damages(&history, &mut rng));
        found.extend(maps.unnoticed_damages());
    }
    world
        .bridges
        .into_iter()
        .for_each(|bridge| drop(bridge.stop()));
    found
}

fn start<'a>(directory: &'a Path, logs: &Path) -> World<'a> {
    let clock = Clock(Instant::now());
    let servers = Servers::start(directory, logs);
    let admin = Admin::connect(&servers.urls());
    admin.create_stream();
    admin.create_buckets();
    let keeper = Keeper::start(directory, logs);
    // Keeps the map until the bridge has opened it.
    let _table = maps::create_durable();
    // Before the bridge: a broadcast bus without subscribers takes messages for nobody.
    let receivers = ["orders-in", "quotes-in"].map(|name| Receiver::start(name, clock));
    let bridges = [("a", [OUT, maps::OUT]), ("b", [IN, maps::IN])].map(|(id, rules)| {
        let metrics = directory.join(format!("{id}-metrics"));
        let urls = servers.bridge_urls(usize::from(id == "b"));
        let log = logs.join(format!("bridge-{id}.log"));
        Bridge::with(
            directory,
            log,
            id,
            &urls,
            &format!("metrics = {metrics:?}\n{}", rules.concat()),
        )
    });
    println!("{:6.1} s: started", clock.0.elapsed().as_secs_f64());
    World {
        servers,
        admin,
        bridges,
        keeper,
        receivers,
        clock,
        directory,
        kills: Vec::new(),
        counted: [Counts::new(), Counts::new()],
    }
}

fn open_programs() -> Vec<Program> {
    let program =
        |(number, (bus, promise, in_flight, _)): (usize, (&'static str, Promise, u64, u64))| {
            let sender = Sender {
                bus,
                uid: 1001 + number as u32,
                promise,
                in_flight,
                sent: Vec::new(),
            };
            Program::open(number, sender)
        };
    PROGRAMS.into_iter().enumerate().map(program).collect()
}

fn seconds(world: &World<'_>) -> f64 {
    world.clock.0.elapsed().as_secs_f64()
}

/// Makes faults in turn, in random orders, and returns their number.
fn fail_for(world: &mut World<'_>, rng: &mut Rng, minutes: f64) -> usize {
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let (mut of_servers, mut of_bridges) = (Vec::new(), Vec::new());
    let mut count = 0;
    while Instant::now() < end {
        if of_servers.is_empty() {
            of_servers = SERVER_FAULTS.to_vec();
            rng.shuffle(&mut of_servers);
        }
        if of_bridges.is_empty() {
            of_bridges = BRIDGE_FAULTS.to_vec();
            rng.shuffle(&mut of_bridges);
        }
        let which = rng.u32(..3);
        let server = (which != 1).then(|| of_servers.pop()).flatten();
        let bridge = (which != 0).then(|| of_bridges.pop()).flatten();
        let lasts = Duration::from_millis(rng.u64(LASTS));
        let names = format!("{server:?}, {bridge:?}")
            .replace("Some(", "")
            .replace([')'], "");
        println!(
            "{:6.1} s: {names}, {:.1} s",
            seconds(world),
            lasts.as_secs_f64()
        );
        let mut undone = Vec::new();
        undone.extend(server.map(|fault| world.fail_server(fault, rng)));
        sleep(lasts.mul_f64(0.3 * rng.f64()));
        undone.extend(bridge.map(|fault| world.fail_bridge(fault, rng)));
        sleep(lasts);
        undone.into_iter().for_each(|undo| undo(world));
        count += usize::from(server.is_some()) + usize::from(bridge.is_some());
        recover(world);
        sleep(Duration::from_millis(rng.u64(..1500)));
    }
    count
}

/// Until it is true; at the limit the test ends, with what the bridges have counted.
fn wait(world: &World<'_>, limit: Duration, what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        if begun.elapsed() > limit {
            let counts = [0, 1].map(|bridge| world.counts(bridge));
            panic!("not within {limit:?}: {what}; the bridges count {counts:#?}");
        }
        sleep(Duration::from_millis(20));
    }
}

/// Messages go on, from host A to host B.
fn recover(world: &World<'_>) {
    let [orders, _] = &world.receivers;
    let (begun, count) = (Instant::now(), orders.count());
    wait(world, RECOVERY, "messages go on after a fault", || {
        orders.count() >= count + 20
    });
    println!(
        "          messages go on after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
}

/// Until host B has what was sent.
fn drain(world: &World<'_>, programs: &[Program]) -> Duration {
    let begun = Instant::now();
    for (number, program) in programs.iter().enumerate() {
        let count = program.sender.sent.len() as u64;
        let first = match program.sender.promise {
            Promise::StoredOnce => 0,
            // The bus loses the oldest ones.
            Promise::StoredAtMostOnce => count.saturating_sub(1),
            Promise::Core => count,
        };
        arrive(world, number, first..count);
    }
    begun.elapsed()
}

/// Waits until the maps of both hosts are equal. Returns what differs after the limit.
fn settle_maps(world: &World<'_>, mut maps: MapHistory) -> (MapHistory, Vec<String>) {
    let begun = Instant::now();
    while !maps.is_settled() && begun.elapsed() < DRAIN {
        sleep(Duration::from_millis(200));
    }
    let passed = begun.elapsed().as_secs_f64();
    println!(
        "{:6.1} s: the maps are compared, after {passed:.1} s",
        seconds(world)
    );
    let found = maps.check();
    (maps, found)
}

fn arrive(world: &World<'_>, sender: usize, numbers: Range<u64>) {
    let inbox = usize::from(PROGRAMS[sender].1 == Promise::Core);
    for number in numbers {
        let id = Id { sender, number };
        let has = || world.receivers[inbox].has(id);
        wait(world, DRAIN, &format!("{id:?} arrives"), has);
    }
}

fn history(world: &World<'_>, programs: Vec<Program>) -> History {
    let [orders, quotes] = world.receivers.each_ref().map(Receiver::received);
    History {
        senders: programs.into_iter().map(|program| program.sender).collect(),
        pid: std::process::id(),
        bridge: "a".to_owned(),
        stored: world.admin.read_stream(),
        received: orders.into_iter().map(|(id, _)| id).collect(),
        core: quotes,
        kills: world.kills.clone(),
    }
}
