// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that `send` and `recv` share: the pipe to open, and whether to create it.

use clap::Args;
use sluice::pipe::{Reader, Writer};
use sluice::{Channel, Name, Options, Pipe, Scope};

use crate::args::{self, OpenChannelArgs, With};
use crate::wait_notice::{elsewhere, with_wait_notice};

#[derive(Args)]
pub struct OpenArgs {
    /// The name of the pipe [default: the default pipe of the cgroup, /dev/sluice/pipe]
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name())]
    name: Option<Name>,

    #[command(flatten)]
    open: OpenChannelArgs,

    /// Capacity of a new pipe, such as 65536, 64K or 1M [default: {PIPE_CAPACITY}]
    ///
    /// Rounded up to a power of two of pages. The suffixes K, M and G are units of 1024.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, requires = "create", value_parser = args::size)]
    capacity: Option<u64>,
}

enum Target {
    Unnamed,
    Named(Channel, Options<Pipe>),
}

impl OpenArgs {
    pub fn open_reader(&self) -> sluice::Result<Reader> {
        let target = self.target()?;
        let awaited = target.awaited("a sender", "send");
        with_wait_notice(&awaited, || match &target {
            Target::Unnamed => Pipe::unnamed().reader(),
            Target::Named(_, pipe) => pipe.reader(),
        })
    }

    pub fn open_writer(&self) -> sluice::Result<Writer> {
        let target = self.target()?;
        let awaited = target.awaited("a receiver", "recv");
        with_wait_notice(&awaited, || match &target {
            Target::Unnamed => Pipe::unnamed().writer(),
            Target::Named(_, pipe) => pipe.writer(),
        })
    }

    fn target(&self) -> sluice::Result<Target> {
        let Some(name) = &self.name else {
            return Ok(Target::Unnamed);
        };
        let pipe = self.open.apply(Pipe::named(name))?;
        let pipe = pipe.with(self.capacity, Options::capacity);
        Ok(Target::Named(pipe.channel()?, pipe))
    }
}

impl Target {
    /// The other side for the wait notice: what it is, where, and the command that starts it.
    fn awaited(&self, peer: &str, verb: &str) -> String {
        match self {
            Self::Unnamed => format!(
                "{peer} at the default pipe of {}; run 'sluice pipe {verb}' in the same cgroup",
                Scope::own()
            ),
            Self::Named(channel, _) => {
                let (name, scope) = (channel.name(), channel.scope());
                elsewhere(&format!(
                    "{peer} at '{name}' in {scope}; run 'sluice pipe {verb} {name}' there"
                ))
            }
        }
    }
}
