// SPDX-License-Identifier: MIT OR Apache-2.0
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use nix::poll::{PollFd, PollFlags, poll};
use sluice::bus::{Options, RecvError, Request, SendError, Server};
use sluice::{Bus, Name};

use super::args::CapacityArgs;
use crate::args::{self, OpenChannelArgs, With};
use crate::output;

/// A client that does not receive should not hold up the others.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// How often to test whether the command has ended, in milliseconds: a child that it leaves can keep its output open.
const LOOK_INTERVAL: u16 = 50;

#[derive(Args)]
pub struct Arguments {
    /// The name of the bus
    #[arg(id = "channel", value_name = "NAME", value_parser = args::name())]
    name: Name,

    #[command(flatten)]
    open: OpenChannelArgs,

    #[command(flatten)]
    capacity: CapacityArgs,

    /// Unread bytes of requests above which clients wait [default: a sixteenth of the capacity]
    ///
    /// On a bus without the policy block the server is evicted above this limit, half of the capacity unless it is given.
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true, value_parser = args::size)]
    limit: Option<u64>,

    /// Exit after this number of requests [default: never]
    #[arg(long, value_name = "N", value_parser = args::number(1u64..))]
    count: Option<u64>,

    /// The command that answers a request: from standard input, in standard output
    ///
    /// It runs once for each request, with SLUICE_CLIENT (its id), SLUICE_PID, SLUICE_UID and SLUICE_GID in its environment.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What a command has answered.
struct Answer {
    reply: Vec<u8>,
    status: ExitStatus,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let mut server = arguments.open()?;
    let max = usize::try_from(server.message_max()).unwrap_or(usize::MAX);
    let (mut answered, mut slow) = (0, BTreeSet::new());
    while answered < arguments.count.unwrap_or(u64::MAX) {
        let request = server.recv().map_err(|error| explain(error, answered))?;
        let reply = arguments.answer(&request, max)?;
        send(request, &reply, &mut slow)?;
        answered += 1;
    }
    Ok(())
}

fn explain(error: RecvError, answered: u64) -> Error {
    match error {
        RecvError::Destroyed => anyhow!(
            "the bus was destroyed after {answered} requests; start again to create it, with --create"
        ),
        _ => Error::new(error).context(format!("receiving ended after {answered} requests")),
    }
}

/// What concerns one client only does not end the server, and a client that does not receive costs the time of a reply once.
fn send(request: Request, reply: &[u8], slow: &mut BTreeSet<u64>) -> Result<()> {
    let sender = request.sender;
    let time = match slow.remove(&sender) {
        true => Duration::ZERO,
        false => REPLY_TIMEOUT,
    };
    match request.reply_timeout(reply, time) {
        // If it is unknown, it has closed the bus, or was evicted.
        Ok(()) | Err(SendError::UnknownSubscriber { .. }) => return Ok(()),
        Err(error @ SendError::MessageTooLong { .. }) => note(sender, &error),
        Err(error @ SendError::TimedOut(_)) => {
            slow.insert(sender);
            note(sender, &error);
        }
        Err(error) => return Err(error).context("cannot reply"),
    }
    Ok(())
}

fn note(sender: u64, error: &SendError) {
    let cause = sluice::explain(error);
    output::note(&format!("sluice: no reply to client {sender}: {cause}"));
}

impl Arguments {
    fn open(&self) -> Result<Server> {
        let bus = self.open.apply(Bus::named(self.name))?;
        let bus = self.capacity.apply(bus);
        Ok(bus.with(self.limit, Options::limit).server()?)
    }

    fn answer(&self, request: &Request, max: usize) -> Result<Vec<u8>> {
        let (program, rest) = self.command.split_first().context("no command is given")?;
        let name = program.to_string_lossy();
        let mut command = Command::new(program);
        let answer = ask(command.args(rest), request, max).with_context(|| {
            format!("cannot run '{name}'; check that it exists and may be executed")
        })?;
        if !answer.status.success() {
            let (status, sender) = (answer.status, request.sender);
            output::note(&format!(
                "sluice: '{name}' ended with {status} for client {sender}; its output is the reply"
            ));
        }
        Ok(answer.reply)
    }
}

/// Runs the command, and reads its output until it ends, also if a child that it leaves keeps the pipe open, or until it exceeds `max`.
fn ask(command: &mut Command, request: &Request, max: usize) -> io::Result<Answer> {
    let mut child = command
        .env("SLUICE_CLIENT", request.sender.to_string())
        .env("SLUICE_PID", request.pid.unwrap_or_default().to_string())
        .env("SLUICE_UID", request.uid.to_string())
        .env("SLUICE_GID", request.gid.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    if let Some(mut input) = child.stdin.take() {
        let bytes = request.bytes().to_vec();
        // A command need not read all of it. Not joined: a process that it has left may hold the pipe.
        thread::Builder::new().spawn(move || input.write_all(&bytes).ok())?;
    }
    let mut reply = Vec::new();
    if let Some(output) = child.stdout.take() {
        read_reply(&mut child, output, max, &mut reply)?;
    }
    if reply.len() > max {
        // It may write for ever. If it cannot be killed, it has ended.
        child.kill().ok();
    }
    let status = child.wait()?;
    Ok(Answer { reply, status })
}

fn read_reply(
    child: &mut Child,
    mut output: ChildStdout,
    max: usize,
    reply: &mut Vec<u8>,
) -> io::Result<()> {
    let mut part = [0; 1 << 16];
    while reply.len() <= max {
        let ended = child.try_wait()?.is_some();
        let time = if ended { 0 } else { LOOK_INTERVAL };
        let mut ready = [PollFd::new(output.as_fd(), PollFlags::POLLIN)];
        if poll(&mut ready, time)? == 0 {
            match ended {
                true => return Ok(()),
                false => continue,
            }
        }
        match output.read(&mut part)? {
            0 => return Ok(()),
            read => reply.extend_from_slice(&part[..read]),
        }
    }
    Ok(())
}
