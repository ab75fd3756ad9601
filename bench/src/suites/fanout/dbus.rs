// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of D-Bus, with an array of bytes each, over a dbus-daemon(1) of its own with the policy of session buses. Its
//! processor time is the sender's. A daemon queues without a limit that would stop the sender, so streams are not
//! measured.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use sluice_testkit::clock;

use super::channel::{Channel, Receiver, Resources, Sender, Shape};
use super::dbus_library::{Connection, Dbus};
use crate::harness::server::{Server, await_start, is_installed};

const DAEMON: &str = "dbus-daemon";

pub fn unavailable() -> Option<String> {
    if let Err(error) = Dbus::load() {
        return Some(format!("{error:#}; install libdbus-1-3"));
    }
    (!is_installed(DAEMON)).then(|| format!("{DAEMON} is not in PATH; install it"))
}

/// From what the daemon prints about itself: first "D-Bus Message Bus Daemon 1.14.10".
pub fn version() -> Option<String> {
    let output = Command::new(DAEMON).arg("--version").output().ok()?;
    let about = String::from_utf8_lossy(&output.stdout);
    Some(about.lines().next()?.split(' ').next_back()?.to_owned())
}

pub fn create(shape: &Shape, resources: &Resources) -> Result<Box<dyn Channel>> {
    Ok(Box::new(Bus {
        dbus: Rc::new(Dbus::load().map_err(|error| anyhow!("{error:#}"))?),
        path: resources.paths.next_path()?,
        shape: *shape,
    }))
}

struct Bus {
    dbus: Rc<Dbus>,
    /// Of the socket of the daemon.
    path: PathBuf,
    shape: Shape,
}

impl Bus {
    fn address(&self) -> String {
        format!("unix:path={}", self.path.display())
    }

    fn connect(&self) -> Result<Connection> {
        Connection::open(&self.dbus, &CString::new(self.address())?)
    }
}

impl Channel for Bus {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let mut daemon = Server::spawn(
            Command::new(DAEMON)
                .args(["--session", "--nofork", "--nopidfile"])
                .arg(format!("--address={}", self.address()))
                .stderr(Stdio::null()),
        )?;
        let connection = daemon.await_start(|| self.connect()).with_context(|| {
            format!("{DAEMON} did not start; try '{DAEMON} --session --nofork'")
        })?;
        Ok(Box::new(Emitter { connection, daemon }))
    }

    fn receiver(self: Box<Self>, _number: usize) -> Result<Box<dyn Receiver>> {
        let connection = await_start(|| self.connect())?;
        connection.subscribe()?;
        Ok(Box::new(Listener {
            connection,
            blocking: self.shape.blocking,
        }))
    }
}

struct Emitter {
    connection: Connection,
    daemon: Server,
}

impl Sender for Emitter {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.connection.emit(message)
    }

    fn helpers_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(self.daemon.pid())
    }
}

struct Listener {
    connection: Connection,
    blocking: bool,
}

impl Receiver for Listener {
    fn receive(&mut self, visit: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<bool> {
        self.connection.receive(self.blocking, visit)
    }
}
