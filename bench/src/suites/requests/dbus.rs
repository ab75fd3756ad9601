// SPDX-License-Identifier: MIT OR Apache-2.0
//! A call of a method over a D-Bus daemon, by libdbus.

use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use dbus::Message;
use dbus::channel::Channel;
use dbus::message::MessageType;
use sluice_testkit::workers::Side;

use super::{exchange, replying, requesting};
use crate::harness::rounds::Skipped;
use crate::harness::server::{START_TIMEOUT, Server, await_start, is_installed};
use crate::harness::waiting::Waiting;
use crate::mechanisms::temp_paths::TempPaths;
use crate::mechanisms::{Ends, Mechanism, copy};
use crate::suites::fanout::dbus::{DAEMON, INTERFACE, connect, start};

pub const NAME: &str = "dbus-daemon";

pub fn mechanism() -> Result<Mechanism, Skipped> {
    if !is_installed(DAEMON) {
        let reason = format!("{DAEMON} is not in PATH; install it");
        return Err(Skipped::unavailable(NAME, reason));
    }
    let paths = TempPaths::in_directory(std::env::temp_dir());
    Ok(exchange(NAME, Waiting::Sleep, move |_| {
        let address = format!("unix:path={}", paths.next_path()?.display());
        Ok(Box::new(move |side| match side {
            Side::First => client_ends(&address),
            Side::Second => server_ends(&address),
        }))
    }))
}

fn client_ends(address: &str) -> Result<Ends> {
    let connection = await_start(|| connect(address))?;
    // Until the other process has the name.
    await_start(|| echo(&connection, b"?").map(drop))?;
    Ok(requesting(move |request, reply| {
        let replied = echo(&connection, request)?;
        reply.extend_from_slice(replied.read1().context("a reply has no bytes")?);
        Ok(())
    }))
}

fn echo(connection: &Channel, bytes: &[u8]) -> Result<Message> {
    let call = Message::new_method_call(INTERFACE, "/org/sluice/Bench", INTERFACE, "Echo");
    let call = call.map_err(|error| anyhow!(error))?.append1(bytes);
    let reply = connection.send_with_reply_and_block(call, START_TIMEOUT);
    reply.context("a call has failed")
}

fn server_ends(address: &str) -> Result<Ends> {
    let (daemon, connection) = start(address)?;
    let bus = "org.freedesktop.DBus";
    let request = (INTERFACE, 0_u32);
    let request =
        Message::call_with_args(bus, "/org/freedesktop/DBus", bus, "RequestName", request);
    let named = connection.send_with_reply_and_block(request, START_TIMEOUT);
    named.context("cannot take a name on the bus")?;
    let connection = Rc::new(connection);
    // The first call is not measured.
    let first = next_call(&connection)?;
    answer(&connection, &first, b"?")?;
    let receiving = Rc::clone(&connection);
    let receive = move |message: &mut [u8]| {
        let request = next_call(&receiving)?;
        let len = copy(request.read1().context("a call has no bytes")?, message)?;
        Ok((request, len))
    };
    Ok(replying(receive, move |request, message| {
        let _runs: &Server = &daemon;
        answer(&connection, &request, message)
    }))
}

fn next_call(connection: &Channel) -> Result<Message> {
    loop {
        match connection.pop_message() {
            Some(message) if message.msg_type() == MessageType::MethodCall => return Ok(message),
            Some(_) => {}
            None => {
                let connected = connection.read_write(None);
                connected.map_err(|()| anyhow!("the D-Bus daemon closed the connection"))?;
            }
        }
    }
}

fn answer(connection: &Channel, request: &Message, bytes: &[u8]) -> Result<()> {
    let sent = connection.send(request.method_return().append1(bytes));
    ensure!(sent.is_ok(), "libdbus has no memory");
    connection.flush();
    Ok(())
}
