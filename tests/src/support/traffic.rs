// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data of every kind that is sent, received and checked while something disturbs it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::unistd::write;
use sluice::bus::Policy;
use sluice::map::{SetOptions, WatchFrom};
use sluice::{Bus, Map, Ring};

use super::channel::{read_all, set_blocking};
use super::check::{expect, note};
use super::ctl::{BOTH, CREATE, Ctl, Open};
use super::feed;
use super::time::{event_timeout, eventually};

/// Bytes, records, messages, changes and packets, each counted and checked, until `done`.
struct Traffic {
    done: AtomicBool,
    counts: [AtomicU64; 5],
}

impl Traffic {
    fn each(&self, kind: usize, mut body: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let mut number = 0;
        while !self.done.load(Ordering::Relaxed) {
            body(number).with_context(|| format!("{} after {number}", KINDS[kind]))?;
            number += 1;
            self.counts[kind].store(number, Ordering::Relaxed);
        }
        Ok(())
    }
}

const KINDS: [&str; 5] = ["pipe", "ring", "bus", "map", "feed"];

/// Runs `disturb` while traffic of every kind goes on, which must make progress and lose nothing that is not counted as
/// lost.
pub fn disturbed(disturb: impl FnOnce() -> Result<()>) -> Result<()> {
    let ctl = Ctl::new()?;
    let pipe = ctl.open(Open::new("pipe", BOTH | CREATE))?;
    let ring = Ring::named("ring").create(true).capacity(1 << 16);
    let (mut producer, mut consumer) = (ring.producer()?, ring.consumer()?);
    let bus = Bus::named("bus").create(true).policies([Policy::Block]);
    let (sender, mut subscriber) = (bus.sender()?, bus.subscriber()?);
    let map = Map::named("map").create(true).open()?;
    let mut watcher = map.watch(WatchFrom::Now)?;
    let node = feed::open_node()?;
    set_blocking(&node)?;
    feed::claim_by_read(&node)?;
    feed::start(&node, feed::Start::new(200_000, 0, 16))?;
    let traffic = Traffic {
        done: AtomicBool::new(false),
        counts: Default::default(),
    };
    let limit = event_timeout();
    let result = thread::scope(|scope| {
        let mut workers = Vec::new();
        workers.push(scope.spawn(|| {
            traffic.each(0, |number| {
                let bytes = number.to_ne_bytes();
                write(&pipe, &bytes)?;
                expect("bytes", read_all(&pipe, 8)?, bytes.to_vec())
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(1, |number| {
                producer.send_timeout(&number.to_ne_bytes(), limit)?;
                let record = consumer
                    .recv_timeout(limit)?
                    .context("the ring has ended")?;
                expect("a record", record.to_vec(), number.to_ne_bytes().to_vec())
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(2, |number| {
                sender.send_timeout(&number.to_ne_bytes(), limit)?;
                let message = subscriber.recv_timeout(limit)?;
                expect("lost", message.lost, 0)?;
                expect("a message", message.bytes(), &number.to_ne_bytes()[..])
            })
        }));
        workers.push(scope.spawn(|| {
            traffic.each(3, |number| {
                let options = SetOptions::new().time_to_live(Duration::from_secs(3600));
                let version = map
                    .set_with(format!("{}", number % 64), "v", options)?
                    .version;
                let event = watcher.recv_timeout(limit)?;
                expect("the event", (event.version, event.missed), (version, 0))
            })
        }));
        workers.push(scope.spawn(|| {
            let mut next = None;
            traffic.each(4, |_| {
                let packet = feed::read_packet(&node)?.context("the feed has ended")?;
                let (sequence, lost) = (packet.header.sequence, packet.header.lost);
                let expected = next.map_or(sequence, |next: u64| next + lost);
                next = Some(sequence + 1);
                expect("the packet", sequence, expected)
            })
        }));
        let disturbed = disturb();
        let before: Vec<u64> = counts(&traffic);
        let goes_on = eventually("all goes on", || {
            let now = counts(&traffic);
            let all = now.iter().zip(&before).all(|(now, before)| now > before);
            Ok(all.then_some(now))
        });
        traffic.done.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().expect("traffic does not panic")?;
        }
        disturbed?;
        goes_on
    })?;
    note(format!("{KINDS:?}: {result:?}"));
    feed::stop(&node).or_else(|error| match error {
        Errno::EINVAL => Ok(()),
        error => Err(error),
    })?;
    Ok(())
}

fn counts(traffic: &Traffic) -> Vec<u64> {
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    traffic.counts.iter().map(load).collect()
}
