// SPDX-License-Identifier: MIT OR Apache-2.0
//! The connection of a process to the daemon, which is closed when the process ends.

use std::ffi::{CStr, CString, c_int};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use anyhow::{Result, bail, ensure};

use super::library::{Dbus, Error, Object};
use crate::suites::fanout::channel::Visit;

const PATH: &CStr = c"/org/sluice/Bench";
const INTERFACE: &CStr = c"org.sluice.Bench";
const SIGNAL: &CStr = c"Message";
const RULE: &CStr = c"type='signal',interface='org.sluice.Bench'";

/// The types of arguments, of which the last one ends their list.
const ARRAY: c_int = b'a' as c_int;
const BYTE: c_int = b'y' as c_int;
const INVALID: c_int = 0;

/// How long a receiver waits for data before it checks again.
const FOREVER: c_int = -1;
const NOT_AT_ALL: c_int = 0;

/// Calls a function of libdbus.
macro_rules! call {
    ($dbus:expr, $function:ident($($argument:expr),* $(,)?)) => {
        // SAFETY: the arguments have the types of dbus.h and are valid during the call: connections are never closed, messages are
        // used before they are released, errors are initialized, and texts are NUL-terminated.
        unsafe { ($dbus.$function)($($argument),*) }
    };
}

/// Calls a function that reports its failure in an error.
fn checked<T>(dbus: &Dbus, what: &str, function: impl FnOnce(*mut Error) -> T) -> Result<T> {
    let mut error = [null(); 4];
    call!(dbus, error_init(&raw mut error));
    let value = function(&raw mut error);
    let [name, message, ..] = error;
    if name.is_null() {
        return Ok(value);
    }
    // SAFETY: an error that is set has a message, which is valid until it is freed.
    let text = unsafe { CStr::from_ptr(message) };
    let text = text.to_string_lossy().into_owned();
    call!(dbus, error_free(&raw mut error));
    bail!("{what}: {text}")
}

pub struct Connection {
    dbus: Rc<Dbus>,
    connection: Object,
}

impl Connection {
    pub fn open(dbus: &Rc<Dbus>, address: &str) -> Result<Self> {
        let address = CString::new(address)?;
        let connection = checked(dbus, "cannot connect to D-Bus", |error| {
            call!(dbus, connection_open_private(address.as_ptr(), error))
        })?;
        call!(dbus, connection_set_exit_on_disconnect(connection, 0));
        checked(dbus, "cannot register with D-Bus", |error| {
            call!(dbus, bus_register(connection, error))
        })?;
        let dbus = Rc::clone(dbus);
        Ok(Self { dbus, connection })
    }

    /// Returns when the daemon knows of the subscription.
    pub fn subscribe(&self) -> Result<()> {
        let (dbus, connection, rule) = (&self.dbus, self.connection, RULE.as_ptr());
        checked(dbus, "cannot subscribe to signals", |error| {
            call!(dbus, bus_add_match(connection, rule, error))
        })
    }

    /// Returns when the signal is written to the socket.
    pub fn emit(&self, bytes: &[u8]) -> Result<()> {
        let (dbus, connection) = (&self.dbus, self.connection);
        let [path, interface, name] = [PATH, INTERFACE, SIGNAL].map(CStr::as_ptr);
        let signal = call!(dbus, message_new_signal(path, interface, name));
        ensure!(!signal.is_null(), "libdbus has no memory");
        let (start, length) = (bytes.as_ptr(), c_int::try_from(bytes.len())?);
        let array = &raw const start;
        // The serial is not wanted.
        let sent = call!(
            dbus,
            message_append_args(signal, ARRAY, BYTE, array, length, INVALID)
        ) != 0
            && call!(dbus, connection_send(connection, signal, null_mut())) != 0;
        call!(dbus, message_unref(signal));
        ensure!(sent, "libdbus has no memory");
        call!(dbus, connection_flush(connection));
        Ok(())
    }

    /// Passes the bytes of the next signal on. False: there is none.
    pub fn receive(&self, blocks: bool, visit: Visit) -> Result<bool> {
        let timeout = if blocks { FOREVER } else { NOT_AT_ALL };
        let mut looked = false;
        loop {
            let message = call!(self.dbus, connection_pop_message(self.connection));
            if !message.is_null() {
                let visited = self.visit(message, visit);
                call!(self.dbus, message_unref(message));
                if visited? {
                    return Ok(true);
                }
                continue;
            }
            if looked && !blocks {
                return Ok(false);
            }
            let connected = call!(self.dbus, connection_read_write(self.connection, timeout));
            ensure!(connected != 0, "the D-Bus daemon closed the connection");
            looked = true;
        }
    }

    /// False: it is a message of the daemon.
    fn visit(&self, message: Object, visit: Visit) -> Result<bool> {
        let (interface, name) = (INTERFACE.as_ptr(), SIGNAL.as_ptr());
        if call!(self.dbus, message_is_signal(message, interface, name)) == 0 {
            return Ok(false);
        }
        let (mut start, mut length): (*const u8, c_int) = (null(), 0);
        let (array, count) = (&raw mut start, &raw mut length);
        checked(&self.dbus, "a signal has no bytes", |error| {
            call!(
                self.dbus,
                message_get_args(message, error, ARRAY, BYTE, array, count, INVALID)
            )
        })?;
        // SAFETY: the bytes belong to the message.
        visit(unsafe { std::slice::from_raw_parts(start, usize::try_from(length)?) })?;
        Ok(true)
    }
}
