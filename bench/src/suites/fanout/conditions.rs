// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conditions of a case.

use sluice_testkit::units;

/// What the receivers do when a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// They run, and receive after a burst.
    Busy,
    /// They ask for messages all the time.
    Polling,
    /// They sleep before each message, which is a burst by itself.
    Asleep,
    /// They receive as fast as they can, and the sender does not wait for them.
    Streaming,
}

impl ReceiverState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Polling => "polling",
            Self::Asleep => "asleep",
            Self::Streaming => "streaming",
        }
    }
}

/// Whose processor time is measured, where it is not the time of the whole exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Sending,
    /// The receiver reads a word of each cache line of the message.
    Receiving,
}

impl Cost {
    pub fn name(self) -> &'static str {
        match self {
            Self::Sending => "sending",
            Self::Receiving => "receiving",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    pub receivers: usize,
    /// Message size in bytes.
    pub size: usize,
    pub state: ReceiverState,
    pub cost: Cost,
}

impl Conditions {
    pub fn title(&self) -> String {
        let plural = if self.receivers == 1 { "" } else { "s" };
        let (size, state) = (units::size(self.size), self.state.name());
        let cost = match self.state {
            ReceiverState::Streaming => String::new(),
            _ => format!(", cost of {}", self.cost.name()),
        };
        format!("{} receiver{plural} {size} {state}{cost}", self.receivers)
    }

    /// Receivers sleep until there is a message; otherwise they are told that there is none.
    pub fn blocks(&self) -> bool {
        use ReceiverState::{Asleep, Streaming};
        matches!(self.state, Asleep | Streaming)
    }
}
