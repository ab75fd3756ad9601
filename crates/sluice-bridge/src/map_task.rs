// SPDX-License-Identifier: MIT OR Apache-2.0
//! A rule for a map as a task: opens the map, or takes that of the last process, and keeps it and the bucket the same, again and again.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::Map;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::backoff::Backoff;
use crate::engine::Engine;
use crate::engine::bucket::BucketOptions;
use crate::local_map::{KernelMap, LocalMap};
use crate::log;
use crate::map_counters::MapCounters;
use crate::map_out::Puts;
use crate::map_rule::{Direction, MapRule};
use crate::map_sync::{Ended, MapSync, PAUSE};
use crate::notify::{Kept, Manager};
use crate::pairs::Pairs;
use crate::window::hash;

const REOPEN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));
/// The largest capacity of a map.
const CAPACITY_MAX: u64 = 64 << 30;
/// The interval of the checks whether the rule still names the map.
const LOOK: Duration = Duration::from_secs(5);
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// What the functions of a rule share.
pub struct MapContext<E> {
    pub rule: MapRule,
    pub engine: E,
    pub counters: MapCounters,
    /// Locked while a change of the map lacks its pair.
    pub changing: Mutex<()>,
}

/// The names of a rule's descriptors at the service manager begin so.
pub fn names(rule: &MapRule) -> [String; 2] {
    // Another direction needs another access.
    let hash = hash(&format!("{} {:?}", rule.channel(), rule.direction()));
    ["map", "pairs"].map(|kind| format!("{kind}-{hash:016x}"))
}

/// Until `stop` is true. `opening` is dropped after the first attempt to open the map.
pub async fn run<E: Engine>(
    context: Rc<MapContext<E>>,
    manager: Rc<Manager>,
    kept: Kept,
    mut stop: watch::Receiver<bool>,
    opening: mpsc::Sender<()>,
) -> Result<()> {
    let following = follow(&context, &manager, kept, opening);
    let stop = async { drop(stop.wait_for(|stop| *stop).await) };
    run_until(&context.changing, following, stop).await;
    Ok(())
}

/// Runs `following` until `stop`. Does not interrupt a change of the map before its pair is stored: the next process would take it for a
/// change by others.
pub async fn run_until(
    changing: &Mutex<()>,
    following: impl Future<Output = ()>,
    stop: impl Future<Output = ()>,
) {
    let stop = async {
        stop.await;
        changing.lock().await
    };
    tokio::select! {
        () = following => unreachable!("it goes on for ever"),
        _changing = stop => {}
    }
}

async fn follow<E: Engine>(
    context: &MapContext<E>,
    manager: &Manager,
    kept: Kept,
    opening: mpsc::Sender<()>,
) {
    let mut opening = Some(opening);
    let (rule, channel) = (&context.rule, context.rule.channel());
    let mut backoff = Backoff::new(REOPEN.0, REOPEN.1);
    let mut restored = restore(rule, kept, manager);
    let mut told = String::new();
    loop {
        let opened = match restored.take() {
            Some(opened) => Ok(opened),
            None => open(rule, manager),
        };
        drop(opening.take());
        match opened {
            Ok(Opened {
                map,
                mut pairs,
                kept,
            }) => {
                told.clear();
                let started = Instant::now();
                let map = KernelMap::new(map);
                tokio::select! {
                    () = keep_same(context, &map, &mut pairs) => {}
                    () = nameless(rule, &map) => {}
                }
                if started.elapsed() > REOPEN.1 {
                    backoff.reset();
                }
                remove(&kept, manager);
                log::line(format_args!(
                    "{channel}: the map has ended, or its name was removed; opening it again"
                ));
            }
            Err(error) => {
                let text = sluice::explain(error.as_ref());
                if text != told {
                    log::line(format_args!("{channel}: {text}; trying again"));
                    told = text;
                }
            }
        }
        backoff.wait().await;
    }
}

/// Returns when the rule no longer names this map: its name or cgroup was removed, and another map may have the name.
async fn nameless(rule: &MapRule, map: &KernelMap) {
    while is_named(rule, map) {
        sleep(LOOK).await;
    }
}

