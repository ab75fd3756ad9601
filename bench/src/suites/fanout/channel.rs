// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a mechanism implements to deliver the messages of one sender to several receivers.

use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::clock;

use super::conditions::Conditions;
use crate::harness::server::Server;
use crate::mechanisms::temp_paths::TempPaths;
use crate::suites::plan::Plan;

/// Bytes that a mechanism holds for each receiver, or for all. Each holds a whole burst.
pub const CAPACITY: usize = 1 << 20;

#[derive(Clone, Copy)]
pub struct FanoutMechanism {
    pub name: &'static str,
    /// A message has one receiver; otherwise all receive it.
    pub to_one: bool,
    /// Its library has threads of its own, which the scheduler places.
    pub own_threads: bool,
    pub prepare: Prepare,
}

/// Fails if the mechanism cannot be measured here. The paths are for sockets.
pub type Prepare = fn(&Plan, &Rc<TempPaths>) -> Result<Create>;

pub type Create = Rc<dyn Fn(&Conditions) -> Result<Channel>>;

/// Opens the end of the sender (None) or of the receiver with this number, and closes all other ends. Each process opens one.
pub type Channel = Box<dyn FnOnce(Option<usize>) -> Result<End>>;

pub enum End {
    Sender(Sender),
    Receiver(Receive),
}

pub struct Sender {
    pub send: Send,
    /// Sends what is held back, at the end of a burst.
    pub flush: Flush,
    /// Sends on behalf of this process.
    pub daemon: Option<Server>,
}

pub type Send = Box<dyn FnMut(&[u8]) -> Result<()>>;

pub type Flush = Box<dyn FnMut() -> Result<()>>;

/// Passes the next message on. False: there is none; never if the channel is blocking.
pub type Receive = Box<dyn FnMut(Visit) -> Result<bool>>;

pub type Visit<'a> = &'a mut dyn FnMut(&[u8]) -> Result<()>;

impl End {
    pub fn sender(send: impl FnMut(&[u8]) -> Result<()> + 'static) -> Result<Self> {
        Ok(Self::Sender(Sender {
            send: Box::new(send),
            flush: Box::new(|| Ok(())),
            daemon: None,
        }))
    }

    pub fn receiver(receive: impl FnMut(Visit) -> Result<bool> + 'static) -> Result<Self> {
        Ok(Self::Receiver(Box::new(receive)))
    }
}

impl Sender {
    /// Processor time of others that send on behalf of this thread.
    pub fn helpers_ns(&self) -> Result<u64> {
        match &self.daemon {
            Some(daemon) => clock::cpu_ns_of(daemon.pid()),
            None => Ok(clock::process_cpu_ns().saturating_sub(clock::thread_cpu_ns())),
        }
    }
}
