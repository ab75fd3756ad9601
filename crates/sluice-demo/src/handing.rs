// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host opens a channel in the scope above both containers and hands each of them one end.

use std::fs::{self, Permissions};
use std::io::{ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use sluice::{Channel, Scope, Writer};
use sluice_testkit::interrupt;

pub const NAME: &str = "between";
/// For a container to come to the socket.
const PATIENCE: Duration = Duration::from_secs(10);

/// The write end, until a container is given it over the socket.
pub struct Handing {
    writer: Writer,
    listener: UnixListener,
    pub socket: PathBuf,
}

impl Handing {
    /// Also the read end, for the container that is started with it. crun keeps it open as long as that container runs: with
    /// the write end, the stream would have no end.
    pub fn prepare(scope: &Path, folder: &Path) -> Result<(Self, OwnedFd)> {
        let channel = Channel::new(NAME)?.in_scope(Scope::at(scope)?);
        // Neither of the two opens waits for the other.
        let reader = channel.options().create(true).nonblocking(true).reader()?;
        let writer = channel.options().writer()?;
        fcntl(reader.as_fd(), FcntlArg::F_SETFL(OFlag::empty()))
            .context("cannot make the read end wait for bytes")?;
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket).context("cannot make a socket")?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(&socket, Permissions::from_mode(0o666))?;
        let handing = Self {
            writer,
            listener,
            socket,
        };
        Ok((handing, reader.into()))
    }

    /// Gives the write end to the container that comes, and keeps nothing.
    pub fn give(self) -> Result<()> {
        let socket = self.accept()?;
        let fds = [self.writer.as_raw_fd()];
        let control = [ControlMessage::ScmRights(&fds)];
        let content = [IoSlice::new(b"!")];
        let flags = MsgFlags::empty();
        sendmsg::<()>(socket.as_raw_fd(), &content, &control, flags, None)
            .context("cannot send the write end to the container")?;
        Ok(())
    }

    fn accept(&self) -> Result<UnixStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            match self.listener.accept() {
                Ok((socket, _)) => return Ok(socket),
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    return Err(error).context("cannot take the container's connection");
                }
                Err(_) if Instant::now() > deadline => bail!(
                    "the container did not come to the socket within {} s; 'dmesg | tail' may say why",
                    PATIENCE.as_secs()
                ),
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}
