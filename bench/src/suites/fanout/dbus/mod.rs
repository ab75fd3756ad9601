// SPDX-License-Identifier: MIT OR Apache-2.0
//! Signals of D-Bus, with an array of bytes each, over a dbus-daemon(1) of its own with the policy of session buses. Its
//! processor time is the sender's. A daemon queues without a limit that would stop the sender, so streams are not
//! measured.

mod connection;
mod library;

use std::process::{Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};

use self::connection::Connection;
use self::library::Dbus;
use super::channel::{Create, End, Sender, Visit};
use super::conditions::Conditions;
use crate::harness::server::{Server, await_start, is_installed};
use crate::mechanisms::temp_paths::TempPaths;
use crate::suites::plan::Plan;

const DAEMON: &str = "dbus-daemon";

/// From what the daemon prints about itself: first "D-Bus Message Bus Daemon 1.14.10".
pub fn version() -> Option<String> {
    let output = Command::new(DAEMON).arg("--version").output().ok()?;
    let about = String::from_utf8_lossy(&output.stdout);
    Some(about.lines().next()?.split(' ').next_back()?.to_owned())
}

pub fn prepare(_: &Plan, paths: &Rc<TempPaths>) -> Result<Create> {
    let dbus = Dbus::load().map_err(|error| anyhow!("{error:#}; install libdbus-1-3"))?;
    ensure!(is_installed(DAEMON), "{DAEMON} is not in PATH; install it");
    let (dbus, paths) = (Rc::new(dbus), Rc::clone(paths));
    Ok(Rc::new(move |conditions: &Conditions| {
        let address = format!("unix:path={}", paths.next_path()?.display());
        let (dbus, blocks) = (Rc::clone(&dbus), conditions.blocks());
        Ok(Box::new(move |number| match number {
            None => emitter(&dbus, &address),
            Some(_) => listener(&dbus, &address, blocks),
        }))
    }))
}

fn emitter(dbus: &Rc<Dbus>, address: &str) -> Result<End> {
    let mut daemon = Server::spawn(
        Command::new(DAEMON)
            .args(["--session", "--nofork", "--nopidfile"])
            .arg(format!("--address={address}"))
            .stderr(Stdio::null()),
    )?;
    let connection = daemon
        .await_start(|| Connection::open(dbus, address))
        .with_context(|| format!("{DAEMON} did not start; try '{DAEMON} --session --nofork'"))?;
    Ok(End::Sender(Sender {
        send: Box::new(move |message| connection.emit(message)),
        daemon: Some(daemon),
    }))
}

fn listener(dbus: &Rc<Dbus>, address: &str, blocks: bool) -> Result<End> {
    let connection = await_start(|| Connection::open(dbus, address))?;
    connection.subscribe()?;
    End::receiver(move |visit: Visit| connection.receive(blocks, visit))
}
