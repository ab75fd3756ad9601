// SPDX-License-Identifier: MIT OR Apache-2.0
//! The description of a mechanism: its properties, and the functions that create its links.

use std::rc::Rc;

use anyhow::Result;
use sluice_testkit::cgroup::Tree;

use super::link::{Exchange, Link};
use super::own_program::OwnProgram;
use crate::harness::pinning::Placement;
use crate::harness::waiting::Waiting;

#[derive(Clone, Copy, Debug)]
pub struct Task {
    pub size: usize,
    pub placement: Placement,
    pub workload: Workload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// At most one message in flight.
    RequestReply,
    /// As many messages in flight as fit.
    Stream,
    /// A stream of messages that are written and read in memory of the mechanism.
    InPlace,
    /// A message over each of several channels, one after the other.
    Connections,
    /// A message over each of many channels, all of which stay open.
    Many,
    /// Unmodified programs read and write it as a file.
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    Together,
    OneByOne,
}

pub struct Mechanism {
    /// The name in the results.
    pub name: &'static str,
    /// The name in tables.
    pub label: String,
    pub waiting: Waiting,
    /// The most messages of this size in flight, so that a check can use each place of a buffer several times.
    pub in_flight: InFlight,
    /// Each link has a cgroup, which is made with it, here.
    pub own_cgroups: Option<Rc<Tree>>,
    /// How batches are sent; None for mechanisms whose batches are not measured.
    pub batching: Option<Batching>,
    pub in_place: bool,
    pub is_file: bool,
    /// Both sides always spin, so each needs a processor.
    pub never_sleeps: bool,
    /// Its library has threads of its own, which the scheduler places; only the thread that sends or receives is pinned.
    pub own_threads: bool,
    /// Any other reason why this task is not supported here, with a remedy if there is one.
    pub unsupported_reason: UnsupportedReason,
    /// Creates a link for messages of this size, before the fork.
    pub link: Box<dyn Fn(usize) -> Result<Link>>,
    /// For requests and replies over one connection, instead of a link per direction.
    pub exchange: Option<Box<dyn Fn(usize) -> Result<Exchange>>>,
    /// Creates a link for each of several processes, all of one channel; None where only two can use one.
    pub shared_links: Option<Links>,
    /// The program of a library with which this adapter is compared.
    pub own_program: Option<OwnProgram>,
}

/// Mechanisms whose places are used again have no more, and no smaller overhead, unless they say so; mechanisms of bytes have less.
const LARGEST_CAPACITY: usize = 1 << 20;
const SMALLEST_OVERHEAD: usize = 64;

pub type InFlight = Box<dyn Fn(usize) -> usize>;
pub type UnsupportedReason = Box<dyn Fn(&Task) -> Option<String>>;
pub type Links = Box<dyn Fn(usize) -> Result<Vec<Link>>>;

impl Mechanism {
    /// Supports every task of two processes that copy messages and are no programs, and has no batches.
    pub fn new(
        name: &'static str,
        waiting: Waiting,
        link: impl Fn(usize) -> Result<Link> + 'static,
    ) -> Self {
        Self {
            name,
            label: waiting.label(name),
            waiting,
            in_flight: bytes_in_flight(LARGEST_CAPACITY, SMALLEST_OVERHEAD),
            own_cgroups: None,
            batching: None,
            in_place: false,
            is_file: false,
            never_sleeps: false,
            own_threads: false,
            unsupported_reason: Box::new(|_| None),
            link: Box::new(link),
            exchange: None,
            shared_links: None,
            own_program: None,
        }
    }

    pub fn labelled(self, label: &str) -> Self {
        let label = label.into();
        Self { label, ..self }
    }

    pub fn link(&self, size: usize) -> Result<Link> {
        (self.link)(size)
    }

    pub fn unsupported_reason(&self, task: &Task) -> Option<String> {
        let reason = match task.workload {
            Workload::InPlace if !self.in_place => "messages are copied into it and out of it",
            Workload::File if !self.is_file => "it is not a file that programs can read or write",
            _ if self.never_sleeps && task.placement == Placement::SameCpu => {
                "spinning needs a processor for each of the two processes"
            }
            _ => return (self.unsupported_reason)(task),
        };
        Some(reason.into())
    }
}

/// Of a buffer of this many bytes, in which each message needs so many beside its own.
pub fn bytes_in_flight(capacity: usize, overhead: usize) -> InFlight {
    Box::new(move |size| capacity.div_ceil(size + overhead))
}

pub fn failure<T>(outcome: Result<T>) -> Option<String> {
    outcome.err().map(|error| format!("{error:#}"))
}
