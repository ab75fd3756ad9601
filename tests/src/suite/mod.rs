// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests, one file a topic, one behaviour a test.

mod atomicity;
mod device;
mod exclusive;
mod faults;
mod hostile;
mod interrupts;
mod isolation;
mod kill;
mod lifetime;
mod no_cgroup2;
mod open;
mod pages;
mod poll;
mod programs;
mod read_write;
mod settings;
mod splice;
mod stress;
mod uring;
mod wakeups;

use crate::registry::Topic;

/// In this order: simple things first, so that the first failure is the one to look at.
pub const TOPICS: &[Topic] = &[
    open::TOPIC,
    read_write::TOPIC,
    poll::TOPIC,
    interrupts::TOPIC,
    hostile::TOPIC,
    wakeups::TOPIC,
    exclusive::TOPIC,
    atomicity::TOPIC,
    faults::TOPIC,
    splice::TOPIC,
    settings::TOPIC,
    pages::TOPIC,
    uring::TOPIC,
    device::TOPIC,
    isolation::TOPIC,
    kill::TOPIC,
    lifetime::TOPIC,
    programs::TOPIC,
    stress::TOPIC,
    no_cgroup2::TOPIC,
];