fn is_named(rule: &MapRule, map: &KernelMap) -> bool {
    let changes = || -> sluice::Result<[u64; 3]> {
        let before = map.info()?.sequence;
        let named = rule.map()?.info()?.sequence;
        Ok([before, named, map.info()?.sequence])
    };
    match changes() {
        // Two maps have different change numbers sooner or later.
        Ok([before, named, after]) => (before..=after).contains(&named),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns when the map was destroyed.
pub async fn keep_same<E: Engine>(context: &MapContext<E>, map: &impl LocalMap, pairs: &mut Pairs) {
    let MapContext {
        rule,
        engine,
        counters,
        ..
    } = context;
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        engine.connected().await;
        let compared = Cell::new(None);
        let text = match attempt(context, map, pairs, &compared).await {
            Ended::Map => return,
            // The call has waited already.
            Ended::Incomplete => continue,
            Ended::Failed(text) => text,
        };
        let (channel, bucket) = (rule.channel(), rule.bucket());
        counters.failed.report(1, |_| {
            format!(
                "{channel}: comparing it with the bucket {bucket} again, until it succeeds: {text}"
            )
        });
        // Not the time of a failure, however slow: each comparison transfers the bucket.
        let compared: Option<Instant> = compared.get();
        if compared.is_some_and(|time| time.elapsed() > RETRY.1) {
            backoff.reset();
        }
        backoff.wait().await;
    }
}

async fn attempt<E: Engine>(
    context: &MapContext<E>,
    map: &impl LocalMap,
    pairs: &mut Pairs,
    compared: &Cell<Option<Instant>>,
) -> Ended {
    let MapContext {
        rule,
        engine,
        counters,
        changing,
    } = context;
    let options = BucketOptions {
        name: rule.bucket(),
        puts_time_to_live: rule.is_out() && rule.keeps_time_to_live(),
    };
    let bucket = match engine.bucket(options).await {
        Ok(bucket) => bucket,
        Err(failure) => return failure.into(),
    };
    let mut sync = MapSync {
        rule,
        counters,
        map,
        bucket: &bucket,
        pairs,
        changing,
        puts: Puts::default(),
        compare_at: None,
        pause: PAUSE,
    };
    let compared = || {
        compared.set(Some(Instant::now()));
        let (channel, bucket) = (rule.channel(), rule.bucket());
        log::line(format_args!(
            "{channel}: the map and the bucket {bucket} are the same"
        ));
    };
    sync.run(compared).await
}

/// An open map.
struct Opened {
    map: Map,
    pairs: Pairs,
    /// The names of the descriptors at the service manager.
    kept: Vec<String>,
}

fn open(rule: &MapRule, manager: &Manager) -> Result<Opened> {
    let options = rule.map()?;
    // Also a map that the bridge writes is read, to be compared.
    let map = match rule.direction() {
        Direction::Out => options.open_reader()?,
        Direction::In | Direction::Both => options.open()?,
    };
    let [map_name, pairs_name] = names(rule);
    let mut kept = vec![map_name];
    let mut pairs = Pairs::default();
    // The map is kept only if this succeeds: the service manager would have another descriptor of it with each attempt.
    if rule.direction() == Direction::Both {
        let incarnation = RandomState::new().hash_one(0);
        let map = create_pairs(&map, incarnation)?;
        kept.push(format!("{pairs_name}-{incarnation:016x}"));
        keep(rule, manager, &kept[1], &map);
        pairs = Pairs::restore(map, incarnation)?;
    }
    keep(rule, manager, &kept[0], &map);
    Ok(Opened { map, pairs, kept })
}

/// A map that has room for the pairs of all entries.
fn create_pairs(map: &Map, incarnation: u64) -> Result<Map> {
    let capacity = map.info()?.capacity;
    let options = Map::named(format!("sluice-bridge-{incarnation:016x}"))
        .create(true)
        .permissions(0o600)
        .events(1)
        // A pair may need more than a short value.
        .capacity((capacity + capacity / 2).min(CAPACITY_MAX));
    let opened = options.open();
    opened.context("cannot create the map in which the bridge keeps what both sides had")
}

/// Gives the map to the service manager. Without it, a restart ends the map if no other process has it open.
fn keep(rule: &MapRule, manager: &Manager, name: &str, map: &Map) {
    if let Err(error) = manager.store(name, map.as_fd()) {
        let channel = rule.channel();
        log::line(format_args!(
            "{channel}: the service manager does not keep the map: {error}; check NOTIFY_SOCKET"
        ));
    }
}

/// The descriptors of a rule that the last process has left.
pub fn take_kept(rule: &MapRule, kept: &mut Kept) -> Kept {
    let names = names(rule);
    let is_of_rule = |name: &String| names.iter().any(|begin| name.starts_with(begin));
    kept.extract_if(|name, _| is_of_rule(name)).collect()
}

fn restore(rule: &MapRule, kept: Kept, manager: &Manager) -> Option<Opened> {
    let names: Vec<String> = kept.keys().cloned().collect();
    match restore_all(rule, kept) {
        Ok(Some((map, pairs))) => Some(Opened {
            map,
            pairs,
            kept: names,
        }),
        Ok(None) => None,
        Err(error) => {
            let (channel, text) = (rule.channel(), sluice::explain(error.as_ref()));
            log::line(format_args!(
                "{channel}: what the last process has left is not used: {text}"
            ));
            remove(&names, manager);
            None
        }
    }
}

fn restore_all(rule: &MapRule, mut kept: Kept) -> Result<Option<(Map, Pairs)>> {
    let [map_name, pairs_name] = names(rule);
    let Some(map) = kept.remove(&map_name) else {
        ensure!(kept.is_empty(), "the map is missing");
        return Ok(None);
    };
    let map = Map::attach(map)?;
    if rule.direction() != Direction::Both {
        return Ok(Some((map, Pairs::default())));
    }
    let (name, pairs) = kept
        .drain()
        .next()
        .context("what both sides had is missing")?;
    let incarnation = name
        .strip_prefix(&pairs_name)
        .and_then(|rest| rest.strip_prefix('-'));
    let incarnation = incarnation.and_then(|text| u64::from_str_radix(text, 16).ok());
    let incarnation = incarnation.context("a descriptor has another name")?;
    let pairs = Pairs::restore(Map::attach(pairs)?, incarnation)?;
    Ok(Some((map, pairs)))
}

fn remove(names: &[String], manager: &Manager) {
    for name in names {
        if let Err(error) = manager.remove(name) {
            log::line(format_args!(
                "cannot notify the service manager: {error}; check NOTIFY_SOCKET"
            ));
        }
    }
}
