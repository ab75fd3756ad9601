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
    /// Make channels of these names in the own scope, with this in each, and keep them.
    Make {
        names: Vec<String>,
        secret: String,
    },
    /// Look for the other's channels: `shared` is a name that both have, `theirs` one that only the other has.
    Search {
        shared: String,
        theirs: String,
    },
    /// Read back what is in a channel that was made.
    Recall {
        name: String,
    },
    /// Look for a channel of this name in the own scope.
    LookUp {
        name: String,
    },
    /// Wait for an endpoint on the socket, and send the own file through it.
    SendHanded {
        write_size: usize,
    },
    /// Read the endpoint that came with the start to its end.
    ReceiveHanded {
        read_size: usize,
    },
    /// Wait in the shared directory for whoever comes to set up a ring, and receive to its end.
    ReceiveByRing,
    /// Go there, and send the own file through the ring.
    SendByRing {
        write_size: usize,
    },
}

/// How a call for a channel by name ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Done,
    NoSuchChannel,
    Failed(String),
}

/// What a container found when it looked for the other's channels.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// All names in its own scope.
    pub names: Vec<String>,
    /// How many directories and open files were tried as a scope, and the names in those that were one.
    pub places: usize,
    pub names_there: Vec<Vec<String>>,
    /// The bytes in the shared name.
    pub text: String,
    /// To looking up, opening and removing the name that only the other has.
    pub look_up: Answer,
    pub open: Answer,
    pub remove: Answer,
    /// To removing the shared name.
    pub remove_shared: Answer,
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
    /// One of the two processes is set up, or whoever is to receive by a ring is there.
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
    Searched {
        findings: Findings,
    },
    LookedUp {
        answer: Answer,
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
