// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libdbus that are used, loaded at run time: building needs no D-Bus, and without it only its results
//! are missing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use anyhow::{Result, bail, ensure};
use libloading::Library;

const FILE: &str = "libdbus-1.so.3";

const PATH: &CStr = c"/org/sluice/Bench";
const INTERFACE: &CStr = c"org.sluice.Bench";
const SIGNAL: &CStr = c"Message";
const RULE: &CStr = c"type='signal',interface='org.sluice.Bench'";

const TYPE_ARRAY: c_int = b'a' as c_int;
const TYPE_BYTE: c_int = b'y' as c_int;
const BYTE_SIGNATURE: &CStr = c"y";

/// How long a receiver waits for data before it checks again.
const FOREVER: c_int = -1;
const NOT_AT_ALL: c_int = 0;

/// A DBusMessageIter, which has 72 bytes.
#[repr(C)]
struct Iter([u64; 16]);

impl Iter {
    const fn new() -> Self {
        Self([0; 16])
    }
}

/// A DBusError, whose fields are private.
#[repr(C)]
struct Error {
    name: *const c_char,
    message: *const c_char,
    bits: u32,
    padding: *const c_void,
}

pub struct Dbus {
    open_private: unsafe extern "C" fn(*const c_char, *mut Error) -> *mut c_void,
    register: unsafe extern "C" fn(*mut c_void, *mut Error) -> u32,
    set_exit_on_disconnect: unsafe extern "C" fn(*mut c_void, u32),
    close: unsafe extern "C" fn(*mut c_void),
    unref: unsafe extern "C" fn(*mut c_void),
    add_match: unsafe extern "C" fn(*mut c_void, *const c_char, *mut Error),
    send: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut u32) -> u32,
    flush: unsafe extern "C" fn(*mut c_void),
    read_write: unsafe extern "C" fn(*mut c_void, c_int) -> u32,
    pop_message: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    error_init: unsafe extern "C" fn(*mut Error),
    error_free: unsafe extern "C" fn(*mut Error),
    new_signal: unsafe extern "C" fn(*const c_char, *const c_char, *const c_char) -> *mut c_void,
    message_unref: unsafe extern "C" fn(*mut c_void),
    is_signal: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> u32,
    iter_init_append: unsafe extern "C" fn(*mut c_void, *mut Iter),
    iter_open_container: unsafe extern "C" fn(*mut Iter, c_int, *const c_char, *mut Iter) -> u32,
    iter_append_fixed_array: unsafe extern "C" fn(*mut Iter, c_int, *const *const u8, c_int) -> u32,
    iter_close_container: unsafe extern "C" fn(*mut Iter, *mut Iter) -> u32,
    iter_init: unsafe extern "C" fn(*mut c_void, *mut Iter) -> u32,
    iter_recurse: unsafe extern "C" fn(*mut Iter, *mut Iter),
    iter_get_fixed_array: unsafe extern "C" fn(*mut Iter, *mut *const u8, *mut c_int),
    /// Must be dropped last, because the functions are part of it.
    _library: Library,
}

impl Dbus {
    pub fn load() -> Result<Self> {
        // SAFETY: loading runs only the initializers of the library, which have no requirements.
        let library = unsafe { Library::new(FILE) }?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the types above are those of dbus.h since 1.0.
                *unsafe { library.get(concat!($name, "\0").as_bytes()) }?
            };
        }
        Ok(Self {
            open_private: function!("dbus_connection_open_private"),
            register: function!("dbus_bus_register"),
            set_exit_on_disconnect: function!("dbus_connection_set_exit_on_disconnect"),
            close: function!("dbus_connection_close"),
            unref: function!("dbus_connection_unref"),
            add_match: function!("dbus_bus_add_match"),
            send: function!("dbus_connection_send"),
            flush: function!("dbus_connection_flush"),
            read_write: function!("dbus_connection_read_write"),
            pop_message: function!("dbus_connection_pop_message"),
            error_init: function!("dbus_error_init"),
            error_free: function!("dbus_error_free"),
            new_signal: function!("dbus_message_new_signal"),
            message_unref: function!("dbus_message_unref"),
            is_signal: function!("dbus_message_is_signal"),
            iter_init_append: function!("dbus_message_iter_init_append"),
            iter_open_container: function!("dbus_message_iter_open_container"),
            iter_append_fixed_array: function!("dbus_message_iter_append_fixed_array"),
            iter_close_container: function!("dbus_message_iter_close_container"),
            iter_init: function!("dbus_message_iter_init"),
            iter_recurse: function!("dbus_message_iter_recurse"),
            iter_get_fixed_array: function!("dbus_message_iter_get_fixed_array"),
            _library: library,
        })
    }

    /// Calls a function that reports its failure in an error.
    fn checked<T>(&self, what: &str, call: impl FnOnce(*mut Error) -> T) -> Result<T> {
        let mut error = Error {
            name: null(),
            message: null(),
            bits: 0,
            padding: null(),
        };
        // SAFETY: the structure has the size of a DBusError.
        unsafe { (self.error_init)(&raw mut error) };
        let value = call(&raw mut error);
        if error.name.is_null() {
            return Ok(value);
        }
        // SAFETY: an error that is set has a message, which is valid until it is freed.
        let text = unsafe { CStr::from_ptr(error.message) };
        let text = text.to_string_lossy().into_owned();
        // SAFETY: it was initialized, and is not used again.
        unsafe { (self.error_free)(&raw mut error) };
        bail!("{what}: {text}")
    }
}

