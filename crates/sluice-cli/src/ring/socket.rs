// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection to the peer over a socket.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use sluice::ring::{SetupError, Socket, SocketOptions};

use super::listen::{AcceptOutcome, SignalSafeListener};
use super::side::{Role, Side};
use super::wait::WaitLimit;
use crate::wait_notice::with_wait_notice;
use crate::{args, output};

/// The limit of one handshake, as that of the library.
const HANDSHAKE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[group(id = "socket_options")]
pub struct SocketArgs {
    /// Create the socket and wait for the other side; the default of recv
    #[arg(long, conflicts_with = "connect")]
    listen: bool,

    /// Connect to the socket of the other side; the default of send
    #[arg(long)]
    connect: bool,

    /// Allow the other side to run as this user, in addition to the user of this process and root; repeatable
    ///
    /// With this option a listening side gives its socket mode 666, and rejects other users after they connect; restrict access by the
    /// directory instead.
    #[arg(long, value_name = "UID", conflicts_with = "allow_everyone", value_parser = args::number(0u32..))]
    allow_user: Vec<u32>,

    /// Allow the other side to run as any user
    ///
    /// With this option a listening side gives its socket mode 666; restrict access by the directory.
    #[arg(long)]
    allow_everyone: bool,
}

impl SocketArgs {
    /// Waits for the other side, and sets up the ring with it.
    pub fn set_up<S: Side>(
        &self,
        path: &Path,
        limit: &WaitLimit,
        options: SocketOptions,
    ) -> Result<S> {
        let options = self.apply(options);
        match self.is_listener(S::ROLE) {
            true => self.listen(path, limit, &options),
            false => self.connect(path, limit, &options),
        }
    }

    fn is_listener(&self, role: Role) -> bool {
        match role {
            Role::Sender => self.listen,
            Role::Receiver => !self.connect,
        }
    }

    fn apply(&self, mut options: SocketOptions) -> SocketOptions {
        if self.allow_everyone {
            options = options.allow_everyone();
        }
        self.allow_user
            .iter()
            .fold(options, |options, &uid| options.allow_user(uid))
    }

    fn listen<S: Side>(
        &self,
        path: &Path,
        limit: &WaitLimit,
        options: &SocketOptions,
    ) -> Result<S> {
        let other_users = self.allow_everyone || !self.allow_user.is_empty();
        let listener = SignalSafeListener::bind(path, other_users)?;
        let awaited = self.awaited(path, S::ROLE);
        let set_up = |socket| S::connect(options, socket);
        with_wait_notice(&awaited, || {
            match listener.accept(limit.deadline, set_up)? {
                AcceptOutcome::Peer(side) => Ok(side),
                AcceptOutcome::Timeout => Err(limit.timeout(&awaited)),
                AcceptOutcome::Signal => bail!("terminated by a signal"),
            }
        })
    }

    fn connect<S: Side>(
        &self,
        path: &Path,
        limit: &WaitLimit,
        options: &SocketOptions,
    ) -> Result<S> {
        check_directory(path)?;
        limit.retry(&self.awaited(path, S::ROLE), || {
            let options = match limit.left() {
                Some(left) => &options.clone().handshake_timeout(left.min(HANDSHAKE)),
                None => options,
            };
            let connected = Socket::try_connect(path);
            match connected.and_then(|socket| S::connect(options, socket)) {
                Err(error) if is_temporary(&error) => {
                    check_socket(path)?;
                    Ok(None)
                }
                // The other side may have been stopped.
                Err(SetupError::HandshakeTimeout(_)) if limit.left() != Some(Duration::ZERO) => {
                    output::note(&format!(
                        "sluice: the process at {} does not answer; continue it (SIGCONT), or end it",
                        path.display()
                    ));
                    Ok(None)
                }
                set_up => Ok(Some(set_up?)),
            }
        })
    }

    /// The other side for messages: what it is, where, and the command that starts it.
    fn awaited(&self, path: &Path, role: Role) -> String {
        let path = path.display();
        let (peer, verb) = role.peer();
        let option = match (role, self.is_listener(role)) {
            (Role::Sender, true) => " --connect",
            (Role::Receiver, false) => " --listen",
            _ => "",
        };
        format!("{peer} at {path}; run 'sluice ring {verb}{option} --socket {path}'")
    }
}

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
