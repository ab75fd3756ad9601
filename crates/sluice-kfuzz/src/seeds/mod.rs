// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs to begin with: for each kind one that uses it as it is meant, because chance would take long to find it.

use crate::description::Description;
use crate::generate::control;
use crate::program::{Attribute, AttributeContent, Call, Content, Place, Program, Request, Value};

const READ: u64 = 1;
const WRITE: u64 = 2;
const CREATE: u64 = 4;
const PERSIST: u64 = 16;
const NONBLOCK: u64 = 32;

/// Each as root and as another user, where both can.
pub fn all() -> Vec<Program> {
    let mut programs = Vec::new();
    let sequences = [
        pipe(),
        pipe_splice(),
        ring(),
        feed(),
        bus(0),
        bus(1),
        bus(2),
        bus_mapped(),
        map(0),
        map(8),
        durable(),
        netlink_map(Attribute {
            number: 4,
            content: AttributeContent::Small(1),
        }),
        netlink_map(Attribute {
            number: 2,
            content: AttributeContent::Bytes(b"a\0".to_vec()),
        }),
        requests(),
    ];
    for calls in sequences {
        for unprivileged in 0..2 {
            let calls = [vec![control()], calls.clone()].concat();
            programs.push(Program {
                unprivileged,
                calls,
            });
        }
    }
    programs
}

// ---- calls ----

fn call(name: &str, to: u8, arguments: Vec<Value>) -> Call {
    Call {
        name: name.into(),
        arguments,
        to,
        thread: 0,
        fail: 0,
    }
}

fn on_thread(thread: u8, mut call: Call) -> Call {
    call.thread = thread;
    call
}

/// A structure with these fields; its size, and zeros otherwise.
fn structure(name: &str, fields: &[(&str, Value)]) -> Content {
    let mut values = Vec::new();
    if let Some(found) = Description::get().structure(name) {
        for field in &found.fields {
            let given = fields.iter().find(|given| given.0 == field.name);
            let default = match field.name.as_str() {
                "size" => found.size as u64,
                "scope_fd" => u64::MAX,
                _ => 0,
            };
            values.push(given.map_or(Value::Number(default), |given| given.1.clone()));
        }
    }
    Content::Structures(name.into(), vec![values])
}

fn at(content: Content) -> Value {
    Value::Memory(Place::Ordinary, content)
}

fn n(number: u64) -> Value {
    Value::Number(number)
}

fn bytes(text: &[u8]) -> Value {
    at(Content::Bytes(text.to_vec()))
}

fn name(letter: u8) -> Value {
    let mut name = vec![0; 64];
    name[0] = letter;
    Value::Bytes(name)
}

fn ioctl(name: &str, file: u8, fields: &[(&str, Value)]) -> Call {
    let argument = Description::get().ioctls[name].argument.as_deref();
    let mut arguments = vec![Value::File(file)];
    arguments.extend(argument.map(|argument| at(structure(argument, fields))));
    call(name, 0, arguments)
}

fn open(to: u8, kind: u64, flags: u64, params: Option<Content>) -> Call {
    let fields = [
        ("kind", n(kind)),
        ("flags", n(flags)),
        ("name", name(b'a')),
        ("mode", n(0o666)),
        ("capacity", n(if kind == 5 { 0 } else { 16384 })),
        ("params", params.map_or(n(0), at)),
        (
            "scope_fd",
            n(if kind == 3 { -2_i64 as u64 } else { u64::MAX }),
        ),
    ];
    let mut call = ioctl("SLUICE_CTL_OPEN", 0, &fields);
    call.to = to;
    call
}

fn write(file: u8, content: Content, length: u64) -> Call {
    call("write", 0, vec![Value::File(file), at(content), n(length)])
}

fn read(file: u8, length: u32) -> Call {
    let buffer = at(Content::Fill(0, length));
    call("read", 0, vec![Value::File(file), buffer, n(length.into())])
}

fn poll(file: u8) -> Call {
    let entry = structure("pollfd", &[("fd", Value::File(file)), ("events", n(5))]);
    call("poll", 0, vec![at(entry), n(1), n(0)])
}

