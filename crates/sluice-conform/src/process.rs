// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer: a process that gets a command per line, and prints a result per line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The result of a command that a peer does not know.
pub const UNSUPPORTED: &str = "unsupported";
/// The result of a peer that was killed: the end of its output.
const KILLED: &str = "killed";

pub struct Process {
    child: Child,
    commands: ChildStdin,
    results: Receiver<String>,
    /// How long a result may take.
    limit: Duration,
}

impl Process {
    /// Starts a program with its arguments, which are separated by spaces.
    pub fn start(command: &str, limit: Duration) -> Result<Self> {
        let mut words = command.split_ascii_whitespace();
        let program = words.next().context("the command of a peer is empty")?;
        let mut child = Command::new(program)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the peer '{command}'"))?;
        let output = child.stdout.take().context("no output")?;
        let commands = child.stdin.take().context("no input")?;
        let (sender, results) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            commands,
            results,
            limit,
        })
    }

    pub fn command(&mut self, command: &str) -> Result<()> {
        writeln!(self.commands, "{command}")
            .with_context(|| format!("it has ended before '{command}'"))
    }

    pub fn result(&self) -> Result<String> {
        match self.results.recv_timeout(self.limit) {
            Ok(result) => Ok(result),
            Err(RecvTimeoutError::Disconnected) => Ok(KILLED.to_owned()),
            Err(RecvTimeoutError::Timeout) => bail!("no result within {} s", self.limit.as_secs()),
        }
    }

    /// Stops and continues it, which interrupts a system call.
    pub fn signal(&self) -> Result<()> {
        let process = Pid::from_raw(self.child.id().try_into()?);
        kill(process, Signal::SIGSTOP)?;
        kill(process, Signal::SIGCONT)?;
        Ok(())
    }

    pub fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
