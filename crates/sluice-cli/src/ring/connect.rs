// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments that both sides share, and the connection to the peer.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sluice::ring::{Options, SetupError, Socket};

use super::codec::Framing;
use super::listen::{AcceptOutcome, SignalSafeListener};
use crate::wait_notice::with_wait_notice;

const RETRY_INTERVAL: Duration = Duration::from_millis(20);

const NUMA_NODES: &str = "/sys/devices/system/node";

#[derive(Args)]
pub struct ConnectArgs {
    /// The path of the socket over which both sides connect; it exists only while one side listens
    path: PathBuf,

    /// Create the socket and wait for the other side; the default of recv
    #[arg(long, conflicts_with = "connect")]
    listen: bool,

    /// Connect to the socket of the other side; the default of send
    #[arg(long)]
    connect: bool,

    /// Timeout of the wait for the other side [default: none]
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,

    /// The framing of records in standard input or output
    #[arg(long, value_enum, default_value = "lines")]
    pub framing: Framing,

    /// Spin for up to this time before blocking [default: 100, or 0 on one processor]
    #[arg(long, value_name = "MICROSECONDS")]
    spin: Option<u64>,

    /// Lock the memory of the ring, so that it is not swapped out
    #[arg(long)]
    lock: bool,

    /// Allocate the memory of this side from this NUMA node
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    /// Allow the other side to run as this user, in addition to the user of this process and root; repeatable
    #[arg(long, value_name = "UID", conflicts_with = "allow_everyone")]
    allow_user: Vec<u32>,

    /// Allow the other side to run as any user
    #[arg(long)]
    allow_everyone: bool,

    /// Print a summary to standard error at the end, as a JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Sender,
    Receiver,
}

impl ConnectArgs {
    /// Waits for the other side, and sets up the ring with it.
    pub fn set_up<T: Send>(
        &self,
        role: Role,
        set_up: impl Fn(&Options, Socket) -> Result<T, SetupError> + Sync,
        options: Options,
    ) -> Result<T> {
        let options = self.apply(options)?;
        let deadline = self
            .wait
            .and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
        let set_up = |socket| set_up(&options, socket);
        match self.is_listener(role) {
            true => self.listen(role, deadline, set_up),
            false => self.connect(role, deadline, set_up),
        }
    }

    fn is_listener(&self, role: Role) -> bool {
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
        deadline: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<T> {
        let other_users = self.allow_everyone || !self.allow_user.is_empty();
        let listener = SignalSafeListener::bind(&self.path, other_users)?;
        with_wait_notice(&self.awaited(role), || {
            match listener.accept(deadline, set_up)? {
                AcceptOutcome::Peer(side) => Ok(side),
                AcceptOutcome::Timeout => Err(self.wait_timeout(role)),
                AcceptOutcome::Signal => bail!("terminated by a signal"),
            }
        })
    }

    fn connect<T>(
        &self,
        role: Role,
        deadline: Option<Instant>,
        set_up: impl Fn(Socket) -> Result<T, SetupError> + Sync,
    ) -> Result<T> {
        check_directory(&self.path)?;
        let socket = with_wait_notice(&self.awaited(role), || {
            loop {
                match Socket::try_connect(&self.path) {
                    Err(error) if is_temporary(&error) => check_socket(&self.path)?,
                    other => return Ok(other?),
                }
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    return Err(self.wait_timeout(role));
                }
                thread::sleep(RETRY_INTERVAL);
            }
        })?;
        Ok(set_up(socket)?)
    }

    /// The other side for messages: what it is, where, and the command that starts it.
    fn awaited(&self, role: Role) -> String {
        let path = self.path.display();
        let (peer, verb) = match (role, self.is_listener(role)) {
            (Role::Sender, true) => ("a receiver", "recv --connect"),
            (Role::Sender, false) => ("a receiver", "recv"),
            (Role::Receiver, true) => ("a sender", "send"),
            (Role::Receiver, false) => ("a sender", "send --listen"),
        };
        format!("{peer} at {path}; run 'sluice ring {verb} {path}'")
    }

    fn wait_timeout(&self, role: Role) -> anyhow::Error {
        WaitTimeout {
            seconds: self.wait.unwrap_or_default(),
            awaited: self.awaited(role),
        }
        .into()
    }
}

/// The other side did not connect within --wait.
#[derive(Debug)]
pub struct WaitTimeout {
    seconds: u64,
    awaited: String,
}

impl fmt::Display for WaitTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "timeout after {} s waiting for {}",
            self.seconds, self.awaited
        )
    }
}

impl std::error::Error for WaitTimeout {}

/// Errors that may disappear: no socket yet, no listener yet, or a full backlog.
fn is_temporary(error: &SetupError) -> bool {
    let temporary = [
        ErrorKind::NotFound,
        ErrorKind::ConnectionRefused,
        ErrorKind::WouldBlock,
    ];
    matches!(error, SetupError::Connect { source, .. } if temporary.contains(&source.kind()))
}

fn check_directory(path: &Path) -> Result<()> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => return Ok(()),
    };
    let metadata = fs::metadata(directory).with_context(|| {
        format!(
            "cannot access {}; give a path in a directory of both sides",
            directory.display()
        )
    })?;
    ensure!(
        metadata.is_dir(),
        "{} is not a directory; give a path in a directory of both sides",
        directory.display()
    );
    Ok(())
}

fn check_socket(path: &Path) -> Result<()> {
    let is_other_file = fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
    ensure!(
        !is_other_file,
        "{} exists and is not a socket; remove it, or use another path",
        path.display()
    );
    Ok(())
}

fn check_node(node: u32) -> Result<()> {
    let nodes = Path::new(NUMA_NODES);
    ensure!(
        !nodes.exists() || nodes.join(format!("node{node}")).exists(),
        "no NUMA node {node}; use one of those in {NUMA_NODES}, or omit --node"
    );
    Ok(())
}