fn mmap(slot: u8, file: u8, length: u64, access: u64, offset: u64) -> Call {
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

fn store(slot: u8, offset: u64, number: u64) -> Call {
    call(
        "store",
        0,
        vec![Value::Mapping(slot, offset), n(number), n(8)],
    )
}

fn end(kind: u64, way: &str) -> Call {
    ioctl(way, 0, &[("kind", n(kind)), ("name", name(b'a'))])
}

fn state(kind: u64, of: &str) -> Call {
    let fields = [
        ("kind", n(kind)),
        ("name", name(b'a')),
        ("info", at(structure("sluice_channel_info", &[]))),
        ("state", at(structure(of, &[]))),
    ];
    ioctl("SLUICE_CTL_INFO", 0, &fields)
}

fn list() -> Call {
    let fields = [
        ("entries", at(Content::Fill(0, 152 * 4))),
        ("count", n(4)),
        ("entry_size", n(152)),
    ];
    ioctl("SLUICE_CTL_LIST", 0, &fields)
}

// ---- kinds ----

fn pipe() -> Vec<Call> {
    vec![
        open(1, 1, READ | WRITE | CREATE | NONBLOCK, None),
        write(1, Content::Fill(b'p', 5000), 5000),
        poll(1),
        read(1, 4096),
        ioctl("SLUICE_PIPE_SET_CAPACITY", 1, &[("value", n(65536))]),
        ioctl("SLUICE_PIPE_SET_SPIN", 1, &[("value", n(1000))]),
        ioctl("SLUICE_PIPE_INFO", 1, &[]),
        ioctl("SLUICE_ENDPOINT_INFO", 1, &[]),
        state(1, "sluice_pipe_info"),
        list(),
        ioctl("SLUICE_CTL_USAGE", 0, &[]),
        ioctl("SLUICE_CTL_FEATURES", 0, &[]),
        on_thread(1, read(1, 9000)),
        on_thread(2, write(1, Content::Fill(b'q', 20000), 20000)),
        end(1, "SLUICE_CTL_DESTROY"),
    ]
}

fn pipe_splice() -> Vec<Call> {
    let splice = |from, to| {
        let arguments = vec![
            Value::File(from),
            n(0),
            Value::File(to),
            n(0),
            n(8192),
            n(2),
        ];
        call("splice", 0, arguments)
    };
    vec![
        open(1, 1, READ | WRITE | CREATE, None),
        call("pipe2", 2, vec![at(Content::Fill(0, 8)), n(0)]),
        write(1, Content::Fill(b'p', 9000), 9000),
        splice(1, 3),
        splice(2, 1),
        call(
            "tee",
            0,
            vec![Value::File(1), Value::File(3), n(4096), n(2)],
        ),
        read(1, 4096),
    ]
}

fn ring() -> Vec<Call> {
    let mut calls = Vec::new();
    for (file, flags) in [(1, WRITE | CREATE | PERSIST), (2, READ)] {
        calls.push(open(
            file,
            2,
            flags,
            Some(structure("sluice_ring_params", &[("node", n(u64::MAX))])),
        ));
    }
    // The control pages of both, and the data of the producer, in which a record is published.
    calls.extend([
        mmap(0, 1, 4096, 3, 0),
        mmap(1, 2, 4096, 3, 1 << 20),
        mmap(2, 1, 32768, 3, 2 << 20),
        mmap(3, 2, 32768, 1, 2 << 20),
        store(2, 0, 8 | 1 << 32),
        store(0, 0, 16),
        store(1, 128, 2),
        on_thread(
            1,
            ioctl("SLUICE_RING_WAIT", 2, &[("timeout_ns", n(10_000_000))]),
        ),
        ioctl("SLUICE_RING_WAKE", 1, &[]),
        poll(2),
        ioctl("SLUICE_RING_INFO", 1, &[]),
        state(2, "sluice_ring_info"),
        store(1, 0, 16),
        call("madvise", 0, vec![Value::Mapping(2, 0), n(32768), n(4)]),
        call("mprotect", 0, vec![Value::Mapping(3, 0), n(4096), n(3)]),
        call("fork", 0, vec![n(1)]),
        ioctl("SLUICE_RING_DETACH", 1, &[]),
        call("munmap", 0, vec![Value::Mapping(2, 4096), n(4096)]),
        end(2, "SLUICE_CTL_DESTROY"),
    ]);
    calls
}

fn feed() -> Vec<Call> {
    let fields = [
        ("interval_ns", n(100_000)),
        ("count", n(20)),
        ("length", n(64)),
        ("cpu", n(u64::MAX)),
    ];
    let path = bytes(b"/dev/sluice/feed\0");
    let node = |to| {
        call(
            "openat",
            to,
            vec![n(u64::MAX - 99), path.clone(), n(2), n(0)],
        )
    };
    vec![
        node(1),
        ioctl("SLUICE_FEED_CLAIM", 1, &[("value", n(1))]),
        ioctl("SLUICE_FEED_START", 1, &fields),
        read(1, 4128),
        read(1, 4128),
        ioctl("SLUICE_FEED_INFO", 1, &[]),
        ioctl("SLUICE_FEED_SET_SPIN", 1, &[("value", n(1000))]),
        poll(1),
        ioctl("SLUICE_FEED_STOP", 1, &[]),
        call("close", 0, vec![Value::File(1)]),
        node(2),
        mmap(0, 2, 4096, 1, 0),
        mmap(1, 2, 4096, 3, 1 << 20),
        mmap(2, 2, 2 << 20, 1, 2 << 20),
        ioctl("SLUICE_FEED_START", 2, &fields),
        on_thread(
            1,
            ioctl("SLUICE_RING_WAIT", 2, &[("timeout_ns", n(10_000_000))]),
        ),
        store(1, 0, 128),
        open(3, 3, READ, None),
    ]
}

fn bus_params(fields: &[(&str, u64)]) -> Option<Content> {
    let fields: Vec<_> = fields.iter().map(|field| (field.0, n(field.1))).collect();
    Some(structure("sluice_bus_params", &fields))
}

fn frame(target: u64) -> Content {
    let fields = [("length", n(8)), ("target", n(target)), ("tag", n(7))];
    let frame = structure("sluice_bus_frame", &fields);
    Content::Joined(vec![
        frame.clone(),
        Content::Fill(b'm', 8),
        frame,
        Content::Fill(b'm', 8),
    ])
}

fn bus(mode: u64) -> Vec<Call> {
    let client = if mode == 1 { 8 } else { 0 };
    let flags = READ | WRITE | CREATE | NONBLOCK;
    vec![
        open(
            1,
            4,
            flags,
            bus_params(&[("mode", mode), ("format", 2), ("limit", 4096)]),
        ),
        open(
            2,
            4,
            flags,
            bus_params(&[("mode", mode), ("format", 1), ("flags", client)]),
        ),
        open(3, 4, flags, bus_params(&[("mode", mode), ("flags", 4)])),
        write(1, frame(0), 144),
        write(2, frame(0), 144),
        write(2, frame(1), 72),
        read(1, 4128),
        read(2, 4128),
        read(3, 4128),
        poll(2),
        ioctl("SLUICE_BUS_TURN", 1, &[("value", n(1))]),
        ioctl("SLUICE_BUS_SET_FORMAT", 2, &[("value", n(0))]),
        ioctl("SLUICE_BUS_SET_SPIN", 2, &[("value", n(0))]),
        write(2, Content::Fill(b'm', 4000), 4000),
        ioctl("SLUICE_BUS_INFO", 2, &[]),
        state(4, "sluice_bus_info"),
        ioctl(
            "SLUICE_BUS_SUBSCRIBERS",
            1,
            &[
                ("count", n(4)),
                ("entries", at(Content::Fill(0, 160))),
                ("entry_size", n(40)),
            ],
        ),
        end(4, "SLUICE_CTL_DESTROY"),
        read(1, 4128),
    ]
}

fn bus_mapped() -> Vec<Call> {
    let receive = |released| {
        let fields = [
            ("count", n(4)),
            ("entries", at(Content::Fill(0, 128))),
            ("released", n(released)),
            ("entry_size", n(32)),
        ];
        ioctl("SLUICE_BUS_RECEIVE", 2, &fields)
    };
    let params = |flags| bus_params(&[("flags", flags), ("policies", 2)]);
    vec![
        open(1, 4, WRITE | CREATE | NONBLOCK, params(1)),
        open(2, 4, READ | NONBLOCK, params(2)),
        mmap(0, 2, 32768, 1, 2 << 20),
        mmap(1, 2, 16384, 1, 2 << 20),
        write(1, Content::Fill(b'm', 1000), 1000),
        write(1, Content::Fill(b'm', 1), 1),
        receive(0),
        receive(1),
        call("load", 0, vec![Value::Mapping(0, 0), n(4096)]),
        receive(2),
    ]
}

fn operation(name: &str, fields: &[(&str, Value)]) -> Call {
    let mut all = vec![
        ("key", bytes(b"k")),
        ("key_length", n(1)),
        ("value", at(Content::Fill(b'v', 100))),
        ("value_length", n(100)),
    ];
    all.extend(fields.iter().cloned());
    ioctl(name, 1, &all)
}

fn map(flags: u64) -> Vec<Call> {
    let fields = [("flags", n(flags)), ("events", n(16))];
    let params = structure("sluice_map_params", &fields);
    let step = |command| {
        let fields = [
            ("command", n(command)),
            ("key", bytes(b"s")),
            ("key_length", n(1)),
            ("value", at(Content::Fill(b'v', 16))),
            ("value_length", n(16)),
        ];
        structure("sluice_map_step", &fields)
    };
    let steps = Content::Joined(vec![step(1), step(0), step(2)]);
    let batch = [("count", n(3)), ("steps", at(steps)), ("step_size", n(56))];
    let dump = [("records", at(Content::Fill(0, 4096))), ("length", n(4096))];
    vec![
        open(1, 5, READ | WRITE | CREATE | PERSIST, Some(params)),
        ioctl("SLUICE_MAP_WATCH", 1, &[("value", n(u64::MAX))]),
        operation("SLUICE_MAP_SET", &[]),
        operation("SLUICE_MAP_GET", &[]),
        operation(
            "SLUICE_MAP_SET",
            &[("flags", n(1)), ("version", n(1)), ("ttl_ns", n(1_000_000))],
        ),
        ioctl("SLUICE_MAP_BATCH", 1, &batch),
        ioctl("SLUICE_MAP_DUMP", 1, &dump),
        poll(1),
        read(1, 4096),
        operation("SLUICE_MAP_DELETE", &[]),
        ioctl("SLUICE_MAP_INFO", 1, &[]),
        state(5, "sluice_map_info"),
        mmap(0, 1, 4096, 1, 0),
        mmap(1, 1, 65536, 1, 2 << 20),
        on_thread(1, operation("SLUICE_MAP_SET", &[])),
        operation("SLUICE_MAP_DELETE", &[]),
        end(5, "SLUICE_CTL_UNLINK"),
    ]
}

fn durable() -> Vec<Call> {
    let params = |flags: u64| {
        structure(
            "sluice_map_params",
            &[("flags", n(flags)), ("deadline_ms", n(1000))],
        )
    };
    let answer = call("answer", 0, vec![Value::File(2), n(1)]);
    let wait = call("poll", 0, vec![n(0), n(0), n(5)]);
    let mut keep = ioctl("SLUICE_CTL_KEEP", 0, &[("flags", n(1))]);
    keep.to = 2;
    vec![
        keep,
        on_thread(1, open(1, 5, READ | WRITE | CREATE, Some(params(1)))),
        wait.clone(),
        answer.clone(),
        wait,
        on_thread(1, operation("SLUICE_MAP_SET", &[])),
        operation("SLUICE_MAP_SET", &[("flags", n(2))]),
        answer.clone(),
        on_thread(2, ioctl("SLUICE_MAP_SYNC", 1, &[])),
        operation("SLUICE_MAP_DELETE", &[("flags", n(2))]),
        answer.clone(),
        on_thread(1, end(5, "SLUICE_CTL_UNLINK")),
        answer.clone(),
        ioctl(
            "SLUICE_KEEP_ACK",
            2,
            &[("stream", Value::Stream), ("sequence", n(1))],
        ),
        ioctl("SLUICE_KEEP_END", 2, &[("stream", Value::Stream)]),
        answer,
    ]
}

/// The commands of netlink on a map that is named by this attribute, after it was opened.
fn netlink_map(map: Attribute) -> Vec<Call> {
    use AttributeContent::{Bytes, Large, Nest, Small};
    let attribute = |number, content| Attribute { number, content };
    let named = attribute(2, Bytes(b"a\0".to_vec()));
    let key = attribute(10, Bytes(b"k".to_vec()));
    let value = attribute(11, Bytes(vec![b'v'; 100]));
    let step = |command| {
        let content = Nest(vec![
            attribute(19, Small(command)),
            key.clone(),
            value.clone(),
        ]);
        attribute(18, content)
    };
    let flags = attribute(5, Small((READ | WRITE | CREATE | PERSIST) as u32));
    let on_map = |others: Vec<Attribute>| [vec![map.clone()], others].concat();
    let requests = [
        (1, 5, vec![named, flags]),
        (8, 5, vec![attribute(4, Small(1)), attribute(21, Large(0))]),
        (
            4,
            5,
            on_map(vec![
                key.clone(),
                value.clone(),
                attribute(15, Large(1 << 40)),
            ]),
        ),
        (3, 5, on_map(vec![key.clone()])),
        (6, 5, on_map(vec![step(1), step(0), step(2), step(0)])),
        (
            4,
            5,
            on_map(vec![key.clone(), value.clone(), attribute(14, Large(0))]),
        ),
        (7, 0x301, on_map(Vec::new())),
        (9, 5, on_map(Vec::new())),
        (5, 5, on_map(vec![key.clone()])),
        (2, 5, vec![attribute(4, Small(1))]),
    ];
    let mut calls = vec![call("netlink", 1, vec![n(16), n(3), n(16)])];
    for (command, flags, attributes) in requests {
        let content = Content::Requests(vec![Request {
            command,
            flags,
            sequence: 1,
            attributes,
        }]);
        let length = crate::memory::length_of(&content) as u64;
        let arguments = vec![Value::File(1), at(content), n(length), n(0), n(0), n(0)];
        calls.push(call("request", 0, arguments));
        if flags != 5 {
            calls.push(receive());
        }
    }
    calls.push(receive());
    calls.push(end(5, "SLUICE_CTL_DESTROY"));
    calls.push(receive());
    calls
}

fn receive() -> Call {
    let buffer = at(Content::Fill(0, 32768));
    let arguments = vec![Value::File(1), buffer, n(32768), n(0x40), n(0), n(0)];
    call("receive", 0, arguments)
}

fn requests() -> Vec<Call> {
    let submit = |operation: u64, file, length: u32, name: u64| {
        let arguments = vec![
            n(operation),
            Value::File(file),
            at(Content::Fill(b'u', length)),
            n(length.into()),
            n(u64::MAX),
            n(0),
            n(name),
            n(1),
        ];
        call("submit", 0, arguments)
    };
    vec![
        open(1, 1, READ | WRITE | CREATE, None),
        open(2, 4, READ | WRITE | CREATE, bus_params(&[("mode", 2)])),
        submit(22, 1, 100, 1),
        submit(6, 2, 0, 2),
        submit(23, 1, 100, 2),
        submit(23, 2, 100, 2),
        call("complete", 0, vec![n(1)]),
        submit(22, 2, 4096, 1),
        submit(22, 1, 100, 1),
        submit(14, 1, 0, 1),
        call("complete", 0, vec![n(1)]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::way;
    use crate::program::CALLS_MAX;

    #[test]
    fn their_calls_exist() {
        for program in all() {
            assert!(program.calls.len() <= CALLS_MAX, "{program:?}");
            for call in program.calls {
                assert!(way(&call.name).is_some(), "{}", call.name);
            }
        }
    }
}
