// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mechanism implements to deliver the messages of one sender to several receivers.

use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::cgroup::Tree;
use sluice_testkit::clock;

use crate::harness::rounds::Skipped;
use crate::mechanisms::temp_paths::TempPaths;

/// Bytes that a mechanism holds for each receiver, or for all. Each holds a whole burst.
pub const CAPACITY: usize = 1 << 20;

/// What a channel is created for.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Message size in bytes.
    pub size: usize,
    pub receivers: usize,
    /// Receivers sleep until there is a message; otherwise they are told that there is none.
    pub blocking: bool,
}

/// Who receives a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    All,
    One,
}

/// All ends of a channel, created before the fork. Each process keeps one.
pub trait Channel {
    /// Returns once all receivers are connected.
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>>;
    fn receiver(self: Box<Self>, number: usize) -> Result<Box<dyn Receiver>>;
}

pub trait Sender {
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Processor time of others that send on behalf of this thread.
    fn helpers_ns(&self) -> Result<u64> {
        Ok(clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns()))
    }
}

pub trait Receiver {
    /// Passes the next message on. False: there is none; never if the channel is blocking.
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool>;
}

/// What channels are created with.
pub struct Resources {
    /// The cgroups of mechanisms that need the module, or why there are none.
    pub cgroups: Result<Rc<Tree>, Skipped>,
    /// For sockets that have one.
    pub paths: TempPaths,
}

impl Resources {
    pub fn new(cgroups: Result<Rc<Tree>, Skipped>) -> Self {
        Self {
            cgroups,
            paths: TempPaths::in_directory(std::env::temp_dir()),
        }
    }
}

/// A mechanism.
#[derive(Clone, Copy)]
pub struct Way {
    pub name: &'static str,
    pub delivery: Delivery,
    /// Its library has threads of its own, which the scheduler places.
    pub own_threads: bool,
    /// The reason why it cannot be measured here.
    pub unavailable: fn(&Resources) -> Option<Skipped>,
    pub create: fn(&Shape, &Resources) -> Result<Box<dyn Channel>>,
}
