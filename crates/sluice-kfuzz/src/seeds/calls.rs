// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of programs.

use sluice_abi::{ChannelInfo, KIND_FEED, KIND_MAP, SCOPE_ROOT, SCOPE_SELF};

pub use sluice_abi::{
    OPEN_CREATE as CREATE, OPEN_NONBLOCK as NONBLOCK, OPEN_PERSIST as PERSIST, OPEN_READ as READ,
    OPEN_WRITE as WRITE,
};

use crate::description::{Description, Field};
use crate::program::{Call, Content, Place, Value};

pub fn call(name: &str, to: u8, arguments: Vec<Value>) -> Call {
    Call {
        name: name.into(),
        arguments,
        to,
        thread: 0,
        fail: 0,
    }
}

pub fn on_thread(thread: u8, mut call: Call) -> Call {
    call.thread = thread;
    call
}

/// A structure with these fields; its size, and zeros otherwise. Panics if it does not exist or has no such field.
pub fn structure(name: &str, fields: &[(&str, Value)]) -> Content {
    let found = Description::get().structure(name);
    let found = found.unwrap_or_else(|| panic!("there is no structure {name}"));
    for (given, _) in fields {
        let exists = found.fields.iter().any(|field| field.name == *given);
        assert!(exists, "{name} has no field {given}");
    }
    let value = |field: &Field| {
        let given = fields.iter().rfind(|given| given.0 == field.name);
        let default = match field.name.as_str() {
            "size" => found.size as u64,
            "scope_fd" => u64::MAX,
            _ => 0,
        };
        given.map_or(Value::Number(default), |given| given.1.clone())
    };
    Content::Structures(name.into(), vec![found.fields.iter().map(value).collect()])
}

pub fn at(content: Content) -> Value {
    Value::Memory(Place::Ordinary, content)
}

pub fn n(number: u64) -> Value {
    Value::Number(number)
}

pub fn bytes(text: &[u8]) -> Value {
    at(Content::Bytes(text.to_vec()))
}

pub fn name(letter: u8) -> Value {
    let mut name = vec![0; 64];
    name[0] = letter;
    Value::Bytes(name)
}

pub fn ioctl(name: &str, file: u8, fields: &[(&str, Value)]) -> Call {
    let argument = Description::get().ioctls[name].argument.as_deref();
    let mut arguments = vec![Value::File(file)];
    arguments.extend(argument.map(|argument| at(structure(argument, fields))));
    call(name, 0, arguments)
}

pub fn open(to: u8, kind: u32, flags: u32, params: Option<Content>) -> Call {
    let capacity = if kind == KIND_MAP { 0 } else { 16384 };
    open_sized(to, kind, flags, capacity, params)
}

pub fn open_sized(to: u8, kind: u32, flags: u32, capacity: u64, params: Option<Content>) -> Call {
    let scope = if kind == KIND_FEED {
        SCOPE_ROOT
    } else {
        SCOPE_SELF
    };
    let fields = [
        ("kind", n(kind.into())),
        ("flags", n(flags.into())),
        ("name", name(b'a')),
        ("mode", n(0o666)),
        ("capacity", n(capacity)),
        ("params", params.map_or(n(0), at)),
        ("scope_fd", n(scope as u64)),
    ];
    let mut call = ioctl("SLUICE_CTL_OPEN", 0, &fields);
    call.to = to;
    call
}

/// The call with another value of a field of its structure.
pub fn with(mut call: Call, field: &str, value: Value) -> Call {
    for argument in &mut call.arguments {
        if let Value::Memory(_, Content::Structures(name, items)) = argument {
            let fields = Description::get()
                .structure(name)
                .map(|found| &found.fields);
            let index = fields.and_then(|all| all.iter().position(|known| known.name == field));
            items[0][index.unwrap_or_else(|| panic!("{name} has no field {field}"))] = value;
            return call;
        }
    }
    panic!("{} has no structure", call.name)
}

pub fn write(file: u8, content: Content, length: u64) -> Call {
    call("write", 0, vec![Value::File(file), at(content), n(length)])
}

pub fn read(file: u8, length: u32) -> Call {
    let buffer = at(Content::Fill(0, length));
    call("read", 0, vec![Value::File(file), buffer, n(length.into())])
}

pub fn poll(file: u8) -> Call {
    let entry = structure("pollfd", &[("fd", Value::File(file)), ("events", n(5))]);
    call("poll", 0, vec![at(entry), n(1), n(0)])
}

pub fn mmap(slot: u8, file: u8, length: u64, access: u64, offset: u64) -> Call {
    let arguments = vec![
        Value::Mapping(slot, 0),
        n(length),
        n(access),
        n(0x11),
        Value::File(file),
        n(offset),
    ];
    call("mmap", 0, arguments)
}

pub fn store(slot: u8, offset: u64, number: u64) -> Call {
    call(
        "store",
        0,
        vec![Value::Mapping(slot, offset), n(number), n(8)],
    )
}

/// Unlinks or destroys the channel.
pub fn remove(kind: u32, command: &str) -> Call {
    let fields = [("kind", n(kind.into())), ("name", name(b'a'))];
    ioctl(command, 0, &fields)
}

pub fn state(kind: u32, of: &str) -> Call {
    let fields = [
        ("kind", n(kind.into())),
        ("name", name(b'a')),
        ("info", at(structure("sluice_channel_info", &[]))),
        ("state", at(structure(of, &[]))),
    ];
    ioctl("SLUICE_CTL_INFO", 0, &fields)
}

pub fn list() -> Call {
    let fields = [
        (
            "entries",
            at(Content::Fill(0, 4 * ChannelInfo::SIZE as u32)),
        ),
        ("count", n(4)),
        ("entry_size", n(ChannelInfo::SIZE as u64)),
    ];
    ioctl("SLUICE_CTL_LIST", 0, &fields)
}

/// Memory at the beginning of a space, of which no page is present.
pub fn fresh_memory(slot: u8, length: u64) -> Call {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let arguments = vec![
        Value::Mapping(slot, 0),
        n(length),
        n(3),
        n(flags as u64),
        n(u64::MAX),
        n(0),
    ];
    call("mmap", 0, arguments)
}

pub fn read_to(file: u8, slot: u8, length: u64) -> Call {
    let arguments = vec![Value::File(file), Value::Mapping(slot, 0), n(length)];
    call("read", 0, arguments)
}

pub fn write_from(file: u8, slot: u8, length: u64) -> Call {
    let arguments = vec![Value::File(file), Value::Mapping(slot, 0), n(length)];
    call("write", 0, arguments)
}

pub fn close(file: u8) -> Call {
    call("close", 0, vec![Value::File(file)])
}

/// So that another thread is inside a call when the next one is made.
pub fn pause() -> Call {
    call("poll", 0, vec![n(0), n(0), n(5)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "sluice_open has no field kinds")]
    fn a_field_that_does_not_exist_is_an_error() {
        structure("sluice_open", &[("kinds", n(1))]);
    }

    #[test]
    #[should_panic(expected = "there is no structure sluice_opens")]
    fn a_structure_that_does_not_exist_is_an_error() {
        structure("sluice_opens", &[]);
    }
}
