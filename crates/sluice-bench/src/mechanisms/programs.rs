// SPDX-License-Identifier: MIT OR Apache-2.0
//! For mechanisms that cannot be called from here: programs that measure themselves. Each of the two measured processes
//! becomes one, and says in place of it that it is ready, waits for the word to go, and hands back the same numbers.

use std::process::Command;
use std::time::Duration;

use crate::harness::process::Side;

/// What the first program is to do, and with it what the second one has to.
#[derive(Clone, Copy, Debug)]
pub enum Errand {
    /// Ask so often, or for so long if that is over earlier, and compare each answer with the question.
    RoundTrips { most: usize, duration: Duration },
    /// Send as fast as it can, for so long.
    Stream { duration: Duration },
    /// Send so many, made of the pattern that the other side looks for.
    Pattern { messages: usize },
    /// Send so many when they are due, at so many a second; the other side keeps the latency of every `stride`th behind the warm-up.
    Load {
        messages: u64,
        warm_up: u64,
        stride: u64,
        rate: u64,
    },
}

pub trait Programs {
    /// What the process of this side becomes. Its measured thread pins itself to this processor.
    fn program(&self, side: Side, cpu: usize) -> Command;

    /// What has to run beside this side's program; it is ended with it.
    fn beside(&self, side: Side) -> Option<Command>;
}
