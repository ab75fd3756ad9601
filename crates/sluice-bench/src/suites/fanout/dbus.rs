// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of D-Bus, with an array of bytes each, over a dbus-daemon(1) of its own with the policy of session buses. Its
//! processor time is the sender's. A daemon queues without a limit that would stop the sender, so streams are not
//! measured.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use sluice_testkit::clock;
use sluice_testkit::time::Deadline;

use super::channel::{Channel, Receiver, Resources, Sender, Shape};
use super::dbus_library::{Connection, Dbus};

const DAEMON: &str = "dbus-daemon";
const START_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

pub fn unavailable() -> Option<String> {
    if let Err(error) = Dbus::load() {
        return Some(format!("{error:#}; install libdbus-1-3"));
    }
    match about() {
        Ok(_) => None,
        Err(error) => Some(format!("cannot start {DAEMON}: {error}; install it")),
    }
}

/// What the daemon prints about itself: first "D-Bus Message Bus Daemon 1.14.10".
fn about() -> io::Result<String> {
    let output = Command::new(DAEMON).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn version() -> Option<String> {
    let about = about().ok()?;
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

    /// Connects as soon as the daemon accepts.
    fn connect(&self) -> Result<Connection> {
        let deadline = Deadline::after(START_TIMEOUT);
        let address = CString::new(self.address())?;
        loop {
            match Connection::open(&self.dbus, &address) {
                Ok(connection) => return Ok(connection),
                Err(error) if deadline.passed() => return Err(error),
                Err(_) => sleep(RETRY_INTERVAL),
            }
        }
    }
}

impl Channel for Bus {
    fn sender(self: Box<Self>) -> Result<Box<dyn Sender>> {
        let daemon = Daemon::start(&self.address())?;
        let connection = self.connect()?;
        Ok(Box::new(Emitter { connection, daemon }))
    }

    fn receiver(self: Box<Self>, _number: usize) -> Result<Box<dyn Receiver>> {
        let connection = self.connect()?;
        connection.subscribe()?;
        Ok(Box::new(Listener {
            connection,
            blocking: self.shape.blocking,
        }))
    }
}

/// Killed when dropped, and when this process ends.
struct Daemon(Child);

impl Daemon {
    /// Returns when it accepts connections.
    fn start(address: &str) -> Result<Self> {
        let mut program = Command::new(DAEMON);
        program
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .arg(format!("--address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        // SAFETY: the closure makes a single system call between fork and exec.
        unsafe { program.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let child = program
            .spawn()
            .with_context(|| format!("cannot start {DAEMON}"))?;
        let mut daemon = Self(child);
        let mut output = daemon.0.stdout.take().context("the output is piped")?;
        output.read_exact(&mut [0]).with_context(|| {
            format!("{DAEMON} did not start; try '{DAEMON} --session --nofork'")
        })?;
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It has ended if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Emitter {
    connection: Connection,
    daemon: Daemon,
}

impl Sender for Emitter {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        self.connection.emit(message)
    }

    fn helpers_ns(&self) -> Result<u64> {
        clock::cpu_ns_of(Pid::from_raw(self.daemon.0.id() as i32))
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
