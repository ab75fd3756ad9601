// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of D-Bus, with an array of bytes each, by libdbus and over a dbus-daemon(1) of its own with the policy of session buses. Its
//! processor time is the sender's. A daemon queues without a limit that would stop the sender, so streams are not
//! measured.

use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use dbus::Message;
use dbus::channel::Channel;
use dbus::strings::{Interface, Member, Path};

use super::channel::{Create, End, Sender, Visit};
use super::conditions::Conditions;
use crate::harness::server::{START_TIMEOUT, Server, await_start, is_installed};
use crate::mechanisms::temp_paths::TempPaths;
use crate::suites::plan::Plan;

pub const DAEMON: &str = "dbus-daemon";
pub const INTERFACE: &str = "org.sluice.Bench";
const RULE: &str = "type='signal',interface='org.sluice.Bench'";

/// From what the daemon prints about itself: first "D-Bus Message Bus Daemon 1.14.10".
pub fn version() -> Option<String> {
    let output = Command::new(DAEMON).arg("--version").output().ok()?;
    let about = String::from_utf8_lossy(&output.stdout);
    Some(about.lines().next()?.split(' ').next_back()?.to_owned())
}

pub fn prepare(_: &Plan, paths: &Rc<TempPaths>) -> Result<Create> {
    ensure!(is_installed(DAEMON), "{DAEMON} is not in PATH; install it");
    let paths = Rc::clone(paths);
    Ok(Rc::new(move |conditions: &Conditions| {
        let address = format!("unix:path={}", paths.next_path()?.display());
        let blocks = conditions.blocks();
        Ok(Box::new(move |number| match number {
            None => emitter(&address),
            Some(_) => listener(&address, blocks),
        }))
    }))
}

pub fn connect(address: &str) -> Result<Channel> {
    let mut connection = Channel::open_private(address).context("cannot connect to D-Bus")?;
    let registered = connection.register();
    registered.context("cannot register with D-Bus")?;
    Ok(connection)
}

pub fn start(address: &str) -> Result<(Server, Channel)> {
    let mut command = Command::new(DAEMON);
    command.args(["--session", "--nofork", "--nopidfile"]);
    command.arg(format!("--address={address}"));
    let mut daemon = Server::spawn(command.stderr(Stdio::null()))?;
    let connection = daemon.await_start(|| connect(address));
    let connection = connection
        .with_context(|| format!("{DAEMON} did not start; try '{DAEMON} --session --nofork'"))?;
    Ok((daemon, connection))
}

fn emitter(address: &str) -> Result<End> {
    let (daemon, connection) = start(address)?;
    let (path, name) = (Path::from("/org/sluice/Bench"), Member::from("Message"));
    let interface = Interface::from(INTERFACE);
    // Returns when the signal is written to the socket.
    let send = move |message: &[u8]| {
        let signal = Message::signal(&path, &interface, &name).append1(message);
        let sent = connection.send(signal);
        sent.map_err(|()| anyhow!("libdbus has no memory"))?;
        connection.flush();
        Ok(())
    };
    Ok(End::Sender(Sender {
        flush: Box::new(|| Ok(())),
        send: Box::new(send),
        daemon: Some(daemon),
    }))
}

fn listener(address: &str, blocks: bool) -> Result<End> {
    let connection = await_start(|| connect(address))?;
    let daemon = "org.freedesktop.DBus";
    let subscription =
        Message::call_with_args(daemon, "/org/freedesktop/DBus", daemon, "AddMatch", (RULE,));
    let subscribed = connection.send_with_reply_and_block(subscription, START_TIMEOUT);
    subscribed.context("cannot subscribe to signals")?;
    let timeout = (!blocks).then_some(Duration::ZERO);
    End::receiver(move |visit: Visit| {
        let mut looked = false;
        loop {
            if let Some(message) = connection.pop_message() {
                // Others are of the daemon.
                if message.interface().as_deref() == Some(INTERFACE) {
                    visit(message.read1().context("a signal has no bytes")?)?;
                    return Ok(true);
                }
            } else if looked && !blocks {
                return Ok(false);
            } else {
                let connected = connection.read_write(timeout);
                connected.map_err(|()| anyhow!("the D-Bus daemon closed the connection"))?;
                looked = true;
            }
        }
    })
}
