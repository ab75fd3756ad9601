// SPDX-License-Identifier: MIT OR Apache-2.0
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use sluice::bus::{Options, RecvError, Request, SendError, Server};
use sluice::{Bus, Name};

use super::args::CapacityArgs;
use crate::args::{self, OpenChannelArgs, With};
use crate::output;

/// A client that does not receive should not hold up the others.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Args)]
pub struct Arguments {
    /// The name of the bus
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name())]
    name: Name,

    #[command(flatten)]
    open: OpenChannelArgs,

    #[command(flatten)]
    capacity: CapacityArgs,

    /// Unread bytes of requests above which clients wait or ask another server [default: a sixteenth of the capacity]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    limit: Option<u64>,

    /// Exit after this number of requests [default: never]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// The command that answers a request: from standard input, in standard output
    ///
    /// It runs once for each request, with SLUICE_SENDER (the id of the client), SLUICE_PID, SLUICE_UID and SLUICE_GID in its environment.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut server = arguments.open()?;
    let mut answered = 0;
    while answered < arguments.count.unwrap_or(u64::MAX) {
        let request = server.recv().map_err(|error| explain(error, answered))?;
        let reply = arguments.answer(&request)?;
        send(request, &reply)?;
        answered += 1;
    }
    Ok(())
}

fn explain(error: RecvError, answered: u64) -> Error {
    match error {
        RecvError::Destroyed => anyhow!("the bus was destroyed after {answered} requests"),
        _ => Error::new(error).context(format!("receiving ended after {answered} requests")),
    }
}

/// What concerns one client only does not end the server.
fn send(request: Request, reply: &[u8]) -> Result<()> {
    let sender = request.sender;
    match request.reply_timeout(reply, REPLY_TIMEOUT) {
        // It has ended, or given up.
        Ok(()) | Err(SendError::UnknownSubscriber { .. }) => Ok(()),
        Err(error @ (SendError::TimedOut(_) | SendError::MessageTooLong { .. })) => {
            let cause = sluice::explain(&error);
            output::note(&format!("sluice: no reply to client {sender}: {cause}"));
            Ok(())
        }
        Err(error) => Err(error).context("cannot reply"),
    }
}

impl Arguments {
    fn open(&self) -> Result<Server> {
        let bus = self.open.apply(Bus::named(self.name))?;
        let bus = self.capacity.apply(bus);
        Ok(bus.with(self.limit, Options::limit).server()?)
    }

    fn answer(&self, request: &Request) -> Result<Vec<u8>> {
        let (program, rest) = self.command.split_first().context("no command is given")?;
        let name = program.to_string_lossy();
        let output = self
            .run(program, rest, request)
            .with_context(|| format!("cannot run '{name}'; give a command that exists"))?;
        if !output.status.success() {
            let (status, sender) = (output.status, request.sender);
            output::note(&format!(
                "sluice: '{name}' ended with {status} for client {sender}"
            ));
        }
        Ok(output.stdout)
    }

    fn run(&self, program: &OsString, rest: &[OsString], request: &Request) -> io::Result<Output> {
        let mut child = Command::new(program)
            .args(rest)
            .env("SLUICE_SENDER", request.sender.to_string())
            .env("SLUICE_PID", request.pid.unwrap_or_default().to_string())
            .env("SLUICE_UID", request.uid.to_string())
            .env("SLUICE_GID", request.gid.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take();
        thread::scope(|scope| {
            scope.spawn(move || {
                if let Some(mut input) = input {
                    // A command need not read all of it.
                    input.write_all(request.bytes()).ok();
                }
            });
            child.wait_with_output()
        })
    }
}
