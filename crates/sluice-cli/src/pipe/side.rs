// SPDX-License-Identifier: MIT OR Apache-2.0
//! What sender and receiver have in common: which pipe it is, and whether to make it.

use std::path::PathBuf;

use clap::Args;
use sluice::{Channel, Name, Options, Pipe, Reader, Scope, Writer};

use crate::place;
use crate::waiting::patiently;

#[derive(Args)]
pub struct Side {
    /// The name of the pipe; without one it is the cgroup's own
    #[arg(value_parser = place::name)]
    name: Option<Name>,

    /// The directory of the cgroup to look in, instead of the own cgroup
    #[arg(long, value_name = "DIR", requires = "name")]
    scope: Option<PathBuf>,

    /// Make the pipe if it is not there
    #[arg(long, requires = "name")]
    create: bool,

    /// Who may open a pipe that this makes, as permission bits in octal [default: 600]
    #[arg(long, value_name = "OCTAL", requires = "create", value_parser = place::mode)]
    mode: Option<u32>,

    /// How much a pipe that this makes holds, such as 65536, 64K or 1M
    #[arg(long, value_name = "BYTES", requires = "create", value_parser = place::size)]
    size: Option<u64>,

    /// Keep a pipe that this makes, until it is removed
    #[arg(long, requires = "create")]
    persist: bool,
}

/// Where a side meets the other one.
enum Meeting {
    Own,
    Channel(Channel),
}

impl Side {
    pub fn open_reader(&self) -> sluice::Result<Reader> {
        let meeting = self.meeting()?;
        patiently(&meeting.waits_for("a sender", "send"), || match &meeting {
            Meeting::Own => Pipe::new().reader(),
            Meeting::Channel(channel) => self.options(channel).reader(),
        })
    }

    pub fn open_writer(&self) -> sluice::Result<Writer> {
        let meeting = self.meeting()?;
        patiently(
            &meeting.waits_for("a receiver", "recv"),
            || match &meeting {
                Meeting::Own => Pipe::new().writer(),
                Meeting::Channel(channel) => self.options(channel).writer(),
            },
        )
    }

    fn meeting(&self) -> sluice::Result<Meeting> {
        match &self.name {
            None => Ok(Meeting::Own),
            Some(name) => {
                let channel = Channel::new(name.as_bytes())?;
                Ok(Meeting::Channel(
                    channel.in_scope(place::scope(self.scope.as_deref())?),
                ))
            }
        }
    }

    fn options<'a>(&self, channel: &'a Channel) -> Options<'a> {
        let mut options = channel
            .options()
            .create(self.create)
            .persistent(self.persist)
            .capacity(self.size.unwrap_or(0));
        if let Some(mode) = self.mode {
            options = options.mode(mode);
        }
        options
    }
}

impl Meeting {
    /// The other side, where it is to come, and how.
    fn waits_for(&self, whom: &str, verb: &str) -> String {
        match self {
            Self::Own => format!(
                "{whom} at the unnamed pipe of {}; run 'sluice pipe {verb}' in the same cgroup",
                Scope::own()
            ),
            Self::Channel(channel) => {
                let (name, scope) = (channel.name(), channel.scope());
                format!("{whom} at '{name}' in {scope}; run 'sluice pipe {verb} {name}' there")
            }
        }
    }
}
