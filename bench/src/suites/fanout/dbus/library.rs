// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libdbus that are used.

use std::ffi::{c_char, c_int, c_void};

use crate::mechanisms::library::library;

/// A connection or a message.
pub type Object = *mut c_void;
pub type Text = *const c_char;
/// A DBusError: its name, its message, and private fields.
pub type Error = [Text; 4];

// The types are those of dbus.h since 1.0.
library! {
    Dbus, "libdbus-1.so.3", "dbus_";
    error_init(*mut Error);
    error_free(*mut Error);
    connection_open_private(Text, *mut Error) -> Object;
    connection_set_exit_on_disconnect(Object, u32);
    connection_send(Object, Object, *mut u32) -> u32;
    connection_flush(Object);
    connection_read_write(Object, c_int) -> u32;
    connection_pop_message(Object) -> Object;
    bus_register(Object, *mut Error) -> u32;
    bus_add_match(Object, Text, *mut Error);
    message_new_signal(Text, Text, Text) -> Object;
    message_unref(Object);
    message_is_signal(Object, Text, Text) -> u32;
    message_append_args(Object, c_int, ...) -> u32;
    message_get_args(Object, *mut Error, c_int, ...) -> u32;
}
