// SPDX-License-Identifier: MIT OR Apache-2.0
//! What fails, and how that ends. A fault is of the servers or of the bridges; one of each may happen at the same time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;
use nix::sys::signal::Signal;

use crate::admin::Admin;
use crate::maps::Keeper;
use crate::proxy::Network;
use crate::servers::{SERVERS, Servers};
use crate::support::daemon::{Bridge, metrics};
use crate::traffic::{Clock, Receiver};

#[derive(Clone, Copy, Debug)]
pub enum ServerFault {
    Kill,
    KillStreamLeader,
    KillMetaLeader,
    KillAll,
    Stop,
    MoveStream,
    MoveConsumer,
    MoveMeta,
    Isolate,
    IsolateSilently,
    FillDisk,
    /// While host B receives nothing, so that the client of its bridge does not poll its subscriptions.
    UpgradeWithUnpolledSubscriptions,
}

#[derive(Clone, Copy, Debug)]
pub enum BridgeFault {
    Kill,
    Reload,
    Stop,
    Cut,
    CutSilently,
    /// The programs of host B do not receive.
    SlowReceiver,
    /// The daemon that stores the durable map of host A is killed.
    KillKeeper,
}

pub const SERVER_FAULTS: [ServerFault; 12] = [
    ServerFault::Kill,
    ServerFault::KillStreamLeader,
    ServerFault::KillMetaLeader,
    ServerFault::KillAll,
    ServerFault::Stop,
    ServerFault::MoveStream,
    ServerFault::MoveConsumer,
    ServerFault::MoveMeta,
    ServerFault::Isolate,
    ServerFault::IsolateSilently,
    ServerFault::FillDisk,
    ServerFault::UpgradeWithUnpolledSubscriptions,
];

pub const BRIDGE_FAULTS: [BridgeFault; 7] = [
    BridgeFault::Kill,
    BridgeFault::Reload,
    BridgeFault::Stop,
    BridgeFault::Cut,
    BridgeFault::CutSilently,
    BridgeFault::SlowReceiver,
    BridgeFault::KillKeeper,
];

/// Counters, by their names and labels in the metrics.
pub type Counts = BTreeMap<String, u64>;

pub struct World<'a> {
    pub servers: Servers,
    pub admin: Admin,
    /// Of the hosts A and B.
    pub bridges: [Bridge; 2],
    pub keeper: Keeper,
    pub receivers: [Receiver; 2],
    pub clock: Clock,
    pub directory: &'a Path,
    /// When bridge A was killed.
    pub kills: Vec<u64>,
    /// What the bridges had counted before they were killed, at least.
    pub counted: [Counts; 2],
}

/// Ends a fault.
pub type Undo<'a> = Box<dyn FnOnce(&mut World<'a>)>;

impl<'a> World<'a> {
    pub fn fail_server(&mut self, fault: ServerFault, rng: &mut Rng) -> Undo<'a> {
        let any = rng.usize(..SERVERS);
        match fault {
            ServerFault::Kill => self.kill_server(any),
            ServerFault::KillStreamLeader => {
                let leader = self.admin.stream_leader().unwrap_or(any);
                self.kill_server(leader)
            }
            ServerFault::KillMetaLeader => {
                let leader = self.admin.meta_leader().unwrap_or(any);
                self.kill_server(leader)
            }
            ServerFault::KillAll => {
                (0..SERVERS).for_each(|index| self.servers.kill(index));
                Box::new(|world| (0..SERVERS).for_each(|index| world.servers.restart(index)))
            }
            ServerFault::Stop => {
                self.servers.signal(any, Signal::SIGSTOP);
                Box::new(move |world| world.servers.signal(any, Signal::SIGCONT))
            }
            ServerFault::MoveStream => moved(self.admin.move_stream()),
            ServerFault::MoveConsumer => moved(self.admin.move_consumer("sluice-b=orders-in")),
            ServerFault::MoveMeta => moved(self.admin.move_meta()),
            ServerFault::Isolate => self.isolate(any, Network::Cut),
            ServerFault::IsolateSilently => self.isolate(any, Network::Silent),
            ServerFault::FillDisk => {
                self.servers.fill_disk(any);
                Box::new(move |world| {
                    world.servers.empty_disk(any);
                    // A server that has seen a full disk stores nothing until it is started again.
                    world.servers.kill(any);
                    world.servers.restart(any);
                })
            }
            ServerFault::UpgradeWithUnpolledSubscriptions => {
                self.set_asleep(true);
                sleep(Duration::from_secs(2));
                for index in 0..SERVERS {
                    self.servers.terminate(index);
                    self.servers.restart(index);
                }
                Box::new(|world| world.set_asleep(false))
            }
        }
    }

    pub fn fail_bridge(&mut self, fault: BridgeFault, rng: &mut Rng) -> Undo<'a> {
        let any = rng.usize(..2);
        match fault {
            BridgeFault::Kill => {
                self.note_counts(any);
                if any == 0 {
                    self.kills.push(self.clock.millis());
                }
                self.bridges[any].kill();
                Box::new(move |world| world.bridges[any].restart())
            }
            BridgeFault::Reload => {
                self.note_counts(any);
                self.bridges[any].reload();
                Box::new(|_| {})
            }
            BridgeFault::Stop => {
                self.bridges[any].signal(Signal::SIGSTOP);
                Box::new(move |world| world.bridges[any].signal(Signal::SIGCONT))
            }
            BridgeFault::Cut => self.cut_bridge(any, Network::Cut),
            BridgeFault::CutSilently => self.cut_bridge(any, Network::Silent),
            BridgeFault::SlowReceiver => {
                self.set_asleep(true);
                Box::new(|world| world.set_asleep(false))
            }
            BridgeFault::KillKeeper => {
                self.keeper.kill();
                Box::new(|world| world.keeper.restart())
            }
        }
    }

    fn kill_server(&mut self, index: usize) -> Undo<'a> {
        self.servers.kill(index);
        Box::new(move |world| world.servers.restart(index))
    }

    fn isolate(&mut self, index: usize, network: Network) -> Undo<'a> {
        self.servers.isolate(index, network);
        Box::new(move |world| world.servers.isolate(index, Network::Whole))
    }

    fn cut_bridge(&mut self, bridge: usize, network: Network) -> Undo<'a> {
        self.servers.cut_bridge(bridge, network);
        Box::new(move |world| world.servers.cut_bridge(bridge, Network::Whole))
    }

    fn set_asleep(&self, is_asleep: bool) {
        for receiver in &self.receivers {
            receiver.is_asleep.store(is_asleep, Ordering::SeqCst);
        }
    }

    /// Before the end of a process of a bridge.
    fn note_counts(&mut self, bridge: usize) {
        for (name, count) in self.counts(bridge) {
            *self.counted[bridge].entry(name).or_default() += count;
        }
    }

    /// Of the process that runs.
    pub fn counts(&self, bridge: usize) -> Counts {
        let text = metrics(&self.directory.join(["a-metrics", "b-metrics"][bridge]));
        let counters = text.lines().filter(|line| line.contains("_total{"));
        let counter = |line: &str| {
            let (name, count) = line.rsplit_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        counters.filter_map(counter).collect()
    }
}

/// Without a leader none resigns, so that nothing fails.
fn moved<'a>(is_moved: bool) -> Undo<'a> {
    if !is_moved {
        println!("          no leader has resigned");
    }
    Box::new(|_| {})
}
