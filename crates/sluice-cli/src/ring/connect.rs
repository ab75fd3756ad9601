// SPDX-License-Identifier: MIT OR Apache-2.0
//! What both sides have in common: where they meet, who may come, and what the ring is like.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sluice::ring::{Options, SetupError, Socket};

use super::framing::Framing;
use super::listen::{Accepted, Listening};
use crate::waiting::patiently;

/// How often it is tried whether the other side listens.
const AGAIN: Duration = Duration::from_millis(20);

const NODES: &str = "/sys/devices/system/node";

#[derive(Args)]
pub struct Meeting {
    /// Where both sides meet: the path of a socket, which is there only while one side waits for the other
    path: PathBuf,

    /// Make the socket and wait there for the other side, as recv does without a word
    #[arg(long, conflicts_with = "connect")]
    listen: bool,

    /// Go to the socket that the other side makes, as send does without a word
    #[arg(long)]
    connect: bool,

    /// How long to wait for the other side; without it, for ever
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,

    /// How records lie in standard input and output
    #[arg(long, value_enum, default_value = "lines")]
    pub framing: Framing,

    /// How long to look for what comes before going to sleep, at most [default: 50, or 0 on one processor]
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u64>,

    /// Keep the ring's memory from being swapped out
    #[arg(long)]
    lock: bool,

    /// Take this side's memory from one node of a machine with several (NUMA)
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    /// Let the other side run as this user too, beside one's own and root; can be given more than once
    #[arg(long, value_name = "UID", conflicts_with = "allow_everyone")]
    allow_user: Vec<u32>,

    /// Let the other side run as any user
    #[arg(long)]
    allow_everyone: bool,

    /// Print a sum at the end, as a JSON object on standard error
    #[arg(long)]
    pub json: bool,
}

/// Which of both this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

impl Meeting {
    /// Waits for the other side, and sets up the ring with it.
    pub fn meet<T: Send>(
        &self,
        role: Role,
        set_up: impl Fn(&Options, Socket) -> Result<T, SetupError> + Sync,
        options: Options,
    ) -> Result<T> {
        let options = self.apply(options)?;
        let until = self
            .wait
            .and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
        let set_up = |socket| set_up(&options, socket);
        match self.listens(role) {
            true => self.listen(role, until, set_up),
            false => self.connect(role, until, set_up),
        }
    }

    fn listens(&self, role: Role) -> bool {
        match role {
            Role::Sender => self.listen,
            Role::Receiver => !self.connect,
        }
    }

    fn apply(&self, mut options: Options) -> Result<Options> {
        options = options.mlock(self.lock);
        if let Some(microseconds) = self.spin {
            options = options.spin(Duration::from_micros(microseconds));
        }
        if let Some(node) = self.node {
            check_node(node)?;
            options = options.numa_node(node);
        }
        if self.allow_everyone {
            options = options.allow_everyone();
        }
        Ok(self
            .allow_user
            .iter()
            .fold(options, |options, &uid| options.allow_user(uid)))
    }

    fn listen<T: Send>(
        &self,
        role: Role,
        until: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<T> {
        let open = self.allow_everyone || !self.allow_user.is_empty();
        let listening = Listening::start(&self.path, open)?;
        patiently(&self.waits_for(role), || {
            match listening.accept(until, set_up)? {
                Accepted::Peer(side) => Ok(side),
                Accepted::Nobody => Err(self.nobody(role)),
                Accepted::Signal => bail!("ended by a signal"),
            }
        })
    }

    fn connect<T>(
        &self,
        role: Role,
        until: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<T> {
        check_place(&self.path)?;
        let socket = patiently(&self.waits_for(role), || {
            loop {
                match Socket::try_connect(&self.path) {
                    Err(error) if is_absent(&error) => check_socket(&self.path)?,
                    other => return Ok(other?),
                }
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(self.nobody(role));
                }
                thread::sleep(AGAIN);
            }
        })?;
        Ok(set_up(socket)?)
    }

    /// The other side, where it is to come, and how.
    fn waits_for(&self, role: Role) -> String {
        let path = self.path.display();
        let (whom, verb) = match (role, self.listens(role)) {
            (Role::Sender, true) => ("a receiver", "recv --connect"),
            (Role::Sender, false) => ("a receiver", "recv"),
            (Role::Receiver, true) => ("a sender", "send"),
            (Role::Receiver, false) => ("a sender", "send --listen"),
        };
        format!("{whom} at {path}; run 'sluice ring {verb} {path}'")
    }

    fn nobody(&self, role: Role) -> anyhow::Error {
        Absent {
            seconds: self.wait.unwrap_or_default(),
            whom: self.waits_for(role),
        }
        .into()
    }
}

/// The other side did not come in the time that --wait gave it.
#[derive(Debug)]
pub struct Absent {
    seconds: u64,
    whom: String,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "waited {} s in vain for {}", self.seconds, self.whom)
    }
}

impl std::error::Error for Absent {}

/// A socket that is not there, at which nobody listens, or whose listener has no room for more, may have a listener soon.
fn is_absent(error: &SetupError) -> bool {
    let absent = [
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
        ErrorKind::WouldBlock,
    ];
    matches!(error, SetupError::Connect { source, .. } if absent.contains(&source.kind()))
}

fn check_place(path: &Path) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    let metadata = fs::metadata(folder).with_context(|| {
        format!(
            "cannot go to {}; give a path in a directory that both sides have",
            folder.display()
        )
    })?;
    ensure!(
        metadata.is_dir(),
        "{} is no directory; give a path in a directory that both sides have",
        folder.display()
    );
    Ok(())
}

fn check_socket(path: &Path) -> Result<()> {
    let is_other = fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
    ensure!(
        !is_other,
        "{} is there and is no socket; remove it, or meet at another path",
        path.display()
    );
    Ok(())
}

fn check_node(node: u32) -> Result<()> {
    let nodes = Path::new(NODES);
    ensure!(
        !nodes.exists() || nodes.join(format!("node{node}")).exists(),
        "this machine has no memory node {node}; choose one of those in {NODES}, or leave --node out"
    );
    Ok(())
}
