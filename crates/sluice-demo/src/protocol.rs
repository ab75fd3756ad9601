// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the demo and the processes inside its containers say to each other: one JSON object per line, orders on the
//! worker's standard input, events on its standard error.

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What the bytes go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    Pipe,
    Sluice,
}

impl Way {
    pub const ALL: [Self; 2] = [Self::Pipe, Self::Sluice];

    pub fn label(self) -> &'static str {
        match self {
            Self::Pipe => "pipe(2)",
            Self::Sluice => "/dev/sluice/pipe",
        }
    }

    pub fn argument(self) -> &'static str {
        match self {
            Self::Pipe => "pipe",
            Self::Sluice => "sluice",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "lowercase")]
pub enum Order {
    /// Start a sender and a receiver; they wait for Go.
    Prepare {
        way: Way,
        write_size: usize,
    },
    Go,
    /// Put this into the pipe and keep it there.
    Hold {
        text: String,
    },
    /// Look whether there is anything to read in the pipe.
    Peek,
    /// Read back what is held.
    Take,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// What the worker sees around it.
    Hello {
        cgroup: String,
        namespaces: BTreeMap<String, String>,
        nodes: Vec<String>,
    },
    /// One of the two processes is set up.
    Ready,
    Progress {
        bytes: u64,
    },
    Sent {
        bytes: u64,
        begin_ns: u64,
    },
    /// The digest is taken after the end, and only over the device.
    Received {
        bytes: u64,
        end_ns: u64,
        sha256: Option<String>,
    },
    Held,
    Peeked {
        announced: usize,
        read: usize,
    },
    Taken {
        text: String,
    },
    Failed {
        message: String,
    },
}

/// In a single write, so that lines of several processes never mix.
pub fn tell(event: &Event) -> Result<()> {
    Ok(io::stderr().write_all(line(event)?.as_bytes())?)
}

pub fn line(message: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string(message)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_one_line_and_comes_back_as_it_was() {
        let order = Order::Hold {
            text: "two\nlines".into(),
        };
        let text = line(&order).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert_eq!(serde_json::from_str::<Order>(&text).unwrap(), order);
    }

    #[test]
    fn an_event_fits_into_one_atomic_write() {
        let long = Event::Received {
            bytes: u64::MAX,
            end_ns: u64::MAX,
            sha256: Some("f".repeat(64)),
        };
        assert!(line(&long).unwrap().len() < 4096);
    }
}
