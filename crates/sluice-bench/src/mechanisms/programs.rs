// SPDX-License-Identifier: MIT OR Apache-2.0
//! For mechanisms that cannot be called from this process: external programs that measure themselves. Each of the two
//! measured processes is replaced by one, which continues its protocol: it reports that it is ready, waits for the
//! start, and returns the same numbers.

use std::process::Command;
use std::time::Duration;

use sluice_testkit::workers::Side;

/// The workload of the first program, which determines that of the second.
#[derive(Clone, Copy, Debug)]
pub enum ExternalWorkload {
    /// Send requests up to this number or for this time, and compare each reply with its request.
    RoundTrips { max: usize, duration: Duration },
    /// Send at full speed for this time.
    Stream { duration: Duration },
    /// Send this number of messages with the pattern that the receiver expects.
    Pattern { messages: usize },
    /// Send this number of messages at this rate; the receiver keeps every `stride`th latency after the warm-up.
    Load {
        messages: u64,
        warm_up: u64,
        stride: u64,
        rate: u64,
    },
}

pub trait Programs {
    /// The program that replaces the process of this side. Its measured thread pins itself to this processor.
    fn program(&self, side: Side, cpu: usize) -> Command;

    /// A helper process of the program of this side, killed with it.
    fn helper(&self, side: Side) -> Option<Command>;
}
