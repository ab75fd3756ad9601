// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions of libdbus that are used, loaded at run time: building needs no D-Bus, and without it only its results
//! are missing.

use std::ffi::{c_char, c_int, c_void};

use anyhow::Result;
use libloading::Library;

const FILE: &str = "libdbus-1.so.3";

/// A connection or a message.
pub type Object = *mut c_void;
pub type Text = *const c_char;
/// A DBusError: its name, its message, and private fields.
pub type Error = [Text; 4];

/// Functions whose names follow the prefix `dbus_`.
macro_rules! library {
    ($($name:ident($($arguments:tt)*) $(-> $result:ty)?;)*) => {
        pub struct Dbus {
            $(pub $name: unsafe extern "C" fn($($arguments)*) $(-> $result)?,)*
            /// Must be dropped last, because the functions are part of it.
            _library: Library,
        }

        impl Dbus {
            pub fn load() -> Result<Self> {
                // SAFETY: loading runs only the initializers of the library, which have no requirements.
                let library = unsafe { Library::new(FILE) }?;
                $(
                    // SAFETY: the types are those of dbus.h since 1.0.
                    let $name = *unsafe { library.get(concat!("dbus_", stringify!($name)).as_bytes()) }?;
                )*
                Ok(Self {
                    $($name,)*
                    _library: library,
                })
            }
        }
    };
}

library! {
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