/// Of one process to the daemon.
pub struct Connection {
    dbus: Rc<Dbus>,
    connection: *mut c_void,
}

impl Connection {
    pub fn open(dbus: &Rc<Dbus>, address: &CStr) -> Result<Self> {
        let connection = dbus.checked("cannot connect to D-Bus", |error| {
            // SAFETY: the address is NUL-terminated, and the error is initialized.
            unsafe { (dbus.open_private)(address.as_ptr(), error) }
        })?;
        let connection = Self {
            dbus: Rc::clone(dbus),
            connection,
        };
        // SAFETY: the connection is open.
        unsafe { (dbus.set_exit_on_disconnect)(connection.connection, 0) };
        dbus.checked("cannot register with D-Bus", |error| {
            // SAFETY: as above.
            unsafe { (dbus.register)(connection.connection, error) }
        })?;
        Ok(connection)
    }

    /// Returns when the daemon knows of the subscription.
    pub fn subscribe(&self) -> Result<()> {
        self.dbus.checked("cannot subscribe to signals", |error| {
            // SAFETY: the connection is open, the rule is NUL-terminated, and the error is initialized.
            unsafe { (self.dbus.add_match)(self.connection, RULE.as_ptr(), error) }
        })
    }

    /// Returns when the signal is written to the socket.
    pub fn emit(&self, bytes: &[u8]) -> Result<()> {
        let dbus = &self.dbus;
        // SAFETY: the three names are NUL-terminated and valid.
        let signal =
            unsafe { (dbus.new_signal)(PATH.as_ptr(), INTERFACE.as_ptr(), SIGNAL.as_ptr()) };
        ensure!(!signal.is_null(), "libdbus has no memory");
        let signal = Message {
            dbus,
            message: signal,
        };
        signal.append(bytes)?;
        // SAFETY: both are valid; the serial is not wanted.
        let sent = unsafe { (dbus.send)(self.connection, signal.message, null_mut()) };
        ensure!(sent != 0, "libdbus has no memory");
        // SAFETY: the connection is open.
        unsafe { (dbus.flush)(self.connection) };
        Ok(())
    }

    /// Passes the bytes of the next signal on. False: there is none.
    pub fn receive(
        &self,
        blocking: bool,
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let dbus = &self.dbus;
        let mut looked = false;
        loop {
            // SAFETY: the connection is open.
            let message = unsafe { (dbus.pop_message)(self.connection) };
            if !message.is_null() {
                let message = Message { dbus, message };
                if message.is_ours() {
                    visit(message.bytes()?)?;
                    return Ok(true);
                }
                continue;
            }
            if looked && !blocking {
                return Ok(false);
            }
            let timeout = if blocking { FOREVER } else { NOT_AT_ALL };
            // SAFETY: as above.
            let connected = unsafe { (dbus.read_write)(self.connection, timeout) };
            ensure!(connected != 0, "the D-Bus daemon closed the connection");
            looked = true;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it was opened once and is closed once.
        unsafe {
            (self.dbus.close)(self.connection);
            (self.dbus.unref)(self.connection);
        }
    }
}

struct Message<'a> {
    dbus: &'a Dbus,
    message: *mut c_void,
}

impl Message<'_> {
    fn append(&self, bytes: &[u8]) -> Result<()> {
        let dbus = self.dbus;
        let (mut all, mut array) = (Iter::new(), Iter::new());
        let (start, length) = (bytes.as_ptr(), c_int::try_from(bytes.len())?);
        // SAFETY: the iterators have the size of the library's, and the bytes are copied.
        let appended = unsafe {
            (dbus.iter_init_append)(self.message, &raw mut all);
            (dbus.iter_open_container)(
                &raw mut all,
                TYPE_ARRAY,
                BYTE_SIGNATURE.as_ptr(),
                &raw mut array,
            ) != 0
                && (dbus.iter_append_fixed_array)(
                    &raw mut array,
                    TYPE_BYTE,
                    &raw const start,
                    length,
                ) != 0
                && (dbus.iter_close_container)(&raw mut all, &raw mut array) != 0
        };
        ensure!(appended, "libdbus has no memory");
        Ok(())
    }

    fn is_ours(&self) -> bool {
        // SAFETY: the message is valid, and both names are NUL-terminated.
        unsafe { (self.dbus.is_signal)(self.message, INTERFACE.as_ptr(), SIGNAL.as_ptr()) != 0 }
    }

    /// Valid as long as the message.
    fn bytes(&self) -> Result<&[u8]> {
        let dbus = self.dbus;
        let (mut all, mut array) = (Iter::new(), Iter::new());
        let (mut start, mut length) = (null(), 0);
        // SAFETY: the message is one of append(), whose only argument is an array of bytes.
        unsafe {
            ensure!(
                (dbus.iter_init)(self.message, &raw mut all) != 0,
                "a signal has no argument"
            );
            (dbus.iter_recurse)(&raw mut all, &raw mut array);
            (dbus.iter_get_fixed_array)(&raw mut array, &raw mut start, &raw mut length);
            Ok(std::slice::from_raw_parts(start, usize::try_from(length)?))
        }
    }
}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // SAFETY: the reference is owned, and released once.
        unsafe { (self.dbus.message_unref)(self.message) };
    }
}
