// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that `send` and `recv` share: the pipe to open, and whether to create it.

use std::path::PathBuf;

use clap::Args;
use sluice::{Channel, Name, OpenOptions, Pipe, Reader, Scope, Writer};

use crate::args;
use crate::wait_notice::with_wait_notice;

#[derive(Args)]
pub struct OpenArgs {
    /// The name of the pipe [default: the unnamed pipe of the cgroup]
    #[arg(value_parser = args::name)]
    name: Option<Name>,

    /// The directory of the cgroup to look in [default: the cgroup of this process]
    #[arg(long, value_name = "DIR", requires = "name")]
    scope: Option<PathBuf>,

    /// Create the pipe if it does not exist
    #[arg(long, requires = "name")]
    create: bool,

    /// Permission bits of a new pipe, in octal [default: 600]
    #[arg(long, value_name = "OCTAL", requires = "create", value_parser = args::mode)]
    mode: Option<u32>,

    /// Capacity of a new pipe, such as 65536, 64K or 1M [default: 64K]
    #[arg(long, value_name = "BYTES", requires = "create", value_parser = args::size)]
    size: Option<u64>,

    /// Make the pipe persistent: keep it until it is removed
    #[arg(long, requires = "create")]
    persist: bool,
}

enum Target {
    Unnamed,
    Channel(Channel),
}

impl OpenArgs {
    pub fn open_reader(&self) -> sluice::Result<Reader> {
        let target = self.target()?;
        let awaited = target.awaited("a sender", "send");
        with_wait_notice(&awaited, || match &target {
            Target::Unnamed => Pipe::new().reader(),
            Target::Channel(channel) => self.options(channel).reader(),
        })
    }

    pub fn open_writer(&self) -> sluice::Result<Writer> {
        let target = self.target()?;
        let awaited = target.awaited("a receiver", "recv");
        with_wait_notice(&awaited, || match &target {
            Target::Unnamed => Pipe::new().writer(),
            Target::Channel(channel) => self.options(channel).writer(),
        })
    }

    fn target(&self) -> sluice::Result<Target> {
        let Some(name) = &self.name else {
            return Ok(Target::Unnamed);
        };
        let scope = args::scope(self.scope.as_deref())?;
        let channel = Channel::pipe(name.as_bytes())?;
        Ok(Target::Channel(channel.in_scope(scope)))
    }

    fn options<'a>(&self, channel: &'a Channel) -> OpenOptions<'a> {
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

impl Target {
    /// The other side for the wait notice: what it is, where, and the command that starts it.
    fn awaited(&self, peer: &str, verb: &str) -> String {
        match self {
            Self::Unnamed => format!(
                "{peer} at the unnamed pipe of {}; run 'sluice pipe {verb}' in the same cgroup",
                Scope::own()
            ),
            Self::Channel(channel) => {
                let (name, scope) = (channel.name(), channel.scope());
                format!("{peer} at '{name}' in {scope}; run 'sluice pipe {verb} {name}' there")
            }
        }
    }
}
